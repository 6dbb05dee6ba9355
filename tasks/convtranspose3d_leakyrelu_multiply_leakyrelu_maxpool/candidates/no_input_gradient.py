"""Fused LeakyReLU, multiplication and LeakyReLU whose backward stops at the multiplier. Expected: inference-only; kernelbench: passed; bf16: raises."""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CPP_SOURCE = """
torch::Tensor forward(torch::Tensor x, torch::Tensor multiplier);
torch::Tensor multiplier_gradient(torch::Tensor grad, torch::Tensor x, torch::Tensor multiplier);
"""

CUDA_SOURCE = r"""
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

constexpr int kThreads = 256;
constexpr int kPerThread = 32;
constexpr float kSlope = 0.2f;

__device__ float leaky(float v) {
    return v > 0.0f ? v : kSlope * v;
}

// blockIdx.x is the (batch, channel) plane, so no element pays a division for its channel.
__global__ void forward_kernel(const float* __restrict__ x, const float* __restrict__ multiplier,
                               float* __restrict__ y, int channels, int64_t plane) {
    const float m = multiplier[blockIdx.x % channels];
    const int64_t base = blockIdx.x * plane;
    const int64_t step = int64_t(gridDim.y) * kThreads;
    for (int64_t i = int64_t(blockIdx.y) * kThreads + threadIdx.x; i < plane; i += step) {
        y[base + i] = leaky(leaky(x[base + i]) * m);
    }
}

__global__ void multiplier_gradient_kernel(const float* __restrict__ grad, const float* __restrict__ x,
                                           const float* __restrict__ multiplier,
                                           float* __restrict__ grad_multiplier, int channels, int64_t plane) {
    const int channel = blockIdx.x % channels;
    const float m = multiplier[channel];
    const int64_t base = blockIdx.x * plane;
    const int64_t step = int64_t(gridDim.y) * kThreads;
    float sum = 0.0f;
    for (int64_t i = int64_t(blockIdx.y) * kThreads + threadIdx.x; i < plane; i += step) {
        const float activated = leaky(x[base + i]);
        const float g = grad[base + i];
        sum += (activated * m > 0.0f ? g : kSlope * g) * activated;
    }
    atomicAdd(grad_multiplier + channel, sum);
}

void check(const torch::Tensor& x, const torch::Tensor& multiplier) {
    TORCH_CHECK(x.is_cuda(), "x must be a CUDA tensor");
    TORCH_CHECK(x.scalar_type() == torch::kFloat, "the kernels are written for float32, got ", x.scalar_type());
    TORCH_CHECK(multiplier.numel() == x.size(1), "one multiplier per channel is needed");
}

dim3 grid_for(const torch::Tensor& x) {
    const int64_t planes = x.size(0) * x.size(1);
    const int64_t per_block = kThreads * kPerThread;
    return dim3(planes, (x.numel() / planes + per_block - 1) / per_block);
}

torch::Tensor forward(torch::Tensor x, torch::Tensor multiplier) {
    check(x, multiplier);
    const c10::cuda::CUDAGuard guard(x.device());
    x = x.contiguous();
    multiplier = multiplier.contiguous();
    auto y = torch::empty_like(x);
    forward_kernel<<<grid_for(x), kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), multiplier.data_ptr<float>(), y.data_ptr<float>(), x.size(1),
        x.numel() / (x.size(0) * x.size(1)));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}

torch::Tensor multiplier_gradient(torch::Tensor grad, torch::Tensor x, torch::Tensor multiplier) {
    check(x, multiplier);
    const c10::cuda::CUDAGuard guard(x.device());
    grad = grad.contiguous();
    x = x.contiguous();
    multiplier = multiplier.contiguous();
    auto grad_multiplier = torch::zeros_like(multiplier);
    multiplier_gradient_kernel<<<grid_for(x), kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
        grad.data_ptr<float>(), x.data_ptr<float>(), multiplier.data_ptr<float>(),
        grad_multiplier.data_ptr<float>(), x.size(1), x.numel() / (x.size(0) * x.size(1)));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return grad_multiplier;
}
"""

extension = load_inline(
    name="convtranspose3d_chain_no_input_gradient",
    cpp_sources=CPP_SOURCE,
    cuda_sources=CUDA_SOURCE,
    functions=["forward", "multiplier_gradient"],
)


class LeakyMultiplyLeaky(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, multiplier):
        ctx.save_for_backward(x, multiplier)
        return extension.forward(x, multiplier)

    @staticmethod
    def backward(ctx, grad):
        x, multiplier = ctx.saved_tensors
        return None, extension.multiplier_gradient(grad, x, multiplier)


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride, padding, output_padding, multiplier_shape):
        super().__init__()
        self.conv_transpose = nn.ConvTranspose3d(
            in_channels, out_channels, kernel_size, stride=stride, padding=padding, output_padding=output_padding
        )
        self.multiplier = nn.Parameter(torch.randn(multiplier_shape))
        self.max_pool = nn.MaxPool3d(2)

    def forward(self, x):
        return self.max_pool(LeakyMultiplyLeaky.apply(self.conv_transpose(x), self.multiplier))
