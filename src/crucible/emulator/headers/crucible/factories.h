// PyTorch's functions that make tensors, compiled once, in the runtime, as `torch::` has them.
#pragma once
#include <ATen/core/Tensor.h>

namespace crucible {
using Format = std::optional<at::MemoryFormat>;
at::Tensor empty(at::IntArrayRef size, at::TensorOptions = {}, Format = std::nullopt);
at::Tensor empty_like(const at::Tensor&, at::TensorOptions = {}, Format = std::nullopt);
at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, at::TensorOptions = {});
at::Tensor full(at::IntArrayRef size, const at::Scalar& value, at::TensorOptions = {});
at::Tensor full_like(const at::Tensor&, const at::Scalar& value, at::TensorOptions = {}, Format = std::nullopt);
at::Tensor ones(at::IntArrayRef size, at::TensorOptions = {});
at::Tensor ones_like(const at::Tensor&, at::TensorOptions = {}, Format = std::nullopt);
at::Tensor zeros(at::IntArrayRef size, at::TensorOptions = {});
at::Tensor zeros_like(const at::Tensor&, at::TensorOptions = {}, Format = std::nullopt);
}  // namespace crucible
