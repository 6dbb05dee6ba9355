"""Intrinsics and primitives against definitions: many in one kernel, over random and awkward numbers."""

# ruff: noqa: E501  (an instruction and what it means stand on one line)

from __future__ import annotations

import types
from functools import cache

import exact
import pytest
import torch
from exact import BF16, E4M3, E5M2, F16, F32

from crucible import emulator

KERNELS = r"""
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include <cub/cub.cuh>
#include <cuda/atomic>
#include <cuda/barrier>
#include <mma.h>

// ---- directed rounding of floats: [n, 2] -> [n, 12]
__global__ void directed(const float* x, float* out) {
    __builtin_assume(threadIdx.x < 1024);
    const float a = x[2 * threadIdx.x], b = x[2 * threadIdx.x + 1];
    float* to = out + 12 * threadIdx.x;
    to[0] = __fadd_rz(a, b), to[1] = __fadd_ru(a, b), to[2] = __fadd_rd(a, b);
    to[3] = __fmul_rz(a, b), to[4] = __fmul_ru(a, b), to[5] = __fmul_rd(a, b);
    to[6] = __fdiv_rz(a, b), to[7] = __fdiv_ru(a, b), to[8] = __fdiv_rd(a, b);
    to[9] = __fmaf_rz(a, b, a), to[10] = __fmaf_ru(a, b, a), to[11] = __fmaf_rd(a, b, a);
}

// ---- conversions of a float to short types: bits, [n] -> [n, 9]
__global__ void shortened(const float* x, int* out) {
    const float a = x[threadIdx.x];
    int* to = out + 9 * threadIdx.x;
    to[0] = __half_as_ushort(__float2half_rn(a)), to[1] = __half_as_ushort(__float2half_rz(a));
    to[2] = __half_as_ushort(__float2half_ru(a)), to[3] = __half_as_ushort(__float2half_rd(a));
    to[4] = __bfloat16_as_ushort(__float2bfloat16_rn(a)), to[5] = __bfloat16_as_ushort(__float2bfloat16_rz(a));
    to[6] = __nv_fp8_e4m3(a).__x, to[7] = __nv_fp8_e5m2(a).__x;
    to[8] = __nv_cvt_float2_to_fp8x2(make_float2(a, -a), __NV_SATFINITE, __NV_E4M3);
}

// ---- arithmetic on pairs: bits, [n, 3] -> [n, 6]
__global__ void paired(const int* x, int* out) {
    const int* from = x + 3 * threadIdx.x;
    __half2 h[3];
    __nv_bfloat162 b[3];
    for (int i = 0; i < 3; ++i) h[i] = *reinterpret_cast<const __half2*>(from + i), b[i] = *reinterpret_cast<const __nv_bfloat162*>(from + i);
    __half2* to = reinterpret_cast<__half2*>(out + 6 * threadIdx.x);
    to[0] = __hfma2(h[0], h[1], h[2]), to[1] = __hadd2(h[0], h[1]), to[2] = __hfma2_relu(h[0], h[1], h[2]);
    __nv_bfloat162* too = reinterpret_cast<__nv_bfloat162*>(out + 6 * threadIdx.x + 3);
    too[0] = __hfma2(b[0], b[1], b[2]), too[1] = __hmul2(b[0], b[1]), too[2] = __hmax2(b[0], b[1]);
}

// ---- a block of 64 sorts 256 keys with their places, and scatters back
__global__ void sorted(const float* keys, float* out, int* places) {
    using Sort = cub::BlockRadixSort<float, 64, 4, int>;
    using Load = cub::BlockLoad<float, 64, 4, cub::BLOCK_LOAD_TRANSPOSE>;
    using Store = cub::BlockStore<float, 64, 4, cub::BLOCK_STORE_DIRECT>;
    __shared__ union { typename Sort::TempStorage sort; typename Load::TempStorage load; typename Store::TempStorage store; } storage;
    float items[4];
    int from[4];
    Load(storage.load).Load(keys, items);
    for (int i = 0; i < 4; ++i) from[i] = threadIdx.x * 4 + i;
    __syncthreads();
    Sort(storage.sort).SortDescending(items, from);
    __syncthreads();
    Store(storage.store).Store(out, items);
    for (int i = 0; i < 4; ++i) places[threadIdx.x * 4 + i] = from[i];
}

struct Differ { __device__ bool operator()(int a, int b) const { return a != b; } };
// ---- a histogram, exchanged items and heads of runs, 64 threads of 2 items
__global__ void tiled(const int* x, int* bins, int* exchanged, int* heads) {
    __shared__ int counts[10];
    __shared__ typename cub::BlockHistogram<unsigned char, 64, 2, 10>::TempStorage storage;
    __shared__ typename cub::BlockExchange<int, 64, 2>::TempStorage swaps;
    __shared__ typename cub::BlockDiscontinuity<int, 64>::TempStorage edges;
    int items[2] = {x[2 * threadIdx.x], x[2 * threadIdx.x + 1]}, flags[2];
    unsigned char small[2] = {(unsigned char)items[0], (unsigned char)items[1]};
    cub::BlockHistogram<unsigned char, 64, 2, 10>(storage).Histogram(small, counts);
    __syncthreads();
    if (threadIdx.x < 10) bins[threadIdx.x] = counts[threadIdx.x];
    cub::BlockDiscontinuity<int, 64>(edges).FlagHeads(flags, items, Differ());
    for (int i = 0; i < 2; ++i) heads[2 * threadIdx.x + i] = flags[i];
    cub::BlockExchange<int, 64, 2>(swaps).BlockedToStriped(items, items);
    for (int i = 0; i < 2; ++i) exchanged[2 * threadIdx.x + i] = items[i];
}

// ---- one warp hands values to another through a barrier object, and all count through a reference
__global__ void handed(const float* x, float* out, int* count) {
    __shared__ cuda::barrier<cuda::thread_scope_block> ready;
    __shared__ float values[32];
    if (threadIdx.x == 0) init(&ready, blockDim.x);
    __syncthreads();
    for (int round = 0; round < 2; ++round) {
        if (threadIdx.x < 32) values[threadIdx.x] = x[32 * round + threadIdx.x];
        ready.arrive_and_wait();
        if (threadIdx.x >= 32) out[32 * round + threadIdx.x - 32] = 2.0f * values[63 - threadIdx.x];
        ready.arrive_and_wait();
        cuda::atomic_ref<int, cuda::thread_scope_device>(*count).fetch_add(1, cuda::memory_order_relaxed);
    }
}

// ---- wmma of bytes into integers, and of halves into halves, 16 x 16 x 16, b by columns
__global__ void multiplied(const signed char* a, const signed char* b, int* c, const __half* ha, const __half* hb, __half* hc) {
    using namespace nvcuda::wmma;
    fragment<matrix_a, 16, 16, 16, signed char, row_major> fa;
    fragment<matrix_b, 16, 16, 16, signed char, col_major> fb;
    fragment<accumulator, 16, 16, 16, int> fc;
    fill_fragment(fc, 7);
    load_matrix_sync(fa, a, 16);
    load_matrix_sync(fb, b, 16);
    mma_sync(fc, fa, fb, fc);
    store_matrix_sync(c, fc, 16, mem_row_major);
    fragment<matrix_a, 32, 8, 16, __half, row_major> ga;
    fragment<matrix_b, 32, 8, 16, __half, col_major> gb;
    fragment<accumulator, 32, 8, 16, __half> gc;
    fill_fragment(gc, __float2half(0.0f));
    load_matrix_sync(ga, ha, 16);
    load_matrix_sync(gb, hb, 16);
    mma_sync(gc, ga, gb, gc);
    for (int i = 0; i < gc.num_elements; ++i) gc.x[i] = __hmul(gc.x[i], __float2half(2.0f));
    store_matrix_sync(hc, gc, 8, mem_row_major);
}
"""
HOST = r"""
#include <torch/extension.h>
#define F(t) t.data_ptr<float>()
#define I(t) t.data_ptr<int>()
static auto like(torch::Tensor x, std::vector<int64_t> shape) { return torch::zeros(shape, x.options()); }
torch::Tensor run_directed(torch::Tensor x) { auto o = like(x, {x.size(0), 12}); directed<<<1, x.size(0)>>>(F(x), F(o)); return o; }
torch::Tensor run_shortened(torch::Tensor x) {
    auto o = torch::zeros({x.size(0), 9}, x.options().dtype(torch::kInt)); shortened<<<1, x.size(0)>>>(F(x), I(o)); return o;
}
torch::Tensor run_paired(torch::Tensor x) { auto o = like(x, {x.size(0), 6}); paired<<<1, x.size(0)>>>(I(x), I(o)); return o; }
std::vector<torch::Tensor> run_sorted(torch::Tensor x) {
    auto o = like(x, {256}), p = torch::zeros({256}, x.options().dtype(torch::kInt)); sorted<<<1, 64>>>(F(x), F(o), I(p)); return {o, p};
}
std::vector<torch::Tensor> run_tiled(torch::Tensor x) {
    auto b = like(x, {10}), e = like(x, {128}), h = like(x, {128}); tiled<<<1, 64>>>(I(x), I(b), I(e), I(h)); return {b, e, h};
}
std::vector<torch::Tensor> run_handed(torch::Tensor x) {
    auto o = like(x, {64}), c = torch::zeros({1}, x.options().dtype(torch::kInt)); handed<<<1, 64>>>(F(x), F(o), I(c)); return {o, c};
}
std::vector<torch::Tensor> run_multiplied(torch::Tensor a, torch::Tensor b, torch::Tensor ha, torch::Tensor hb) {
    auto c = torch::zeros({16, 16}, a.options().dtype(torch::kInt)), hc = torch::zeros({32, 8}, ha.options());
    multiplied<<<1, 32>>>((const signed char*)a.data_ptr<int8_t>(), (const signed char*)b.data_ptr<int8_t>(), I(c),
        (const __half*)ha.data_ptr<at::Half>(), (const __half*)hb.data_ptr<at::Half>(), (__half*)hc.data_ptr<at::Half>());
    return {c, hc};
}
std::vector<torch::Tensor> run_device(torch::Tensor x) {
    auto sum = like(x, {1}), scan = torch::zeros_like(x), keys = torch::zeros_like(x);
    size_t need = 0, other = 0;
    int n = x.numel();
    cub::DeviceReduce::Sum(nullptr, need, F(x), F(sum), n);
    auto room = torch::empty({(int64_t)need}, x.options().dtype(torch::kByte));
    cub::DeviceReduce::Sum(room.data_ptr(), need, F(x), F(sum), n);
    cub::DeviceScan::ExclusiveSum(nullptr, other, F(x), F(scan), n);
    cub::DeviceScan::ExclusiveSum(room.data_ptr(), other, F(x), F(scan), n);
    cub::DeviceRadixSort::SortKeys(room.data_ptr(), need, F(x), F(keys), n);
    return {sum, scan, keys};
}
"""
NAMES = ["directed", "shortened", "paired", "sorted", "tiled", "handed", "multiplied", "device"]
DEFINED = "".join(f'm.def("{name}", &run_{name});' for name in NAMES)
BINDING = "PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {" + DEFINED + "}"
AWKWARD = [0.0, -0.0, 1.0, -1.0, float("inf"), -float("inf"), float("nan"), 1e-45, 1.2e-38, 3.4e38, 448.0, 464.0, 465.0, 57344.0,
           61440.0, 65504.0, 65520.0, 6e-8, 3e-8, 2.0**-24, 2.0**-9, 2.0**-10, 1.0 + 2.0**-11, 1.0 + 3 * 2.0**-11, 1.0 + 2.0**-8]  # fmt: skip


@cache
def built() -> types.ModuleType | str:
    """The extension, or why there is none: a test that fails to build would try again each time."""
    try:
        return emulator.load_inline("intrinsics", "", KERNELS + HOST + BINDING)
    except RuntimeError as error:
        return str(error)


@pytest.fixture
def extension() -> types.ModuleType:
    module = built()
    assert not isinstance(module, str), module
    emulator.forget()
    return module


def clean() -> bool:
    return all(fault.kind == "never-ran" for fault in emulator.faults())


def floats(count: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(3)
    scale = 10.0 ** torch.randint(-6, 6, (count,), generator=generator)
    values = torch.randn(count, generator=generator) * scale
    values[: len(AWKWARD)] = torch.tensor(AWKWARD)
    return values


def bits(value: torch.Tensor) -> list[int]:
    return [one & 0xFFFFFFFF for one in value.contiguous().view(torch.int32).flatten().tolist()]


def same(got: int, want: int) -> bool:
    return got == want or (F32.decode(got) != F32.decode(got) and F32.decode(want) != F32.decode(want))


def test_directed_rounding_is_exact(extension: types.ModuleType) -> None:
    x = torch.stack([floats(200), floats(200).flip(0)], dim=1)
    got = bits(extension.directed(x))
    operations = [
        lambda a, b, how: exact.add(a, b, how),
        lambda a, b, how: exact.mul(a, b),
        lambda a, b, how: exact.div(a, b),
        lambda a, b, how: exact.add(exact.mul(a, b), a, how),
    ]
    for row, (a, b) in enumerate(zip(*[iter(bits(x))] * 2, strict=True)):
        for i in range(12):
            how = ("rz", "ru", "rd")[i % 3]
            want = F32.encode(operations[i // 3](F32.decode(a), F32.decode(b), how), how)
            assert same(got[12 * row + i], want), (i, hex(a), hex(b), hex(got[12 * row + i]), hex(want))
    assert clean()


def test_conversions_to_short_types_round_and_saturate(extension: types.ModuleType) -> None:
    x = floats(400)
    got = extension.shortened(x).tolist()
    for row, one in zip(got, bits(x), strict=True):
        value = F32.decode(one)
        small = [saturated(form, value) for form in (E4M3, E5M2)]
        other = saturated(E4M3, exact.neg(value))
        halves = [F16.encode(value, how) for how in ("rn", "rz", "ru", "rd")]
        want = [*halves, BF16.encode(value), BF16.encode(value, "rz"), *small, small[0] | other << 8]
        assert row == want, (hex(one), [hex(v) for v in row], [hex(v) for v in want])


def saturated(form: exact.Format, value: exact.Value) -> int:
    found = form.encode(value)
    return form.most | found & form.sign if value == value and found & (form.sign - 1) > form.most else found


def test_pairs_round_once_an_operation(extension: types.ModuleType) -> None:
    words = torch.randint(-(1 << 31), 1 << 31, (300, 3), generator=torch.Generator().manual_seed(5)).int()
    words[:150] = torch.randn(150, 6).half().view(torch.int32).reshape(150, 3)
    got = [one & 0xFFFFFFFF for one in extension.paired(words).flatten().tolist()]
    for row, given in enumerate(words.tolist()):
        for form, offset in ((F16, 0), (BF16, 3)):
            for shift in (0, 16):
                a, b, c = (form.decode(word >> shift & 0xFFFF) for word in given)
                fused = form.encode(exact.add(exact.mul(a, b), c))
                values = [form.decode(fused)]
                relu = form.nan if values[0] != values[0] else fused if values[0] > 0 else 0
                want = (
                    [fused, form.encode(exact.add(a, b)), relu]
                    if form is F16
                    else [fused, form.encode(exact.mul(a, b))]
                )
                found = [got[6 * row + offset + i] >> shift & 0xFFFF for i in range(len(want))]
                assert found == want, (form, given, found, want)


def test_blocks_sort_exchange_and_count(extension: types.ModuleType) -> None:
    keys = torch.randint(-20, 20, (256,), generator=torch.Generator().manual_seed(1)).float()
    found, places = extension.sorted(keys)
    want = keys.sort(descending=True, stable=True)
    assert torch.equal(found, want.values) and torch.equal(places.long(), want.indices)
    x = torch.randint(0, 10, (128,), generator=torch.Generator().manual_seed(2)).int()
    bins, exchanged, heads = extension.tiled(x)
    assert torch.equal(bins.long(), torch.bincount(x, minlength=10))
    assert torch.equal(exchanged.reshape(64, 2), x.reshape(2, 64).T)
    assert torch.equal(heads, torch.cat([torch.ones(1), (x[1:] != x[:-1])]).int())
    assert clean()


@pytest.mark.parametrize("order", ["forward", "reverse", "random"])
def test_a_barrier_object_hands_values_over_without_a_race(extension: types.ModuleType, order: str) -> None:
    x = torch.randn(64)
    with emulator.schedule(order):
        found, count = extension.handed(x)
    assert torch.equal(found, 2 * x.reshape(2, 32).flip(1).flatten()) and count.item() == 128
    assert clean(), [fault.words for fault in emulator.faults()]


def test_fragments_of_bytes_and_halves_multiply(extension: types.ModuleType) -> None:
    generator = torch.Generator().manual_seed(4)
    a, b = (torch.randint(-128, 128, (16, 16), generator=generator).to(torch.int8) for _ in range(2))
    ha, hb = torch.randn(32, 16, generator=generator).half(), torch.randn(8, 16, generator=generator).half()
    c, hc = extension.multiplied(a, b, ha, hb)
    assert torch.equal(c, a.int() @ b.int().T + 7)
    torch.testing.assert_close(hc, (ha.float() @ hb.float().T).half() * 2, rtol=2e-3, atol=2e-3)
    assert clean()


def test_device_wide_calls_are_done_on_the_same_memory(extension: types.ModuleType) -> None:
    x = torch.randint(-50, 50, (1000,), generator=torch.Generator().manual_seed(6)).float()
    total, scan, keys = extension.device(x)
    assert total.item() == x.sum().item()
    assert torch.equal(scan, x.cumsum(0) - x) and torch.equal(keys, x.sort().values)


REFUSED = [
    "float4 v = __shfl_sync(~0u, make_float4(1, 2, 3, 4), 0);",
    "float3 v = __ldg((const float3*)p);",
    "atomicMax((float*)p, 1.0f);",
    "float v = atomicAdd((float*)p, nullptr);",
    "nvcuda::wmma::fragment<nvcuda::wmma::matrix_a, 16, 16, 8, half, nvcuda::wmma::row_major> f;",
    'int v = 0; asm("mov.b32 %0, %1;" : "=r"(v) : "r"(1.0f));',
]


def test_what_nvcc_refuses_does_not_build() -> None:
    kernels = "\n".join(f"__global__ void k{i}(void* p) {{ {one} }}" for i, one in enumerate(REFUSED))
    text = f"{kernels}\nvoid run(torch::Tensor x) {{ k0<<<1, 32>>>(x.data_ptr()); }}"
    with pytest.raises(RuntimeError, match="Error building extension") as raised:
        emulator.load_inline("refused", "void run(torch::Tensor x);", text, ["run"])
    lines = [i for i in range(1, len(REFUSED) + 1) if f"cuda.cu:{i}:" in str(raised.value)]
    assert lines == list(range(1, len(REFUSED) + 1)), raised.value
