// The pretended GPU: built once per machine, loaded by every extension. See docs/emulator.md.
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <random>

#include "faults.h"

extern "C" {
crucible::Ids* crucible_ids = nullptr;
crucible::Gpu crucible_gpu{};
void crucible_switch(void** save, void* load);
void crucible_enter();  // the second half of it: with the stack pointer set, goes on there
}
// Saves the registers that a call must keep, changes stacks.
asm(R"(
.text
.globl crucible_switch
.type crucible_switch, @function
crucible_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size crucible_switch, .-crucible_switch
.globl crucible_enter
crucible_enter:
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
)");

namespace crucible {

static void* scheduler_sp = nullptr;
static uint64_t resumes = 0;
static Ids no_ids{};
static int last_error = 0;    // what cudaGetLastError answers
static int sticky_error = 0;  // an illegal access: the context is lost
static int unchecked_line = 0;
static Fault unchecked;
static int capturing = 0, uncaptured = 0;  // a torch.cuda.CUDAGraph; launches meanwhile on other streams
static int schedule = 0;  // 0 forward, 1 reverse, 2 random, 3 idle: launches are checked, and nothing of them runs
static std::mt19937 chance(1);
static double thread_limit_s = 10;
static std::unordered_map<const void*, size_t> allowed_shared;
static size_t allowed_shared_anywhere = kSharedDefault;
static std::unordered_map<const void*, Compiled> compiled;
static std::set<std::string> launched;
struct Given {
    std::string kernel, parameter, type;
    size_t element;
};
static std::map<uintptr_t, Given> given_to;  // allocation -> the kernel that had a pointer to it last
static uint32_t next_serial = 1;
static uint64_t launches = 0, unwritten_reads = 0;
static uintptr_t accessed_at = 0;  // the last access to memory, until a tick of the timer takes it

#include "stacks.h"
#include "trace.h"
#include "access.h"
#include "proxy.h"
#include "warps.h"
#include "landing.h"
#include "schedule.h"
#include "signals.h"
#include "gpu.h"
#include "host.h"

}  // namespace crucible

#include "hooks.h"
#include "copies.h"
#include "library.h"
#include "xorwow.h"
