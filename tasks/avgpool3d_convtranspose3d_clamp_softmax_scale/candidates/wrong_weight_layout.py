"""Own pooling and transposed convolution kernels that read the weight as [out, in, k, k, k] and ignore the padding. Expected: wrong; bf16: raises."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.cpp_extension import load_inline

CPP_SOURCE = """
torch::Tensor avg_pool(torch::Tensor x, int64_t size);
torch::Tensor conv_transpose(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, int64_t stride,
                             int64_t padding, int64_t output_padding);
"""

CUDA_SOURCE = r"""
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

constexpr int kThreads = 256;

struct Volume {
    int depth, height, width;
};

__host__ __device__ int64_t count(Volume v) {
    return int64_t(v.depth) * v.height * v.width;
}

Volume volume(const torch::Tensor& x) {
    return {int(x.size(2)), int(x.size(3)), int(x.size(4))};
}

// blockIdx.x is the (batch, channel) plane of the output in both kernels.
__global__ void avg_pool_kernel(const float* __restrict__ x, float* __restrict__ y, Volume in, Volume out,
                                int size) {
    const int64_t i = int64_t(blockIdx.y) * kThreads + threadIdx.x;
    if (i >= count(out)) {
        return;
    }
    const int d = i / out.width / out.height, h = i / out.width % out.height, w = i % out.width;
    x += blockIdx.x * count(in);
    float sum = 0.0f;
    for (int kd = 0; kd < size; ++kd) {
        for (int kh = 0; kh < size; ++kh) {
            for (int kw = 0; kw < size; ++kw) {
                sum += x[(int64_t(d * size + kd) * in.height + h * size + kh) * in.width + w * size + kw];
            }
        }
    }
    y[blockIdx.x * count(out) + i] = sum / (size * size * size);
}

__global__ void conv_transpose_kernel(const float* __restrict__ x, const float* __restrict__ weight,
                                      const float* __restrict__ bias, float* __restrict__ y, Volume in,
                                      Volume out, int in_channels, int out_channels, int kernel, int stride) {
    const int64_t i = int64_t(blockIdx.y) * kThreads + threadIdx.x;
    if (i >= count(out)) {
        return;
    }
    const int d = i / out.width / out.height, h = i / out.width % out.height, w = i % out.width;
    const int batch = blockIdx.x / out_channels, channel = blockIdx.x % out_channels;
    const int taps = kernel * kernel * kernel;
    x += int64_t(batch) * in_channels * count(in);
    weight += int64_t(channel) * in_channels * taps;
    float sum = bias[channel];
    for (int kd = 0; kd < kernel; ++kd) {
        const int from_d = d - kd;
        if (from_d < 0 || from_d % stride != 0 || from_d / stride >= in.depth) {
            continue;
        }
        for (int kh = 0; kh < kernel; ++kh) {
            const int from_h = h - kh;
            if (from_h < 0 || from_h % stride != 0 || from_h / stride >= in.height) {
                continue;
            }
            for (int kw = 0; kw < kernel; ++kw) {
                const int from_w = w - kw;
                if (from_w < 0 || from_w % stride != 0 || from_w / stride >= in.width) {
                    continue;
                }
                const int64_t at =
                    (int64_t(from_d / stride) * in.height + from_h / stride) * in.width + from_w / stride;
                const int tap = (kd * kernel + kh) * kernel + kw;
                for (int c = 0; c < in_channels; ++c) {
                    sum += x[c * count(in) + at] * weight[c * taps + tap];
                }
            }
        }
    }
    y[blockIdx.x * count(out) + i] = sum;
}

void check(const torch::Tensor& x) {
    TORCH_CHECK(x.is_cuda() && x.dim() == 5, "x must be a CUDA tensor of rank 5");
    TORCH_CHECK(x.scalar_type() == torch::kFloat, "the kernels are written for float32, got ", x.scalar_type());
}

dim3 grid_for(const torch::Tensor& y) {
    return dim3(y.size(0) * y.size(1), (count(volume(y)) + kThreads - 1) / kThreads);
}

torch::Tensor avg_pool(torch::Tensor x, int64_t size) {
    check(x);
    const c10::cuda::CUDAGuard guard(x.device());
    x = x.contiguous();
    auto y = torch::empty({x.size(0), x.size(1), x.size(2) / size, x.size(3) / size, x.size(4) / size}, x.options());
    avg_pool_kernel<<<grid_for(y), kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), y.data_ptr<float>(), volume(x), volume(y), size);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}

torch::Tensor conv_transpose(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, int64_t stride,
                             int64_t padding, int64_t output_padding) {
    check(x);
    const c10::cuda::CUDAGuard guard(x.device());
    x = x.contiguous();
    weight = weight.contiguous();
    bias = bias.contiguous();
    const int64_t kernel = weight.size(2);
    const int64_t grow = kernel - stride - 2 * padding + output_padding;
    auto y = torch::empty({x.size(0), bias.numel(), x.size(2) * stride + grow, x.size(3) * stride + grow,
                           x.size(4) * stride + grow}, x.options());
    conv_transpose_kernel<<<grid_for(y), kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), weight.data_ptr<float>(), bias.data_ptr<float>(), y.data_ptr<float>(), volume(x),
        volume(y), x.size(1), bias.numel(), kernel, stride);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
"""

extension = load_inline(
    name="avgpool3d_chain_wrong_weight_layout",
    cpp_sources=CPP_SOURCE,
    cuda_sources=CUDA_SOURCE,
    functions=["avg_pool", "conv_transpose"],
)


class ModelNew(nn.Module):
    def __init__(
        self,
        in_channels,
        out_channels,
        kernel_size,
        stride,
        padding,
        output_padding,
        pool_kernel_size,
        clamp_min,
        clamp_max,
    ):
        super().__init__()
        self.pool_kernel_size = pool_kernel_size
        self.geometry = (stride, padding, output_padding)
        # Held for its parameters alone, under the reference's names.
        self.conv_transpose = nn.ConvTranspose3d(
            in_channels, out_channels, kernel_size, stride=stride, padding=padding, output_padding=output_padding
        )
        self.clamp_min = clamp_min
        self.clamp_max = clamp_max
        self.scale = nn.Parameter(torch.ones(1, out_channels, 1, 1, 1))

    def forward(self, x):
        x = extension.avg_pool(x, self.pool_kernel_size)
        x = extension.conv_transpose(x, self.conv_transpose.weight, self.conv_transpose.bias, *self.geometry)
        x = torch.clamp(x, self.clamp_min, self.clamp_max)
        return F.softmax(x.flatten(2), dim=2).view_as(x) * self.scale
