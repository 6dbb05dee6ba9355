// ATen/cuda/Exceptions.h.
#pragma once
#include "cuda_checks.h"

#define AT_CUDA_CHECK(EXPRESSION) C10_CUDA_CHECK(EXPRESSION)
#define AT_CUDA_DRIVER_CHECK(EXPRESSION) (void)(EXPRESSION)
#define TORCH_CUDABLAS_CHECK(EXPRESSION)                                                                                     \
    do {                                                                                                                     \
        const cublasStatus_t crucible_status = EXPRESSION;                                                                   \
        TORCH_CHECK(crucible_status == CUBLAS_STATUS_SUCCESS, "CUDA error: ", cublasGetStatusName(crucible_status),          \
                    " when calling `" #EXPRESSION "`");                                                                      \
    } while (0)
