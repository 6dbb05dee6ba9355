// What happens at each load and store of a kernel.

// Ends the launch: the other threads stop where they are. Called from a fiber, does not return.
[[noreturn]] static void abandon(int error) {
    launch->aborted = true;
    sticky_error = last_error = error;
    leave(current);
    __builtin_unreachable();
}

[[noreturn]] static void fatal(const char* kind, uintptr_t pc, std::string detail, uintptr_t address, int error) {
    Fault fault = fault_here(kind, pc, std::move(detail), address);
    fault.fatal = error;
    report(std::move(fault));
    abandon(error);
}

constexpr uint32_t kAtomic = 1u << 31, kClockMask = 2047;

static inline uint32_t epoch_of(uint32_t when) { return when & 2047; }
static inline uint32_t clock_of(uint32_t when) { return when >> 11 & kClockMask; }
static inline uint32_t thread_of(uint32_t when) { return when >> 22; }

static uint32_t owner_of(uint32_t serial) {
    return launch->owner[(serial & ~kAtomic) - launch->first_serial];
}

static bool knows(const Acquired& acquired, uint32_t owner, uint32_t epoch, uint32_t thread, uint32_t clock) {
    for (const auto& [var, prefix] : acquired) {
        const Known* of_owner = var->latest(owner, prefix);
        if (!of_owner || of_owner->epoch < epoch) continue;
        if (of_owner->epoch > epoch) return true;
        const Known* own = var->latest(owner, thread, prefix);
        if (own && own->epoch == epoch && own->clock >= clock) return true;
    }
    return false;
}

// Whether another thread's access came before this one for certain. Slow; only for apparent conflicts.
static bool ordered(const Fiber* fiber, const Mark& mark) {
    const uint32_t owner = owner_of(mark.block);
    if (owner == fiber->block->linear && (mark.block & ~kAtomic) != fiber->block->serial) return true;  // epochs ago
    const uint32_t epoch = epoch_of(mark.when), thread = thread_of(mark.when), clock = clock_of(mark.when);
    return knows(fiber->acquired, owner, epoch, thread, clock) ||
           knows(fiber->block->acquired, owner, epoch, thread, clock);
}

struct Pending {
    Fault fault;
    uintptr_t address;
    uint32_t bytes, mask;
};
static std::vector<Pending> pending;  // writes of one value by two threads are told apart once the second is done

// Counts a fault that is known already, without putting it into words again.
static bool known(const char* kind, uintptr_t pc, uintptr_t other = 0) {
    const std::string key = kind + format("|%lx|%lx|%d|", pc, other, 0);
    auto found = fault_index.find(key);
    if (found == fault_index.end()) return false;
    ++faults[found->second].count;
    return true;
}

static void race(Fiber* fiber, const Mark& mark, uintptr_t address, uintptr_t pc, const char* how, bool both_write,
                 uint32_t mask) {
    const uint32_t owner = owner_of(mark.block);
    const bool same_block = owner == fiber->block->linear;
    const bool shared = slots && address - uintptr_t(slots) < slots_bytes;
    const bool same_warp = same_block && thread_of(mark.when) / 32 == fiber->ids.linear / 32;
    const bool both_wrote = std::strcmp(how, "write after write") == 0;
    const char* kind = !shared ? "race-global" : same_warp && !both_wrote ? "missing-syncwarp" : "race-shared";
    uintptr_t other_pc = launch->module_base + (mark.pc & 0x0fffffff);
    if (known(kind, pc, other_pc)) return;
    Fault fault = fault_here(kind, pc, how, address);
    fault.has_other = true;
    fault.other_pc = other_pc;
    where(owner, thread_of(mark.when), fault.other_block, fault.other_thread);
    if (!both_write) {
        report(std::move(fault));
        return;
    }
    const uintptr_t word = address & ~uintptr_t(3);
    uint32_t before;
    std::memcpy(&before, reinterpret_cast<void*>(word), 4);
    if (pending.size() < 64) pending.push_back(Pending{std::move(fault), word, before, mask});
}

// The second of two writes is done by now: unless it changed the value, the order did not matter.
static void settle_pending() {
    for (Pending& one : pending) {
        uint32_t now;
        std::memcpy(&now, reinterpret_cast<void*>(one.address), 4);
        uint32_t bits = 0;
        for (int i = 0; i < 4; ++i)
            if (one.mask >> i & 1) bits |= 0xffu << 8 * i;
        if ((now ^ one.bytes) & bits) report(std::move(one.fault));
    }
    pending.clear();
}

static inline bool conflicts(Fiber* fiber, const Mark& mark, uint32_t mask, bool atomic, bool shared) {
    const uint32_t serial = mark.block & ~kAtomic;
    if (serial < launch->base || !((mark.pc >> 28) & mask)) return false;
    if (shared && serial != fiber->block->serial) return false;  // another block had this place before
    if (atomic && (mark.block & kAtomic)) return false;
    if (serial != fiber->block->serial) return true;
    if (((mark.when ^ fiber->when) & 2047) != 0) return false;  // a barrier lies between
    const uint32_t thread = thread_of(mark.when), own = fiber->ids.linear;
    if (thread == own) return false;
    if (thread / 32 != own / 32) return true;
    const Warp& warp = fiber->block->warps[own / 32];
    return !warp.saturated && clock_of(mark.when) > warp.clock[own % 32][thread % 32];
}

static inline bool current_mark(const Mark& mark) { return (mark.block & ~kAtomic) >= launch->base; }

static inline void touch(Fiber* fiber, Cell& cell, uintptr_t address, uint32_t mask, bool write, bool atomic,
                         bool is_volatile, bool shared, uintptr_t pc) {
    const Mark mine{fiber->block->serial | (atomic ? kAtomic : 0), fiber->when,
                    mask << 28 | uint32_t(pc - launch->module_base)};
    // Accesses marked volatile are how warps and blocks hand things over; within a warp they order nothing.
    if (__builtin_expect(conflicts(fiber, cell.write, mask, atomic, shared), 0)) {
        const bool handed_over = is_volatile && (cell.is_volatile & 1) &&
                                 !(cell.write.block == fiber->block->serial &&
                                   thread_of(cell.write.when) / 32 == fiber->ids.linear / 32);
        if (!handed_over && !ordered(fiber, cell.write))
            race(fiber, cell.write, address, pc, write ? "write after write" : "read after write", write, mask);
    }
    if (!write) {
        Mark& last = cell.read;
        if (last.block == mine.block && thread_of(last.when) == thread_of(mine.when)) {
            const uint32_t merged = last.when == mine.when ? last.pc & 0xf0000000 : 0;
            last.when = mine.when;
            last.pc = mine.pc | merged;
        } else {
            if (current_mark(last)) {
                const bool keep = current_mark(cell.other) && cell.other.block != mine.block && last.block == mine.block;
                if (!keep) cell.other = last;
            }
            last = mine;
        }
        cell.is_volatile = (cell.is_volatile & 1) | (is_volatile ? 2 : 0);
        return;
    }
    if (__builtin_expect(conflicts(fiber, cell.read, mask, atomic, shared) && !ordered(fiber, cell.read), 0)) {
        if (!(is_volatile && (cell.is_volatile & 2) && cell.read.block != fiber->block->serial))
            race(fiber, cell.read, address, pc, "write after read", true, mask);
    } else if (__builtin_expect(conflicts(fiber, cell.other, mask, atomic, shared) && !ordered(fiber, cell.other), 0)) {
        if (!is_volatile) race(fiber, cell.other, address, pc, "write after read", true, mask);
    }
    const bool grows = cell.write.block == mine.block && cell.write.when == mine.when;
    cell.write = Mark{mine.block, mine.when, mine.pc | (grows ? cell.write.pc & 0xf0000000 : 0)};
    cell.is_volatile = (cell.is_volatile & 2) | (is_volatile ? 1 : 0);
}

static inline bool holds_poison(uint32_t word) {
    if (__builtin_expect((word & 0x7e000000) != 0x7e000000, 1)) return false;
    return word == kFresh || word == 0x7FC5EED5 || word == 0x7ED57ED5 || word == 0x7FD57FD5;
}
// The judge's own poison for float64 (compare.POISON) has two different halves.
static inline bool holds_poison64(uint64_t word) { return word == 0x7FF8C0DE5EED5000ull; }

// Address of the first word in a range that still holds what allocation left in it, or 0.
static inline uintptr_t poisoned(uintptr_t address, size_t size) {
    const uintptr_t end = address + size;
    for (uintptr_t at = address & ~uintptr_t(3); at < end; at += 4) {
        uint32_t word;
        std::memcpy(&word, reinterpret_cast<void*>(at), 4);
        if (__builtin_expect(holds_poison(word), 0)) return std::max(at, address);
    }
    if (size != 8 || (address & 7)) return 0;
    uint64_t both;
    std::memcpy(&both, reinterpret_cast<void*>(address), 8);
    return __builtin_expect(holds_poison64(both), 0) ? address : 0;
}

static inline void touch_range(Fiber* fiber, Cell* cells, uintptr_t address, size_t size, bool write, bool atomic,
                               bool is_volatile, uintptr_t pc, bool shared = false) {
    uintptr_t at = address & ~uintptr_t(3);
    const uintptr_t end = address + size;
    for (size_t i = 0; at < end; at += 4, ++i) {
        uint32_t mask = 15;
        if (at < address) mask &= 15u << (address - at);
        if (at + 4 > end) mask &= 15u >> (at + 4 - end);
        touch(fiber, cells[i], std::max(at, address), mask, write, atomic, is_volatile, shared, pc);
    }
}

static const char* verb(bool write, bool atomic) { return atomic ? "atomic operation on" : write ? "write of" : "read of"; }

// Where an access was meant whose unsigned index went below zero and came out 2^32 elements higher; 0 when none did.
static uintptr_t meant_below_zero(uintptr_t address) {
    constexpr uintptr_t kNear = 1 << 20, kRange = uintptr_t(1) << 32;
    for (int i = 0; i < launch->count; ++i) {
        const Argument& argument = launch->arguments[i];
        uintptr_t base;
        if (!argument.element || argument.size != 8) continue;
        std::memcpy(&base, argument.bytes, 8);
        const uintptr_t meant = address - kRange * argument.element;
        if (base - meant - 1 < kNear * argument.element) return meant;
    }
    for (uintptr_t element : {4, 2, 8, 16, 1}) {
        const uintptr_t meant = address - kRange * element;
        if (meant - uintptr_t(current->block->slot) < kSlotBytes) return meant;
    }
    return 0;
}

[[gnu::noinline]] static void out_of_bounds(uintptr_t address, size_t size, bool write, bool atomic, uintptr_t pc) {
    if (const uintptr_t meant = meant_below_zero(address))
        fatal("index-overflow", pc, format("%s %zu bytes whose unsigned index wrapped below zero", verb(write, atomic), size), meant, 700);
    const bool shared = slots && address - uintptr_t(slots) < slots_bytes;
    const bool local = stacks && address - uintptr_t(stacks) < kMaxStacks * kStackBytes;
    const char* kind = shared ? "out-of-bounds-shared" : local ? "out-of-bounds-local" : "out-of-bounds-global";
    Fault fault = fault_here(kind, pc, format("%s %zu bytes", verb(write, atomic), size), address);
    if (local) fault.memory = "local memory of another thread, or beyond this thread's own";
    fault.fatal = 700;
    report(std::move(fault));
    abandon(700);
}

[[gnu::noinline]] static void misaligned(uintptr_t address, size_t size, bool write, bool atomic, uintptr_t pc) {
    fatal("misaligned", pc, format("%s %zu bytes at an address that is not a multiple of %zu", verb(write, atomic), size, size),
          address, 716);
}

// The bulk copy that is on its way to an address of shared memory; null where there is none.
static const Landing* landing_at(const Block& block, uintptr_t address) {
    for (const Landing& one : block.landing)
        if (address - uintptr_t(one.to) < one.content.size()) return &one;
    return nullptr;
}

[[gnu::noinline]] static void unwritten(uintptr_t address, uintptr_t pc, const char* kind, bool atomic) {
    ++unwritten_reads;
    if (const Landing* coming = landing_at(*current->block, address)) {
        if (known("race-shared", pc, coming->pc)) return;
        Fault fault = fault_here("race-shared", pc, "read before an asynchronous write of it was waited for", address);
        fault.has_other = true;
        fault.other_pc = coming->pc;
        where(current->block->linear, thread_of(coming->when), fault.other_block, fault.other_thread);
        report(std::move(fault));
        return;
    }
    if (known(kind, pc)) return;
    report(fault_here(kind, pc, atomic ? "atomic operation on memory that nobody wrote" : "read of memory that nobody wrote", address));
}

static inline bool valid_range(uintptr_t offset, size_t size) {
    const uint8_t* valid = memory.valid + offset / 8;
    const size_t within = offset % 8;
    if (__builtin_expect(within + size <= 8, 1)) return within + size <= *valid;
    for (size_t left = size + within; left; ++valid) {
        const size_t take = left < 8 ? left : 8;
        if (*valid < take) return false;
        left -= take;
    }
    return true;
}

// Stretches apart are told apart, as far as there are few: a thread that stages planes writes some hundred bytes of what
// may be a hundred thousand. Most kernels have no fence that would ever ask.
static void note_written(Fiber& fiber, Stretch now) {
    auto& wrote = fiber.wrote;
    if (!wrote.empty() && now.from <= wrote.back().to && now.to >= wrote.back().from)
        wrote.back() = {std::min(wrote.back().from, now.from), std::max(wrote.back().to, now.to)};
    else
        wrote.push_back(now);
    if (wrote.size() <= 512) return;
    for (const Stretch& one : wrote) now = {std::min(now.from, one.from), std::max(now.to, one.to)};
    wrote.assign(1, now);
}

static void access_shared(Fiber* fiber, uintptr_t address, size_t size, bool write, bool atomic, bool is_volatile,
                          uintptr_t pc) {
    Block* block = fiber->block;
    const uintptr_t offset = address - uintptr_t(block->slot);
    if (offset + size > kSlotBytes) out_of_bounds(address, size, write, atomic, pc);
    for (size_t i = 0; i < size; ++i)
        if (!block->valid[offset + i]) out_of_bounds(address + i, size, write, atomic, pc);
    if (!write || atomic)
        for (size_t i = 0; i < size; ++i)
            if (!block->written[offset + i]) {
                unwritten(address + i, pc, "uninitialised-shared", atomic);
                break;
            }
    if (write) {
        std::memset(block->written + offset, 1, size);
        note_written(*fiber, {uint32_t(offset), uint32_t(offset + size)});
    }
    touch_range(fiber, block->cells + offset / 4, address, size, write, atomic, is_volatile, pc, true);
}

// Shared memory that no thread of this block has written: NaN, so that what depends on it shows.
static void forget_shared(Block& block, size_t offset, size_t size) {
    std::memset(block.written + offset, 0, size);
    uint32_t* words = reinterpret_cast<uint32_t*>(block.slot + offset);
    std::fill(words, words + (size + 3) / 4, kFresh);
}

// An asynchronous copy may land as soon as it is begun: who has read its place since the last barrier may find it there.
static void may_land_now(Fiber* fiber, uintptr_t address, size_t size, uintptr_t pc) {
    const uintptr_t offset = address - uintptr_t(fiber->block->slot);
    if (offset + size > kSlotBytes) return;  // told when it lands
    for (size_t at = offset & ~size_t(3); at < offset + size; at += 4) {
        const Cell& cell = fiber->block->cells[at / 4];
        for (const Mark& mark : {cell.read, cell.other})
            if (conflicts(fiber, mark, 15, false, true) && !ordered(fiber, mark))
                return race(fiber, mark, uintptr_t(fiber->block->slot) + at, pc, "asynchronous write after read", false, 15);
    }
}

static void access_elsewhere(Fiber* fiber, uintptr_t address, size_t size, bool write, bool atomic, bool is_volatile,
                             uintptr_t pc) {
    if (slots && address - uintptr_t(slots) < slots_bytes)
        return access_shared(fiber, address, size, write, atomic, is_volatile, pc);
    const Region* region = memory.region_of(address);
    if (!region || address + size > region->hi) {
        const uintptr_t closure = uintptr_t(launch->closure);
        if (!write && launch->count && address - closure < 65536) return;  // the launch's own copy of its arguments
        out_of_bounds(address, size, write, atomic, pc);
    }
    if (!region->is_module && (!write || atomic))
        if (const uintptr_t at = poisoned(address, size)) unwritten(at, pc, "uninitialised-global", atomic);
    const uintptr_t lo = region->lo & ~uintptr_t(3);
    touch_range(fiber, region->cells + (address - lo) / 4, address, size, write, atomic, is_volatile, pc);
}

static inline void access(uintptr_t address, size_t size, bool write, bool atomic, bool is_volatile, bool aligned,
                          uintptr_t pc) {
    Fiber* fiber = current;
    if (!fiber) return;
    accessed_at = pc;
    if (aligned && __builtin_expect(address & (size - 1), 0)) {
        if (address - uintptr_t(fiber->stack) >= kStackBytes) misaligned(address, size, write, atomic, pc);
    }
    if (__builtin_expect(tracing, 0)) traced::note(fiber, address, size, write, atomic, aligned, pc);
    const uintptr_t offset = address - uintptr_t(memory.arena);
    if (__builtin_expect(offset >= kArenaBytes, 0)) {
        const uintptr_t local = address - uintptr_t(fiber->stack);
        if (local < kStackBytes && local + size <= kStackBytes) return;
        return access_elsewhere(fiber, address, size, write, atomic, is_volatile, pc);
    }
    if (__builtin_expect(!valid_range(offset, size), 0)) {
        size_t at = 0;
        while (at < size && valid_range(offset + at, 1)) ++at;
        out_of_bounds(address + at, size, write, atomic, pc);
    }
    if (!write || atomic)
        if (const uintptr_t at = poisoned(address, size); __builtin_expect(at != 0, 0))
            unwritten(at, pc, "uninitialised-global", atomic);
    touch_range(fiber, memory.cells + offset / 4, address, size, write, atomic, is_volatile, pc);
}
