#pragma once
#include "crucible/all.h"
#include "crucible/constants.h"
