// The names that the compiler's sanitizer passes and the candidate's headers call.

using crucible::current;
#define CALLER (uintptr_t(__builtin_return_address(0)))

extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}

#define CRUCIBLE_HOOKS(N)                                                                                           \
    void __tsan_read##N(void* p) { crucible::access(uintptr_t(p), N, false, false, false, true, CALLER); }          \
    void __tsan_write##N(void* p) { crucible::access(uintptr_t(p), N, true, false, false, true, CALLER); }          \
    void __tsan_volatile_read##N(void* p) { crucible::volatile_access(uintptr_t(p), N, false, CALLER); }            \
    void __tsan_volatile_write##N(void* p) { crucible::volatile_access(uintptr_t(p), N, true, CALLER); }            \
    void __tsan_unaligned_read##N(void* p) { crucible::access(uintptr_t(p), N, false, false, false, false, CALLER); } \
    void __tsan_unaligned_write##N(void* p) { crucible::access(uintptr_t(p), N, true, false, false, false, CALLER); } \
    void __tsan_unaligned_volatile_read##N(void* p) { crucible::volatile_access(uintptr_t(p), N, false, CALLER); }  \
    void __tsan_unaligned_volatile_write##N(void* p) { crucible::volatile_access(uintptr_t(p), N, true, CALLER); }

}

namespace crucible {

// Spin loops: one place sees one value again and again. Then the others get their turn.
static void observed(const void* at, uint64_t value, uintptr_t pc) {
    Fiber* fiber = current;
    if (fiber->spin_at != at || fiber->spin_value != value || fiber->spin_pc != pc) {
        if (fiber->spins > 8) launch->progress = true;
        fiber->spin_at = at;
        fiber->spin_value = value;
        fiber->spin_pc = pc;
        fiber->spins = 0;
        return;
    }
    if (++fiber->spins < 8) return;
    settle_pending();
    fiber->block->yielded.push_back(fiber);
    leave(fiber);
}

static void acquire(Fiber* fiber, uintptr_t at) {
    if (!launch->fences) return;
    auto found = launch->sync_vars.find(at);
    if (found == launch->sync_vars.end() || !found->second.count) return;
    merge(fiber->acquired, Acquired{{&found->second, found->second.count}});
}

static void publish(Fiber* fiber, uintptr_t at) {
    if (!fiber->fenced) return;
    Warp& warp = fiber->block->warps[fiber->ids.linear / 32];
    warp.touched = true;
    uint16_t& clock = warp.clock[fiber->ids.lane][fiber->ids.lane];
    SyncVar& here = launch->sync_vars[at];
    here.add({fiber->block->linear, epoch_of(fiber->when), fiber->ids.linear, clock});
    // What the other lanes did before they last met this one.
    for (uint32_t lane = 0; lane < 32; ++lane)
        if (const uint16_t met = warp.clock[fiber->ids.lane][lane]; met && lane != fiber->ids.lane)
            here.add({fiber->block->linear, epoch_of(fiber->when), fiber->ids.linear / 32 * 32 + lane, met});
    if (clock < kClockMask - 1) ++clock;
    set_when(fiber, fiber->block->epoch, clock);
    // What this thread had learnt from others passes on with it.
    for (const Acquired* known : {&fiber->acquired, &fiber->block->acquired})
        for (const auto& [var, prefix] : *known)
            if (var != &here && var->told < 4096) here.take(*var, prefix);
}

static void volatile_access(uintptr_t at, size_t size, bool write, uintptr_t pc) {
    Fiber* fiber = current;
    if (!fiber) return;
    if (!write && at - uintptr_t(fiber->stack) >= kStackBytes) {
        acquire(fiber, at);
        access(at, size, write, false, true, true, pc);
        uint64_t value = 0;
        std::memcpy(&value, reinterpret_cast<void*>(at), size < 8 ? size : 8);
        observed(reinterpret_cast<void*>(at), value, pc);
        acquire(fiber, at);
        return;
    }
    access(at, size, write, false, true, true, pc);
    if (write) {
        publish(fiber, at);
        launch->progress = true;
    }
}

}  // namespace crucible

extern "C" {

CRUCIBLE_HOOKS(1)
CRUCIBLE_HOOKS(2)
CRUCIBLE_HOOKS(4)
CRUCIBLE_HOOKS(8)
CRUCIBLE_HOOKS(16)

void __tsan_read_range(void* p, size_t n) { if (n) crucible::access(uintptr_t(p), n, false, false, false, false, CALLER); }
void __tsan_write_range(void* p, size_t n) { if (n) crucible::access(uintptr_t(p), n, true, false, false, false, CALLER); }

#define CRUCIBLE_ATOMICS(BITS, T)                                                                                   \
    T __tsan_atomic##BITS##_load(const volatile T* p, int) {                                                        \
        if (current) crucible_atomic(const_cast<T*>(p), BITS / 8);                                                  \
        const T value = __atomic_load_n(p, __ATOMIC_SEQ_CST);                                                       \
        if (current) crucible_observed(const_cast<T*>(p), uint64_t(value), crucible::kAcquire);                      \
        return value;                                                                                               \
    }                                                                                                               \
    void __tsan_atomic##BITS##_store(volatile T* p, T v, int) {                                                     \
        if (current) crucible_atomic(const_cast<T*>(p), BITS / 8);                                                  \
        __atomic_store_n(p, v, __ATOMIC_SEQ_CST);                                                                   \
        if (current) crucible_observed(const_cast<T*>(p), uint64_t(v), crucible::kRelease);                          \
    }                                                                                                               \
    CRUCIBLE_RMW(BITS, T, exchange, __atomic_exchange_n)                                                            \
    CRUCIBLE_RMW(BITS, T, fetch_add, __atomic_fetch_add)                                                            \
    CRUCIBLE_RMW(BITS, T, fetch_sub, __atomic_fetch_sub)                                                            \
    CRUCIBLE_RMW(BITS, T, fetch_and, __atomic_fetch_and)                                                            \
    CRUCIBLE_RMW(BITS, T, fetch_or, __atomic_fetch_or)                                                              \
    CRUCIBLE_RMW(BITS, T, fetch_xor, __atomic_fetch_xor)                                                            \
    CRUCIBLE_RMW(BITS, T, fetch_nand, __atomic_fetch_nand)                                                          \
    int __tsan_atomic##BITS##_compare_exchange_strong(volatile T* p, T* c, T v, int, int) {                         \
        if (current) crucible_atomic(const_cast<T*>(p), BITS / 8);                                                  \
        return __atomic_compare_exchange_n(p, c, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                     \
    }                                                                                                               \
    int __tsan_atomic##BITS##_compare_exchange_weak(volatile T* p, T* c, T v, int a, int b) {                       \
        return __tsan_atomic##BITS##_compare_exchange_strong(p, c, v, a, b);                                        \
    }                                                                                                               \
    T __tsan_atomic##BITS##_compare_exchange_val(volatile T* p, T c, T v, int a, int b) {                           \
        __tsan_atomic##BITS##_compare_exchange_strong(p, &c, v, a, b);                                              \
        return c;                                                                                                   \
    }
#define CRUCIBLE_RMW(BITS, T, NAME, DO)                                                                             \
    T __tsan_atomic##BITS##_##NAME(volatile T* p, T v, int) {                                                       \
        if (current) crucible_atomic(const_cast<T*>(p), BITS / 8);                                                  \
        return DO(p, v, __ATOMIC_SEQ_CST);                                                                          \
    }
CRUCIBLE_ATOMICS(8, uint8_t)
CRUCIBLE_ATOMICS(16, uint16_t)
CRUCIBLE_ATOMICS(32, uint32_t)
CRUCIBLE_ATOMICS(64, uint64_t)
void __tsan_atomic_thread_fence(int) { if (current) crucible_fence(); }
void __tsan_atomic_signal_fence(int) {}

// ---- undefined behaviour that addresses do not show

struct CrucibleSource { const char* file; uint32_t line, column; };
struct CrucibleType { uint16_t kind, info; char name[1]; };
struct CrucibleBounds { CrucibleSource at; const CrucibleType *array, *index; };
struct CrucibleOverflow { CrucibleSource at; const CrucibleType* type; };

// clang names a typedef and behind it, after `aka`, the type itself.
static std::string type_name(const CrucibleType* type) {
    std::string name = type->name;
    if (const size_t real = name.find("(aka "); real != std::string::npos) name = name.substr(real + 5, name.size() - real - 6);
    for (char noise : {'\'', ' '}) name.erase(std::remove(name.begin(), name.end(), noise), name.end());
    return name;
}

void __ubsan_handle_out_of_bounds(CrucibleBounds* data, uintptr_t index) {
    if (!current) return;
    const std::string type = type_name(data->array);
    for (const auto& variable : current->block->variables) {  // where it really goes is seen at the access itself
        std::string known = variable.name;
        known.erase(std::remove(known.begin(), known.end(), ' '), known.end());
        const size_t dims = type.find('[');
        if (dims != std::string::npos && known.size() >= type.size() - dims &&
            known.compare(known.size() - (type.size() - dims), std::string::npos, type.substr(dims)) == 0)
            return;
    }
    // clang extends narrow indices with zeros, g++ with their sign.
    const bool is_signed = data->index->info & 1, narrow = data->index->info >> 1 <= 5;
    const long meant = narrow ? long(int32_t(index)) : long(index);
    const bool wrapped = narrow && !is_signed && meant < 0;
    crucible::Fault fault = crucible::fault_here(wrapped ? "index-overflow" : "out-of-bounds-local", CALLER,
        crucible::format("index %ld of an array %s%s", wrapped ? long(uint32_t(index)) : meant, type.c_str(),
                         wrapped ? ", which wrapped below zero" : ""));
    fault.memory = crucible::format("element %ld of a %s", meant, type.c_str());
    fault.fatal = 700;
    crucible::report(std::move(fault));
    crucible::abandon(700);
}
void __ubsan_handle_out_of_bounds_abort(CrucibleBounds* data, uintptr_t index) { __ubsan_handle_out_of_bounds(data, index); }

static void overflowed(CrucibleOverflow* data, const char* what, uintptr_t pc) {
    if (!current || crucible::known("index-overflow", pc)) return;
    crucible::report(crucible::fault_here("index-overflow", pc, crucible::format("%s overflows %s", what, type_name(data->type).c_str())));
}
void __ubsan_handle_add_overflow(CrucibleOverflow* d, uintptr_t, uintptr_t) { overflowed(d, "an addition", CALLER); }
void __ubsan_handle_sub_overflow(CrucibleOverflow* d, uintptr_t, uintptr_t) { overflowed(d, "a subtraction", CALLER); }
void __ubsan_handle_mul_overflow(CrucibleOverflow* d, uintptr_t, uintptr_t) { overflowed(d, "a multiplication", CALLER); }
void __ubsan_handle_negate_overflow(CrucibleOverflow* d, uintptr_t) { overflowed(d, "a negation", CALLER); }

void __ubsan_handle_divrem_overflow(CrucibleOverflow*, uintptr_t, uintptr_t) {
    if (current) crucible::fatal("division-by-zero", CALLER, crucible::kDivision, 0, 700);
}
struct CrucibleMismatch { CrucibleSource at; const CrucibleType* type; unsigned char log_alignment, check; };
void __ubsan_handle_type_mismatch_v1(CrucibleMismatch* data, uintptr_t pointer) {
    if (!current || !data->log_alignment || !(pointer & ((uintptr_t(1) << data->log_alignment) - 1))) return;
    const char* type = data->type->name;
    const size_t align = size_t(1) << data->log_alignment;
    if (align < 2 || pointer - uintptr_t(current->stack) < crucible::kStackBytes) return;
    crucible::fatal("misaligned", CALLER, crucible::format("access as %s at an address that is not a multiple of %zu", type, align), pointer, 716);
}

// ---- the candidate's side

int crucible_run(const crucible::Kernel* kernel, const crucible::Shape* shape, void (*thread)(void*), void* closure,
                 const crucible::Argument* arguments, int count) {
    return crucible::run(kernel, shape, thread, closure, arguments, count);
}

static const char* shared_label(const char* name, const uint32_t* dims) {  // `tile|float[32][33]`, kept for good
    std::string text = name;
    for (int i = 0; dims[i]; ++i) text += crucible::format("[%u]", dims[i]);
    static std::set<std::string> kept;
    return kept.insert(text).first->c_str();
}

void* crucible_shared(const void* site, size_t size, size_t align, const char* name, const uint32_t* dims) {
    if (!current) abort();
    crucible::Block* block = current->block;
    for (const auto& variable : block->variables)
        if (variable.site == site) return block->slot + variable.offset;
    align = align < 16 ? 16 : align;
    const uint32_t at = uint32_t((block->used + align - 1) / align * align);
    size_t total = size;
    for (const auto& variable : block->variables) total += variable.size;
    const char* bar = strchr(name, '|');
    const std::string label(name, bar ? size_t(bar - name) : strlen(name));
    if (total > crucible::kSharedDefault || at + size > crucible::kDynamicAt)
        crucible::fatal("launch-limits", CALLER, crucible::format("%zu bytes of static shared memory with `%s`; the compiler's limit is %lu",
                        total, label.c_str(), crucible::kSharedDefault), 0, 1);
    const uint64_t dynamic = crucible::launch->shape->shared;
    const bool opted_in = crucible::allowed_dynamic(crucible::launch->kernel->address) > crucible::kSharedDefault;
    const uint64_t limit = opted_in ? crucible_gpu.shared_per_block : crucible::kSharedDefault;
    if (total + dynamic > limit) {  // found late, since only the kernel itself shows its static memory
        crucible::refuse(*crucible::launch->kernel, crucible::format("%zu bytes of static and %lu of dynamic shared memory; the limit%s is %lu",
                         total, dynamic, opted_in ? "" : " without cudaFuncSetAttribute", limit), 1, *crucible::launch);
        crucible::launch->aborted = true;
        crucible::leave(current);
    }
    block->variables.push_back(crucible::SharedVariable{site, shared_label(name, dims), at, size});
    block->used = uint32_t(at + size + std::min<size_t>(std::max<size_t>(size, 64), 4096));
    memset(block->valid + at, 1, size);
    crucible::forget_shared(*block, at, size);
    return block->slot + at;
}

void* crucible_dynamic_shared(const char*) {
    return current ? current->block->slot + crucible::kDynamicAt : nullptr;
}
size_t crucible_dynamic_shared_bytes() { return crucible::launch ? crucible::launch->shape->shared : 0; }

int crucible_barrier(int kind, int value, const char* site) { return current ? crucible::barrier(kind, value, site, CALLER) : 0; }
void crucible_named_barrier(int id, int threads, int wait) { if (current) crucible::named_barrier(id, threads, wait, CALLER); }
void crucible_grid_barrier() { if (current) crucible::grid_barrier(CALLER); }
uint64_t crucible_warp(int op, uint32_t mask, int source, uint64_t value, uint32_t size) {
    if (!current) return value;
    crucible::WarpCall call{op, mask, source, size, {}, {}, 0};
    memcpy(call.in, &value, 8);
    crucible::warp_operation(&call, CALLER);
    memcpy(&value, call.out, 8);
    return value;
}
uint32_t crucible_present_lanes() {
    return current ? crucible::live_lanes(current->block, int(current->ids.linear / 32)) : 0;
}
void crucible_gather(uint32_t mask, uint64_t value, uint64_t* all) {
    crucible::WarpCall call{crucible::kGather, mask, -1, 8, {}, {}, 0};
    memcpy(call.in, &value, 8);
    memcpy(call.in + 8, &all, 8);
    crucible::warp_operation(&call, CALLER);
}
void* crucible_shared_base() { return crucible::slots; }

// Asynchronous copies land when they are waited for: who reads before finds what was there. Who read it before the copy
// began, with no barrier between, is at fault all the same.
void crucible_copy_async(void* to, const void* from, size_t bytes, size_t given) {
    if (!current) return;
    if (given) crucible::access(uintptr_t(from), given, false, false, false, true, CALLER);
    if (uintptr_t(to) % bytes) crucible::misaligned(uintptr_t(to), bytes, true, false, CALLER);
    crucible::may_land_now(current, uintptr_t(to), bytes, CALLER);
    if (current->copies.empty()) current->copies.emplace_back();
    current->copies.back().push_back({static_cast<char*>(to), static_cast<const char*>(from), bytes, given});
}
void crucible_copy_commit() {
    if (!current) return;
    if (current->copies.empty()) current->copies.emplace_back();
    current->copies.emplace_back();
}
void crucible_copy_wait(int groups) {
    if (!current) return;
    auto& all = current->copies;
    const size_t open = groups == 0 ? 0 : 1;  // wait_all, and wait_group 0 after a commit, mean everything
    while (all.size() > size_t(groups) + open) {
        for (const crucible::Copy& copy : all.front()) {
            crucible::access(uintptr_t(copy.to), copy.bytes, true, false, false, true, CALLER);
            memset(copy.to, 0, copy.bytes);
            memcpy(copy.to, copy.from, copy.given);
        }
        all.erase(all.begin());
    }
}
void crucible_fence() {
    if (!current) return;
    current->fenced = true;
    crucible::launch->fences = true;
}
void crucible_atomic(const void* at, size_t size) {
    if (!current) return;
    crucible::access(uintptr_t(at), size, true, true, false, true, CALLER);
    crucible::acquire(current, uintptr_t(at));
    crucible::publish(current, uintptr_t(at));
}
void crucible_polled(const void* at, size_t size) {
    if (current) crucible::access(uintptr_t(at), size, true, true, false, true, CALLER);
}
void crucible_observed(const void* at, uint64_t value, int order) {
    if (!current) return;
    if (order != crucible::kRelease) {
        crucible::observed(at, value, CALLER);
        crucible::acquire(current, uintptr_t(at));
        current->just_fenced = false;
    }
}
void crucible_check(const void* at, size_t size, int write) {
    if (size) crucible::access(uintptr_t(at), size, write & 1, false, false, write & 2, CALLER);
}
void crucible_trap(const char* why) {
    if (current) crucible::fatal("device-assert", CALLER, why, 0, strncmp(why, "assert", 6) ? 719 : 710);
    abort();
}
void crucible_misaligned(const void* at, size_t align, int write) {
    if (current && uintptr_t(at) - uintptr_t(current->stack) >= crucible::kStackBytes)
        crucible::misaligned(uintptr_t(at), align, write, false, CALLER);
}
void crucible_yield() {
    if (!current) return;
    crucible::settle_pending();
    if (current->spins < 8) current->spins = 8;
    current->block->yielded.push_back(current);
    crucible::leave(current);
}
uint64_t crucible_clock() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return uint64_t(now.tv_sec) * 1000000000u + uint64_t(now.tv_nsec);
}

void* crucible_allocate(size_t bytes) { return crucible::memory.allocate(bytes); }
void crucible_free(void* pointer) { crucible::memory.free(pointer); }
void* crucible_stream() { return crucible::capturing ? &crucible::capturing : nullptr; }
void crucible_goes_to(const void* stream) { crucible::uncaptured += crucible::capturing && stream != &crucible::capturing; }
int crucible_is_allocation(const void* pointer) { return crucible::memory.owns(pointer); }
int crucible_last_error(int clear) {
    const int error = crucible::last_error;
    if (clear && !crucible::sticky_error) crucible::last_error = 0;
    return error;
}
void crucible_set_error(int code) { crucible::last_error = code; }
const char* crucible_error_words(int code) {
    auto found = crucible::kErrors.find(code);
    return found == crucible::kErrors.end() ? "unknown error" : found->second.second;
}
const char* crucible_error_name(int code) {
    auto found = crucible::kErrors.find(code);
    return found == crucible::kErrors.end() ? "cudaErrorUnknown" : found->second.first;
}
void crucible_allow_shared(const void* function, size_t bytes) {
    crucible::allowed_shared[function] = bytes;
    crucible::allowed_shared_anywhere = std::max(crucible::allowed_shared_anywhere, bytes);
}

// ---- for Python

// Before a call into an extension: a context without errors.
void crucible_call_begins() {
    crucible::last_error = crucible::sticky_error = crucible::unchecked_line = 0;
}
// After it: the error that is still pending, and a fault when nobody looked at a refused launch.
int crucible_call_ended(int raised) {
    // A caller who looks at the error says so; one that returns as if nothing had happened did not.
    if (crucible::unchecked_line && !raised) {
        crucible::Fault fault = crucible::unchecked;
        fault.kind = "unchecked-launch";
        fault.detail = "nobody asked for the error of this launch: " + fault.detail;
        crucible::report(std::move(fault));
    }
    crucible::unchecked_line = 0;
    crucible::given_to.clear();
    crucible::memory.drop_foreign();
    return crucible::sticky_error ? crucible::sticky_error : crucible::last_error;
}
void crucible_foreign(const void* from, size_t bytes) {
    const uintptr_t lo = uintptr_t(from);
    if (bytes && !crucible::memory.owns(from)) crucible::memory.add_region(lo, lo + bytes, false, "");
}
// A result that still holds what allocation left: some of it was never written. The kernel that had it last is named.
void crucible_returned(const void* from, size_t bytes) {
    if (!crucible::memory.owns(from)) return;
    const uint32_t* words = static_cast<const uint32_t*>(from);
    size_t fresh = 0, first = 0;
    for (size_t i = 0; i < bytes / 4; ++i) {
        const bool split = words[i] == 0x5EED5000u && i + 1 < bytes / 4 && words[i + 1] == 0x7FF8C0DEu;
        if ((crucible::holds_poison(words[i]) || split) && !fresh++) first = i;
    }
    const crucible::Allocation* allocation = crucible::memory.nearest(uintptr_t(from));
    if (!fresh || !allocation) return;
    auto known = crucible::given_to.find(uintptr_t(allocation->base));
    if (known == crucible::given_to.end()) return;
    crucible::Fault fault = crucible::fault_here("uninitialised-global", 0,
        crucible::format("%zu of %zu bytes of a result were never written, the first", 4 * fresh, bytes));
    fault.kernel = known->second.kernel;
    const size_t element = known->second.element;
    fault.memory = element ? crucible::format("element %zu of `%s` (%s[%zu])", 4 * first / element, known->second.parameter.c_str(), known->second.type.c_str(), bytes / element)
                           : crucible::format("byte %zu of `%s`", 4 * first, known->second.parameter.c_str());
    crucible::report(std::move(fault));
}
// While on, PyTorch's current stream is one that captures; answers how many launches since the last call went to others.
int crucible_capture(int on) {
    crucible::capturing = on;
    return std::exchange(crucible::uncaptured, 0);
}
char* crucible_faults() { return strdup(crucible::faults_json().c_str()); }
void crucible_forget_faults() {
    crucible::faults.clear();
    crucible::fault_index.clear();
    crucible::launched.clear();
    crucible::launches = 0;
}
char* crucible_launched() {
    std::string names;
    for (const std::string& name : crucible::launched) names += name + "\n";
    return strdup(names.c_str());
}
// Barriers reached so far, as `file of the extension|source file:line`.
char* crucible_reached() {
    std::string sites;
    for (const auto& [module, site] : crucible::reached) sites += module + "|" + site + "\n";
    return strdup(sites.c_str());
}
void crucible_release_text(char* text) { free(text); }
void crucible_set_schedule(int which, unsigned seed) {
    crucible::schedule = which;
    crucible::chance.seed(seed);
}
void crucible_trace(int on) {
    crucible::tracing = on;
    if (on) crucible::traced::forget();
}
void crucible_multiplied(int kind, uint64_t flops) {
    if (current && crucible::tracing) crucible::traced::multiplied(kind, flops);
}
char* crucible_traced() { return strdup(crucible::traced::json().c_str()); }
void crucible_set_thread_limit(double seconds) { crucible::thread_limit_s = seconds; }
}
