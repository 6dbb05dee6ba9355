// All of the pretended CUDA, as the precompiled header holds it.
#pragma once
#include <torch/types.h>
#include <torch/library.h>
#include <ATen/AccumulateType.h>
#include <ATen/Dispatch.h>

#include <algorithm>
#include <array>
#include <cfloat>
#include <climits>
#include <iostream>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
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
#include "groups.h"
#include "mma.h"
#include "wmma.h"
#include "ptx_memory.h"
#include "cub_device.h"
#include "libcu.h"
#include "bridge.h"
#include "pybind.h"
