#pragma once
#include "crucible/all.h"
#include "crucible/context.h"
#include "crucible/gpu_atomics.h"
