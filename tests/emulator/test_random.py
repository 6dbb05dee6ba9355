"""cuRAND's generators in kernels: the numbers of PyTorch's own Philox, and XORWOW's skips as so many draws."""

from __future__ import annotations

import types

import pytest
import torch

from crucible import emulator

SOURCE = r"""
#include <ATen/core/PhiloxRNGEngine.h>
#include <curand_kernel.h>

template <class S>
__global__ void drawn(int* out, uint64_t seed, int count, uint64_t offset) {
    const int id = threadIdx.x;
    S state;
    curand_init(seed, id, offset, &state);
    for (int i = 0; i < count; ++i) out[id * count + i] = int(curand(&state));
}
template <class S>
__global__ void spread(float* out, int count) {
    S state;
    curand_init(7, threadIdx.x, 0, &state);
    for (int i = 0; i < count; ++i) {
        out[(threadIdx.x * count + i) * 2] = curand_uniform(&state);
        out[(threadIdx.x * count + i) * 2 + 1] = curand_normal(&state);
    }
}
torch::Tensor philox(int64_t seed, int64_t threads, int64_t count, int64_t offset) {
    auto out = torch::empty({threads, count}, torch::kInt32);
    drawn<curandStatePhilox4_32_10_t><<<1, threads>>>(out.data_ptr<int>(), seed, count, offset);
    return out;
}
torch::Tensor xorwow(int64_t seed, int64_t threads, int64_t count, int64_t offset) {
    auto out = torch::empty({threads, count}, torch::kInt32);
    drawn<curandState><<<1, threads>>>(out.data_ptr<int>(), seed, count, offset);
    return out;
}
torch::Tensor pytorchs(int64_t seed, int64_t threads, int64_t count) {
    auto out = torch::empty({threads, count}, torch::kInt32);
    for (int64_t t = 0; t < threads; ++t) {
        at::Philox4_32 engine(seed, t, 0);
        for (int64_t i = 0; i < count; ++i) out.data_ptr<int>()[t * count + i] = int(engine());
    }
    return out;
}
torch::Tensor uniform_and_normal(bool by_philox, int64_t count) {
    auto out = torch::empty({32, count, 2}, torch::kFloat32);
    if (by_philox) spread<curandStatePhilox4_32_10_t><<<1, 32>>>(out.data_ptr<float>(), count);
    else spread<curandState><<<1, 32>>>(out.data_ptr<float>(), count);
    return out;
}
torch::Tensor marsaglia(std::vector<int64_t> state, int64_t d, int64_t count) {  // as the paper has it
    auto out = torch::empty({count}, torch::kInt32);
    uint32_t x = state[0], y = state[1], z = state[2], w = state[3], v = state[4], sum = d;
    for (int64_t i = 0; i < count; ++i) {
        const uint32_t t = x ^ (x >> 2);
        x = y; y = z; z = w; w = v;
        v = (v ^ (v << 4)) ^ (t ^ (t << 1));
        out.data_ptr<int>()[i] = int((sum += 362437) + v);
    }
    return out;
}
"""
FUNCTIONS = ("philox", "xorwow", "pytorchs", "uniform_and_normal", "marsaglia")
DECLARED = """
torch::Tensor philox(int64_t seed, int64_t threads, int64_t count, int64_t offset);
torch::Tensor xorwow(int64_t seed, int64_t threads, int64_t count, int64_t offset);
torch::Tensor pytorchs(int64_t seed, int64_t threads, int64_t count);
torch::Tensor uniform_and_normal(bool by_philox, int64_t count);
torch::Tensor marsaglia(std::vector<int64_t> state, int64_t d, int64_t count);
"""


@pytest.fixture(scope="module")
def random() -> types.ModuleType:
    return emulator.load_inline("random", DECLARED, SOURCE, list(FUNCTIONS))


def test_philox_is_pytorchs(random: types.ModuleType) -> None:
    seed, threads = 0x123456789ABCDEF, 5
    expected = random.pytorchs(seed, threads, 24)
    for offset in (0, 1, 4, 7):
        assert torch.equal(random.philox(seed, threads, 12, offset), expected[:, offset : offset + 12])


def test_xorwow_is_marsaglias_and_skips_as_many_as_it_says(random: types.ModuleType) -> None:
    plain = random.xorwow(42, 3, 300, 0)
    a, b = 1099087573 * (42 ^ 0xAAD26B49) & 0xFFFFFFFF, 2591861531 * 0xF7DCEFDD & 0xFFFFFFFF
    start = [123456789 + a, 362436069 ^ a, 521288629 + b, 88675123 ^ b, 5783321 + a]
    assert torch.equal(plain[0], random.marsaglia([v & 0xFFFFFFFF for v in start], 6615241 + b + a, 300))
    for offset in (1, 37, 256):
        assert torch.equal(random.xorwow(42, 3, 40, offset), plain[:, offset : offset + 40])
    assert len({tuple(row[:4].tolist()) for row in plain}) == 3  # a subsequence of its own for each thread


@pytest.mark.parametrize("by_philox", [True, False])
def test_uniform_and_normal_are_spread_as_their_names_say(random: types.ModuleType, by_philox: bool) -> None:
    emulator.forget()
    drawn = random.uniform_and_normal(by_philox, 400)
    uniform, normal = drawn[..., 0], drawn[..., 1]
    assert uniform.min() > 0 and uniform.max() <= 1
    assert abs(uniform.mean() - 0.5) < 0.01 and abs(uniform.var() - 1 / 12) < 0.003
    assert abs(normal.mean()) < 0.04 and abs(normal.var() - 1) < 0.05
    assert [fault for fault in emulator.faults() if fault.convicts] == []
