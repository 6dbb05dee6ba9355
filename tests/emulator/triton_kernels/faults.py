"""Triton kernels with a planted fault each, named by its kind, on the line marked FAULT; and their repaired twins."""

import torch
import triton
import triton.language as tl
from triton.runtime.interpreter import InterpreterBuilder


def tensors(n=1000):
    return torch.randn(n, device="cuda"), torch.empty(n, device="cuda")


def fault_load_without_a_mask(repaired):
    """out-of-bounds-global: read of 4 bytes: just past the end of `x` (float[1000])"""
    x, out = tensors()
    load_unmasked[(4,)](x, out, 1000, repaired, BLOCK=256)


@triton.jit
def load_unmasked(x, out, n, REPAIRED: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n) if REPAIRED else tl.load(x + at)  # FAULT
    tl.store(out + at, value, mask=at < n)


def fault_store_without_a_mask(repaired):
    """out-of-bounds-global: write of 4 bytes: just past the end of `out` (float[1000])"""
    x, out = tensors()
    store_unmasked[(4,)](x, out, 1000, repaired, BLOCK=256)


@triton.jit
def store_unmasked(x, out, n, REPAIRED: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)
    tl.store(out + at, value, mask=(at < n) if REPAIRED else (at < n + BLOCK))  # FAULT


def fault_mask_off_by_one(repaired):
    """out-of-bounds-global: read of 4 bytes: just past the end of `x` (float[1000])"""
    x, out = tensors()
    one_too_many[(4,)](x, out, 1000 if repaired else 1001, BLOCK=256)


@triton.jit
def one_too_many(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)  # FAULT
    tl.store(out + at, value, mask=at < n)


def fault_before_the_start(repaired):
    """out-of-bounds-global: read of 4 bytes: 4 bytes before the start of `x` (float[1000])"""
    x, out = tensors()
    differences[(4,)](x, out, 1000, repaired, BLOCK=256)


@triton.jit
def differences(x, out, n, REPAIRED: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    before = tl.load(x + at - 1, mask=(at < n) & (at > 0) if REPAIRED else at < n)  # FAULT
    tl.store(out + at, tl.load(x + at, mask=at < n) - before, mask=at < n)


def fault_atomic_out_of_bounds(repaired):
    """out-of-bounds-global: atomic operation on 4 bytes: just past the end of `out` (float[10])"""
    histogram[(1,)](torch.zeros(10, device="cuda"), 10 if repaired else 11, BLOCK=64)


@triton.jit
def histogram(out, bins, BLOCK: tl.constexpr):
    tl.atomic_add(out + tl.arange(0, BLOCK) % bins, 1.0)  # FAULT


if hasattr(InterpreterBuilder, "create_make_block_ptr"):  # Triton 3.9 has none

    def fault_block_pointer_without_a_check(repaired):
        """out-of-bounds-global: read of 4 bytes: just past the end of `x` (float[1000])"""
        x, out = tensors()
        through_block_pointer[(4,)](x, out, 1000, repaired, BLOCK=256)

    @triton.jit
    def through_block_pointer(x, out, n, REPAIRED: tl.constexpr, BLOCK: tl.constexpr):
        given = tl.make_block_ptr(x, (n,), (1,), (tl.program_id(0) * BLOCK,), (BLOCK,), (0,))
        result = tl.make_block_ptr(out, (n,), (1,), (tl.program_id(0) * BLOCK,), (BLOCK,), (0,))
        value = tl.load(given, boundary_check=(0,)) if REPAIRED else tl.load(given)  # FAULT
        tl.store(result, value, boundary_check=(0,))


def fault_all_programs_store_one_element(repaired):
    """race-global: write after write: element 0 of `out` (float[4])"""
    x = torch.randn(1000, device="cuda")
    overwriting[(4,)](x, torch.zeros(4, device="cuda"), 1000, 1 if repaired else 0, BLOCK=256)


@triton.jit
def overwriting(x, out, n, step, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + tl.program_id(0) * step, tl.sum(tl.load(x + at, mask=at < n, other=0.0)))  # FAULT


def fault_sum_without_an_atomic(repaired):
    """race-global: read after write: element 0 of `out` (float[1])"""
    adding[(4,)](torch.randn(1000, device="cuda"), torch.zeros(1, device="cuda"), 1000, repaired, BLOCK=256)


@triton.jit
def adding(x, out, n, REPAIRED: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    part = tl.sum(tl.load(x + at, mask=at < n, other=0.0))
    if REPAIRED:
        tl.atomic_add(out, part)
    else:
        tl.store(out, tl.load(out) + part)  # FAULT


def fault_neighbours_in_place(repaired):
    """race-global: write after read: element 256 of `x` (float[1000])"""
    x, out = tensors()
    smoothed[(4,)](x, out if repaired else x, 1000, BLOCK=256)


@triton.jit
def smoothed(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    after = tl.load(x + at + 1, mask=at + 1 < n, other=0.0)
    tl.store(out + at, tl.load(x + at, mask=at < n) + after, mask=at < n)  # FAULT


def fault_one_store_twice_to_an_address(repaired):
    """race-global: one store writes different values to one address: element 0 of `out` (float[128])"""
    folded[(1,)](torch.zeros(128, device="cuda"), 128 if repaired else 64, BLOCK=128)


@triton.jit
def folded(out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at % n, at.to(tl.float32))  # FAULT


def fault_accumulates_into_what_nobody_wrote(repaired):
    """uninitialised-global: atomic operation on memory that nobody wrote: element 0 of `out` (float[4])"""
    out = torch.zeros(4, device="cuda") if repaired else torch.empty(4, device="cuda")
    accumulating[(4,)](torch.randn(1000, device="cuda"), out, 1000, BLOCK=256)


@triton.jit
def accumulating(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out + at % 4, tl.load(x + at, mask=at < n, other=0.0), mask=at < n)  # FAULT


def fault_reads_what_nobody_wrote(repaired):
    """uninitialised-global: read of memory that nobody wrote: element 0 of `x` (half[1000])"""
    x, out = tensors()
    x = x.half() if repaired else torch.empty(1000, device="cuda", dtype=torch.float16)
    one_too_many_or_not[(4,)](x, out, 1000, BLOCK=256)


@triton.jit
def one_too_many_or_not(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n).to(tl.float32), mask=at < n)  # FAULT


def fault_misaligned(repaired):
    """misaligned: read of 4 bytes at an address that is not a multiple of 4: element 0 of `x` (float[1000])"""
    x, out = tensors()
    crooked[(1,)](x, out, 4 if repaired else 2, BLOCK=64)


@triton.jit
def crooked(x, out, by, BLOCK: tl.constexpr):
    moved = (x.to(tl.pointer_type(tl.int8)) + by).to(tl.pointer_type(tl.float32))
    tl.store(out + tl.arange(0, BLOCK), tl.load(moved + tl.arange(0, BLOCK)))  # FAULT


def fault_grid_too_tall(repaired):
    """launch-limits: grid y is 65536; the limit is 65535"""
    empty[(1, 3 if repaired else 65536)](torch.zeros(1, device="cuda"))  # FAULT


@triton.jit
def empty(out):
    pass


def fault_endless_loop(repaired):
    """runaway-loop: 1 s of processor time without any access to memory"""
    counting[(1,)](torch.zeros(1, dtype=torch.int32, device="cuda"), repaired)


@triton.jit
def counting(out, step):
    count = 0
    while count < 3:  # FAULT
        count += step  # FAULT
    tl.store(out, count)


def waits():
    waiting[(2,)](torch.zeros(1, dtype=torch.int32, device="cuda"))


@triton.jit
def waiting(flag):
    if tl.program_id(0) == 0:
        while tl.atomic_add(flag, 0) == 0:
            pass
    else:
        tl.atomic_xchg(flag, 1)


@triton.jit
def never_launched(out):
    helper(out)


@triton.jit
def helper(out):
    tl.store(out, 0)
