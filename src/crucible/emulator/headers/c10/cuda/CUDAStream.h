#pragma once
#include "crucible/all.h"
#include "crucible/streams.h"
