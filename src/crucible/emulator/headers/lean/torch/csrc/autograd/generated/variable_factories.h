// What extensions make tensors with.
#pragma once
#include "crucible/factories.h"

namespace torch {
using crucible::empty;
using crucible::empty_like;
using crucible::empty_strided;
using crucible::full;
using crucible::full_like;
using crucible::ones;
using crucible::ones_like;
using crucible::zeros;
using crucible::zeros_like;
}  // namespace torch
