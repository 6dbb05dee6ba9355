#pragma once
#include "crucible/all.h"
#include "crucible/guards.h"
