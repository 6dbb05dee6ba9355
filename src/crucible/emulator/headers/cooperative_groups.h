#pragma once
#include "crucible/all.h"
#include "crucible/groups.h"
