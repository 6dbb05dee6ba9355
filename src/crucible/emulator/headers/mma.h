#pragma once
#include "crucible/all.h"
#include "crucible/wmma.h"
