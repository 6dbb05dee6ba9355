// PyTorch's tensors without its operators. g++ makes each instance that a precompiled header asks for again for each file
// that is compiled against it: 2.5 s for all of ATen, 0.5 s for this.
#pragma once
#include <ATen/Dispatch.h>
#include <ATen/Tensor.h>
#include <ATen/TensorOperators.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/TensorOptions.h>
