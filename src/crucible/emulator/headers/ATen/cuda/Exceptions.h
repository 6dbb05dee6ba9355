#pragma once
#include "crucible/all.h"
#include "crucible/aten_checks.h"
