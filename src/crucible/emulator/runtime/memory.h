// Memory of the pretended GPU: an arena with red zones, registered foreign ranges, and what may be touched.
#pragma once
#include <dlfcn.h>
#include <link.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <mutex>

#include "state.h"

namespace crucible {

// Freshly allocated words: a NaN in float, double, half and bfloat16, and no likely integer.
constexpr uint32_t kFresh = 0x7ff97ff9;

inline char* reserve(size_t bytes) {
    void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return at == MAP_FAILED ? nullptr : static_cast<char*>(at);
}

struct Memory {
    char* arena = nullptr;
    uint8_t* valid = nullptr;  // one byte for 8: how many of them may be touched
    Cell* cells = nullptr;     // one for 4 bytes
    size_t top = 4096;
    std::map<uintptr_t, Allocation> allocations;  // by base, freed ones too until their place is taken again
    std::map<size_t, std::vector<size_t>> free_places;
    std::vector<Region> regions;
    std::recursive_mutex mutex;

    bool start() {
        if (arena) return true;
        arena = reserve(kArenaBytes);
        valid = reinterpret_cast<uint8_t*>(reserve(kArenaBytes / 8));
        cells = reinterpret_cast<Cell*>(reserve(kArenaBytes / 4 * sizeof(Cell)));
        return arena && valid && cells;
    }

    static size_t place_size(size_t bytes) {
        const size_t gap = std::clamp<size_t>(bytes, 512, 1 << 20);
        size_t want = (bytes + gap + 511) & ~size_t(511);
        if (want > 8192) {  // eighths of a power of two, so that places are used again
            size_t step = 512;
            while (step * 16 < want) step *= 2;
            want = (want + step - 1) / step * step;
        }
        return want;
    }

    void* allocate(size_t bytes) {
        std::lock_guard<std::recursive_mutex> hold(mutex);
        if (!start()) return nullptr;
        const size_t place = place_size(bytes);
        size_t at;
        auto& free_here = free_places[place];
        if (!free_here.empty()) {
            at = free_here.back();
            free_here.pop_back();
        } else {
            if (top + place > kArenaBytes) return nullptr;
            at = top;
            top += place;
        }
        char* base = arena + at;
        allocations[uintptr_t(base)] = Allocation{base, bytes, place, true};
        std::memset(valid + at / 8, 8, bytes / 8);
        if (bytes % 8) valid[at / 8 + bytes / 8] = bytes % 8;
        uint32_t* words = reinterpret_cast<uint32_t*>(base);
        std::fill(words, words + (bytes + 3) / 4, kFresh);
        return base;
    }

    void free(void* pointer) {
        std::lock_guard<std::recursive_mutex> hold(mutex);
        auto found = allocations.find(uintptr_t(pointer));
        if (found == allocations.end() || !found->second.live) return;
        Allocation& gone = found->second;
        gone.live = false;
        const size_t at = gone.base - arena;
        std::memset(valid + at / 8, 0, (gone.bytes + 7) / 8);
        if (gone.bytes >= (1 << 20)) {
            give_back_pages(uintptr_t(gone.base), uintptr_t(gone.base) + gone.bytes);
            give_back_pages(uintptr_t(cells + at / 4), uintptr_t(cells + (at + gone.bytes) / 4));
        }
        free_places[gone.reserved].push_back(at);
    }

    // The whole pages of a range; what shares a page with something else stays.
    static void give_back_pages(uintptr_t from, uintptr_t to) {
        from = (from + 4095) & ~uintptr_t(4095);
        to &= ~uintptr_t(4095);
        if (to > from) madvise(reinterpret_cast<void*>(from), to - from, MADV_DONTNEED);
    }

    bool owns(const void* pointer) const {
        return arena && uintptr_t(pointer) - uintptr_t(arena) < kArenaBytes;
    }

    // The allocation that an address belongs to or lies nearest behind.
    const Allocation* nearest(uintptr_t address) {
        auto after = allocations.upper_bound(address);
        if (after == allocations.begin()) return nullptr;
        return &std::prev(after)->second;
    }

    void add_region(uintptr_t lo, uintptr_t hi, bool is_module, const char* name) {
        std::lock_guard<std::recursive_mutex> hold(mutex);
        for (const Region& known : regions)
            if (known.lo <= lo && hi <= known.hi) return;
        Cell* shadow = reinterpret_cast<Cell*>(reserve(((hi - lo) / 4 + 2) * sizeof(Cell)));
        regions.push_back(Region{lo, hi, shadow, is_module, name});
        std::sort(regions.begin(), regions.end(), [](const Region& a, const Region& b) { return a.lo < b.lo; });
    }

    void drop_foreign() {
        std::lock_guard<std::recursive_mutex> hold(mutex);
        for (const Region& gone : regions)
            if (!gone.is_module) munmap(gone.cells, ((gone.hi - gone.lo) / 4 + 2) * sizeof(Cell));
        regions.erase(std::remove_if(regions.begin(), regions.end(), [](const Region& r) { return !r.is_module; }),
                      regions.end());
    }

    const Region* region_of(uintptr_t address) const {
        auto after = std::upper_bound(regions.begin(), regions.end(), address,
                                      [](uintptr_t a, const Region& r) { return a < r.lo; });
        while (after != regions.begin()) {
            --after;
            if (address < after->hi) return &*after;
            if (address - after->lo > (size_t(1) << 40)) break;
        }
        return nullptr;
    }
};

inline Memory memory;

}  // namespace crucible
