#pragma once
#define GPU_IS_EMULATED 1  // no tensor is a GPU's, so what asks for that (a forward at once) need not be built
#include "crucible/all.h"
#include "crucible/streams.h"
