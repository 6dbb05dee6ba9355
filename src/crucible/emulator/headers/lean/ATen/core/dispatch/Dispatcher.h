#pragma once
#include "crucible/autograd.h"

namespace c10 {
using crucible::Dispatcher;
using crucible::Stack;
}  // namespace c10
