// ATen/cuda/Exceptions.h.
#pragma once
#include "cuda_checks.h"

#define AT_CUDA_CHECK(EXPRESSION) C10_CUDA_CHECK(EXPRESSION)
#define AT_CUDA_DRIVER_CHECK(EXPRESSION) (void)(EXPRESSION)
