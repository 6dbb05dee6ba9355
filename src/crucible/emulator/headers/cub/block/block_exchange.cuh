#pragma once
#include "crucible/all.h"
