#pragma once
#include "crucible/all.h"
#include "crucible/blas.h"
