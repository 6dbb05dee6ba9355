"""What the access trace counts, against counts by hand and by NumPy."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from crucible import emulator, hardware
from crucible.emulator.trace import Line, Trace

VECTORS_WHOLE = pytest.mark.skipif("clang" in hardware.cxx(), reason="with clang vectors come apart into elements")

SOURCE = r"""
#include <cuda_fp16.h>
struct Three { float a, b, c; };
__device__ int counters[4];
__global__ void copy(const float* x, float* o, const int* p, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    o[i] = x[i];
}
__global__ void strided(const float* x, float* o, const int* p, int n) { o[threadIdx.x] = x[threadIdx.x * n]; }
__global__ void shifted(const float* x, float* o, const int* p, int n) { o[threadIdx.x] = x[threadIdx.x + n]; }
__global__ void uneven(const float* x, float* o, const int* p, int n) {
    o[threadIdx.x] = x[threadIdx.x * (blockIdx.x % 16)];
}
__global__ void broadcast(const float* x, float* o, const int* p, int n) { o[threadIdx.x] = x[n]; }
__global__ void gathered(const float* x, float* o, const int* p, int n) {
    int at = p[threadIdx.x];
    o[threadIdx.x] = x[at];
}
__global__ void wide(const float* x, float* o, const int* p, int n) {
    float4 v = reinterpret_cast<const float4*>(x)[threadIdx.x];
    v.x += v.y * v.z;
    reinterpret_cast<float4*>(o)[threadIdx.x] = v;
}
__global__ void unrolled(const float* x, float* o, const int* p, int n) {
    float sum = 0;
    #pragma unroll
    for (int j = 0; j < 4; ++j) sum += x[4 * threadIdx.x + j];
    o[threadIdx.x] = sum;
}
__global__ void halves(const float* x, float* o, const int* p, int n) {
    o[threadIdx.x] = __half2float(reinterpret_cast<const half*>(x)[threadIdx.x]);
}
__global__ void structs(const float* x, float* o, const int* p, int n) {
    reinterpret_cast<Three*>(o)[threadIdx.x] = reinterpret_cast<const Three*>(x)[threadIdx.x];
}
__global__ void transposed(const float* x, float* o, const int* p, int n) {
    __shared__ float tile[32][32];
    tile[threadIdx.y][threadIdx.x] = x[threadIdx.y * 32 + threadIdx.x];
    __syncthreads();
    o[threadIdx.y * 32 + threadIdx.x] = tile[threadIdx.x][threadIdx.y];
}
__global__ void padded(const float* x, float* o, const int* p, int n) {
    __shared__ float tile[32][33];
    tile[threadIdx.y][threadIdx.x] = x[threadIdx.y * 32 + threadIdx.x];
    __syncthreads();
    o[threadIdx.y * 32 + threadIdx.x] = tile[threadIdx.x][threadIdx.y];
}
template <class V>
__global__ void vectors(const float* x, float* o, const int* p, int n) {
    extern __shared__ float4 memory[];
    V* s = reinterpret_cast<V*>(memory);
    s[threadIdx.x] = reinterpret_cast<const V*>(x)[threadIdx.x];
    __syncthreads();
    reinterpret_cast<V*>(o)[threadIdx.x] = s[threadIdx.x * n % 32];
}
__global__ void picked(const float* x, float* o, const int* p, int n) {
    __shared__ float s[1024];
    for (int i = threadIdx.x; i < 1024; i += blockDim.x) s[i] = x[i];
    __syncthreads();
    o[threadIdx.x] = s[p[threadIdx.x]];
}
__global__ void histogram(const float* x, float* o, const int* p, int n) {
    atomicAdd(&o[(threadIdx.x + blockIdx.x) % n], 1.0f);
}
__global__ void block_histogram(const float* x, float* o, const int* p, int n) {
    __shared__ int s[32];
    s[threadIdx.x % 32] = 0;
    __syncthreads();
    atomicAdd(&s[threadIdx.x % n], 1);
    __syncthreads();
    if (threadIdx.x == 0) atomicAdd(&counters[1], 1);
}
__global__ void divergent(const float* x, float* o, const int* p, int n) {
    float v;
    if (threadIdx.x % 32 < 16) {
        v = x[threadIdx.x];
    } else {
        v = x[threadIdx.x * 8] + 1;
    }
    o[threadIdx.x] = v;
}
__global__ void triangle(const float* x, float* o, const int* p, int n) {
    float sum = 0;
    for (int k = 0; k < threadIdx.x; ++k) sum += x[k * 32 + threadIdx.x];
    o[threadIdx.x] = sum;
}
__global__ void phases(const float* x, float* o, const int* p, int n) {
    float sum = 0;
    for (int k = 0; k < n; ++k) {
        if (threadIdx.x % 2 == k % 2) sum += x[threadIdx.x];
        __syncthreads();
    }
    o[threadIdx.x] = sum;
}
__global__ void repeated(const float* x, float* o, const int* p, int n) {
    float sum = 0;
    for (int k = 0; k < n; ++k) sum += x[k % 1024];
    o[threadIdx.x] = sum;
}
__global__ void local(const float* x, float* o, const int* p, int n) {
    float mine[8];
    for (int k = 0; k < 8; ++k) mine[(k + n) % 8] = k;
    o[threadIdx.x] = mine[threadIdx.x % 8];
}
"""
KERNELS = (*re.findall(r"^__global__ void (\w+)", SOURCE, re.MULTILINE), "vectors<float2>", "vectors<float4>")
LAUNCH = 'if (name == "{0}") {0}<<<dim3(grid), dim3(block, rows), shared>>>(x, o, p, n);'
RUN = """
void run(std::string name, torch::Tensor from, torch::Tensor to, torch::Tensor places,
         int n, int grid, int block, int rows, int shared) {
    auto x = from.data_ptr<float>();
    auto o = to.data_ptr<float>();
    auto p = places.data_ptr<int>();
"""
LAUNCHES = "".join(f"    {LAUNCH.format(kernel)}\n" for kernel in KERNELS if kernel != "vectors")
DECLARED = RUN.partition(" {")[0] + ";"


@pytest.fixture(scope="module")
def built() -> ModuleType:
    return emulator.load_inline("traced", DECLARED, SOURCE + RUN + LAUNCHES + "}", ["run"])


def launch(
    built: ModuleType,
    name: str,
    n: int = 0,
    grid: int = 1,
    block: int = 32,
    rows: int = 1,
    p: Any = None,
    shared: int = 0,
) -> None:
    """A kernel on 2048 floats into 8192 others."""
    places = torch.zeros(1, dtype=torch.int32) if p is None else torch.tensor(p, dtype=torch.int32)
    built.run(name, torch.ones(8192), torch.zeros(8192), places, n, grid, block, rows, shared)


def seen_of(built: ModuleType, name: str, **shape: Any) -> emulator.Seen:
    with emulator.trace() as seen:
        launch(built, name, **shape)
    return seen


def the(seen: emulator.Seen, operation: str, space: str = "global") -> Line:
    """The only line with such accesses."""
    (line,) = [line for line in seen.lines if (line.operation, line.space) == (operation, space)]
    return line


@pytest.mark.parametrize(
    ("name", "shape", "requests", "bytes_", "sectors", "ideal"),
    [
        ("copy", {"block": 256, "grid": 3}, 24, 3072, 96, 96),
        ("copy", {"block": 48}, 2, 192, 6, 6),
        ("strided", {"n": 2}, 1, 128, 8, 4),
        ("strided", {"n": 8}, 1, 128, 32, 4),
        ("strided", {"n": 32}, 1, 128, 32, 4),
        ("shifted", {"n": 1}, 1, 128, 5, 4),
        ("shifted", {"n": 8}, 1, 128, 4, 4),
        ("broadcast", {"n": 9}, 1, 128, 1, 1),
        pytest.param("wide", {}, 1, 512, 16, 16, marks=VECTORS_WHOLE),
        ("unrolled", {}, 4, 512, 64, 16),
        ("halves", {}, 1, 64, 2, 2),
        ("structs", {}, 3, 384, 36, 12),
        ("triangle", {}, 31, 4 * 496, 76, 76),
    ],
)
def test_sectors_of_loads(
    built: ModuleType, name: str, shape: dict[str, int], requests: int, bytes_: int, sectors: int, ideal: int
) -> None:
    line = the(seen_of(built, name, **shape), "load")
    assert (line.requests, line.bytes, line.sectors, line.ideal_sectors) == (requests, bytes_, sectors, ideal)
    assert line.wavefronts == line.atomics == 0


@pytest.mark.parametrize(
    ("name", "width", "sectors"),
    [("copy", 4, 4), pytest.param("wide", 16, 16, marks=VECTORS_WHOLE), ("structs", 4, 36)],
)
def test_sectors_of_stores(built: ModuleType, name: str, width: int, sectors: int) -> None:
    line = the(seen_of(built, name), "store")
    assert (line.width, line.sectors) == (width, sectors)


@pytest.mark.parametrize(
    ("name", "shape", "wavefronts", "ideal", "ways"),
    [
        ("transposed", {"rows": 32}, 1024, 32, 32),
        ("padded", {"rows": 32}, 32, 32, 1),
        ("vectors<float2>", {"n": 1, "shared": 1024}, 2, 2, 1),
        ("vectors<float2>", {"n": 2, "shared": 1024}, 4, 2, 2),
        ("vectors<float2>", {"n": 17, "shared": 1024}, 2, 2, 1),
        pytest.param("vectors<float4>", {"n": 1, "shared": 1024}, 4, 4, 1, marks=VECTORS_WHOLE),
        pytest.param("vectors<float4>", {"n": 31, "shared": 1024}, 4, 4, 1, marks=VECTORS_WHOLE),
        ("vectors<float4>", {"n": 4, "shared": 1024}, 16, 4, 4),
        ("vectors<float4>", {"n": 0, "shared": 1024}, 4, 4, 1),
    ],
)
def test_bank_conflicts_of_shared_loads(
    built: ModuleType, name: str, shape: dict[str, int], wavefronts: int, ideal: int, ways: int
) -> None:
    line = the(seen_of(built, name, **shape), "load", "shared")
    assert (line.wavefronts, line.ideal_wavefronts, line.worst_ways) == (wavefronts, ideal, ways)
    assert line.sectors == 0


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=20, deadline=None)
def test_random_places_count_as_numpy_counts_them(built: ModuleType, seed: int) -> None:
    """Two warps at random words: sectors are different eighths, wavefronts the fullest bank's different words."""
    places = np.random.default_rng(seed).integers(0, 1024, (2, 32))
    loads = [line for line in seen_of(built, "gathered", p=places, block=64).lines if line.operation == "load"]
    indices, gathered = sorted(loads, key=lambda line: line.line)
    assert indices.sectors == indices.ideal_sectors == 8
    assert gathered.sectors == sum(len(np.unique(warp // 8)) for warp in places)
    assert gathered.ideal_sectors == sum(-(-len(np.unique(warp)) * 4 // 32) for warp in places)
    picked = the(seen_of(built, "picked", p=places, block=64), "load", "shared")
    ways = [max(np.bincount(np.unique(warp) % 32)) for warp in places]
    assert (picked.wavefronts, picked.worst_ways) == (sum(ways), max(ways))


def test_a_launch_says_what_all_its_lines_ask_for(built: ModuleType) -> None:
    """Touched is what anybody touched, once: 100 blocks copy one part each, 5 blocks read one word."""
    with emulator.trace() as seen:
        launch(built, "copy", grid=100)
        launch(built, "broadcast", grid=5)
        launch(built, "transposed", rows=32)
    copy, broadcast, transposed = seen.launches
    of = {one.kernel: [line for line in seen.lines if line.kernel == one.kernel] for one in seen.launches}
    for one in seen.launches:
        assert one.sectors == sum(line.sectors for line in of[one.kernel])
        assert one.accesses * 4 == sum(line.bytes for line in of[one.kernel])
    assert copy.touched_sectors == copy.sectors / copy.share == 800
    assert broadcast.touched_sectors < broadcast.sectors
    shared = sum(line.wavefronts for line in of["transposed"])
    assert transposed.l1_wavefronts == shared + transposed.sectors // 4
    assert copy.half_flops == copy.tf32_flops == 0


def test_contention_of_global_atomics_counts_blocks_that_are_not_followed(built: ModuleType) -> None:
    seen = seen_of(built, "histogram", n=4, grid=40, block=64)
    line = the(seen, "atomic")
    assert seen.launches[0].followed == 32
    assert (line.requests, line.atomics, line.sectors) == (64, 2048, 64)
    assert (line.worst_in_warp, line.worst_on_address) == (8, 640)


def test_contention_of_shared_atomics_is_that_of_a_block(built: ModuleType) -> None:
    seen = seen_of(built, "block_histogram", n=2, grid=3, block=64)
    line = the(seen, "atomic", "shared")
    assert (line.atomics, line.worst_in_warp, line.worst_on_address) == (192, 16, 32)
    counter = the(seen, "atomic")
    assert (counter.atomics, counter.worst_in_warp, counter.worst_on_address) == (3, 1, 3)


def test_contention_is_that_of_one_launch(built: ModuleType) -> None:
    with emulator.trace() as seen:
        for n in (1, 1, 2):
            launch(built, "histogram", n=n)
    assert the(seen, "atomic").worst_on_address == 32
    assert the(seen, "atomic").atomics == 96


def test_halves_of_a_warp_that_part_ask_apart(built: ModuleType) -> None:
    seen = seen_of(built, "divergent", block=64)
    loads = sorted((line.requests, line.bytes, line.sectors) for line in seen.lines if line.operation == "load")
    assert loads == [(2, 128, 4), (2, 128, 32)]
    assert the(seen, "store").requests == 2


def test_a_barrier_brings_lanes_together_again(built: ModuleType) -> None:
    """Even lanes ask in one phase and odd ones in the next: never in the same request."""
    line = the(seen_of(built, "phases", n=4), "load")
    assert (line.requests, line.bytes) == (4, 256)


def test_lines_of_the_source_and_the_kernel_are_named(built: ModuleType) -> None:
    line = the(seen_of(built, "transposed", rows=32), "load", "shared")
    assert (line.kernel, line.file) == ("transposed", "cuda.cu")
    assert SOURCE.split("\n")[line.line - 1].strip().endswith("tile[threadIdx.x][threadIdx.y];")


def test_local_memory_is_none_of_it(built: ModuleType) -> None:
    (line,) = seen_of(built, "local").lines
    assert (line.operation, line.requests) == ("store", 1)


def test_of_a_large_grid_and_of_many_launches_some_are_followed(built: ModuleType) -> None:
    with emulator.trace() as seen:
        for _ in range(6):
            launch(built, "copy", grid=100)
            launch(built, "broadcast", grid=5)
        launch(built, "broadcast", grid=1)
    known = {(one.kernel, one.grid): (one.count, one.followed, one.share) for one in seen.launches}
    assert known[("copy", (100, 1, 1))] == (6, 4 * 32, 4 * 32 / 600)
    assert known[("broadcast", (5, 1, 1))] == (6, 4 * 5, 20 / 30)
    assert known[("broadcast", (1, 1, 1))] == (1, 1, 1.0)
    assert sum(line.requests for line in seen.lines if line.kernel == "copy") == 2 * 4 * 32


def test_the_same_blocks_are_followed_each_time(built: ModuleType) -> None:
    one, other = (seen_of(built, "uneven", grid=200).trace for _ in range(2))
    assert one == other


def test_accesses_beyond_the_cap_are_dropped_and_counted(built: ModuleType) -> None:
    seen = seen_of(built, "repeated", n=5000, block=3)
    assert seen.launches[0].dropped == 3 * (5000 - 4096)
    assert (the(seen, "load").requests, the(seen, "load").bytes) == (4096, 3 * 4 * 4096)


def test_nothing_is_counted_outside(built: ModuleType) -> None:
    with emulator.trace() as seen:
        pass
    launch(built, "copy")
    assert seen.trace == Trace()
    assert the(seen_of(built, "strided"), "load").kernel == "strided"


def test_what_was_seen_before_a_fault_is_kept(built: ModuleType) -> None:
    with pytest.raises(RuntimeError, match="illegal memory access"), emulator.trace() as seen:
        launch(built, "copy")
        launch(built, "strided", n=100000)
    assert {line.kernel for line in seen.lines} == {"copy"}
    assert the(seen_of(built, "broadcast"), "load").sectors == 1
    emulator.forget()


def test_a_trace_is_json_and_back(built: ModuleType) -> None:
    trace = seen_of(built, "transposed", rows=32).trace
    assert Trace.from_json(trace.to_json()) == trace
    assert trace.bounded(1, 0) == Trace((), trace.lines[:1])
    assert [line.cost for line in trace.lines] == sorted((line.cost for line in trace.lines), reverse=True)


@pytest.mark.parametrize("value", [None, -1, 1.5, True, "x" * 501, 1 << 62, [1, 2], float("nan"), {}])
def test_what_is_no_trace_is_refused(value: Any) -> None:
    counts = dict.fromkeys(("requests", "bytes", "sectors", "ideal_sectors", "wavefronts", "ideal_wavefronts"), 1)
    counts |= dict.fromkeys(("worst_ways", "atomics", "worst_in_warp", "worst_on_address"), 0)
    line = {"kernel": "k", "file": "f", "line": 3, "operation": "load", "space": "shared", "width": 4, **counts}
    launch_ = {"kernel": "k", "grid": [1, 2, 3], "block": [1, 1, 1], "shared_bytes": 0, "count": 1}
    launch_ |= {"followed": 6, "dropped": 0, "accesses": 1, "sectors": 1, "l1_wavefronts": 1, "touched_sectors": 1}
    launch_ |= dict.fromkeys(("half_flops", "tf32_flops", "float64_flops", "byte_flops"), 1)
    assert Trace.from_json({"launches": [launch_], "lines": [line]}).lines[0].line == 3
    for name in line:
        with pytest.raises(ValueError, match=name):
            Trace.from_json({"launches": [], "lines": [{**line, name: value}]})
    for name in launch_:
        with pytest.raises(ValueError, match=name):
            Trace.from_json({"launches": [{**launch_, name: value}], "lines": []})
    for other in ({"launches": []}, {"launches": [], "lines": {}}, [], {"launches": [], "lines": [{}]}):
        with pytest.raises(ValueError, match=r"trace|has the fields"):
            Trace.from_json(other)


def test_the_example_of_the_documentation_says_what_it_prints(capsys: pytest.CaptureFixture[str]) -> None:
    text = (Path(__file__).parents[2] / "docs/emulator.md").read_text()
    _, example = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(example, {})
    assert capsys.readouterr().out.splitlines() == re.findall(r"^# (.*)$", example, re.MULTILINE)
