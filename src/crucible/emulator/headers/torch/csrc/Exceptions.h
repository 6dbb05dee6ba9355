// What extensions tell Python of errors with; the runtime's own bridge to Python takes PyTorch's.
#pragma once
#ifdef CRUCIBLE_BRIDGE
#include_next <torch/csrc/Exceptions.h>
#else
#include "crucible/all.h"
#endif
