#pragma once
#include "crucible/all.h"
#include "crucible/ceil_div.h"
