#pragma once
#include "crucible/all.h"
#include "crucible/context.h"
