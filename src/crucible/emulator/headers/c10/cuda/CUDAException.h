#pragma once
#include "crucible/all.h"
#include "crucible/cuda_checks.h"
