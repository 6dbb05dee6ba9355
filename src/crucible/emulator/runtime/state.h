// The runtime's records: cells of the shadow memory, fibers, warps, blocks, launches, faults.
#pragma once
#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "crucible/abi.h"

namespace crucible {

constexpr size_t kStackBytes = 128 << 10;
constexpr size_t kArenaBytes = 64ull << 30;
constexpr size_t kSlotBytes = 1 << 20;  // shared memory of one block with the gaps between its variables
constexpr size_t kDynamicAt = 512 << 10;
constexpr int kMaxThreads = 1024;
constexpr uint64_t kSharedDefault = 48 << 10;  // without cudaFuncSetAttribute, on every GPU

// One access: block serial (top bit: atomic), when = thread:10 | clock:11 | epoch:11, pc = bytes touched:4 | offset:28.
struct Mark {
    uint32_t block, when, pc;
};
struct Cell {
    Mark write, read, other;
    uint32_t is_volatile;  // bit 0: the write was; bit 1: the read was
};
static_assert(sizeof(Cell) == 40);

enum State : uint8_t { kUnstarted, kReady, kAtBarrier, kAtWarp, kAtGrid, kAtNamed, kDone };

struct SyncVar;
using Acquired = std::vector<std::pair<SyncVar*, size_t>>;

struct Copy {
    char* to;
    const char* from;
    size_t bytes, given;
};

// What reads shared memory from when it is issued until it is waited for.
struct Asynchronous {
    char* to;  // null where nothing is copied
    const char* from;
    std::string content;
    uintptr_t pc;
};

// A bulk copy into shared memory, which lands when its barrier is asked for.
struct Landing {
    char* to;
    std::string content;
    const char* barrier;
    uintptr_t pc;
    uint32_t when;  // as in Mark, when it was issued
};

// Bytes of shared memory that lie behind each other.
struct Stretch {
    uint32_t from, to;
};

struct Block;
struct Fiber {
    Ids ids;
    void* sp = nullptr;
    char* stack = nullptr;
    Block* block = nullptr;
    uint32_t when = 0;  // as in Mark
    State state = kUnstarted;
    bool fenced = false;
    uintptr_t pc = 0;  // of what it waits at
    int barrier_kind = 0, barrier_value = 0, barrier_result = 0, named = 0;
    WarpCall* call = nullptr;
    const void* spin_at = nullptr;
    uint64_t spin_value = 0;
    uintptr_t spin_pc = 0;
    int spins = 0;
    Acquired acquired;
    std::vector<std::vector<Copy>> copies;  // asynchronous ones by group; the last group is still open
    std::vector<std::vector<Asynchronous>> bulk, products;  // bulk copies, and what matrix instructions read
    std::vector<Stretch> wrote;                     // of shared memory, since its last fence.proxy.async
    bool just_fenced = false;                       // for the asynchronous proxy, and met nobody since
};

struct Warp {
    uint16_t clock[32][32];  // clock[i][j]: what lane i knows of lane j's time
    bool saturated, touched;  // touched: clocks have moved since the last barrier
    uint32_t live;           // lanes that have not ended
    uint32_t waiting, mask;  // lanes at a warp operation, and that of the first of them
    int op;
    bool mixed;  // they wait at different ones
};

struct SharedVariable {
    const void* site;
    const char* name;
    uint32_t offset;
    size_t size;
};

struct Block {
    uint32_t index[3], linear, serial, epoch;
    int threads, live, waiting, next;
    bool votes;  // votes: somebody waits at a barrier that counts
    std::vector<Fiber> fibers;
    std::vector<Warp> warps;
    std::deque<Fiber*> ready, yielded;
    char* slot;
    Cell* cells;
    uint8_t* written;
    uint8_t* valid;  // 1 byte per byte of the slot: may be touched
    std::vector<SharedVariable> variables;
    uint32_t used;
    Acquired acquired;
    std::map<int, int> named_count;
    std::vector<Landing> landing;
    uintptr_t first_barrier_pc;
};

// Who released what on an address used for synchronisation; an acquirer knows the first so many releases. Of each thread
// those are kept that say more than the one before.
struct Release {
    uint32_t owner, epoch, thread, clock;
};
struct Known {
    size_t count;  // the release that said so
    uint32_t epoch, clock;
};
// What releases say of a block, in their order: rising.
struct OfBlock {
    std::vector<Known> epochs;
    std::vector<std::vector<Known>> threads;
};
struct SyncVar {
    size_t count = 0, told = 0;  // releases, and threads that they say something of
    std::vector<std::pair<size_t, uint64_t>> news;   // what release said more of which thread
    std::unordered_map<const SyncVar*, size_t> taken;  // so many releases of others are in this

    SyncVar() = default;
    SyncVar(const SyncVar&) = delete;

    void add(const Release& release) {
        ++count;
        OfBlock& block = of(release.owner);
        if (block.threads.size() <= release.thread) block.threads.resize(release.thread + 1);
        std::vector<Known>& thread = block.threads[release.thread];
        told += thread.empty();
        if (grow(thread, release.epoch, release.clock)) news.emplace_back(count, uint64_t(release.owner) << 10 | release.thread);
        grow(block.epochs, release.epoch, 0);
    }
    // All that the first so many releases of another say. A warp's lanes that arrive one by one have learnt the same:
    // only what is new is looked at (a small convolution whose lanes all arrive took 38 s, and takes 1.4).
    void take(const SyncVar& other, size_t prefix) {
        size_t& before = taken[&other];
        if (prefix <= before) return;
        auto next = std::upper_bound(other.news.begin(), other.news.end(), std::pair(before, ~uint64_t(0)));
        before = prefix;
        for (; next != other.news.end() && next->first <= prefix; ++next) {
            const uint32_t owner = uint32_t(next->second >> 10), thread = uint32_t(next->second & 1023);
            if (const Known* last = other.latest(owner, thread, prefix)) add({owner, last->epoch, thread, last->clock});
        }
    }
    // What the first so many releases say of a thread, or of its block's latest epoch; null where they say nothing.
    const Known* latest(uint32_t owner, uint32_t thread, size_t prefix) const {
        const OfBlock* block = find(owner);
        return block && thread < block->threads.size() ? last_of(block->threads[thread], prefix) : nullptr;
    }
    const Known* latest(uint32_t owner, size_t prefix) const {
        const OfBlock* block = find(owner);
        return block ? last_of(block->epochs, prefix) : nullptr;
    }

private:
    std::unordered_map<uint32_t, OfBlock> owners;
    mutable std::pair<uint32_t, OfBlock*> asked{0, nullptr};  // lately: mostly one block's own threads are told of

    const OfBlock* find(uint32_t owner) const {
        if (asked.second && asked.first == owner) return asked.second;
        const auto found = owners.find(owner);
        if (found == owners.end()) return nullptr;
        asked = {owner, const_cast<OfBlock*>(&found->second)};
        return asked.second;
    }
    OfBlock& of(uint32_t owner) {
        if (!find(owner)) asked = {owner, &owners[owner]};
        return *asked.second;
    }
    static const Known* last_of(const std::vector<Known>& rising, size_t prefix) {
        if (!rising.empty() && rising.back().count <= prefix) return &rising.back();
        const auto after = std::upper_bound(rising.begin(), rising.end(), prefix,
                                            [](size_t wanted, const Known& one) { return wanted < one.count; });
        return after == rising.begin() ? nullptr : &*(after - 1);
    }
    bool grow(std::vector<Known>& rising, uint32_t epoch, uint32_t clock) {
        if (!rising.empty() && std::pair(epoch, clock) <= std::pair(rising.back().epoch, rising.back().clock)) return false;
        rising.push_back({count, epoch, clock});
        return true;
    }
};

struct Fault {
    std::string kind, kernel, memory, detail;
    uint32_t block[3], thread[3];
    uintptr_t pc = 0;
    bool has_other = false;
    uint32_t other_block[3] = {0, 0, 0}, other_thread[3] = {0, 0, 0};
    uintptr_t other_pc = 0;
    std::vector<uintptr_t> samples;  // of a loop: where it was at several times
    int line = 0;  // instead of a pc, where the runtime knows the line itself
    long count = 1;
    int fatal = 0;
    std::string anchor;  // file of the extension
};

struct Allocation {
    char* base;
    size_t bytes, reserved;
    bool live;
};

struct Region {
    uintptr_t lo, hi;
    Cell* cells;
    bool is_module;
    const char* name;
};

struct Launch {
    const Kernel* kernel;
    const Shape* shape;
    void (*thread)(void*);
    void* closure;
    const Argument* arguments;
    int count;
    uint32_t base;  // marks below this serial are of earlier launches
    uint32_t first_serial;
    std::vector<uint32_t> owner;  // serial - first_serial -> linear block
    uintptr_t module_base;
    std::string module_file;
    bool acquired_any, fences, aborted, unstarted_blocks;
    uint64_t next_block, blocks;
    std::vector<std::unique_ptr<Block>> active;
    std::unordered_map<uintptr_t, SyncVar> sync_vars;
    bool progress;
};

}  // namespace crucible
