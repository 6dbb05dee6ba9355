// cuda_pipeline.h.
#pragma once
#include "device.h"

CRUCIBLE_INLINE void __pipeline_memcpy_async(void* to, const void* from, size_t bytes, size_t zeros = 0) { crucible_copy_async(to, from, bytes, bytes - zeros); }
CRUCIBLE_INLINE void __pipeline_commit() { crucible_copy_commit(); }
CRUCIBLE_INLINE void __pipeline_wait_prior(size_t groups) { crucible_copy_wait(int(groups)); }
