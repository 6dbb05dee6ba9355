// Stacks of the fibers, taken from one range so that local memory is known by its address.
static char* stacks = nullptr;
static size_t stacks_made = 0;
constexpr size_t kMaxStacks = 1 << 18;
static std::vector<char*> free_stacks;

static char* take_stack() {
    if (!stacks) stacks = reserve(kMaxStacks * kStackBytes);
    if (!free_stacks.empty()) {
        char* stack = free_stacks.back();
        free_stacks.pop_back();
        return stack;
    }
    if (stacks_made == kMaxStacks) return nullptr;
    char* stack = stacks + stacks_made++ * kStackBytes;
    if (stacks_made <= 4096) mprotect(stack, 4096, PROT_NONE);  // guards cost a mapping each, and mappings are few
    return stack;
}

static void fiber_main();

static void prepare(Fiber* fiber) {
    fiber->stack = take_stack();
    if (!fiber->stack) {
        fprintf(stderr, "crucible emulator: more than %zu threads at once\n", kMaxStacks);
        abort();
    }
    void** top = reinterpret_cast<void**>(fiber->stack + kStackBytes);
    *--top = nullptr;  // the return address of fiber_main, which never returns; keeps the stack aligned
    *--top = reinterpret_cast<void*>(&fiber_main);
    for (int i = 0; i < 6; ++i) *--top = nullptr;
    fiber->sp = top;
}

// To the scheduler, until it resumes this fiber.
static inline void leave(Fiber* fiber) {
    crucible_switch(&fiber->sp, scheduler_sp);
}

// The next thread runs on the stack of one that has ended: no switch for threads that never wait.
static inline void hand_over(Fiber* ended, Fiber* next) {
    ++resumes;
    next->stack = ended->stack;
    ended->stack = nullptr;
    next->state = kReady;
    current = next;
    crucible_ids = &next->ids;
}

// Runs a fiber until it, or one that took its stack over, leaves; that one is returned.
static Fiber* resume(Fiber* fiber) {
    ++resumes;
    current = fiber;
    crucible_ids = &fiber->ids;
    crucible_switch(&scheduler_sp, fiber->sp);
    Fiber* left = current;
    current = nullptr;
    crucible_ids = &no_ids;
    return left;
}
