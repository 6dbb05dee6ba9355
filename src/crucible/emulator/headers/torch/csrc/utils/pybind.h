// What extensions bind their functions with; the runtime's own bridge to Python takes PyTorch's.
#pragma once
#ifdef CRUCIBLE_BRIDGE
#include_next <torch/csrc/utils/pybind.h>
#else
#include "crucible/all.h"
#endif
