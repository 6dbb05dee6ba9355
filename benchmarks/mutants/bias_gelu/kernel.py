"""Four elements a thread, then the rest of one to three by the threads that come first."""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cuda_fp16.h>

__device__ float chain(float x, float bias) {
    float y = x + bias;
    y = y > 0.0f ? y : 0.2f * y;
    y = y * 1.5f;
    return 0.5f * y * (1.0f + erff(y * 0.70710678f));
}

__global__ void bias_gelu_kernel(const float* x, const float* bias, float* out, int n, int channels, int area) {
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    int quads = n / 4;
    if (t < quads) {
        for (int k = 0; k < 4; ++k) {
            int i = 4 * t + k;
            out[i] = chain(x[i], bias[i / area % channels]);
        }
    }
    int rest = 4 * quads + t;
    if (rest < n && t < 4) {
        out[rest] = chain(x[rest], bias[rest / area % channels]);
    }
}

torch::Tensor bias_gelu(torch::Tensor x, torch::Tensor bias) {
    auto out = torch::empty_like(x);
    int n = x.numel(), channels = x.size(1), area = x.size(2) * x.size(3);
    int threads = 64, blocks = (n / 4 + threads) / threads;
    bias_gelu_kernel<<<blocks, threads>>>(x.data_ptr<float>(), bias.data_ptr<float>(), out.data_ptr<float>(), n,
                                          channels, area);
    return out;
}
"""
extension = load_inline(
    "bias_gelu", "torch::Tensor bias_gelu(torch::Tensor x, torch::Tensor bias);", SOURCE, functions=["bias_gelu"]
)


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(channels, 1, 1))

    def forward(self, x):
        return extension.bias_gelu(x.contiguous(), self.bias)
