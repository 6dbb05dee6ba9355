// c10/cuda/CUDAGuard.h.
#pragma once
#include <optional>

#include "streams.h"

namespace c10::cuda {
struct CUDAGuard {
    explicit CUDAGuard(int) {}
    explicit CUDAGuard(c10::Device) {}
    void set_device(c10::Device) {}
    void set_index(int) {}
    c10::Device original_device() const { return c10::Device(c10::kCPU); }
    c10::Device current_device() const { return c10::Device(c10::kCPU); }
};
struct OptionalCUDAGuard {
    OptionalCUDAGuard() = default;
    explicit OptionalCUDAGuard(std::optional<c10::Device>) {}
    explicit OptionalCUDAGuard(c10::Device) {}
    explicit OptionalCUDAGuard(int) {}
    void set_device(c10::Device) {}
    void set_index(int) {}
    void reset_device(c10::Device) {}
};
struct CUDAStreamGuard { explicit CUDAStreamGuard(CUDAStream) {} };
struct OptionalCUDAStreamGuard { template <class... A> explicit OptionalCUDAStreamGuard(A&&...) {} };
}  // namespace c10::cuda
