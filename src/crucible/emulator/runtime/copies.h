// memcpy, memmove and memset inside kernels: what they touch is checked like loads and stores, then they are done. Matrix
// instructions and bulk copies, which go on beside the thread that issues them.

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

void crucible_proxy_fence() {
    if (current) crucible::publish_writes(current);
}
// Static shared memory and dynamic shared memory are half a MiB apart here: 18 bits mean the dynamic where it goes so far.
void* crucible_described(uint32_t start) {
    const bool dynamic = start < crucible::launch->shape->shared;
    return current->block->slot + (dynamic ? crucible::kDynamicAt : 0) + start;
}
void crucible_product_reads(const void* from, size_t bytes) {
    const char* place = static_cast<const char*>(from);
    crucible::read_asynchronously(current, place, bytes, CALLER);
    crucible::issue(current->products, nullptr, place, bytes, CALLER);
}
void crucible_products_commit() {
    if (!current) return;
    crucible::open_group(current->products);
    current->products.emplace_back();
}
void crucible_products_wait(int groups) {
    if (!current) return;
    const uintptr_t pc = CALLER;
    crucible::finish_groups(current->products, size_t(groups), [&](const crucible::Asynchronous& read) { crucible::finish(read, pc); });
}
void crucible_bulk_store(void* to, const void* from, size_t bytes) {
    if (!current) return;
    for (const uintptr_t place : {uintptr_t(from), uintptr_t(to), uintptr_t(bytes)})
        if (place % 16) crucible::misaligned(place, 16, place == uintptr_t(to), false, CALLER);
    crucible::read_asynchronously(current, static_cast<const char*>(from), bytes, CALLER);
    crucible::access(uintptr_t(to), bytes, true, false, false, false, CALLER);
    crucible::issue(current->bulk, static_cast<char*>(to), static_cast<const char*>(from), bytes, CALLER);
}
void crucible_bulk_load(void* to, const void* from, size_t bytes, const void* barrier) {
    if (!current) return;
    for (const uintptr_t place : {uintptr_t(to), uintptr_t(from), uintptr_t(bytes)})
        if (place % 16) crucible::misaligned(place, 16, place == uintptr_t(to), false, CALLER);
    crucible::access(uintptr_t(from), bytes, false, false, false, false, CALLER);
    crucible::begin_landing(current, static_cast<char*>(to), static_cast<const char*>(from), bytes, static_cast<const char*>(barrier), CALLER);
}
size_t crucible_bulk_landed(const void* barrier) {
    return current ? crucible::land(current, static_cast<const char*>(barrier), CALLER) : 0;
}
void crucible_bulk_commit() {
    if (!current) return;
    crucible::open_group(current->bulk);
    current->bulk.emplace_back();
}
void crucible_bulk_wait(int groups) {
    if (current) crucible::finish_bulk(current, size_t(groups), CALLER);
}
}
