// Warp operations as a rendezvous of lanes, and the barriers of a block.

static uint32_t live_lanes(const Block* block, int warp) { return block->warps[warp].live; }

static void forget_order(Warp& warp) {
    if (!warp.touched && warp.clock[0][0]) return;
    warp.touched = false;
    std::memset(warp.clock, 0, sizeof warp.clock);
    for (int lane = 0; lane < 32; ++lane) warp.clock[lane][lane] = 1;
    warp.saturated = false;
}

static void all_live(Block& block, int number) {
    Warp& warp = block.warps[number];
    const int lanes = std::min(32, block.threads - number * 32);
    warp.live = lanes == 32 ? ~0u : (1u << lanes) - 1;
    warp.waiting = 0;
    warp.mixed = false;
}

static Fiber* lane_of(Block* block, int warp, int lane) { return &block->fibers[warp * 32 + lane]; }

static void wake(Fiber* fiber) {
    fiber->state = kReady;
    fiber->block->ready.push_back(fiber);
}

static void set_when(Fiber* fiber, uint32_t epoch, uint32_t clock) {
    fiber->when = fiber->ids.linear << 22 | clock << 11 | (epoch & 2047);
}

static void merge(Acquired& into, const Acquired& from) {
    launch->acquired_any = true;
    for (const auto& [var, prefix] : from) {
        bool known = false;
        for (auto& [mine, have] : into)
            if (mine == var) {
                have = std::max(have, prefix);
                known = true;
            }
        if (!known) into.emplace_back(var, prefix);
    }
}

// All lanes of the group now know what each of them did before.
static void order_lanes(Block* block, int number, uint32_t group) {
    Warp& warp = block->warps[number];
    warp.touched = true;
    uint16_t joined[32] = {};
    Acquired acquired;
    for (int lane = 0; lane < 32; ++lane) {
        if (!(group >> lane & 1)) continue;
        for (int j = 0; j < 32; ++j) joined[j] = std::max(joined[j], warp.clock[lane][j]);
        const Fiber* fiber = lane_of(block, number, lane);
        if (!fiber->acquired.empty()) merge(acquired, fiber->acquired);
    }
    for (int lane = 0; lane < 32; ++lane) {
        if (!(group >> lane & 1)) continue;
        std::memcpy(warp.clock[lane], joined, sizeof joined);
        if (joined[lane] >= kClockMask - 1) warp.saturated = true;  // until the next barrier
        else ++warp.clock[lane][lane];
        Fiber* fiber = lane_of(block, number, lane);
        set_when(fiber, block->epoch, warp.clock[lane][lane]);
        if (!acquired.empty()) fiber->acquired = acquired;
    }
}

template <class T>
static T reduced(Block* block, int warp, uint32_t group, int op) {
    T total{};
    bool first = true;
    for (int lane = 0; lane < 32; ++lane) {
        if (!(group >> lane & 1)) continue;
        T value;
        std::memcpy(&value, lane_of(block, warp, lane)->call->in, sizeof value);
        if (first) total = value;
        else if (op == kAddU) total += value;
        else if (op == kMinU || op == kMinS) total = std::min(total, value);
        else if (op == kMaxU || op == kMaxS) total = std::max(total, value);
        else if (op == kAnd) total &= value;
        else if (op == kOr) total |= value;
        else total ^= value;
        first = false;
    }
    return total;
}

static bool same_value(const WarpCall* a, const WarpCall* b) { return std::memcmp(a->in, b->in, a->size) == 0; }

static void answer(Block* block, int number, uint32_t group, Fiber* fiber) {
    WarpCall* call = fiber->call;
    call->group = group;
    uint32_t word = 0;
    switch (call->op) {
        case kSync:
        case kActive: word = group; break;
        case kShuffle:
        case kShuffleNear: {
            const bool there = call->source >= 0 && call->source < 32 && (group >> call->source & 1);
            const WarpCall* from = there ? lane_of(block, number, call->source)->call : call;
            std::memcpy(call->out, from->in, sizeof call->in);
            return;
        }
        case kGather: {
            uint64_t* all;
            std::memcpy(&all, call->in + 8, 8);
            for (int lane = 0; lane < 32; ++lane) {
                all[lane] = 0;
                if (group >> lane & 1) std::memcpy(&all[lane], lane_of(block, number, lane)->call->in, 8);
            }
            return;
        }
        case kBallot:
        case kAll:
        case kAny:
            for (int lane = 0; lane < 32; ++lane)
                if ((group >> lane & 1) && *reinterpret_cast<int*>(lane_of(block, number, lane)->call->in)) word |= 1u << lane;
            if (call->op == kAll) word = word == group;
            if (call->op == kAny) word = word != 0;
            break;
        case kMatchAny:
        case kMatchAll:
            for (int lane = 0; lane < 32; ++lane)
                if ((group >> lane & 1) && same_value(call, lane_of(block, number, lane)->call)) word |= 1u << lane;
            if (call->op == kMatchAll) word = word == group ? group : 0;
            break;
        case kMinS:
        case kMaxS: word = uint32_t(reduced<int32_t>(block, number, group, call->op)); break;
        default: word = reduced<uint32_t>(block, number, group, call->op);
    }
    std::memcpy(call->out, &word, 4);
}

static void complete(Block* block, int number, uint32_t group) {
    for (int lane = 0; lane < 32; ++lane)
        if (group >> lane & 1) answer(block, number, group, lane_of(block, number, lane));
    order_lanes(block, number, group);
    block->warps[number].waiting &= ~group;
    for (int lane = 0; lane < 32; ++lane) {
        const int at = schedule == 1 ? 31 - lane : lane;
        if (group >> at & 1) wake(lane_of(block, number, at));
    }
}

// Lanes of a warp that wait at the same kind of operation under the same mask.
static uint32_t gathered(Block* block, int number, const WarpCall* call) {
    const Warp& warp = block->warps[number];
    if (!warp.mixed && warp.op == call->op && warp.mask == call->mask) return warp.waiting;
    uint32_t group = 0;
    for (int lane = 0; lane < 32 && number * 32 + lane < block->threads; ++lane) {
        const Fiber* fiber = lane_of(block, number, lane);
        if (fiber->state == kAtWarp && fiber->call->op == call->op && fiber->call->mask == call->mask)
            group |= 1u << lane;
    }
    return group;
}

// Lanes that the mask names and that had ended: on a GPU they are not there to take part.
static void ended_lanes(Block* block, int number, uint32_t missing, uint32_t mask, uintptr_t pc) {
    for (int lane = 0; lane < 32 && number * 32 + lane < block->threads; ++lane) {
        if (!(missing >> lane & 1)) continue;
        Fault fault = fault_here("absent-lanes", pc, format("the mask 0x%08x names %d lanes that had ended", mask, __builtin_popcount(missing)));
        for (const Fiber& fiber : block->fibers)
            if (int(fiber.ids.linear / 32) == number && fiber.state == kAtWarp) where(&fiber, fault.block, fault.thread);
        fault.has_other = true;
        where(lane_of(block, number, lane), fault.other_block, fault.other_thread);
        report(std::move(fault));
        return;
    }
}

static void finish_group(Block* block, int number, uint32_t group, uint32_t mask, uintptr_t pc);

static void reads_of_absent(Block* block, int number, uint32_t group, uint32_t mask, uintptr_t pc) {
    for (int lane = 0; lane < 32; ++lane) {
        if (!(group >> lane & 1)) continue;
        Fiber* fiber = lane_of(block, number, lane);
        const int source = fiber->call->source;
        const bool shuffle = fiber->call->op == kShuffle || fiber->call->op == kShuffleNear;
        if (!shuffle || source < 0 || source > 31 || (group >> source & 1)) continue;
        // A reduction's upper lanes read past their mask and nobody uses it; a lane named by its number is meant.
        if (!(mask >> source & 1) && fiber->call->op == kShuffleNear) continue;
        const char* why = mask >> source & 1 ? "has ended or never was" : "is not in the mask";
        Fault fault = fault_here("absent-lanes", pc, format("mask 0x%08x: the value of lane %d is read, which %s", mask, source, why));
        where(fiber, fault.block, fault.thread);
        report(std::move(fault));
        return;
    }
}

static void finish_group(Block* block, int number, uint32_t group, uint32_t mask, uintptr_t pc) {
    const int op = lane_of(block, number, __builtin_ctz(group))->call->op;
    const uint32_t exist = block->threads >= (number + 1) * 32 ? ~0u : (1u << (block->threads - number * 32)) - 1;
    if (mask & exist & ~group) ended_lanes(block, number, mask & exist & ~group, mask, pc);
    else if (op == kShuffle || (op == kShuffleNear && group != mask)) reads_of_absent(block, number, group, mask, pc);
    complete(block, number, group);
}

[[gnu::noinline]] static void warp_operation(WarpCall* call, uintptr_t pc) {
    Fiber* fiber = current;
    Block* block = fiber->block;
    settle_pending();
    fiber->just_fenced = false;
    const int number = fiber->ids.linear / 32;
    if (call->op != kActive && !(call->mask >> fiber->ids.lane & 1)) {
        report(fault_here("absent-lanes", pc, format("lane %u calls a warp operation whose mask 0x%08x does not name it",
                                                     fiber->ids.lane, call->mask)));
        call->mask |= 1u << fiber->ids.lane;
    }
    fiber->call = call;
    fiber->pc = pc;
    fiber->state = kAtWarp;
    Warp& warp = block->warps[number];
    if (!warp.waiting) {
        warp.op = call->op;
        warp.mask = call->mask;
        warp.mixed = false;
    } else if (warp.op != call->op || warp.mask != call->mask) {
        warp.mixed = true;
    }
    warp.waiting |= 1u << fiber->ids.lane;
    if (call->op != kActive) {
        const uint32_t group = gathered(block, number, call);
        const uint32_t wanted = call->mask & live_lanes(block, number);
        if (group == wanted) {
            finish_group(block, number, group, call->mask, pc);
        }
    }
    leave(fiber);
}

// ---- barriers of a block

// Barriers that some thread has come to since the runtime was started: extension, file and line.
static std::set<std::pair<std::string, std::string>> reached;
static const char* reached_last = nullptr;

static void note_reached(const char* site) {
    if (!site || site == reached_last) return;
    reached_last = site;
    reached.emplace(launch->module_file, site);
}

static void release_barrier(Block* block) {
    if (tracing) traced::all_arrived(*block);
    int count = 0, all = 1, any = 0;
    const bool votes = block->votes;
    block->votes = false;
    for (Fiber& fiber : block->fibers) {
        if (!votes) break;
        if (fiber.state != kAtBarrier) continue;
        count += fiber.barrier_value != 0;
        all &= fiber.barrier_value != 0;
        any |= fiber.barrier_value != 0;
    }
    block->epoch = (block->epoch + 1) & 2047;
    if (block->epoch == 0) {  // marks would repeat: a new serial for the same block
        block->serial = next_serial++;
        launch->owner.push_back(block->linear);
    }
    if (launch->acquired_any)
      for (Fiber& fiber : block->fibers)
        if (!fiber.acquired.empty()) {
            merge(block->acquired, fiber.acquired);
            fiber.acquired.clear();
        }
    for (Warp& warp : block->warps) forget_order(warp);
    block->waiting = 0;
    uintptr_t first = 0;
    const Fiber* first_fiber = nullptr;
    const int threads = block->threads;
    for (int i = 0; i < threads; ++i) {
        Fiber& fiber = block->fibers[schedule == 1 ? threads - 1 - i : i];
        if (fiber.state != kAtBarrier) continue;
        if (!first) {
            first = fiber.pc;
            first_fiber = &fiber;
        } else if (fiber.pc != first && !known("divergent-barrier", fiber.pc, first)) {
            Fault fault = fault_here("divergent-barrier", fiber.pc, "threads of one block wait at different barriers");
            where(&fiber, fault.block, fault.thread);
            fault.has_other = true;
            fault.other_pc = first;
            where(first_fiber, fault.other_block, fault.other_thread);
            report(std::move(fault));
        }
        fiber.barrier_result = fiber.barrier_kind == 1 ? count : fiber.barrier_kind == 2 ? all : any;
        set_when(&fiber, block->epoch, 1);
        wake(&fiber);
    }
}

// Threads that have ended are not waited for: since Volta a barrier needs all that have not (Volta tuning guide).
static void try_barrier(Block* block) {
    if (block->waiting && block->waiting == block->live) release_barrier(block);
}

[[gnu::noinline]] static int barrier(int kind, int value, const char* site, uintptr_t pc) {
    Fiber* fiber = current;
    settle_pending();
    fiber->just_fenced = false;
    note_reached(site);
    fiber->barrier_kind = kind;
    fiber->barrier_value = value;
    fiber->block->votes |= kind != 0;
    fiber->pc = pc;
    fiber->state = kAtBarrier;
    ++fiber->block->waiting;
    try_barrier(fiber->block);
    leave(fiber);
    return fiber->barrier_result;
}

// bar.sync id, threads and bar.arrive: counted by number.
[[gnu::noinline]] static void named_barrier(int id, int threads, int wait, uintptr_t pc) {
    Fiber* fiber = current;
    Block* block = fiber->block;
    if (id == 0 && (threads == 0 || threads == block->threads)) {
        barrier(0, 0, nullptr, pc);
        return;
    }
    settle_pending();
    fiber->just_fenced = false;
    const int wanted = threads ? threads : block->threads;
    fiber->pc = pc;
    fiber->named = id;
    if (++block->named_count[id] == wanted) {
        block->named_count[id] = 0;
        // Those who waited are ordered among each other: their clocks advance together through an acquired log.
        SyncVar& var = launch->sync_vars[uintptr_t(block->slot) + kSlotBytes + id];
        auto note = [&](Fiber& one) {
            var.add({block->linear, epoch_of(one.when), one.ids.linear, clock_of(one.when)});
        };
        note(*fiber);
        for (Fiber& other : block->fibers)
            if (other.state == kAtNamed && other.named == id) note(other);
        const Acquired now{{&var, var.count}};
        for (Fiber& other : block->fibers) {
            const bool waits = other.state == kAtNamed && other.named == id;
            if (!waits && &other != fiber) continue;
            merge(other.acquired, now);
            Warp& warp = block->warps[other.ids.linear / 32];
            warp.touched = true;
            if (warp.clock[other.ids.lane][other.ids.lane] < kClockMask - 1)
                set_when(&other, block->epoch, ++warp.clock[other.ids.lane][other.ids.lane]);
            if (waits) wake(&other);
        }
        return;
    }
    if (!wait) return;
    fiber->state = kAtNamed;
    leave(fiber);
}

[[gnu::noinline]] static void grid_barrier(uintptr_t pc) {
    Fiber* fiber = current;
    settle_pending();
    fiber->pc = pc;
    fiber->state = kAtGrid;
    leave(fiber);
}
