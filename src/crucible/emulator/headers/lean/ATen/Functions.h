// Of PyTorch's functions what the operators of tensors are made of.
#pragma once
#include "crucible/factories.h"

namespace at {
inline Tensor empty_like(const Tensor& self, TensorOptions options = {}, std::optional<MemoryFormat> format = std::nullopt) {
    return crucible::empty_like(self, options, format);
}
}  // namespace at
