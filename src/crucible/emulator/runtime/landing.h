// Bulk copies to shared memory: on their way from when they are issued until somebody asks their barrier.

// A bulk copy to shared memory: from here on its place holds nothing, until it lands.
static void begin_landing(Fiber* fiber, char* to, const char* from, size_t bytes, const char* barrier, uintptr_t pc) {
    Block& block = *fiber->block;
    const uintptr_t offset = uintptr_t(to) - uintptr_t(block.slot);
    if (offset + bytes > kSlotBytes) out_of_bounds(uintptr_t(to), bytes, true, false, pc);
    for (size_t i = 0; i < bytes; ++i)
        if (!block.valid[offset + i]) out_of_bounds(uintptr_t(to) + i, bytes, true, false, pc);
    check_published(fiber, to, bytes, pc);
    may_land_now(fiber, uintptr_t(to), bytes, pc);
    touch_range(fiber, block.cells + offset / 4, uintptr_t(to), bytes, true, false, false, pc, true);
    forget_shared(block, offset, bytes);
    block.landing.push_back({to, std::string(from, bytes), barrier, pc, fiber->when});
    uint16_t& clock = block.warps[fiber->ids.linear / 32].clock[fiber->ids.lane][fiber->ids.lane];
    block.warps[fiber->ids.linear / 32].touched = true;
    if (clock < kClockMask - 1) ++clock;  // what this thread does from now on its landing says nothing of
    set_when(fiber, block.epoch, clock);
}

// Who wrote where a copy was to land did so too early, and may have lost it.
static void lost(const Landing& one, uintptr_t address, uintptr_t pc) {
    const Mark& mark = current->block->cells[(address - uintptr_t(current->block->slot)) / 4].write;
    const uintptr_t other_pc = launch->module_base + (mark.pc & 0x0fffffff);
    if (known("race-shared", one.pc, other_pc)) return;
    Fault fault = fault_here("race-shared", one.pc ? one.pc : pc, "written before an asynchronous write of it was waited for", address);
    fault.has_other = true;
    fault.other_pc = other_pc;
    where(owner_of(mark.block), thread_of(mark.when), fault.other_block, fault.other_thread);
    report(std::move(fault));
}

// All that is on its way to a barrier lands; returns its bytes. Who learns so from the barrier knows that it did.
static size_t land(Fiber* fiber, const char* barrier, uintptr_t pc) {
    Block& block = *fiber->block;
    size_t landed = 0;
    for (size_t i = 0; i < block.landing.size();) {
        if (block.landing[i].barrier != barrier) {
            ++i;
            continue;
        }
        const Landing one = std::move(block.landing[i]);
        block.landing.erase(block.landing.begin() + long(i));
        const uintptr_t offset = uintptr_t(one.to) - uintptr_t(block.slot);
        const size_t bytes = one.content.size();
        const uint8_t* written = std::find_if(block.written + offset, block.written + offset + bytes, [](uint8_t any) { return any; });
        if (written != block.written + offset + bytes) lost(one, uintptr_t(block.slot) + (written - block.written), pc);
        std::memcpy(one.to, one.content.data(), bytes);
        std::memset(block.written + offset, 1 | kPublished, bytes);
        launch->fences = true;
        launch->sync_vars[uintptr_t(barrier)].add({block.linear, epoch_of(one.when), thread_of(one.when), clock_of(one.when)});
        landed += bytes;
    }
    return landed;
}

// The last thread ends while copies are on their way: their place may be another block's by then.
static void never_landed(const Landing& one) {
    if (known("race-shared", one.pc)) return;
    report(fault_here("race-shared", one.pc, "an asynchronous write that nobody waited for before the block ended", uintptr_t(one.to)));
}
