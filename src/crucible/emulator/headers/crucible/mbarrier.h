// Barrier objects in shared memory: `mbarrier` of PTX and `cuda::barrier` over it. The 64 bits are ours, GPUs keep theirs secret.
#pragma once
#include "device.h"

namespace crucible {

// Bit 63: the phase; 42-61: arrivals of a phase; 22-41: those still to come; 0-21: bytes still to come, plus 2^21.
constexpr int kArrivals = 42, kPending = 22;
constexpr uint64_t kCount = (1u << 20) - 1, kBytes = (1u << 22) - 1, kNoBytes = 1u << 21;
CRUCIBLE_INLINE uint32_t mbarrier_phase(uint64_t state) { return uint32_t(state >> 63); }

inline CRUCIBLE_PLAIN uint64_t mbarrier_after(uint64_t state, uint32_t arrivals, int64_t bytes, uint32_t dropped) {
    uint64_t total = (state >> kArrivals & kCount) - dropped, pending = (state >> kPending & kCount) - arrivals;
    const uint64_t left = (state & kBytes) + uint64_t(bytes);
    uint64_t phase = state >> 63;
    if (pending == 0 && left == kNoBytes) {
        phase ^= 1;
        pending = total;
    }
    return phase << 63 | total << kArrivals | pending << kPending | left;
}
CRUCIBLE_INLINE uint64_t mbarrier_change(char* at, uint32_t arrivals, int64_t bytes, uint32_t dropped) {
    crucible_fence();  // an arrival releases what its thread wrote
    return atomically(reinterpret_cast<uint64_t*>(at), [=](uint64_t old) CRUCIBLE_PLAIN { return mbarrier_after(old, arrivals, bytes, dropped); });
}
CRUCIBLE_INLINE void mbarrier_init(char* at, uint32_t count) {
    crucible_check(at, 8, 3);
    raw_store(reinterpret_cast<uint64_t*>(at), uint64_t(count) << kArrivals | uint64_t(count) << kPending | kNoBytes);
}
CRUCIBLE_INLINE void mbarrier_inval(char* at) { crucible_check(at, 8, 3); }
CRUCIBLE_INLINE uint64_t mbarrier_arrive(char* at, uint32_t count = 1) { return mbarrier_change(at, count, 0, 0); }
CRUCIBLE_INLINE uint64_t mbarrier_arrive_drop(char* at, uint32_t count = 1) { return mbarrier_change(at, count, 0, count); }
CRUCIBLE_INLINE uint64_t mbarrier_arrive_expect_tx(char* at, uint32_t bytes) { return mbarrier_change(at, 1, bytes, 0); }
CRUCIBLE_INLINE void mbarrier_expect_tx(char* at, uint32_t bytes) { mbarrier_change(at, 0, bytes, 0); }
CRUCIBLE_INLINE void mbarrier_complete_tx(char* at, uint32_t bytes) { mbarrier_change(at, 0, -int64_t(bytes), 0); }
// Whether the phase of that parity is over; a thread that asks in vain lets the others go on. Bulk copies that count on
// the barrier land now: who did not ask found nothing there.
CRUCIBLE_INLINE bool mbarrier_test_wait(char* at, uint32_t parity) {
    crucible_polled(at, 8);
    uint64_t state = raw_load(reinterpret_cast<uint64_t*>(at));
    if (const size_t landed = crucible_bulk_landed(at)) {
        state = mbarrier_after(state, 0, -int64_t(landed), 0);
        raw_store(reinterpret_cast<uint64_t*>(at), state);
    }
    crucible_observed(at, state, kAcquire);
    return mbarrier_phase(state) != (parity & 1);
}
CRUCIBLE_INLINE bool mbarrier_try_wait(char* at, uint32_t parity) { return mbarrier_test_wait(at, parity); }

}  // namespace crucible
