// What a candidate's code and the runtime say to each other. Plain data and C functions: the runtime is built once.
#pragma once
#include <cstddef>
#include <cstdint>

namespace crucible {

// Who a CUDA thread is. Read through inline assembly, so that the sanitizer pass sees no access.
struct Ids {
    uint32_t thread[3], block[3], block_dim[3], grid_dim[3], lane, linear;
};

struct Argument {
    const void* bytes;
    size_t size;
    size_t element;    // bytes of what it points to, 0 when it is no pointer
    const char* type;  // `float`, in words, for pointers
};

struct Kernel {
    const char* name;
    const char* parameters;  // comma-separated names, `?` where unknown
    int line;
    const void* address;  // null where the launch leaves template arguments to be deduced
    const void* anchor;   // an address inside the extension
    int bounds;           // __launch_bounds__, 0 without
};

struct Shape {
    uint32_t grid[3], block[3];
    uint64_t shared;
    bool cooperative;
};

// The GPU that is pretended, filled in from crucible/gpus.py when the runtime is loaded.
struct Gpu {
    char name[64];
    uint64_t memory_bytes, l2_bytes, shared_per_block, shared_per_sm, shared_reserved;
    int major, minor, sms, threads_per_sm, blocks_per_sm, threads_per_block, registers_per_sm, clock_khz, memory_clock_khz, bus_bits;
};

// What nvcc made of a kernel; zeros where it was not asked.
struct Compiled {
    int registers;
    uint64_t shared, local;
};

enum WarpOp : int {
    kSync, kShuffle, kBallot, kAll, kAny, kMatchAny, kMatchAll, kActive, kAddU, kMinU, kMaxU, kAnd, kOr, kXor, kMinS, kMaxS, kShuffleNear, kGather
};

struct WarpCall {
    int op;
    uint32_t mask;
    int source;  // lane a shuffle reads
    uint32_t size;
    unsigned char in[16];
    unsigned char out[16];
    uint32_t group;  // lanes that took part
};

enum Order : int { kRelaxed = 0, kAcquire = 1, kRelease = 2 };

}  // namespace crucible

// Calls that threads meet at stay where the source has them: neither merged with another arm's nor made two of.
#ifdef __clang__
#define CRUCIBLE_HERE __attribute__((nomerge, convergent))
#else
#define CRUCIBLE_HERE
#endif

extern "C" {
extern crucible::Ids* crucible_ids;
extern crucible::Gpu crucible_gpu;
int crucible_run(const crucible::Kernel*, const crucible::Shape*, void (*thread)(void*), void* closure,
                 const crucible::Argument*, int arguments);
void* crucible_shared(const void* site, size_t size, size_t align, const char* name, const uint32_t* dims);
void* crucible_dynamic_shared(const char* name);
size_t crucible_dynamic_shared_bytes();
CRUCIBLE_HERE int crucible_barrier(int kind, int value, const char* site);  // site: its file and line
CRUCIBLE_HERE void crucible_named_barrier(int id, int threads, int wait);
CRUCIBLE_HERE void crucible_grid_barrier();
CRUCIBLE_HERE uint64_t crucible_warp(int op, uint32_t mask, int source, uint64_t value, uint32_t size);
uint32_t crucible_present_lanes();
void crucible_gather(uint32_t mask, uint64_t value, uint64_t* all);
void* crucible_shared_base();
void crucible_copy_async(void* to, const void* from, size_t bytes, size_t given);
void crucible_copy_commit();
void crucible_copy_wait(int groups);
void crucible_fence();
void crucible_proxy_fence();
void* crucible_described(uint32_t start);  // where the 18 bits of a matrix descriptor's address are
void crucible_product_reads(const void*, size_t bytes);
void crucible_multiplied(int kind, uint64_t flops);  // by one lane, of all of its warp: 16 bits, TF32, float64, 8 bits
void crucible_products_commit();
void crucible_products_wait(int groups);
void crucible_bulk_store(void* to, const void* from, size_t bytes);
void crucible_bulk_load(void* to, const void* from, size_t bytes, const void* barrier);
size_t crucible_bulk_landed(const void* barrier);  // all that is on its way to it lands; its bytes
void crucible_bulk_commit();
void crucible_bulk_wait(int groups);
void crucible_atomic(const void*, size_t size);  // before an atomic operation, which the caller then does plainly
void crucible_polled(const void*, size_t size);  // before an atomic read that releases nothing
void crucible_observed(const void*, uint64_t value, int order);  // what an atomic or volatile read saw: spin loops yield
void crucible_check(const void*, size_t size, int write);
void* crucible_copy(void* to, const void* from, size_t bytes);  // memcpy and memmove, memset, of watched memory
void* crucible_fill(void* to, int value, size_t bytes);
void crucible_trap(const char* why);
void crucible_yield();
uint64_t crucible_clock();
// memory and errors of the host side
void* crucible_allocate(size_t bytes);
void crucible_free(void*);
void* crucible_stream();  // that PyTorch's calls go to: another one while a graph is captured
void crucible_goes_to(const void* stream);
int crucible_is_allocation(const void*);
int crucible_last_error(int clear);
void crucible_set_error(int code);
const char* crucible_error_words(int code);
const char* crucible_error_name(int code);
void crucible_allow_shared(const void* function, size_t bytes);
crucible::Compiled crucible_compiled(const void* function);
int crucible_resident_blocks(const void* function, int threads, size_t dynamic_shared);  // on one multiprocessor
}
