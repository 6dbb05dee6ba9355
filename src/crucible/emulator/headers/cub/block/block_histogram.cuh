#pragma once
#include "crucible/all.h"
#include <cfloat>
#include "crucible/cub_device.h"
#include "crucible/groups.h"
