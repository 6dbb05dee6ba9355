#pragma once
#include "crucible/all.h"
#include "crucible/gpu_atomics.h"
