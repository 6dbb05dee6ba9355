// Blocks and threads as fibers: one block at a time, until it can go no further without another.

static std::vector<char*> free_slots;
static size_t slots_made = 0;
constexpr size_t kMaxSlots = 4096;
static Cell* slot_cells = nullptr;
static uint8_t *slot_written = nullptr, *slot_valid = nullptr;

static char* take_slot() {
    if (!slots) {
        slots_bytes = kMaxSlots * kSlotBytes;
        slots = reserve(slots_bytes);
        slot_cells = reinterpret_cast<Cell*>(reserve(slots_bytes / 4 * sizeof(Cell)));
        slot_written = reinterpret_cast<uint8_t*>(reserve(slots_bytes));
        slot_valid = reinterpret_cast<uint8_t*>(reserve(slots_bytes));
    }
    if (!free_slots.empty()) {
        char* slot = free_slots.back();
        free_slots.pop_back();
        return slot;
    }
    return slots_made < kMaxSlots ? slots + slots_made++ * kSlotBytes : nullptr;
}

static void order_threads(std::vector<int>& order, int threads) {
    order.resize(threads);
    for (int i = 0; i < threads; ++i) order[i] = schedule == 1 ? threads - 1 - i : i;
    if (schedule == 2) {  // warps in any order, lanes within them too
        std::shuffle(order.begin(), order.end(), chance);
    }
}

static std::vector<int> thread_order;

static void renew_block(Block& block, uint64_t linear) {
    const Shape& shape = *launch->shape;
    block.linear = uint32_t(linear);
    block.index[0] = uint32_t(linear % shape.grid[0]);
    block.index[1] = uint32_t(linear / shape.grid[0] % shape.grid[1]);
    block.index[2] = uint32_t(linear / shape.grid[0] / shape.grid[1]);
    block.serial = next_serial++;
    launch->owner.push_back(block.linear);
    block.epoch = 1;
    block.live = block.threads;
    block.waiting = block.next = 0;
    block.votes = false;
    block.acquired.clear();
    block.named_count.clear();
    block.landing.clear();
    // Variables keep their places from block to block, so only what they cover is forgotten.
    for (const SharedVariable& variable : block.variables)
        forget_shared(block, variable.offset, variable.size);
    if (shape.shared) forget_shared(block, kDynamicAt, shape.shared);
    for (size_t number = 0; number < block.warps.size(); ++number) {
        forget_order(block.warps[number]);
        all_live(block, int(number));
    }
    for (int i = 0; i < block.threads; ++i) {
        Fiber& fiber = block.fibers[i];
        std::memcpy(fiber.ids.block, block.index, 12);
        set_when(&fiber, 1, 1);
        fiber.state = kUnstarted;
        fiber.fenced = false;
        fiber.spins = 0;
        fiber.spin_at = nullptr;
        fiber.acquired.clear();
        fiber.copies.clear();
        fiber.bulk.clear();
        fiber.products.clear();
        fiber.wrote.clear();
        fiber.just_fenced = false;
    }
    if (tracing) traced::block_begins(block);
}

static std::unique_ptr<Block> make_block(uint64_t linear) {
    const Shape& shape = *launch->shape;
    auto made = std::make_unique<Block>();
    Block& block = *made;
    block.slot = take_slot();
    if (!block.slot) return nullptr;
    const size_t at = block.slot - slots;
    block.cells = slot_cells + at / 4;
    block.written = slot_written + at;
    block.valid = slot_valid + at;
    block.used = 256;
    if (shape.shared) std::memset(block.valid + kDynamicAt, 1, shape.shared);
    block.threads = int(shape.block[0] * shape.block[1] * shape.block[2]);
    block.fibers.resize(block.threads);
    block.warps.resize((block.threads + 31) / 32);
    for (int i = 0; i < block.threads; ++i) {
        Fiber& fiber = block.fibers[i];
        fiber.block = &block;
        Ids& ids = fiber.ids;
        ids.thread[0] = i % shape.block[0];
        ids.thread[1] = i / shape.block[0] % shape.block[1];
        ids.thread[2] = i / shape.block[0] / shape.block[1];
        std::memcpy(ids.block_dim, shape.block, 12);
        std::memcpy(ids.grid_dim, shape.grid, 12);
        ids.lane = i % 32;
        ids.linear = i;
    }
    renew_block(block, linear);
    return made;
}

static void give_back(Block& block) {
    for (Fiber& fiber : block.fibers)
        if (fiber.stack) {
            free_stacks.push_back(fiber.stack);
            fiber.stack = nullptr;
        }
    for (const SharedVariable& variable : block.variables)
        std::memset(block.valid + variable.offset, 0, variable.size);
    if (launch->shape->shared) std::memset(block.valid + kDynamicAt, 0, launch->shape->shared);
    if (launch->shape->shared) std::memset(block.written + kDynamicAt, 0, launch->shape->shared);
    for (const SharedVariable& variable : block.variables)
        std::memset(block.written + variable.offset, 0, variable.size);
    free_slots.push_back(block.slot);
}

static uint64_t ended = 0;  // threads that are done, and launches begun

static void thread_done(Fiber* fiber) {
    Block* block = fiber->block;
    ++ended;
    finish_bulk(fiber, 0, fiber->pc);
    settle_pending();
    fiber->state = kDone;
    if (--block->live == 0)
        for (const Landing& one : block->landing) never_landed(one);
    launch->progress = true;
    // Lanes that wait for this one need wait no longer.
    const int number = fiber->ids.linear / 32;
    block->warps[number].live &= ~(1u << fiber->ids.lane);
    if (tracing) traced::thread_ended(*block, number);
    for (uint32_t waiting = block->warps[number].waiting; waiting; waiting &= waiting - 1) {
        const int lane = __builtin_ctz(waiting);
        Fiber* other = lane_of(block, number, lane);
        if (other->state != kAtWarp || other->call->op == kActive) continue;
        const uint32_t group = gathered(block, number, other->call);
        if (group == (other->call->mask & live_lanes(block, number))) {
            finish_group(block, number, group, other->call->mask, other->pc);
        }
    }
    if (block->live) try_barrier(block);
}

// The thread whose turn it is after one that ended without ever waiting; null when the scheduler has others to resume.
static Fiber* successor(Block* block) {
    if (!block->ready.empty() || block->next == block->threads) return nullptr;
    return &block->fibers[thread_order[block->next++]];
}

static void fiber_main() {
    for (;;) {
        Fiber* fiber = current;
        launch->thread(launch->closure);
        thread_done(fiber);
        if (Fiber* next = successor(fiber->block)) hand_over(fiber, next);
        else leave(fiber);
    }
}

// Lanes that asked who is active: those of a warp that stand at one place answer each other.
static bool resolve_active(Block* block) {
    bool any = false;
    for (size_t number = 0; number < block->warps.size(); ++number)
        for (int lane = 0; lane < 32 && int(number * 32 + lane) < block->threads; ++lane) {
            Fiber* fiber = lane_of(block, int(number), lane);
            if (fiber->state != kAtWarp || fiber->call->op != kActive) continue;
            uint32_t group = 0;
            for (int j = 0; j < 32 && int(number * 32 + j) < block->threads; ++j) {
                const Fiber* other = lane_of(block, int(number), j);
                if (other->state == kAtWarp && other->call->op == kActive && other->pc == fiber->pc) group |= 1u << j;
            }
            complete(block, int(number), group);
            any = true;
        }
    return any;
}

// Whether one of these lanes only lets others go first: it waits for a value, and may still come.
static bool any_goes_on(Block* block, int number, uint32_t lanes) {
    for (; lanes; lanes &= lanes - 1)
        if (lane_of(block, number, __builtin_ctz(lanes))->state == kReady) return true;
    return false;
}

// A warp operation that lanes named in its mask will not reach: they wait elsewhere.
static bool resolve_absent(Block* block) {
    for (Fiber& fiber : block->fibers) {
        if (fiber.state != kAtWarp) continue;
        const int number = fiber.ids.linear / 32;
        const uint32_t group = gathered(block, number, fiber.call);
        const uint32_t missing = fiber.call->mask & live_lanes(block, number) & ~group;
        if (any_goes_on(block, number, missing)) continue;
        const Fiber* absent = missing ? lane_of(block, number, __builtin_ctz(missing)) : nullptr;
        Fault fault = fault_here("absent-lanes", fiber.pc,
                                 format("the mask 0x%08x names %d lanes that never come here", fiber.call->mask,
                                        __builtin_popcount(missing)));
        where(&fiber, fault.block, fault.thread);
        if (absent) {
            fault.has_other = true;
            fault.other_pc = absent->pc;
            where(absent, fault.other_block, fault.other_thread);
        }
        report(std::move(fault));
        complete(block, number, group);
        return true;
    }
    return false;
}

static const char* waiting_words(State state) {
    return state == kAtBarrier ? "a barrier" : state == kAtGrid ? "the grid's barrier" : "a named barrier";
}

// Threads wait for each other and none can go on. The launch ends.
static void deadlock(Block* block) {
    const Fiber *waiting = nullptr, *elsewhere = nullptr;
    for (const Fiber& fiber : block->fibers) {
        if (fiber.state == kDone) continue;
        if (!waiting) waiting = &fiber;
        else if (fiber.state != waiting->state) elsewhere = &fiber;
    }
    const bool barriers = elsewhere && (waiting->state == kAtBarrier || elsewhere->state == kAtBarrier);
    Fault fault = fault_here(barriers ? "divergent-barrier" : "deadlock", waiting->pc,
                             elsewhere ? format("some threads wait at %s, others at %s", waiting_words(waiting->state),
                                                waiting_words(elsewhere->state))
                                       : format("all threads wait at %s that nobody else will reach",
                                                waiting_words(waiting->state)));
    where(waiting, fault.block, fault.thread);
    if (elsewhere) {
        fault.has_other = true;
        fault.other_pc = elsewhere->pc;
        where(elsewhere, fault.other_block, fault.other_thread);
    }
    fault.fatal = 702;
    report(std::move(fault));
    launch->aborted = true;
    sticky_error = last_error = 702;
}

static Fiber* next_fiber(Block* block) {
    if (!block->ready.empty()) {
        if (schedule == 2) std::swap(block->ready.front(), block->ready[chance() % block->ready.size()]);
        Fiber* fiber = block->ready.front();
        block->ready.pop_front();
        return fiber;
    }
    if (block->next < block->threads) {
        Fiber* fiber = &block->fibers[thread_order[block->next++]];
        prepare(fiber);
        return fiber;
    }
    return nullptr;
}

enum Progress { kFinished, kSpinning, kWaitingForGrid, kAborted };

// A loop without end whose threads wait for each other in it: the timer, which watches single threads, does not see it.
// Few kernels take a thousandth of these turns, and those that take them all get the time that a single thread gets.
static bool turns_without_end() {
    constexpr uint64_t kTurns = 100000;
    static uint64_t seen = 0, first = 0;
    static double since = 0;
    timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    const double seconds = double(now.tv_sec) + double(now.tv_nsec) * 1e-9;
    if (ended != seen) {
        seen = ended;
        first = resumes;
        since = seconds;
    }
    const uint64_t threads = launch->active.size() * uint64_t(launch->active.front()->threads);
    return resumes - first > kTurns * threads && seconds - since > thread_limit_s;
}

static void never_ends(const Fiber* fiber) {
    Fault fault = fault_here("runaway-loop", fiber->pc, "threads wait for each other again and again, and none ends");
    where(fiber, fault.block, fault.thread);
    fault.fatal = 702;
    report(std::move(fault));
    launch->aborted = true;
    sticky_error = last_error = 702;
}

static Progress run_block(Block* block) {
    for (;;) {
        Fiber* fiber = next_fiber(block);
        if (fiber) {
            fiber->state = kReady;
            fiber = resume(fiber);
            if (launch->aborted) return kAborted;
            if (resumes % 65536 == 0 && turns_without_end()) {
                never_ends(fiber);
                return kAborted;
            }
            if (fiber->state == kDone) {
                free_stacks.push_back(fiber->stack);
                fiber->stack = nullptr;
            }
            continue;
        }
        if (!block->live) return kFinished;
        if (resolve_active(block) || resolve_absent(block)) continue;
        if (!block->yielded.empty()) {
            block->ready.swap(block->yielded);
            return kSpinning;
        }
        int at_grid = 0;
        for (const Fiber& one : block->fibers) at_grid += one.state == kAtGrid;
        if (at_grid == block->live) return kWaitingForGrid;
        deadlock(block);
        return kAborted;
    }
}

static void release_grid() {
    // Everything before is ordered before everything after: marks of earlier serials no longer count.
    launch->base = next_serial;
    for (auto& block : launch->active) {
        block->serial = next_serial++;
        launch->owner.push_back(block->linear);
        for (Fiber& fiber : block->fibers)
            if (fiber.state == kAtGrid) wake(&fiber);
    }
}

static void blocked_for_good() {
    Block* block = launch->active.front().get();
    const Fiber* fiber = nullptr;
    for (auto& one : launch->active)
        for (const Fiber& candidate : one->fibers)
            if (!fiber && candidate.state == kReady && candidate.spins) {
                fiber = &candidate;
                block = one.get();
            }
    if (!fiber) return deadlock(block);
    Fault fault = fault_here("deadlock", fiber->spin_pc, "it waits for a value that no thread will write", uintptr_t(fiber->spin_at));
    where(fiber, fault.block, fault.thread);
    fault.fatal = 702;
    report(std::move(fault));
    launch->aborted = true;
    sticky_error = last_error = 702;
}

static uint64_t block_at(uint64_t place) { return schedule == 1 ? launch->blocks - 1 - place : place; }

static void run_grid() {
    std::vector<std::unique_ptr<Block>> spare;
    long idle = 0;
    uint64_t idle_since = 0;
    ++ended;
    if (schedule == 3) return;
    auto add = [&] {
        const uint64_t linear = block_at(launch->next_block++);
        if (!spare.empty()) {
            renew_block(*spare.back(), linear);
            launch->active.push_back(std::move(spare.back()));
            spare.pop_back();
        } else if (auto made = make_block(linear)) {
            launch->active.push_back(std::move(made));
        } else {
            --launch->next_block;
            return false;
        }
        return true;
    };
    while ((launch->next_block < launch->blocks || !launch->active.empty()) && !launch->aborted) {
        size_t waiting = 0;
        launch->progress = false;
        bool finished = false;
        if (launch->active.empty()) add();
        for (size_t i = 0; i < launch->active.size() && !launch->aborted; ++i) {
            Block* block = launch->active[i].get();
            const Progress how = run_block(block);
            if (how == kFinished) {
                spare.push_back(std::move(launch->active[i]));
                launch->active.erase(launch->active.begin() + long(i--));
                finished = true;
            } else if (how == kWaitingForGrid) {
                ++waiting;
            }
        }
        if (launch->aborted || finished) {
            idle = 0;
            continue;
        }
        if (launch->next_block < launch->blocks && add()) continue;
        if (waiting == launch->active.size() && waiting) {
            if (launch->shape->cooperative) {
                release_grid();
                continue;
            }
            Fiber& fiber = launch->active.front()->fibers[0];
            Fault fault = fault_here("deadlock", fiber.pc, "the grid's barrier needs a cooperative launch");
            where(&fiber, fault.block, fault.thread);
            report(std::move(fault));
            launch->aborted = true;
            sticky_error = last_error = 720;
            break;
        }
        if (launch->progress) idle = 0;
        if (idle++ == 0) idle_since = crucible_clock();
        if (idle > 2000 && double(crucible_clock() - idle_since) * 1e-9 > std::min(thread_limit_s, 1.0)) blocked_for_good();
    }
    for (auto& block : launch->active) give_back(*block);
    for (auto& block : spare) give_back(*block);
    launch->active.clear();
}
