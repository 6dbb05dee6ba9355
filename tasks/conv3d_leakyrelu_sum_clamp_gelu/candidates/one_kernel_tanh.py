"""Whole chain after the convolution in one CUDA kernel, GELU in its tanh form. Expected: passed; fp32: wrong; kernelbench: wrong; bf16: raises."""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CPP_SOURCE = "torch::Tensor leaky_add_clamp_gelu(torch::Tensor x, torch::Tensor addend);"

CUDA_SOURCE = r"""
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

constexpr int kThreads = 256;
constexpr int kPerThread = 8;

// Comparisons rather than fminf and fmaxf, which would lose a NaN.
__device__ float leaky_add_clamp(float v, float addend) {
    v = (v > 0.0f ? v : 0.2f * v) + addend;
    return v < -1.0f ? -1.0f : (v > 1.0f ? 1.0f : v);
}

__device__ float gelu(float v) {
    const float inner = 0.79788456080286536f * (v + 0.044715f * v * v * v);
    return 0.5f * v * (1.0f + tanhf(inner));
}

// blockIdx.x is the (batch, channel) plane, so no element pays a division for its channel.
__global__ void chain_kernel(const float* __restrict__ x, const float* __restrict__ addend,
                             float* __restrict__ y, int channels, int64_t plane) {
    const float add = addend[blockIdx.x % channels];
    const int64_t base = blockIdx.x * plane;
    const int64_t step = int64_t(gridDim.y) * kThreads;
    for (int64_t i = int64_t(blockIdx.y) * kThreads + threadIdx.x; i < plane; i += step) {
        y[base + i] = gelu(leaky_add_clamp(x[base + i], add));
    }
}

torch::Tensor leaky_add_clamp_gelu(torch::Tensor x, torch::Tensor addend) {
    TORCH_CHECK(x.is_cuda(), "x must be a CUDA tensor");
    TORCH_CHECK(x.scalar_type() == torch::kFloat, "the kernel is written for float32, got ", x.scalar_type());
    TORCH_CHECK(addend.numel() == x.size(1), "one addend per channel is needed");
    const c10::cuda::CUDAGuard guard(x.device());
    x = x.contiguous();
    addend = addend.contiguous();
    auto y = torch::empty_like(x);
    const int64_t planes = x.size(0) * x.size(1);
    const int64_t plane = x.numel() / planes;
    const int64_t per_block = kThreads * kPerThread;
    const dim3 grid(planes, (plane + per_block - 1) / per_block);
    chain_kernel<<<grid, kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), addend.data_ptr<float>(), y.data_ptr<float>(), x.size(1), plane);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
"""

extension = load_inline(
    name="conv3d_chain_one_kernel_tanh",
    cpp_sources=CPP_SOURCE,
    cuda_sources=CUDA_SOURCE,
    functions=["leaky_add_clamp_gelu"],
)


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, sum_tensor_shape):
        super().__init__()
        self.conv = nn.Conv3d(in_channels, out_channels, kernel_size)
        self.sum_tensor = nn.Parameter(torch.randn(sum_tensor_shape))

    def forward(self, x):
        return extension.leaky_add_clamp_gelu(self.conv(x), self.sum_tensor)
