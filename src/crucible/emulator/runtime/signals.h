// Signals inside a kernel: a wild address, an illegal instruction, a stack used up, a loop without end.

static struct sigaction before_segv, before_bus, before_fpe, before_ill;
static timer_t timer;
static bool timer_made = false;
static uint64_t seen_resumes = 0;
static double same_thread_s = 0;
// Where that thread was at the last ticks, by its accesses to memory if it has any. One place would not do: what a compiler
// moves into a loop has no line, or that of other code, and the stub of a call has none.
static std::vector<uintptr_t> samples;
constexpr size_t kSamples = 32;
constexpr double kTickS = 0.1;
// Lines are looked up a byte before a pc, since a return address lies behind its call; an interrupted instruction lies ahead.
constexpr uintptr_t kInstruction = 1;
constexpr const char* kDivision = "integer division by zero, or of the least integer by -1";
static uintptr_t module_end = 0;
static char signal_stack[64 << 10];

static const struct sigaction* earlier(int signal) {
    return signal == SIGSEGV ? &before_segv : signal == SIGBUS ? &before_bus : signal == SIGFPE ? &before_fpe : &before_ill;
}

// Leaves the interrupted fiber for good and goes on in the scheduler.
static void end_launch(void* context, int error) {
    launch->aborted = true;
    sticky_error = last_error = error;
    auto* registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
    registers[REG_RSP] = greg_t(scheduler_sp);
    registers[REG_RIP] = greg_t(&crucible_enter);
}

static bool in_module(uintptr_t pc) { return launch && pc >= launch->module_base && pc < module_end; }

static Fault signalled(int signal, uintptr_t pc, uintptr_t address) {
    const uintptr_t stack = uintptr_t(current->stack);
    if (signal == SIGFPE) return fault_here("division-by-zero", pc, kDivision);
    if (signal == SIGILL)
        return fault_here("illegal-instruction", pc, "illegal instruction: undefined behaviour that the compiler made a trap");
    if (address - stack < 4096 || (address < stack && stack - address < 65536))
        return fault_here("out-of-bounds-local", pc, "the thread's stack is used up: endless recursion, or over 120 KiB of local memory");
    return fault_here("out-of-bounds-global", pc, "access to", address);
}

static void on_fault(int signal, siginfo_t* info, void* context) {
    if (!current || !launch) {
        sigaction(signal, earlier(signal), nullptr);  // not a kernel's: as if we had never been here
        return;
    }
    const auto* registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
    uintptr_t pc = uintptr_t(registers[REG_RIP]);
    const uintptr_t address = uintptr_t(info->si_addr);
    if (in_module(pc))
        pc += kInstruction;
    else  // inside a library function: the nearest return address that is the candidate's
        for (uintptr_t at = uintptr_t(registers[REG_RSP]), n = 0;
             n < 512 && at + 8 <= uintptr_t(current->stack) + kStackBytes && at >= uintptr_t(current->stack) + 4096;
             at += 8, ++n)
            if (in_module(*reinterpret_cast<uintptr_t*>(at))) {
                pc = *reinterpret_cast<uintptr_t*>(at);
                break;
            }
    Fault fault = signalled(signal, pc, address);
    fault.fatal = 700;
    report(std::move(fault));
    end_launch(context, 700);
}

static void on_tick(int, siginfo_t*, void* context) {
    if (!launch || !current) return;
    if (resumes != seen_resumes) {
        seen_resumes = resumes;
        same_thread_s = 0;
        samples.clear();
        accessed_at = 0;
        return;
    }
    same_thread_s += kTickS;
    const uintptr_t pc = uintptr_t(static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP]);
    const uintptr_t sample = accessed_at ? accessed_at : in_module(pc) ? pc + kInstruction : 0;
    accessed_at = 0;
    if (sample && samples.size() < kSamples) samples.push_back(sample);
    // In the runtime, perhaps amid a change: another tick will hit the candidate.
    if (same_thread_s < thread_limit_s + (in_module(pc) ? 0 : 5)) return;
    const std::string words = format("one thread has run for %.3g s of processor time without end", same_thread_s);
    Fault fault = fault_here("runaway-loop", samples.empty() ? pc : samples.back(), words);
    fault.fatal = 702;
    fault.samples = samples;
    report(std::move(fault));
    end_launch(context, 702);
}

static void catch_signals() {
    struct sigaction action {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    stack_t known {};
    sigaltstack(nullptr, &known);
    if (known.ss_flags & SS_DISABLE) {
        stack_t own {};
        own.ss_sp = signal_stack;
        own.ss_size = sizeof signal_stack;
        sigaltstack(&own, nullptr);
    }
    sigaction(SIGSEGV, &action, &before_segv);
    sigaction(SIGBUS, &action, &before_bus);
    sigaction(SIGFPE, &action, &before_fpe);
    sigaction(SIGILL, &action, &before_ill);
    if (!timer_made) {
        action.sa_sigaction = on_tick;
        action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
        sigaction(SIGRTMIN + 7, &action, nullptr);
    }
    static pid_t timer_thread = 0;
    const pid_t self = pid_t(syscall(SYS_gettid));
    if (timer_thread != self) {
        if (timer_made) timer_delete(timer);
        sigevent event {};
        event.sigev_notify = SIGEV_THREAD_ID;
        event.sigev_signo = SIGRTMIN + 7;
        event._sigev_un._tid = self;
        timer_made = timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &timer) == 0;
        timer_thread = self;
    }
    same_thread_s = 0;
    samples.clear();
    samples.reserve(kSamples);
    seen_resumes = resumes;
    const itimerspec every{{0, long(kTickS * 1e9)}, {0, long(kTickS * 1e9)}};
    if (timer_made) timer_settime(timer, 0, &every, nullptr);
}

static void release_signals() {
    const itimerspec never{};
    if (timer_made) timer_settime(timer, 0, &never, nullptr);
    sigaction(SIGSEGV, &before_segv, nullptr);
    sigaction(SIGBUS, &before_bus, nullptr);
    sigaction(SIGFPE, &before_fpe, nullptr);
    sigaction(SIGILL, &before_ill, nullptr);
}
