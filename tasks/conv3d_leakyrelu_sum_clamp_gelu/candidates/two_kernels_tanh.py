"""LeakyReLU, sum and clamp in one CUDA kernel, tanh GELU in a second. Expected: passed; fp32: wrong; kernelbench: wrong; bf16: raises."""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CPP_SOURCE = """
torch::Tensor leaky_add_clamp(torch::Tensor x, torch::Tensor addend);
torch::Tensor gelu_tanh(torch::Tensor x);
"""

CUDA_SOURCE = r"""
#include <algorithm>

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

constexpr int kThreads = 256;
constexpr int kPerThread = 8;

// blockIdx.x is the (batch, channel) plane, so no element pays a division for its channel.
__global__ void leaky_add_clamp_kernel(const float* __restrict__ x, const float* __restrict__ addend,
                                       float* __restrict__ y, int channels, int64_t plane) {
    const float add = addend[blockIdx.x % channels];
    const int64_t base = blockIdx.x * plane;
    const int64_t step = int64_t(gridDim.y) * kThreads;
    for (int64_t i = int64_t(blockIdx.y) * kThreads + threadIdx.x; i < plane; i += step) {
        float v = x[base + i];
        v = (v > 0.0f ? v : 0.2f * v) + add;
        // Comparisons rather than fminf and fmaxf, which would lose a NaN.
        y[base + i] = v < -1.0f ? -1.0f : (v > 1.0f ? 1.0f : v);
    }
}

__global__ void gelu_tanh_kernel(const float* __restrict__ x, float* __restrict__ y, int64_t count) {
    const int64_t step = int64_t(gridDim.x) * kThreads;
    for (int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x; i < count; i += step) {
        const float v = x[i];
        const float inner = 0.79788456080286536f * (v + 0.044715f * v * v * v);
        y[i] = 0.5f * v * (1.0f + tanhf(inner));
    }
}

void check(const torch::Tensor& x) {
    TORCH_CHECK(x.is_cuda(), "x must be a CUDA tensor");
    TORCH_CHECK(x.scalar_type() == torch::kFloat, "the kernels are written for float32, got ", x.scalar_type());
}

int64_t blocks_for(int64_t count) {
    const int64_t per_block = kThreads * kPerThread;
    return (count + per_block - 1) / per_block;
}

torch::Tensor leaky_add_clamp(torch::Tensor x, torch::Tensor addend) {
    check(x);
    TORCH_CHECK(addend.numel() == x.size(1), "one addend per channel is needed");
    const c10::cuda::CUDAGuard guard(x.device());
    x = x.contiguous();
    addend = addend.contiguous();
    auto y = torch::empty_like(x);
    const int64_t planes = x.size(0) * x.size(1);
    const int64_t plane = x.numel() / planes;
    const dim3 grid(planes, blocks_for(plane));
    leaky_add_clamp_kernel<<<grid, kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), addend.data_ptr<float>(), y.data_ptr<float>(), x.size(1), plane);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}

torch::Tensor gelu_tanh(torch::Tensor x) {
    check(x);
    const c10::cuda::CUDAGuard guard(x.device());
    x = x.contiguous();
    auto y = torch::empty_like(x);
    const int64_t blocks = std::min<int64_t>(blocks_for(x.numel()), 1 << 20);
    gelu_tanh_kernel<<<blocks, kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
"""

extension = load_inline(
    name="conv3d_chain_two_kernels_tanh",
    cpp_sources=CPP_SOURCE,
    cuda_sources=CUDA_SOURCE,
    functions=["leaky_add_clamp", "gelu_tanh"],
)


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, sum_tensor_shape):
        super().__init__()
        self.conv = nn.Conv3d(in_channels, out_channels, kernel_size)
        self.sum_tensor = nn.Parameter(torch.randn(sum_tensor_shape))

    def forward(self, x):
        return extension.gelu_tanh(extension.leaky_add_clamp(self.conv(x), self.sum_tensor))
