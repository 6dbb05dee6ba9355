// Faults as they are found, with the memory in words.
#pragma once
#include <cstdarg>
#include <cstdio>
#include <set>

#include "memory.h"

namespace crucible {

inline Launch* launch = nullptr;
inline Fiber* current = nullptr;
inline std::vector<Fault> faults;
inline std::map<std::string, size_t> fault_index;
inline char* slots = nullptr;  // shared memory of all active blocks
inline size_t slots_bytes = 0;
inline bool stop_at_fault = true;

inline std::string format(const char* pattern, ...) {
    char text[1024];
    va_list arguments;
    va_start(arguments, pattern);
    vsnprintf(text, sizeof text, pattern, arguments);
    va_end(arguments);
    return text;
}

// `out` for a pointer that the kernel was given, also inside a struct; the parameter's place, or -1.
inline int argument_pointing_to(uintptr_t lo, uintptr_t hi) {
    for (int i = 0; launch && i < launch->count; ++i) {
        const Argument& argument = launch->arguments[i];
        for (size_t at = 0; at + 8 <= argument.size; at += 8) {
            uintptr_t word;
            std::memcpy(&word, static_cast<const char*>(argument.bytes) + at, 8);
            if (word >= lo && word < hi) return i;
        }
    }
    return -1;
}

inline std::string parameter_name(int place) {
    const char* text = launch->kernel->parameters;
    for (; place > 0 && text; --place) {
        text = std::strchr(text, ',');
        if (text) ++text;
    }
    if (!text) return "?";
    const char* end = std::strchr(text, ',');
    return end ? std::string(text, end) : std::string(text);
}

inline std::string named(const Allocation& allocation, size_t* element) {
    const int place = argument_pointing_to(uintptr_t(allocation.base), uintptr_t(allocation.base) + allocation.bytes);
    *element = 0;
    if (place < 0) return format("an allocation of %zu bytes", allocation.bytes);
    const Argument& argument = launch->arguments[place];
    *element = argument.element;
    if (argument.element)
        return format("`%s` (%s[%zu])", parameter_name(place).c_str(), argument.type,
                      allocation.bytes / argument.element);
    return format("`%s` (%zu bytes)", parameter_name(place).c_str(), allocation.bytes);
}

inline std::string plural(size_t count, const char* noun) {
    return format("%zu %s%s", count, noun, count == 1 ? "" : "s");
}

inline std::string place_in(uintptr_t address, uintptr_t lo, size_t bytes, size_t element, const std::string& name) {
    if (address < lo) return plural(lo - address, "byte") + " before the start of " + name;
    if (address >= lo + bytes) {
        const size_t past = address - lo - bytes;
        return past ? plural(past, "byte") + " past the end of " + name : "just past the end of " + name;
    }
    if (element) return format("element %zu of ", (address - lo) / element) + name;
    return format("byte %zu of ", size_t(address - lo)) + name;
}

inline std::string shared_words(uintptr_t address, Block* block) {
    const uintptr_t offset = address - uintptr_t(block->slot);
    if (address < uintptr_t(block->slot) || offset >= kSlotBytes) return "shared memory of another block";
    const SharedVariable* best = nullptr;
    for (const SharedVariable& variable : block->variables)
        if (variable.offset <= offset && (!best || variable.offset > best->offset)) best = &variable;
    if (offset >= kDynamicAt || !best) {
        const size_t bytes = launch->shape->shared;
        return place_in(address, uintptr_t(block->slot) + kDynamicAt, bytes, 0,
                        format("the dynamic shared memory (%zu bytes)", bytes));
    }
    const char* bar = std::strchr(best->name, '|');
    const std::string name(best->name, bar ? bar - best->name : std::strlen(best->name));
    const std::string label =
        bar ? format("`%s` (shared %s)", name.c_str(), bar + 1) : format("`%s` (shared, %zu bytes)", name.c_str(), best->size);
    return place_in(address, uintptr_t(block->slot) + best->offset, best->size, 0, label);
}

inline std::string memory_words(uintptr_t address) {
    if (slots && address - uintptr_t(slots) < slots_bytes && current) return shared_words(address, current->block);
    if (memory.owns(reinterpret_cast<void*>(address))) {
        const Allocation* nearest = memory.nearest(address);
        auto after = memory.allocations.upper_bound(address);
        // A negative index lands behind the previous allocation: the nearer one, and rather one the kernel was given.
        if (after != memory.allocations.end() && after->second.live && nearest &&
            address >= uintptr_t(nearest->base) + nearest->bytes) {
            const Allocation& next = after->second;
            const bool given = argument_pointing_to(uintptr_t(next.base), uintptr_t(next.base) + next.bytes) >= 0;
            const bool nearer = uintptr_t(next.base) - address < address - uintptr_t(nearest->base) - nearest->bytes;
            const bool other_given =
                nearest->live &&
                argument_pointing_to(uintptr_t(nearest->base), uintptr_t(nearest->base) + nearest->bytes) >= 0;
            if (given && (!other_given || nearer)) nearest = &next;
        }
        if (!nearest) return format("address %p, never allocated", reinterpret_cast<void*>(address));
        size_t element;
        const std::string name = named(*nearest, &element);
        if (!nearest->live) return place_in(address, uintptr_t(nearest->base), nearest->bytes, 0, "memory already freed");
        return place_in(address, uintptr_t(nearest->base), nearest->bytes, element, name);
    }
    for (const Region& region : memory.regions) {
        if (region.is_module || address + 4096 < region.lo || address >= region.hi + 4096) continue;
        size_t element;
        const std::string name =
            named(Allocation{reinterpret_cast<char*>(region.lo), region.hi - region.lo, 0, true}, &element);
        return place_in(address, region.lo, region.hi - region.lo, element, name);
    }
    if (const Region* region = memory.region_of(address)) {
        (void)region;
        Dl_info info;
        if (dladdr(reinterpret_cast<void*>(address), &info) && info.dli_sname)
            return format("global `%s` + %zu bytes", info.dli_sname, size_t(address - uintptr_t(info.dli_saddr)));
        return "a global variable";
    }
    if (address < 4096) return format("null pointer + %zu bytes", size_t(address));
    return "memory that is not the GPU's (a host pointer, or none at all)";
}

inline void where(const Fiber* fiber, uint32_t* block, uint32_t* thread) {
    std::memcpy(block, fiber->ids.block, 12);
    std::memcpy(thread, fiber->ids.thread, 12);
}

inline void where(uint32_t owner, uint32_t linear, uint32_t* block, uint32_t* thread) {
    const Shape& shape = *launch->shape;
    block[0] = owner % shape.grid[0];
    block[1] = owner / shape.grid[0] % shape.grid[1];
    block[2] = owner / shape.grid[0] / shape.grid[1];
    thread[0] = linear % shape.block[0];
    thread[1] = linear / shape.block[0] % shape.block[1];
    thread[2] = linear / shape.block[0] / shape.block[1];
}

// Keeps one fault for each kind and pair of places; the rest are counted.
inline Fault* report(Fault fault) {
    const std::string key =
        fault.kind + format("|%lx|%lx|%d|", fault.pc, fault.other_pc, fault.line) + (fault.pc ? "" : fault.kernel);
    auto [at, fresh] = fault_index.emplace(key, faults.size());
    if (!fresh) {
        ++faults[at->second].count;
        return nullptr;
    }
    if (faults.size() >= 200) {
        fault_index.erase(at);
        return nullptr;
    }
    faults.push_back(std::move(fault));
    return &faults.back();
}

inline Fault fault_here(const char* kind, uintptr_t pc, std::string detail, uintptr_t address = 0) {
    Fault fault;
    fault.kind = kind;
    fault.pc = pc;
    fault.detail = std::move(detail);
    fault.kernel = launch ? launch->kernel->name : "";
    fault.line = 0;
    fault.anchor = launch ? launch->module_file : "";
    std::memset(fault.block, 0, sizeof fault.block);
    std::memset(fault.thread, 0, sizeof fault.thread);
    if (current) where(current, fault.block, fault.thread);
    if (address) fault.memory = memory_words(address);
    return fault;
}

}  // namespace crucible
