#pragma once
#include "crucible/all.h"
#include "crucible/pipeline_primitives.h"
