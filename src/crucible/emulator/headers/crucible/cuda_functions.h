// c10/cuda/CUDAFunctions.h.
#pragma once
#include "cuda_checks.h"

namespace c10::cuda {
using DeviceIndex = c10::DeviceIndex;
inline c10::DeviceIndex current_device() { return 0; }
inline c10::DeviceIndex device_count() { return 1; }
inline void set_device(int) {}
inline void device_synchronize() { ::crucible::check_cuda(crucible_last_error(0), ""); }
}  // namespace c10::cuda
