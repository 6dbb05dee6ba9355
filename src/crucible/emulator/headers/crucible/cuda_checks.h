// c10/cuda/CUDAException.h, over the pretended runtime.
#pragma once
#include <c10/util/Exception.h>

#include "runtime_api.h"

namespace crucible {
inline void check_cuda(int error, const char* where) {
    if (error == 0) return;
    crucible_last_error(1);
    TORCH_CHECK(false, "CUDA error: ", crucible_error_words(error), where);
}
}
#define C10_CUDA_CHECK(EXPRESSION) ::crucible::check_cuda(int(EXPRESSION), "")
#define C10_CUDA_CHECK_WARN(EXPRESSION) C10_CUDA_CHECK(EXPRESSION)
#define C10_CUDA_KERNEL_LAUNCH_CHECK() C10_CUDA_CHECK(cudaGetLastError())
#define C10_CUDA_IGNORE_ERROR(EXPRESSION) (void)(EXPRESSION)
