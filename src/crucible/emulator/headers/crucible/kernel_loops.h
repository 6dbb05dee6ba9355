// ATen/cuda/detail/KernelUtils.h.
#pragma once
#include "device.h"

#define CUDA_KERNEL_LOOP_TYPE(i, n, T) \
    for (T i = T(CRUCIBLE_ID(blockIdx, x)) * CRUCIBLE_ID(blockDim, x) + CRUCIBLE_ID(threadIdx, x); i < (n); \
         i += T(CRUCIBLE_ID(blockDim, x)) * CRUCIBLE_ID(gridDim, x))
#define CUDA_KERNEL_LOOP(i, n) CUDA_KERNEL_LOOP_TYPE(i, n, int)
