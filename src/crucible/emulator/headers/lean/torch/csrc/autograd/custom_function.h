#pragma once
#include "crucible/autograd.h"

namespace torch::autograd {
using Variable = at::Tensor;
using variable_list = crucible::Tensors;
using AutogradContext = crucible::Context;
template <class T>
using Function = crucible::Learnable<T>;
}  // namespace torch::autograd
