#pragma once
#include "crucible/all.h"
#include "crucible/kernel_loops.h"
