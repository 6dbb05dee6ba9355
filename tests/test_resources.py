"""What nvcc makes of kernels: the source split for it, its account read, occupancy, and what a verdict shows of it."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

import crucible
from crucible import emulator, hardware
from crucible.emulator.device_code import device_code
from crucible.emulator.nvcc import Compiled, find, lacks_header, name_and_parameters, read_ptxas
from crucible.emulator.pretend import properties_of
from crucible.emulator.session import start
from crucible.emulator.toolchain import BuildError
from crucible.errors import DeviceError
from crucible.gpus import GPUS, SHARED_RESERVED_BYTES, Gpu, known_gpu
from crucible.judge.examine import is_of_a_kernel, resources_of
from crucible.judge.verdict.evidence import Resources
from crucible.judge.verdict.verdict import from_json, to_json
from crucible.occupancy import Occupancy, occupancy
from support import IDENTITY_TASK, TASKS, stated_kind, write

HAS_NVCC = pytest.mark.skipif(not hardware.nvcc(), reason="there is no nvcc here")
H200, L40S = known_gpu("h200"), known_gpu("l40s")


# ---- occupancy


@pytest.mark.parametrize(
    ("gpu", "registers", "shared", "threads", "expected"),
    [
        (H200, 32, 0, 256, Occupancy(8, 64, 1.0, "threads")),
        (H200, 40, 0, 256, Occupancy(6, 48, 0.75, "registers")),
        (H200, 33, 0, 256, Occupancy(6, 48, 0.75, "registers")),  # 33 registers take the room of 40
        (H200, 64, 0, 1024, Occupancy(1, 32, 0.5, "registers")),
        (H200, 65, 0, 1024, Occupancy(0, 0, 0.0, "registers")),
        (H200, 16, 0, 32, Occupancy(32, 32, 0.5, "blocks")),
        (H200, 32, 48 << 10, 256, Occupancy(4, 32, 0.5, "shared memory")),
        (H200, 32, 227 << 10, 1024, Occupancy(1, 32, 0.5, "shared memory")),
        (H200, 32, (227 << 10) + 1, 1024, Occupancy(0, 0, 0.0, "shared memory")),
        (L40S, 32, 0, 256, Occupancy(6, 48, 1.0, "threads")),
        (L40S, 16, 0, 32, Occupancy(24, 24, 0.5, "blocks")),
        (L40S, 32, 48 << 10, 256, Occupancy(2, 16, 1 / 3, "shared memory")),
    ],
)
def test_occupancy_follows_the_scarcest_resource(
    gpu: Gpu, registers: int, shared: int, threads: int, expected: Occupancy
) -> None:
    """As cudaOccupancyMaxActiveBlocksPerMultiprocessor says, by the toolkit's cuda_occupancy.h."""
    assert occupancy(gpu, registers=registers, shared_bytes=shared, threads=threads) == expected


TOOLKITS = [
    Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")),
    *Path(hardware.nvcc() or "/nowhere").resolve().parents,
]
INCLUDE = next((place / "include" for place in TOOLKITS if (place / "include/cuda_occupancy.h").exists()), None)
ASK_NVIDIA = r"""
#include <climits>
#include <cstdio>
#include "cuda_occupancy.h"
int main() {
    cudaOccDeviceProp gpu{};
    int shared, threads;
    gpu.maxThreadsPerBlock = 1024, gpu.regsPerBlock = 65536, gpu.warpSize = 32, gpu.sharedMemPerBlock = 49152;
    cudaOccFuncAttributes kernel{};
    kernel.maxThreadsPerBlock = INT_MAX, kernel.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
    while (scanf("%d %d %d %d %zu %zu %zu %d %d %d", &gpu.computeMajor, &gpu.computeMinor,
                 &gpu.maxThreadsPerMultiprocessor, &gpu.regsPerMultiprocessor, &gpu.sharedMemPerBlockOptin,
                 &gpu.sharedMemPerMultiprocessor, &gpu.reservedSharedMemPerBlock, &kernel.numRegs, &shared,
                 &threads) == 10) {
        gpu.numSms = 1;
        kernel.maxDynamicSharedSizeBytes = shared;
        cudaOccDeviceState state;
        cudaOccResult result{};
        const int error = cudaOccMaxActiveBlocksPerMultiprocessor(&result, &gpu, &kernel, &state, threads, shared);
        printf("%d\n", error ? -error : result.activeBlocksPerMultiprocessor);
    }
}
"""


@pytest.mark.skipif(not INCLUDE or not shutil.which("g++"), reason="there is no CUDA toolkit here")
def test_occupancy_is_nvidias_own(tmp_path: Path) -> None:
    """300 random kernels on each GPU of the table, against the toolkit's own calculator."""
    write(tmp_path / "ask.cpp", ASK_NVIDIA)
    include = ["-I", str(INCLUDE)]
    subprocess.run(["g++", "-O0", *include, "ask.cpp", "-o", "ask"], cwd=tmp_path, check=True)
    chance = random.Random(0)
    cases = []
    for gpu in GPUS:
        for _ in range(300):
            shared = chance.choice([0, chance.randint(1, 50_000), chance.randint(1, gpu.shared_memory_per_block_bytes)])
            cases.append((gpu, chance.randint(1, 255), shared, chance.randint(1, 1024)))
    lines = [
        f"{g.compute_capability[0]} {g.compute_capability[1]} {g.max_threads_per_sm} {g.registers_per_sm} "
        f"{g.shared_memory_per_block_bytes} {g.shared_memory_per_sm_bytes} {SHARED_RESERVED_BYTES} {r} {s} {t}"
        for g, r, s, t in cases
    ]
    asked = subprocess.run([tmp_path / "ask"], input="\n".join(lines), capture_output=True, text=True, check=True)
    ours = [occupancy(g, registers=r, shared_bytes=s, threads=t).blocks for g, r, s, t in cases]
    assert list(map(int, asked.stdout.split())) == ours


# ---- what ptxas prints

LOG = """ptxas info    : 12 bytes gmem, 64 bytes cmem[3]
ptxas info    : Compiling entry function '_Z7softmaxIfLi256EEvPKT_PS0_i' for 'sm_90'
ptxas info    : Function properties for _Z6helperf
    16 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Function properties for _Z7softmaxIfLi256EEvPKT_PS0_i
    96 bytes stack frame, 72 bytes spill stores, 80 bytes spill loads
ptxas info    : Used 32 registers, used 1 barriers, 96 bytes cumulative stack size, 4096 bytes smem, 8 bytes cmem[2]
ptxas info    : Compile time = 17.301 ms
ptxas info    : Compiling entry function '_Z5plainPf' for 'sm_90'
ptxas info    : Function properties for _Z5plainPf
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers, 360 bytes cmem[0]
"""


def test_what_ptxas_says_is_read_kernel_by_kernel() -> None:
    softmax, plain = read_ptxas(LOG)
    symbol = "_Z7softmaxIfLi256EEvPKT_PS0_i"
    assert softmax == Compiled(symbol, softmax.signature, 32, 72, 80, 96, 4096)
    assert plain == Compiled("_Z5plainPf", plain.signature, 8, 0, 0, 0, 0)


@pytest.mark.parametrize(
    ("signature", "name", "parameters"),
    [
        ("plain(float*)", "plain", "float*"),
        ("void softmax<float, 256>(float const*, float*, int)", "softmax<float, 256>", "float const*, float*, int"),
        ("void ns::(anonymous namespace)::map<(anonymous namespace)::Add>(int)", "ns::map<Add>", "int"),
        ("void apply<void (*)(float)>(void (*)(float))", "apply<void (*)(float)>", "void (*)(float)"),
    ],
)
def test_a_kernels_name_is_cut_out_of_its_signature(signature: str, name: str, parameters: str) -> None:
    assert name_and_parameters(signature) == (name, parameters)


# ---- the split

UNIT = r"""#include <torch/extension.h>
#include <cuda_runtime.h>
#include <cuda_fp16.h>
#define DEVICE __device__ __forceinline__
#define CHECK(x) TORCH_CHECK(x.is_cuda(), "not CUDA")
#define MAKE(NAME, OP) __global__ void NAME(float* x) { x[threadIdx.x] = x[threadIdx.x] OP 2; }
MAKE(doubled, *)
MAKE(raised, +);
using torch::Tensor;
typedef float real;
enum class Mode { kSum, kMax };
constexpr int kTile = 16;
static const float kScale[2] = {1.0f, 2.0f};
__constant__ float weights[2][3] = {{1, 2, 3}, {4, 5, 6}};
__device__ int counter{3};
template <typename T> struct Pair { T a, b; DEVICE T sum() const { return a + b; } };
struct alignas(16) Four { float v[4]; };
struct Settings { torch::Tensor x; int at, py; };
constexpr int twice(int v) { return 2 * v; }
static inline int blocks_for(int n) { return (n + 255) / 256; }
template <int N> static void host_template(float* x) { doubled<<<1, N>>>(x); }
namespace outer { namespace {
auto relu = [] __device__ (float v) { return v > 0 ? v : 0.f; };
template <typename F> DEVICE float apply(F f, float v) { return f(v); }
template <typename T, int N = twice(4)>
__global__ void __launch_bounds__(256) kernel(const T* __restrict__ x, T* out) {
    extern __shared__ __align__(16) unsigned char dynamic[];
    __shared__ Pair<T> pairs[kTile][N];
    auto half_of = [&](T v) { return v / T(2); };
    pairs[threadIdx.x % kTile][0] = {x[threadIdx.x], T(weights[1][2])};
    dynamic[threadIdx.x] = counter;
    __syncthreads();
    out[threadIdx.x] = half_of(pairs[0][0].sum()) + T(dynamic[0]) + T(Mode::kSum == Mode::kMax);
}
}  // namespace
void run_it(Tensor x) { kernel<float><<<1, 32, 64>>>(x.data_ptr<float>(), x.data_ptr<float>()); }
}  // namespace outer
__global__ void vectors(Four* f, real* r) { r[0] = outer::apply([](float v) { return v + 1; }, f->v[0]); }
#ifdef NEVER
this is no C++ at all
#endif
at::Tensor launch(at::Tensor x, int64_t n = 3) {
    const char* text = "} __global__ {";  // }
    return x;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("launch", &launch); }
"""


def test_the_split_leaves_lines_where_they_are_and_host_code_out() -> None:
    kept = device_code(UNIT).partition('#line 1 "cuda.cu"\n')[2].split("\n")
    for number, line in enumerate(UNIT.split("\n")):
        assert kept[number] in (line, ""), number
    text = "\n".join(kept)
    for gone in ("torch", "at::", "blocks_for", "host_template", "run_it", "Settings", "PYBIND11", "launch("):
        assert gone not in text.replace("__launch_bounds__(", "").replace("TORCH_CHECK", ""), gone
    for there in (
        "MAKE(doubled, *)",
        "kScale",
        "weights[2][3]",
        "counter{3}",
        "struct Pair",
        "Four",
        "twice(int",
        "vectors",
    ):
        assert there in text, there


@HAS_NVCC
def test_nvcc_takes_the_split_and_counts_what_its_kernels_need() -> None:
    compiler = find("sm_90", ["--expt-relaxed-constexpr", "--extended-lambda"])
    assert compiler is not None
    made = compiler.kernels(UNIT, ["outer::kernel<float, 8>", "outer::kernel<double, 4>"], [])
    assert made is not None
    by_name = {name_and_parameters(one.signature)[0]: one for one in made}
    assert set(by_name) == {"doubled", "raised", "vectors", "outer::kernel<float, 8>", "outer::kernel<double, 4>"}
    assert by_name["outer::kernel<float, 8>"].static_shared_bytes == 16 * 8 * 8
    assert by_name["outer::kernel<double, 4>"].static_shared_bytes == 16 * 4 * 16
    assert all(0 < one.registers <= 255 for one in made)


@HAS_NVCC
def test_nvcc_compiles_the_kernels_of_the_shipped_candidates() -> None:
    """All at once: each in a namespace of its own."""
    candidates = [path for task in TASKS for path in sorted((task / "candidates").glob("*.py"))]
    built = [path for path in candidates if stated_kind(path, "tf32") != "does-not-build"]
    sources = [text for path in built for text in path.read_text().split('"""')[1::2] if "__global__" in text]
    parts = [f"namespace in_{i} {{\n{source}\n}}" for i, source in enumerate(sources)]
    compiler = find("sm_90", ["--expt-relaxed-constexpr"])
    assert compiler is not None and sources
    made = compiler.kernels("\n".join(parts), [], [])
    assert made is not None and len(made) >= len(sources)


CAPPED = r"""
__global__ void many(const float* x, float* out) {
    float v[64];
    for (int i = 0; i < 64; ++i) v[i] = x[i * 32 + threadIdx.x];
    __syncthreads();
    for (int i = 0; i < 64; ++i) out[i] = v[63 - i] * v[i] + v[(i * 7) % 64];
}
"""


@HAS_NVCC
def test_a_candidates_own_flags_count() -> None:
    compiler = find("sm_90", [])
    assert compiler is not None
    (free,) = compiler.kernels(CAPPED, [], ["-O3", "-gencode", "arch=compute_80,code=sm_80"]) or ()
    (capped,) = compiler.kernels(CAPPED, [], ["-maxrregcount=32"]) or ()
    assert free.registers > 32 >= capped.registers
    assert (free.spill_store_bytes, free.stack_bytes) == (0, 0)
    assert capped.spill_store_bytes > 0 and capped.spill_load_bytes > 0 and capped.stack_bytes > 0


@HAS_NVCC
def test_what_does_not_compile_in_part_is_no_verdict_and_whole_it_is() -> None:
    source = "int host(int v) { return v; }\n__global__ void k(int* x) { *x = host(*x); }\n"
    compiler = find("sm_90", [])
    assert compiler is not None
    assert compiler.kernels(source, [], []) is None
    with pytest.raises(BuildError, match=r'calling a __host__ function."host.int.". from a __global__ function'):
        compiler.unit(source, [])


def test_a_missing_header_of_nvidias_is_nobodys_mistake() -> None:
    assert lacks_header("ATen/cuda/CUDAContextLight.h:7:10: fatal error: cusparse.h: No such file or directory\n")
    assert not lacks_header("cuda.cu:3:10: fatal error: my_helpers.h: No such file or directory\n")
    assert not lacks_header("cuda.cu(3): error: identifier x is undefined\n")


# ---- in a verdict

SOURCE = '''
import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
template <typename T, int N, typename F>
__global__ void map(const T* x, T* out, int n, F f) {{
    extern __shared__ float tile[];
    __shared__ T fixed[N];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    fixed[threadIdx.x] = i < n ? x[i] : T(0);
    tile[threadIdx.x] = 1;
    __syncthreads();
    if (i < n) out[i] = f(fixed[threadIdx.x]) * tile[threadIdx.x];
}}
struct Same {{ __device__ float operator()(float v) const {{ return v; }} }};
torch::Tensor run(torch::Tensor x, int64_t bytes) {{
    auto out = torch::empty_like(x);
    int n = x.numel();
    AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "map", [&] {{
        cudaFuncSetAttribute(map<scalar_t, 64, Same>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
        map<scalar_t, 64><<<(n + 63) / 64, 64, bytes>>>(x.data_ptr<scalar_t>(), out.data_ptr<scalar_t>(), n, Same());
    }});
    TORCH_CHECK(cudaGetLastError() == cudaSuccess, "CUDA error: invalid argument");
    return out;
}}
"""
extension = load_inline("map", "torch::Tensor run(torch::Tensor x, int64_t bytes);", SOURCE, functions=["run"])


class ModelNew(nn.Module):
    def forward(self, x):
        assert torch.cuda.get_device_properties(0).multi_processor_count == {sms}
        return extension.run(x.contiguous(), {bytes})
'''
CALLS_HOST = '''
import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cuda_runtime.h>
float of_the_host(float v) { return v; }
__global__ void copy(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = of_the_host(x[i]);
}
void launch(const float* x, float* out, int n) { copy<<<(n + 63) / 64, 64>>>(x, out, n); }
"""
CPP = r"""
void launch(const float* x, float* out, int n);
torch::Tensor run(torch::Tensor x) {
    auto out = torch::empty_like(x);
    launch(x.data_ptr<float>(), out.data_ptr<float>(), x.numel());
    return out;
}
"""
extension = load_inline("copy", CPP, SOURCE, functions=["run"], no_implicit_headers=True)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.run(x)
'''


@pytest.fixture(scope="module")
def on_an_h200(judge_batch: Callable[..., crucible.Run], tmp_path_factory: pytest.TempPathFactory) -> crucible.Run:
    """The second one's unit has no header of PyTorch's: nvcc compiles it whole in a second."""
    folder = tmp_path_factory.mktemp("candidates")
    right = write(folder / "right.py", SOURCE.format(sms=132, bytes=200 << 10))
    return judge_batch(IDENTITY_TASK, [right, write(folder / "calls_host.py", CALLS_HOST)], device="emulator")


@HAS_NVCC
def test_a_verdict_tells_what_its_kernels_take(on_an_h200: crucible.Run) -> None:
    verdict = on_an_h200.verdict("right")
    assert verdict.evaluation, verdict.outcome.words + verdict.log
    (one,) = verdict.resources
    assert (one.kernel, one.threads) == ("map<float, 64, Same>", 64)
    assert (one.static_shared_bytes, one.dynamic_shared_bytes) == (256, 200 << 10)
    assert (one.blocks, one.warps, one.occupancy, one.limited_by) == (1, 2, 2 / 64, "shared memory")
    assert 0 < one.registers < 64 and not one.spills
    data = on_an_h200.to_json()
    assert data["gpu"] == "NVIDIA H200"
    entry = next(entry for entry in data["candidates"] if entry["name"] == "right")
    assert from_json(entry["resources"]) == (one,)
    assert from_json(to_json(verdict)).resources == (one,)


@HAS_NVCC
def test_a_host_function_called_from_a_kernel_does_not_build(on_an_h200: crucible.Run) -> None:
    verdict = on_an_h200.verdict("calls_host")
    assert verdict.outcome.kind == "does-not-build", verdict.outcome.words
    assert 'cuda.cu(6): calling a __host__ function("of_the_host(float)")' in verdict.outcome.words


def test_the_gpu_asked_for_has_its_own_limits_and_properties(tmp_path: Path) -> None:
    """200 KiB of dynamic shared memory: an H200 has them (above), an L40S 99."""
    file = write(tmp_path / "right.py", SOURCE.format(sms=142, bytes=200 << 10))
    run = crucible.judge(IDENTITY_TASK, [file], device="emulator", gpu="l40s", baselines="none")
    verdict = run.verdict("right")
    assert verdict.outcome.kind == "launch-error", verdict.outcome.words + verdict.log
    assert "the limit of the NVIDIA L40S is 101376" in verdict.outcome.words
    assert run.gpu == "NVIDIA L40S"


ASKED = r"""
__global__ void k(float* x) { x[threadIdx.x] = 1; }
std::vector<int64_t> ask(torch::Tensor x, int64_t threads, int64_t shared) {
    cudaDeviceProp p;
    cudaGetDeviceProperties(&p, 0);
    int optin, blocks, grid, block;
    cudaDeviceGetAttribute(&optin, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0);
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, k, threads, shared);
    cudaOccupancyMaxPotentialBlockSize(&grid, &block, k);
    cudaFuncAttributes a;
    cudaFuncGetAttributes(&a, k);
    k<<<1, threads>>>(x.data_ptr<float>());
    return {p.major * 10 + p.minor, p.multiProcessorCount, p.l2CacheSize, p.maxThreadsPerMultiProcessor, p.name[7],
            optin, blocks, grid * block, a.numRegs, int64_t(a.sharedSizeBytes)};
}
"""


@pytest.fixture
def an_h200_again() -> Iterator[None]:
    emulator.forget()
    yield
    emulator.gpu("h200")


@pytest.mark.usefixtures("an_h200_again")
def test_attributes_properties_and_occupancy_are_those_of_the_gpu_and_of_nvcc() -> None:
    """In C++, beside the same questions asked of the table, with and without what nvcc says of the kernel."""
    extension = emulator.load_inline(
        "ask", "std::vector<int64_t> ask(torch::Tensor x, int64_t t, int64_t s);", ASKED, ["ask"]
    )
    runtime = start()
    x = torch.empty(1024)
    for gpu in GPUS:
        emulator.gpu(gpu.short_name)
        major, minor = gpu.compute_capability
        table = [major * 10 + minor, gpu.sms, gpu.l2_bytes, gpu.max_threads_per_sm, ord(gpu.name[7])]
        answer = extension.ask(x, 256, 30_000)
        assert answer[:6] == [*table, gpu.shared_memory_per_block_bytes]
        assert answer[6] == occupancy(gpu, registers=0, shared_bytes=30_000, threads=256).blocks
        assert answer[7] == gpu.sms * gpu.max_threads_per_sm
    (launch,) = {one.address for one in runtime.configurations() if one.name == "k"}
    chance = random.Random(0)
    for gpu in (H200, L40S):
        emulator.gpu(gpu.short_name)
        for _ in range(20):
            registers, static, threads = chance.randint(1, 255), chance.randint(0, 48 << 10), chance.randint(1, 256)
            runtime.know(launch, Compiled("k", "k", registers, 0, 0, 0, static))
            answer = extension.ask(x, threads, 1000)
            assert answer[6] == occupancy(gpu, registers=registers, shared_bytes=static + 1000, threads=threads).blocks
            assert answer[8:] == [registers, static]
    runtime.know(launch, Compiled("k", "k", 65, 0, 0, 0, 0))
    with pytest.raises(RuntimeError, match="too many resources requested for launch"):
        extension.ask(x, 1024, 0)
    assert "65 registers each" in emulator.faults()[0].words


def test_an_unknown_gpu_and_one_beside_a_real_one_are_misuse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(tmp_path / "right.py", CALLS_HOST)
    with pytest.raises(DeviceError, match=r"no GPU 'rtx 9090' in the table: choose one of .*h200"):
        crucible.judge(IDENTITY_TASK, [file], device="emulator", gpu="rtx 9090")
    monkeypatch.setattr(hardware, "find_device", lambda kind: hardware.Device("cuda", "NVIDIA H200", "580"))
    with pytest.raises(DeviceError, match="needs --device emulator"):
        crucible.judge(IDENTITY_TASK, [file], gpu="l40s")


def test_python_is_told_the_same_of_the_gpu() -> None:
    told = properties_of(L40S)
    assert (told.name, told.major, told.minor, told.multi_processor_count) == ("NVIDIA L40S", 8, 9, 142)
    assert (told.shared_memory_per_block_optin, told.total_memory) == (99 << 10, 48 << 30)


@pytest.mark.parametrize(
    ("threads", "registers", "possible"), [(256, 32, True), (0, 32, False), (1025, 32, False), (256, -1, False)]
)
def test_what_cannot_be_of_a_kernel_is_left_out(threads: int, registers: int, possible: bool) -> None:
    row = ["k", threads, registers, 0, 0, 0, 0, 0]
    assert is_of_a_kernel(row) == possible
    assert not possible or resources_of(H200, row).blocks == 8
    assert not is_of_a_kernel(["k" * 10_000, *row[1:]])


def test_resources_in_words() -> None:
    one = Resources("k<float>", 256, 40, 8, 4, 16, 1024, 512, 6, 48, 0.75, "registers")
    assert one.words == (
        "k<float>: 40 registers, 12 bytes of spills, 1536 bytes of shared memory; "
        "6 blocks of 256 threads a multiprocessor, occupancy 75%, limited by registers"
    )
