// memcpy, memmove and memset inside kernels: what they touch is checked like loads and stores, then they are done.

namespace crucible {

static void* copied(void* to, const void* from, size_t bytes, uintptr_t pc) {
    if (current && bytes) {
        access(uintptr_t(from), bytes, false, false, false, false, pc);
        access(uintptr_t(to), bytes, true, false, false, false, pc);
    }
    return std::memmove(to, from, bytes);
}

static void* filled(void* to, int value, size_t bytes, uintptr_t pc) {
    if (current && bytes) access(uintptr_t(to), bytes, true, false, false, false, pc);
    return std::memset(to, value, bytes);
}

}  // namespace crucible

extern "C" {
void* crucible_copy(void* to, const void* from, size_t bytes) { return crucible::copied(to, from, bytes, CALLER); }
void* crucible_fill(void* to, int value, size_t bytes) { return crucible::filled(to, value, bytes, CALLER); }
// clang's pass replaces every one that it finds, those it made itself of struct assignments included.
void* __tsan_memcpy(void* to, const void* from, size_t bytes) { return crucible::copied(to, from, bytes, CALLER); }
void* __tsan_memmove(void* to, const void* from, size_t bytes) { return crucible::copied(to, from, bytes, CALLER); }
void* __tsan_memset(void* to, int value, size_t bytes) { return crucible::filled(to, value, bytes, CALLER); }
}
