// cooperative_groups/memcpy_async.h.
#pragma once
#include "groups.h"
#include "pipeline_primitives.h"

namespace cooperative_groups {
template <class G>
CRUCIBLE_INLINE void memcpy_async(const G& g, void* to, const void* from, size_t bytes) {
    for (size_t i = 4 * size_t(g.thread_rank()); i < bytes; i += 4 * size_t(g.size()))
        crucible_copy_async(static_cast<char*>(to) + i, static_cast<const char*>(from) + i, bytes - i < 4 ? bytes - i : 4, bytes - i < 4 ? bytes - i : 4);
}
template <class G> CRUCIBLE_INLINE void wait(const G& g) { crucible_copy_wait(0); g.sync(); }
}  // namespace cooperative_groups
