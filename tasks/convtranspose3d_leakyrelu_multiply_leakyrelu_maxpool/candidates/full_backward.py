"""Fused LeakyReLU, multiplication, LeakyReLU and max pool with a complete CUDA backward. Expected: passed; bf16: raises."""

import torch
import torch.nn as nn
from torch.autograd.function import once_differentiable
from torch.utils.cpp_extension import load_inline

CPP_SOURCE = """
std::vector<torch::Tensor> forward(torch::Tensor x, torch::Tensor multiplier);
std::vector<torch::Tensor> backward(torch::Tensor grad, torch::Tensor winner, torch::Tensor winner_at,
                                    torch::Tensor multiplier);
"""

CUDA_SOURCE = r"""
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <vector>

constexpr int kThreads = 256;
constexpr int kPerThread = 8;
constexpr float kSlope = 0.2f;

__device__ float leaky(float v) {
    return v > 0.0f ? v : kSlope * v;
}

__device__ float leaky_gradient(float v, float grad) {
    return v > 0.0f ? grad : kSlope * grad;
}

// Where the 2x2x2 window of pooled element i starts in its plane of the chain's input.
__device__ int window_start(int i, int height, int width) {
    const int row = i / width;
    const int w = i % width, h = row % height, d = row / height;
    return (2 * d * 2 * height + 2 * h) * 2 * width + 2 * w;
}

// blockIdx.x is the (batch, channel) plane; depth, height and width are the pooled ones.
// The backward needs of x only each window's winner, an eighth of what saving x would hold.
__global__ void forward_kernel(const float* __restrict__ x, const float* __restrict__ multiplier,
                               float* __restrict__ y, float* __restrict__ winner,
                               uint8_t* __restrict__ winner_at, int channels, int depth, int height, int width) {
    const float m = multiplier[blockIdx.x % channels];
    const int pooled = depth * height * width;
    const int64_t base = int64_t(blockIdx.x) * pooled;
    const int step = gridDim.y * kThreads;
    x += 8 * base;
    for (int i = blockIdx.y * kThreads + threadIdx.x; i < pooled; i += step) {
        const int start = window_start(i, height, width);
        float best = 0.0f, best_x = 0.0f;
        int best_at = 0;
#pragma unroll
        for (int row = 0; row < 4; ++row) {
            const int offset = (row / 2 * 2 * height + row % 2) * 2 * width;
            const float2 pair = *reinterpret_cast<const float2*>(x + start + offset);
            const float values[2] = {pair.x, pair.y};
#pragma unroll
            for (int side = 0; side < 2; ++side) {
                const int at = 2 * row + side;
                const float v = leaky(leaky(values[side]) * m);
                // PyTorch's rule: the first of equal maxima, but the last NaN.
                if (at == 0 || v > best || isnan(v)) {
                    best = v;
                    best_x = values[side];
                    best_at = at;
                }
            }
        }
        y[base + i] = best;
        winner[base + i] = best_x;
        winner_at[base + i] = best_at;
    }
}

// Each block leaves one partial sum for its channel's multiplier: no atomics, so the sum is reproducible.
__global__ void backward_kernel(const float* __restrict__ grad, const float* __restrict__ winner,
                                const uint8_t* __restrict__ winner_at, const float* __restrict__ multiplier,
                                float* __restrict__ grad_x, float* __restrict__ partial, int channels, int depth,
                                int height, int width) {
    const float m = multiplier[blockIdx.x % channels];
    const int pooled = depth * height * width;
    const int64_t base = int64_t(blockIdx.x) * pooled;
    const int step = gridDim.y * kThreads;
    grad_x += 8 * base;
    float sum = 0.0f;
    for (int i = blockIdx.y * kThreads + threadIdx.x; i < pooled; i += step) {
        const float v = winner[base + i];
        const int at = winner_at[base + i];
        const float activated = leaky(v);
        const float grad_product = leaky_gradient(activated * m, grad[base + i]);
        const float grad_v = leaky_gradient(v, grad_product * m);
        sum += grad_product * activated;

        const int start = window_start(i, height, width);
#pragma unroll
        for (int row = 0; row < 4; ++row) {
            const int offset = (row / 2 * 2 * height + row % 2) * 2 * width;
            *reinterpret_cast<float2*>(grad_x + start + offset) =
                make_float2(at == 2 * row ? grad_v : 0.0f, at == 2 * row + 1 ? grad_v : 0.0f);
        }
    }

    __shared__ float warp_sums[kThreads / 32];
    for (int lane = 16; lane > 0; lane /= 2) {
        sum += __shfl_down_sync(0xffffffffu, sum, lane);
    }
    if (threadIdx.x % 32 == 0) {
        warp_sums[threadIdx.x / 32] = sum;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int warp = 1; warp < kThreads / 32; ++warp) {
            sum += warp_sums[warp];
        }
        partial[int64_t(blockIdx.x) * gridDim.y + blockIdx.y] = sum;
    }
}

dim3 grid_for(const torch::Tensor& pooled) {
    const int64_t planes = pooled.size(0) * pooled.size(1);
    const int64_t per_block = kThreads * kPerThread;
    return dim3(planes, (pooled.numel() / planes + per_block - 1) / per_block);
}

std::vector<torch::Tensor> forward(torch::Tensor x, torch::Tensor multiplier) {
    TORCH_CHECK(x.is_cuda() && x.dim() == 5, "x must be a CUDA tensor of rank 5");
    TORCH_CHECK(x.scalar_type() == torch::kFloat, "the kernels are written for float32, got ", x.scalar_type());
    TORCH_CHECK(multiplier.numel() == x.size(1), "one multiplier per channel is needed");
    TORCH_CHECK(x.size(2) % 2 == 0 && x.size(3) % 2 == 0 && x.size(4) % 2 == 0,
                "the windows must cover x: even depth, height and width");
    TORCH_CHECK(x.size(2) * x.size(3) * x.size(4) < (int64_t(1) << 31), "the kernels index a plane in 32 bits");
    const c10::cuda::CUDAGuard guard(x.device());
    x = x.contiguous();
    multiplier = multiplier.contiguous();
    auto y = torch::empty({x.size(0), x.size(1), x.size(2) / 2, x.size(3) / 2, x.size(4) / 2}, x.options());
    auto winner = torch::empty_like(y);
    auto winner_at = torch::empty(y.sizes(), y.options().dtype(torch::kByte));
    forward_kernel<<<grid_for(y), kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), multiplier.data_ptr<float>(), y.data_ptr<float>(), winner.data_ptr<float>(),
        winner_at.data_ptr<uint8_t>(), y.size(1), y.size(2), y.size(3), y.size(4));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return {y, winner, winner_at};
}

std::vector<torch::Tensor> backward(torch::Tensor grad, torch::Tensor winner, torch::Tensor winner_at,
                                    torch::Tensor multiplier) {
    const c10::cuda::CUDAGuard guard(winner.device());
    grad = grad.contiguous();
    multiplier = multiplier.contiguous();
    const int64_t batch = winner.size(0), channels = winner.size(1);
    auto grad_x = torch::empty(
        {batch, channels, 2 * winner.size(2), 2 * winner.size(3), 2 * winner.size(4)}, winner.options());
    const dim3 grid = grid_for(winner);
    auto partial = torch::empty({batch, channels, int64_t(grid.y)}, winner.options());
    backward_kernel<<<grid, kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
        grad.data_ptr<float>(), winner.data_ptr<float>(), winner_at.data_ptr<uint8_t>(),
        multiplier.data_ptr<float>(), grad_x.data_ptr<float>(), partial.data_ptr<float>(), channels,
        winner.size(2), winner.size(3), winner.size(4));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return {grad_x, partial.sum(at::IntArrayRef({0, 2})).view_as(multiplier)};
}
"""

extension = load_inline(
    name="convtranspose3d_chain_full_backward",
    cpp_sources=CPP_SOURCE,
    cuda_sources=CUDA_SOURCE,
    functions=["forward", "backward"],
)


class LeakyMultiplyLeakyMaxPool(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, multiplier):
        y, winner, winner_at = extension.forward(x, multiplier)
        ctx.save_for_backward(winner, winner_at, multiplier)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        grad_x, grad_multiplier = extension.backward(grad, *ctx.saved_tensors)
        return grad_x, grad_multiplier


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride, padding, output_padding, multiplier_shape):
        super().__init__()
        self.conv_transpose = nn.ConvTranspose3d(
            in_channels, out_channels, kernel_size, stride=stride, padding=padding, output_padding=output_padding
        )
        self.multiplier = nn.Parameter(torch.randn(multiplier_shape))

    def forward(self, x):
        return LeakyMultiplyLeakyMaxPool.apply(self.conv_transpose(x), self.multiplier)
