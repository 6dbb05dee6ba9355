// What a CUDA source of load_inline has without an include of its own (torch/types.h, cuda.h, cuda_runtime.h and what
// these bring along under nvcc, half types among it), as the precompiled header holds it. The other headers give what
// NVIDIA's and PyTorch's of that name give.
#pragma once
#include "messages.h"  // before what would instantiate them
#include "scalars.h"

#include <torch/types.h>
#include <torch/library.h>
#include <ATen/Dispatch.h>

#include <algorithm>
#include <array>
#include <cfloat>  // by thrust/complex.h, which PyTorch's complex numbers are made of under nvcc
#include <climits>
#include <iostream>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "device.h"
#include "math.h"
#include "fp8.h"
#include "runtime_api.h"
#include "torch_cuda.h"
#include "mma.h"
#include "warpgroup.h"
#include "ptx_memory.h"
#include "bridge.h"
#include "pybind.h"
