"""Inline PTX of Hopper's warpgroups: products of described matrices, bulk copies, and what they may not be without."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from crucible import emulator

MULTIPLY = r"""
__device__ __forceinline__ void NAME(float (&d)[8], unsigned long long a, unsigned long long b, bool adds) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %10, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n16INSTRUCTION "
                 "{%0, %1, %2, %3, %4, %5, %6, %7}, %8, %9, p, 1, 1MORE;\n}"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
                 : "l"(a), "l"(b), "r"(int(adds)));
}
"""
OF_REGISTERS = r"""
__device__ __forceinline__ void NAME(float (&d)[8], const unsigned (&a)[4], unsigned long long b, bool adds) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %13, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n16INSTRUCTION "
                 "{%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9, %10, %11}, %12, p, 1, 1MORE;\n}"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int(adds)));
}
"""
KINDS = {
    "tf32": ("k8.f32.tf32.tf32", ""),
    "fp16": ("k16.f32.f16.f16", ", 0, 0"),
    "bf16": ("k16.f32.bf16.bf16", ", 0, 0"),
}
KERNELS = r"""
__device__ __forceinline__ unsigned place(const void* p) { return static_cast<unsigned>(__cvta_generic_to_shared(p)); }
__device__ __forceinline__ unsigned long long matrix(const uint4* start, int leading, int stride) {
    return (place(start) & 0x3ffff) >> 4 | static_cast<unsigned long long>(leading) << 16
         | static_cast<unsigned long long>(stride) << 32;
}
__device__ __forceinline__ void publish() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
__device__ __forceinline__ void commit_and_wait() {
    asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;" ::: "memory");
}
MULTIPLY
// Rows of 32 bytes: two units of 16. Units of a row lie `leading` apart, eights of rows `stride`, all in 16 bytes.
__device__ void lay(uint4* to, const uint4* from, int rows, int leading, int stride) {
    for (int p = threadIdx.x; p < rows * 2; p += blockDim.x)
        to[p / 2 / 8 * stride + p / 2 % 8 + p % 2 * leading] = from[p];
}
// c = a b' + a b'': b'' begins `shift` rows further down.
__global__ void products(const uint4* a, const uint4* b, float* c, int kind, int shift) {
    __shared__ uint4 shared[64 * 2 + 40 * 2];
    uint4* other = shared + 64 * 2;
    lay(shared, a, 64, 8, 16);    // units of eight rows beside each other
    lay(other, b, 40, 40, 8);     // all first units, then all second ones
    publish();
    __syncthreads();
    const unsigned long long x = matrix(shared, 8, 16), y = matrix(other, 40, 8);
    float d[8];
    for (float& v : d) v = 1e30f;  // is not added to
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    for (int k = 0; k < 2; ++k) {
        if (kind == 0) tf32(d, x, y + k * shift, k);
        if (kind == 1) fp16(d, x, y + k * shift, k);
        if (kind == 2) bf16(d, x, y + k * shift, k);
    }
    commit_and_wait();
    const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16 + lane / 4;
    for (int e = 0; e < 8; ++e) c[(row + e / 2 % 2 * 8) * 16 + e / 4 * 8 + lane % 4 * 2 + e % 2] = d[e];
}
// The same with a in registers: of a unit a lane has word lane % 4, in rows lane / 4 and 8 below.
__global__ void products_of_registers(const unsigned* a, const uint4* b, float* c, int kind, int shift) {
    __shared__ uint4 other[40 * 2];
    lay(other, b, 40, 40, 8);
    publish();
    __syncthreads();
    const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16 + lane / 4;
    unsigned x[4];
    for (int r = 0; r < 4; ++r) x[r] = a[(row + r % 2 * 8) * 8 + r / 2 * 4 + lane % 4];
    const unsigned long long y = matrix(other, 40, 8);
    float d[8];
    for (float& v : d) v = 1e30f;
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    for (int k = 0; k < 2; ++k) {
        if (kind == 0) tf32(d, x, y + k * shift, k);
        if (kind == 1) fp16(d, x, y + k * shift, k);
        if (kind == 2) bf16(d, x, y + k * shift, k);
    }
    commit_and_wait();
    for (int e = 0; e < 8; ++e) c[(row + e / 2 % 2 * 8) * 16 + e / 4 * 8 + lane % 4 * 2 + e % 2] = d[e];
}
template <bool published, bool waits>
__global__ void misused_beside_registers(const uint4* a, float* c) {
    __shared__ uint4 shared[64 * 2];
    lay(shared, a, 64, 8, 16);
    if (published) publish();
    __syncthreads();
    float d[8] = {};
    const unsigned x[4] = {};
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    tf32(d, x, matrix(shared, 8, 16), true);
    if (waits) commit_and_wait();
    __syncthreads();
    shared[threadIdx.x].x = threadIdx.x;
    if (!waits) commit_and_wait();
    c[threadIdx.x] = d[0] + d[7];
}
template <bool published, bool waits, bool swizzled>
__global__ void misused(const uint4* a, float* c) {
    __shared__ uint4 shared[64 * 2];
    lay(shared, a, 64, 8, 16);
    if (published) publish();
    __syncthreads();
    float d[8] = {};
    const unsigned long long x = matrix(shared, 8, 16) | (swizzled ? 1ull << 62 : 0);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    tf32(d, x, x, true);
    if (waits) commit_and_wait();
    __syncthreads();
    shared[threadIdx.x].x = threadIdx.x;  // when nobody reads it any more
    if (!waits) commit_and_wait();
    c[threadIdx.x] = d[0] + d[7];
}
template <bool published, bool waits, int off>
__global__ void copied(const float* x, float* y) {
    __shared__ uint4 shared[2][24];
    float* tile = reinterpret_cast<float*>(shared[threadIdx.x / 32]);  // of each warp
    for (int round = 0; round < 3; ++round) {
        if (waits) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
        __syncwarp();
        const int from = (round * 2 + threadIdx.x / 32) * 96;
        for (int i = threadIdx.x % 32; i < 96; i += 32) tile[i] = x[from + i] * 2;
        if (published) publish();
        __syncwarp();
        if (threadIdx.x % 32 < 2) {
            const int half = threadIdx.x % 32 * 48;
            asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\n"
                         "cp.async.bulk.commit_group;"
                         :: "l"(y + from + half + off), "r"(place(tile + half)), "r"(192) : "memory");
        }
    }
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
enum How { kRight, kUnasked, kStillRead, kUnpublished, kMisaligned, kBeyond, kTooMany, kLeft };
// Twice of x, through a tile that copies fill and empty.
template <How how>
__global__ void through(const float* x, float* y) {
    __shared__ uint4 shared[2][24];
    __shared__ unsigned long long barriers[2];
    float* tile = reinterpret_cast<float*>(shared[threadIdx.x / 32]);  // of each warp
    const unsigned barrier = place(barriers + threadIdx.x / 32);
    const int lane = threadIdx.x % 32, half = lane * 48;
    if (lane == 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(barrier) : "memory");
    if (how == kUnpublished) tile[lane] = 1;
    publish();
    if (how == kUnpublished) tile[lane] = 2;
    __syncthreads();
    for (int round = 0; round < 3; ++round) {
        const int from = (round * 2 + threadIdx.x / 32) * 96;
        if (how != kStillRead) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
        if (lane < 2) {
            const float* begin = x + from + half + (how == kMisaligned) + (how == kBeyond) * 96;
            asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                         :: "r"(place(tile + half)), "l"(begin), "r"(192), "r"(barrier) : "memory");
        }
        if (lane == 0) {
            asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                         :: "r"(barrier), "r"(how == kTooMany ? 400 : 384) : "memory");
        }
        if (how == kLeft && round == 2) return;
        if (how != kUnasked) {
            unsigned over;
            do {
                asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                             "selp.b32 %0, 1, 0, p;\n}" : "=r"(over) : "r"(barrier), "r"(round % 2) : "memory");
            } while (!over);
        }
        for (int i = lane; i < 96; i += 32) tile[i] *= 2;
        publish();
        __syncwarp();
        if (lane < 2) {
            asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\n"
                         "cp.async.bulk.commit_group;"
                         :: "l"(y + from + half), "r"(place(tile + half)), "r"(192) : "memory");
        }
    }
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
torch::Tensor run_products(torch::Tensor a, torch::Tensor b, int kind, int shift) {
    auto c = torch::empty({64, 16}, a.options().dtype(torch::kFloat));
    products<<<1, 128>>>((const uint4*)a.data_ptr(), (const uint4*)b.data_ptr(), c.data_ptr<float>(), kind, shift);
    return c;
}
torch::Tensor run_products_of_registers(torch::Tensor a, torch::Tensor b, int kind, int shift) {
    auto c = torch::empty({64, 16}, a.options().dtype(torch::kFloat));
    products_of_registers<<<1, 128>>>((const unsigned*)a.data_ptr(), (const uint4*)b.data_ptr(), c.data_ptr<float>(),
                                      kind, shift);
    return c;
}
torch::Tensor run_misused_beside_registers(torch::Tensor a, int how) {
    auto c = torch::empty({128}, a.options());
    const uint4* from = (const uint4*)a.data_ptr();
    float* to = c.data_ptr<float>();
    if (how == 0) misused_beside_registers<true, true><<<1, 128>>>(from, to);
    if (how == 1) misused_beside_registers<false, true><<<1, 128>>>(from, to);
    if (how == 2) misused_beside_registers<true, false><<<1, 128>>>(from, to);
    return c;
}
torch::Tensor run_misused(torch::Tensor a, int how) {
    auto c = torch::empty({128}, a.options());
    const uint4* from = (const uint4*)a.data_ptr();
    float* to = c.data_ptr<float>();
    if (how == 0) misused<true, true, false><<<1, 128>>>(from, to);
    if (how == 1) misused<false, true, false><<<1, 128>>>(from, to);
    if (how == 2) misused<true, false, false><<<1, 128>>>(from, to);
    if (how == 3) misused<true, true, true><<<1, 128>>>(from, to);
    return c;
}
torch::Tensor run_copied(torch::Tensor x, int how) {
    auto y = torch::full({x.numel() + 4}, 7.0f, x.options());
    const float* from = x.data_ptr<float>();
    float* to = y.data_ptr<float>();
    if (how == 0) copied<true, true, 0><<<1, 64>>>(from, to);
    if (how == 1) copied<false, true, 0><<<1, 64>>>(from, to);
    if (how == 2) copied<true, false, 0><<<1, 64>>>(from, to);
    if (how == 3) copied<true, true, 1><<<1, 64>>>(from, to);
    return y;
}
torch::Tensor run_through(torch::Tensor x, int how) {
    auto y = torch::full({x.numel()}, 7.0f, x.options());
    const float* from = x.data_ptr<float>();
    float* to = y.data_ptr<float>();
    if (how == kRight) through<kRight><<<1, 64>>>(from, to);
    if (how == kUnasked) through<kUnasked><<<1, 64>>>(from, to);
    if (how == kStillRead) through<kStillRead><<<1, 64>>>(from, to);
    if (how == kUnpublished) through<kUnpublished><<<1, 64>>>(from, to);
    if (how == kMisaligned) through<kMisaligned><<<1, 64>>>(from, to);
    if (how == kBeyond) through<kBeyond><<<1, 64>>>(from, to);
    if (how == kTooMany) through<kTooMany><<<1, 64>>>(from, to);
    if (how == kLeft) through<kLeft><<<1, 64>>>(from, to);
    return y;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    m.def("products", &run_products); m.def("misused", &run_misused); m.def("copied", &run_copied);
    m.def("through", &run_through); m.def("products_of_registers", &run_products_of_registers);
    m.def("misused_beside_registers", &run_misused_beside_registers);
}
"""


@pytest.fixture(scope="module")
def built() -> Any:
    each = [
        form.replace("NAME", name).replace("INSTRUCTION", instruction).replace("MORE", more)
        for name, (instruction, majors) in KINDS.items()
        for form, more in ((MULTIPLY, majors), (OF_REGISTERS, majors[:3]))
    ]
    return emulator.load_inline("ptx_warpgroup", "", KERNELS.replace("MULTIPLY\n", "".join(each)))


def kinds() -> set[str]:
    return {fault.kind for fault in emulator.faults() if fault.kind not in ("never-ran", "never-reached")}


@pytest.mark.usefixtures("no_faults")
@pytest.mark.parametrize("form", ["products", "products_of_registers"])
@pytest.mark.parametrize("shift", [0, 1, 11, 24])
@pytest.mark.parametrize("kind", [0, 1, 2])
def test_products_are_of_what_descriptors_describe(built: Any, kind: int, shift: int, form: str) -> None:
    dtype, depth = ((torch.float32, 8), (torch.float16, 16), (torch.bfloat16, 16))[kind]
    a, b = torch.randint(-9, 9, (64, depth)).to(dtype), torch.randint(-9, 9, (40, depth)).to(dtype)
    right = a.float() @ (b[:16] + b[shift : shift + 16]).float().T
    assert torch.equal(getattr(built, form)(a, b, kind, shift), right)


@pytest.mark.usefixtures("no_faults")
def test_float32_loses_what_tf32_does_not_hold(built: Any) -> None:
    a, b = torch.zeros(64, 8), torch.zeros(40, 8)
    a[:, 0], b[:, 0] = 1 + 2**-10 + 2**-11, 1
    assert torch.equal(built.products(a, b, 0, 0), torch.full((64, 16), 2 + 2**-9))


@pytest.mark.parametrize(
    ("how", "found"), [(0, set()), (1, {"missing-proxy-fence"}), (2, {"race-shared"}), (3, {"device-assert"})]
)
def test_matrices_are_published_and_left_alone_until_products_are_waited_for(
    built: Any, how: int, found: set[str]
) -> None:
    emulator.forget()
    a = torch.randn(64, 8)
    if how == 3:
        with pytest.raises(RuntimeError, match="swizzle"):
            built.misused(a, how)
        assert found <= kinds()  # its output is left unwritten
    else:
        built.misused(a, how)
        assert kinds() == found


@pytest.mark.parametrize(("how", "found"), [(0, set()), (1, {"missing-proxy-fence"}), (2, {"race-shared"})])
def test_so_is_a_matrix_beside_registers(built: Any, how: int, found: set[str]) -> None:
    emulator.forget()
    built.misused_beside_registers(torch.randn(64, 8), how)
    assert kinds() == found


@pytest.mark.parametrize("how", [0, 1, 2, 3])
def test_bulk_copies_take_what_is_there_when_they_are_waited_for(built: Any, how: int) -> None:
    emulator.forget()
    x = torch.randn(6 * 96)
    if how == 3:
        with pytest.raises(RuntimeError):
            built.copied(x, how)
        assert kinds() == {"misaligned"}
        return
    y = built.copied(x, how)
    assert torch.equal(y[:-4], x * 2) == (how != 2) and torch.equal(y[-4:], torch.full((4,), 7.0))
    assert kinds() == (set(), {"missing-proxy-fence"}, {"race-shared"})[how]


@pytest.mark.usefixtures("no_faults")
@pytest.mark.parametrize("order", ["forward", "reverse", "random"])
def test_bulk_copies_fill_what_their_barrier_says_is_full(built: Any, order: str) -> None:
    x = torch.randn(6 * 96)
    with emulator.schedule(order):
        assert torch.equal(built.through(x, 0), x * 2)


@pytest.mark.parametrize(
    ("how", "found"),
    [
        ("unasked", "race-shared"),  # the barrier is not waited for
        ("still_read", "race-shared"),  # the tile is on its way out
        ("unpublished", "missing-proxy-fence"),
        ("misaligned", "misaligned"),
        ("beyond", "out-of-bounds-global"),
        ("too_many", "deadlock"),  # bytes are expected that nobody sends
        ("left", "race-shared"),  # the block ends first
    ],
)
def test_bulk_copies_that_come_are_waited_for(built: Any, how: str, found: str) -> None:
    emulator.forget()
    ways = ("right", "unasked", "still_read", "unpublished", "misaligned", "beyond", "too_many", "left")
    if found in ("misaligned", "out-of-bounds-global", "deadlock"):
        with pytest.raises(RuntimeError):
            built.through(torch.randn(6 * 96), ways.index(how))
    else:
        built.through(torch.randn(6 * 96), ways.index(how))
    assert found in kinds()


@pytest.mark.parametrize(
    ("kind", "depth", "counted"), [(0, 8, "tf32_flops"), (1, 16, "half_flops"), (2, 16, "half_flops")]
)
@pytest.mark.parametrize("how", ["products", "products_of_registers"])
def test_products_are_counted_by_the_type_of_their_operands(
    built: Any, kind: int, depth: int, counted: str, how: str
) -> None:
    """Two of 64 x 16 x K, a multiply-add as two; a trace counts them and nothing else does."""
    a = torch.zeros(64, 32, dtype=torch.uint8).view(torch.float32)
    b = torch.zeros(40, 32, dtype=torch.uint8).view(torch.float32)
    with emulator.trace() as seen:
        getattr(built, how)(a, b, kind, 0)
    (launch,) = seen.launches
    found = {name: getattr(launch, name) for name in ("half_flops", "tf32_flops", "float64_flops", "byte_flops")}
    assert found == {**dict.fromkeys(found, 0), counted: 2 * 2 * 64 * 16 * depth}
