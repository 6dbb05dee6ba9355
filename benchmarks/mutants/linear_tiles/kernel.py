"""The product by tiles of 16 by 16 in shared memory, one output a thread."""

from torch import nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cuda_fp16.h>

constexpr int TILE = 16;

__global__ void linear_kernel(const float* x, const float* weight, const float* bias, float* out, int rows, int ins,
                              int outs) {
    __shared__ float x_tile[TILE][TILE], w_tile[TILE][TILE + 1];
    int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
    int w_row = blockIdx.x * TILE + threadIdx.y;
    float sum = 0.0f;
    for (int start = 0; start < ins; start += TILE) {
        int k = start + threadIdx.x;
        x_tile[threadIdx.y][threadIdx.x] = row < rows && k < ins ? x[row * ins + k] : 0.0f;
        w_tile[threadIdx.y][threadIdx.x] = w_row < outs && k < ins ? weight[w_row * ins + k] : 0.0f;
        __syncthreads();  // both tiles stand
        for (int i = 0; i < TILE; ++i) sum += x_tile[threadIdx.y][i] * w_tile[threadIdx.x][i];
        __syncthreads();  // both are read
    }
    if (row < rows && column < outs) {
        float y = sum + bias[column];
        out[row * outs + column] = tanhf(y);
    }
}

torch::Tensor linear(torch::Tensor x, torch::Tensor weight, torch::Tensor bias) {
    int rows = x.size(0), ins = x.size(1), outs = weight.size(0);
    auto out = torch::empty({rows, outs}, x.options());
    dim3 grid((outs + TILE - 1) / TILE, (rows + TILE - 1) / TILE);
    linear_kernel<<<grid, dim3(TILE, TILE)>>>(x.data_ptr<float>(), weight.data_ptr<float>(), bias.data_ptr<float>(),
                                              out.data_ptr<float>(), rows, ins, outs);
    return out;
}
"""
extension = load_inline(
    "linear_tiles",
    "torch::Tensor linear(torch::Tensor x, torch::Tensor weight, torch::Tensor bias);",
    SOURCE,
    functions=["linear"],
)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        return extension.linear(x.contiguous(), self.linear.weight, self.linear.bias)
