// The asynchronous proxy: matrix instructions of warpgroups and bulk copies read and write shared memory beside the
// threads. They read it when they are issued and until they are waited for; what threads wrote there they see behind a
// fence. What they write is nothing that anyone may touch until it has landed.

constexpr uint8_t kPublished = 2;  // a bit of Block::written, beside that for written at all

// All that this thread wrote to shared memory is there for the asynchronous proxy, and so is what it knows of others.
static void publish_writes(Fiber* fiber) {
    Block* block = fiber->block;
    for (const Stretch& one : fiber->wrote)
        for (uint32_t at = one.from & ~3u; at < one.to; at += 4)
            if (thread_of(block->cells[at / 4].write.when) == fiber->ids.linear)
                for (int i = 0; i < 4; ++i)
                    if (block->written[at + i]) block->written[at + i] |= kPublished;
    fiber->wrote.clear();
    fiber->just_fenced = true;
}

[[gnu::noinline]] static void unpublished(uintptr_t address, uintptr_t pc) {
    const Mark& mark = current->block->cells[(address - uintptr_t(current->block->slot)) / 4].write;
    const uintptr_t other_pc = launch->module_base + (mark.pc & 0x0fffffff);
    if (known("missing-proxy-fence", pc, other_pc)) return;
    Fault fault = fault_here("missing-proxy-fence", pc, "asynchronous access to what was written without a fence.proxy.async behind it", address);
    fault.has_other = true;
    fault.other_pc = other_pc;
    where(owner_of(mark.block), thread_of(mark.when), fault.other_block, fault.other_thread);
    report(std::move(fault));
}

static void watched_read(const char* from, size_t bytes, uintptr_t pc) {
    const int traces = tracing;  // no thread's load
    tracing = 0;
    access(uintptr_t(from), bytes, false, false, false, false, pc);
    tracing = traces;
}

static void check_published(Fiber* fiber, const char* place, size_t bytes, uintptr_t pc) {
    const uintptr_t offset = uintptr_t(place) - uintptr_t(fiber->block->slot);
    if (fiber->just_fenced || offset + bytes > kSlotBytes) return;
    for (size_t i = 0; i < bytes; ++i)
        if (fiber->block->written[offset + i] == 1) return unpublished(uintptr_t(place) + i, pc);
}

static void read_asynchronously(Fiber* fiber, const char* from, size_t bytes, uintptr_t pc) {
    watched_read(from, bytes, pc);
    check_published(fiber, from, bytes, pc);
}

// Groups of what is under way; the last one is still open.
template <class T>
static std::vector<T>& open_group(std::vector<std::vector<T>>& groups) {
    if (groups.empty()) groups.emplace_back();
    return groups.back();
}

template <class T, class F>
static void finish_groups(std::vector<std::vector<T>>& groups, size_t left, F finish) {
    while (groups.size() > left + 1 || (left == 0 && !groups.empty())) {
        for (const T& one : groups.front()) finish(one);
        groups.erase(groups.begin());
    }
}

// It has read until now: what others wrote in the meantime they wrote too early, and so did this thread.
static void finish(const Asynchronous& read, uintptr_t pc) {
    const size_t bytes = read.content.size();
    watched_read(read.from, bytes, pc);
    if (read.to) std::memcpy(read.to, read.from, bytes);
    if (!std::memcmp(read.content.data(), read.from, bytes) || known("race-shared", pc, read.pc)) return;
    const auto changed = std::mismatch(read.content.begin(), read.content.end(), read.from);
    Fault fault = fault_here("race-shared", pc, "written before an asynchronous read of it was waited for", uintptr_t(changed.second));
    fault.has_other = true;
    fault.other_pc = read.pc;
    where(current, fault.other_block, fault.other_thread);
    report(std::move(fault));
}

template <class T>
static void issue(std::vector<std::vector<T>>& groups, char* to, const char* from, size_t bytes, uintptr_t pc) {
    open_group(groups).push_back({to, from, std::string(from, bytes), pc});
}

static void finish_bulk(Fiber* fiber, size_t left, uintptr_t pc) {
    finish_groups(fiber->bulk, left, [&](const Asynchronous& copy) { finish(copy, pc); });
}
