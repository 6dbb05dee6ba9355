// What PyTorch's own headers define for nvcc alone.
#pragma once
namespace c10::cuda {}
namespace at::cuda { using namespace c10::cuda; }
namespace at { template <typename T> struct RestrictPtrTraits { typedef T* __restrict__ PtrType; }; }

#define C10_LAUNCH_BOUNDS_0
#define C10_LAUNCH_BOUNDS_1(...)
#define C10_LAUNCH_BOUNDS_2(...)
