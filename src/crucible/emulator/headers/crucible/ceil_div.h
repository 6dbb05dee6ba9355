// ATen/cuda/CUDAUtils.h and what of ATen's own kernels extensions call by name.
#pragma once
#include "context.h"

namespace at::cuda {
template <class T>
constexpr T ATenCeilDiv(T a, T b) { return (a + b - 1) / b; }
}  // namespace at::cuda
namespace at { template <class T> constexpr T ceil_div_cuda(T a, T b) { return (a + b - 1) / b; } }
