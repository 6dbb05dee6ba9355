#pragma once
#include "crucible/all.h"
#include "crucible/caching_allocator.h"
