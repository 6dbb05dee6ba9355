#pragma once
#include "crucible/all.h"
#include "crucible/random.h"
