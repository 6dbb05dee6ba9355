"""Right Triton kernels in the style of the field, each with what PyTorch says; sizes are ragged."""

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from triton.language.extra import libdevice
from triton.language.extra.cuda.libdevice import tanh
from triton.runtime.interpreter import InterpreterBuilder


def case_softmax():
    x = torch.randn(7, 781, device="cuda")
    out = torch.empty_like(x)
    softmax[(7,)](x, out, 781, x.stride(0), BLOCK=triton.next_power_of_2(781))
    return out, x.softmax(-1)


@triton.jit
def softmax(x, out, columns, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    value = tl.load(x + row * stride + at, mask=at < columns, other=-float("inf"))
    e = tl.exp(value - tl.max(value, axis=0))
    tl.store(out + row * stride + at, e / tl.sum(e, axis=0), mask=at < columns)


def case_warmup_asks_for_resources_and_launches_what_it_compiled():
    x = torch.randn(3, 100, device="cuda")
    out = torch.empty_like(x)
    kernel = softmax.warmup(x, out, 100, 100, BLOCK=128, grid=(1,))
    kernel._init_handles()
    device = triton.runtime.driver.active.get_active_torch_device()
    properties = triton.runtime.driver.active.utils.get_device_properties(device.index)
    assert x.device == device and x.device.type == "cuda" and x.is_cuda
    programs = min(3, properties["multiprocessor_count"] * (65536 // (kernel.n_regs * 32)) + kernel.metadata.shared)
    kernel[(programs, 1, 1)](x, out, 100, 100, 128)
    return out, x.softmax(-1)


def case_matmul_float32():
    return product(torch.float32)


def case_matmul_float16():
    return product(torch.float16)


def case_matmul_bfloat16():
    return product(torch.bfloat16)


def product(dtype):
    a, b = (torch.randn(*shape, device="cuda").to(dtype) for shape in ((50, 70), (70, 45)))
    out = torch.empty(50, 45, device="cuda", dtype=dtype)
    matmul[lambda meta: (triton.cdiv(50, meta["BM"]) * triton.cdiv(45, meta["BN"]),)](
        a, b, out, 50, 45, 70, *a.stride(), *b.stride(), *out.stride(), LEAKY=True
    )
    assert matmul.best_config.kwargs["BM"] == 32  # the first that the pruning leaves
    return out, F.leaky_relu(a.float() @ b.float()).to(dtype)


def all_but_the_first(configs, named, **_):
    return configs[1:]


@triton.autotune(
    configs=[triton.Config({"BM": size, "BN": 32, "BK": 32}, num_warps=4) for size in (16, 32, 64)],
    key=["M", "N", "K"],
    prune_configs_by={"early_config_prune": all_but_the_first},
)
@triton.heuristics({"EVEN": lambda given: given["K"] % given["BK"] == 0})
@triton.jit
def matmul(
    a, b, out, M, N, K, sam, sak, sbk, sbn, som, son,
    LEAKY: tl.constexpr, EVEN: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    across = tl.cdiv(N, BN)
    m = tl.program_id(0) // across * BM + tl.arange(0, BM)
    n = tl.program_id(0) % across * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for done in range(tl.cdiv(K, BK)):
        left = K - done * BK
        if EVEN:
            left = BK
        x = tl.load(a + m[:, None] * sam + k[None, :] * sak, mask=(m[:, None] < M) & (k[None, :] < left), other=0.0)
        y = tl.load(b + k[:, None] * sbk + n[None, :] * sbn, mask=(k[:, None] < left) & (n[None, :] < N), other=0.0)
        total = tl.dot(x, y, total)
        a += BK * sak
        b += BK * sbk
    if LEAKY:
        total = leaky(total)
    where = out + m[:, None] * som + n[None, :] * son
    tl.store(where, total.to(out.dtype.element_ty), mask=(m[:, None] < M) & (n[None, :] < N))


@triton.jit
def leaky(x):
    return tl.where(x >= 0, x, 0.01 * x)


def case_integer_product():
    a, b = (torch.randint(-128, 128, (32, 32), device="cuda").to(torch.int8) for _ in range(2))
    out = torch.empty(32, 32, dtype=torch.int32, device="cuda")
    small_product[(1,)](a, b, out, SIZE=32)
    return out, a.int() @ b.int()


@triton.jit
def small_product(a, b, out, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)[:, None] * SIZE + tl.arange(0, SIZE)[None, :]
    tl.store(out + at, tl.dot(tl.load(a + at), tl.load(b + at)))


def case_layer_norm_by_a_reduction_of_triples():
    x, weight, bias = torch.randn(5, 300, device="cuda"), torch.randn(300), torch.randn(300)
    out = torch.empty_like(x)
    layer_norm[(5,)](x, weight, bias, out, 300, 1e-5, BLOCK=512)
    return out, F.layer_norm(x, (300,), weight, bias)


@triton.jit
def welford(mean, m2, count, other_mean, other_m2, other_count):
    delta = other_mean - mean
    total = count + other_count
    return (
        mean + delta * other_count / total,
        m2 + other_m2 + delta * delta * count * other_count / total,
        total,
    )


@triton.jit
def layer_norm(x, weight, bias, out, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    value = tl.load(x + row * columns + at, mask=inside, other=0.0)
    mean, m2, _ = tl.reduce((value, tl.zeros_like(value), tl.where(inside, 1.0, 1e-30)), 0, welford)
    normal = (value - mean) * tl.rsqrt(m2 / columns + eps)
    scaled = normal * tl.load(weight + at, mask=inside) + tl.load(bias + at, mask=inside)
    tl.store(out + row * columns + at, scaled, mask=inside)


def case_scans():
    x, y = torch.rand(4, 64, device="cuda"), torch.randn(4, 64, device="cuda")
    outs = [torch.empty_like(x) for _ in range(3)]
    scans[(1,)](x, y, *outs, ROWS=4, COLUMNS=64)
    state, states = torch.zeros(4), []
    for t in range(64):
        state = state * x[:, t] + y[:, t]
        states.append(state)
    return torch.stack(outs), torch.stack([x.cumprod(1), torch.stack(states, 1), x.flip(0).cumsum(0).flip(0)])


@triton.jit
def multiplied(a, b):
    return a * b


@triton.jit
def stepped(a, x, b, y):
    return a * b, x * b + y


@triton.jit
def scans(x, y, products, states, sums, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    at = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    value = tl.load(x + at)
    tl.store(products + at, tl.associative_scan(value, 1, multiplied))
    _, state = tl.associative_scan((value, tl.load(y + at)), 1, stepped)
    tl.store(states + at, state)
    tl.store(sums + at, tl.cumsum(value, axis=0, reverse=True))


def case_atomic_sum_and_histogram():
    x = torch.rand(1000, device="cuda")
    out = torch.zeros(5, device="cuda")
    sums[(4,)](x, out, 1000, BLOCK=256)
    return out, torch.cat([x.sum()[None], torch.full((4,), 250.0)])


@triton.jit
def sums(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out, tl.sum(tl.load(x + at, mask=at < n, other=0.0), axis=0))
    tl.atomic_add(out + 1 + at % 4, 1.0, mask=at < n)


def case_the_last_program_adds_up():
    x, parts = torch.randn(1000, device="cuda"), torch.empty(4, device="cuda")
    count, out = torch.zeros(1, dtype=torch.int32, device="cuda"), torch.empty(1, device="cuda")
    by_the_last[(4,)](x, parts, count, out, 1000, PROGRAMS=4, BLOCK=256)
    return out, x.sum()[None]


@triton.jit
def by_the_last(x, parts, count, out, n, PROGRAMS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(parts + tl.program_id(0), tl.sum(tl.load(x + at, mask=at < n, other=0.0)))
    tl.debug_barrier()
    if tl.atomic_add(count, 1) == PROGRAMS - 1:
        tl.store(out, tl.sum(tl.load(parts + tl.arange(0, PROGRAMS))))


def case_a_lock():
    x, out = torch.randn(1000, device="cuda"), torch.zeros(256, device="cuda")
    locked[(4,)](x, out, torch.zeros(1, dtype=torch.int32, device="cuda"), 1000, BLOCK=256)
    return out, F.pad(x, (0, 24)).view(4, 256).sum(0)


@triton.jit
def locked(x, out, lock, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n, other=0.0)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    where = out + tl.arange(0, BLOCK)
    tl.store(where, tl.load(where) + value)
    tl.atomic_xchg(lock, 0)


def case_tensor_descriptors():
    x = torch.randn(50, 72, device="cuda")
    out = torch.empty_like(x)
    doubled[(4,)](x, out, 50, 72, BM=16, BN=32)
    return out, x * 2


@triton.jit
def doubled(x, out, M, N, BM: tl.constexpr, BN: tl.constexpr):
    given = tl.make_tensor_descriptor(x, [M, N], [N, 1], [BM, BN])
    result = tl.make_tensor_descriptor(out, [M, N], [N, 1], [BM, BN])
    for j in range(tl.cdiv(N, BN)):
        result.store([tl.program_id(0) * BM, j * BN], given.load([tl.program_id(0) * BM, j * BN]) * 2)


if hasattr(InterpreterBuilder, "create_make_block_ptr"):  # Triton 3.9 has none

    def case_block_pointers():
        x = torch.randn(50, 70, device="cuda")
        out = torch.empty_like(x)
        tripled[(4,)](x, out, 50, 70, BM=16, BN=32)
        return out, x * 3

    @triton.jit
    def tripled(x, out, M, N, BM: tl.constexpr, BN: tl.constexpr):
        given = tl.make_block_ptr(x, (M, N), (N, 1), (tl.program_id(0) * BM, 0), (BM, BN), (1, 0))
        result = tl.make_block_ptr(out, (M, N), (N, 1), (tl.program_id(0) * BM, 0), (BM, BN), (1, 0))
        for _ in range(tl.cdiv(N, BN)):
            tl.store(result, tl.load(given, boundary_check=(0, 1), padding_option="zero") * 3, boundary_check=(0, 1))
            given = tl.advance(given, (0, BN))
            result = tl.advance(result, (0, BN))


def case_libdevice():
    x = torch.randn(100, device="cuda")
    out = torch.empty(9, 100, device="cuda")
    functions[(1,)](x, out, 100, BLOCK=128)
    y = x.abs()
    rounded = torch.trunc(x * 3 + 0.5 * x.sign())
    wanted = [x.tanh(), x.erf(), y**1.5, x.exp(), (y + 1).lgamma(), (x * 10).round(), rounded, x / 3, y.log1p()]
    return out, torch.stack(wanted)


@triton.jit
def functions(x, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n, other=1.0)
    y = tl.abs(v)
    tl.store(out + at, tanh(v), mask=at < n)
    tl.store(out + n + at, tl.extra.cuda.libdevice.erf(v), mask=at < n)
    tl.store(out + 2 * n + at, libdevice.pow(y, 1.5), mask=at < n)
    tl.store(out + 3 * n + at, libdevice.fast_expf(v), mask=at < n)
    tl.store(out + 4 * n + at, libdevice.lgamma(y + 1), mask=at < n)
    tl.store(out + 5 * n + at, libdevice.float2int_rn(v * 10).to(tl.float32), mask=at < n)
    tl.store(out + 6 * n + at, libdevice.round(v * 3), mask=at < n)
    tl.store(out + 7 * n + at, libdevice.div_rn(v, 3.0), mask=at < n)
    tl.store(out + 8 * n + at, libdevice.log1p(y), mask=at < n)


def case_bfloat16_arithmetic():
    x, y = (torch.randn(100, device="cuda").bfloat16() for _ in range(2))
    out = torch.empty_like(x)
    chosen[(1,)](x, y, out, 100, BLOCK=128)
    return out, torch.where(x > y, (x * y + x - 2.5).relu(), -y)


@triton.jit
def chosen(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    a = tl.load(x + at, mask=at < n)
    b = tl.load(y + at, mask=at < n)
    tl.store(out + at, tl.where(a > b, tl.maximum(a * b + a - 2.5, 0.0), -b), mask=at < n)


def case_float8_and_back():
    x = torch.randn(256, device="cuda") * 300
    out = torch.empty_like(x)
    through_float8[(1,)](x, out, BLOCK=256)
    return out, x.clamp(-448, 448).to(torch.float8_e4m3fn).float()


@triton.jit
def through_float8(x, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at).to(tl.float8e4nv).to(tl.float32))


def case_pointers_out_of_memory():
    parts = [torch.randn(16, device="cuda") for _ in range(2)]
    table = torch.tensor([part.data_ptr() for part in parts], device="cuda")
    out = torch.empty(32, device="cuda")
    gathered[(1,)](table, out, BLOCK=16)
    return out, torch.cat(parts)


@triton.jit
def gathered(table, out, BLOCK: tl.constexpr):
    for i in range(2):
        part = tl.load(table + i).to(tl.pointer_type(tl.float32))
        tl.store(out + i * BLOCK + tl.arange(0, BLOCK), tl.load(part + tl.arange(0, BLOCK)))


def case_integers_as_a_gpu_divides_them():
    out = torch.empty(16, dtype=torch.int32, device="cuda")
    divided[(1,)](out, BLOCK=16)
    x = torch.arange(16) - 8
    return out, (torch.div(x, 3, rounding_mode="trunc") + torch.fmod(x, 3) * 100).int()


@triton.jit
def divided(out, BLOCK: tl.constexpr):
    x = tl.arange(0, BLOCK) - 8
    tl.store(out + tl.arange(0, BLOCK), x // 3 + (x % 3) * 100)


def case_largest_with_its_place_and_sorted():
    x = torch.randn(64, device="cuda")
    out = torch.empty(66, device="cuda")
    ordered[(1,)](x, out, BLOCK=64)
    return out, torch.cat([x.max()[None], x.argmin()[None].float(), x.sort().values])


@triton.jit
def ordered(x, out, BLOCK: tl.constexpr):
    value = tl.load(x + tl.arange(0, BLOCK))
    largest, _ = tl.max(value, axis=0, return_indices=True)
    tl.store(out, largest)
    tl.store(out + 1, tl.argmin(value, axis=0))
    tl.store(out + 2 + tl.arange(0, BLOCK), tl.sort(value))
