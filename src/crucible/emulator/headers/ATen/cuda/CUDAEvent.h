#pragma once
#include "crucible/all.h"
#include "crucible/guards.h"
#include "crucible/context.h"
