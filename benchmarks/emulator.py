"""How fast the emulator is: processor seconds to compile, elements a second to run. Run it on an idle machine.

python benchmarks/emulator.py        under the usual compiler; CXX=g++ or CXX=clang++ names another
"""

from __future__ import annotations

import json
import platform
import resource
import time
from collections.abc import Callable
from typing import Any

import torch

from crucible import emulator
from crucible.emulator import toolchain

SOURCE = r"""
__global__ void fused_kernel(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float v = x[i] > 0.0f ? x[i] : 0.2f * x[i];
        y[i] = fminf(fmaxf(v + 0.5f, -1.0f), 1.0f);
    }
}
__global__ void shared_kernel(const float* x, float* y, int n) {
    __shared__ float s[256];
    int t = threadIdx.x, i = blockIdx.x * 256 + t;
    s[t] = i < n ? x[i] : 0.0f;
    __syncthreads();
    for (int k = 128; k > 0; k /= 2) {
        if (t < k) s[t] += s[t + k];
        __syncthreads();
    }
    if (t == 0) y[blockIdx.x] = s[0];
}
__global__ void warp_kernel(const float* x, float* y, int n) {
    int i = blockIdx.x * 256 + threadIdx.x;
    float v = i < n ? x[i] : 0.0f;
    for (int k = 16; k > 0; k /= 2) v += __shfl_down_sync(0xffffffff, v, k);
    if (threadIdx.x % 32 == 0) y[i / 32] = v;
}
__global__ void matmul_kernel(const float* a, const float* b, float* c, int n) {
    __shared__ float as[16][16], bs[16][16];
    int r = blockIdx.y * 16 + threadIdx.y, q = blockIdx.x * 16 + threadIdx.x;
    float sum = 0.0f;
    for (int k = 0; k < n; k += 16) {
        as[threadIdx.y][threadIdx.x] = a[r * n + k + threadIdx.x];
        bs[threadIdx.y][threadIdx.x] = b[(k + threadIdx.y) * n + q];
        __syncthreads();
        for (int j = 0; j < 16; ++j) sum += as[threadIdx.y][j] * bs[j][threadIdx.x];
        __syncthreads();
    }
    c[r * n + q] = sum;
}
template <class F>
torch::Tensor over(torch::Tensor x, int64_t size, F launch) {
    auto y = torch::empty({size}, x.options());
    launch(x.data_ptr<float>(), y.data_ptr<float>(), int(x.numel()));
    return y;
}
torch::Tensor fused(torch::Tensor x) {
    return over(x, x.numel(), [](float* x, float* y, int n) { fused_kernel<<<n / 256, 256>>>(x, y, n); });
}
torch::Tensor shared(torch::Tensor x) {
    return over(x, x.numel() / 256, [](float* x, float* y, int n) { shared_kernel<<<n / 256, 256>>>(x, y, n); });
}
torch::Tensor warp(torch::Tensor x) {
    return over(x, x.numel() / 32, [](float* x, float* y, int n) { warp_kernel<<<n / 256, 256>>>(x, y, n); });
}
torch::Tensor matmul(torch::Tensor x) {
    return over(x, 256 * 256, [](float* x, float* y, int) {
        matmul_kernel<<<dim3(16, 16), dim3(16, 16)>>>(x, x, y, 256);
    });
}
"""
NAMES = ("fused", "shared", "warp", "matmul")
DECLARED = "".join(f"torch::Tensor {name}(torch::Tensor x);" for name in NAMES)
WORK = {"fused": 1 << 20, "shared": 1 << 20, "warp": 1 << 20, "matmul": 256**3}
"""Elements, or multiply-adds."""


def measure() -> dict[str, Any]:
    """Seconds to compile and millions of elements (multiply-adds) a second, with checks and without."""
    found: dict[str, Any] = {"processor": platform.processor() or platform.machine(), "torch": torch.__version__}
    found["compiler"] = toolchain.find_compiler()
    for checked in (True, False):
        toolchain.prepare(checked=checked)
        salt = f"// {time.time()}\n"
        before = _children_s()
        built = emulator.load_inline("speed", DECLARED, SOURCE + salt, NAMES, checked=checked)
        label = "checked" if checked else "unchecked"
        found[f"compile {label}, CPU s"] = round(_children_s() - before, 2)
        for name in NAMES:
            x = torch.rand(256 * 256 if name == "matmul" else 1 << 20)
            found[f"{name} {label}, M/s"] = round(WORK[name] / 1e6 / _best_s(getattr(built, name), x), 1)
    assert emulator.faults() == ()
    return found


def _best_s(function: Callable[..., Any], x: torch.Tensor) -> float:
    function(x)
    times = []
    for _ in range(5):
        start = time.process_time()
        function(x)
        times.append(time.process_time() - start)
    return min(times)


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    print(json.dumps(measure(), indent=1))
