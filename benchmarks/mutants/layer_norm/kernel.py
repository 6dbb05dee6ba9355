"""A block of 64 threads for each row; both sums by halving in shared memory."""

from torch import nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
constexpr int THREADS = 64;

__device__ float block_sum(float part, float* shared) {
    shared[threadIdx.x] = part;
    __syncthreads();  // all parts stand
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
        __syncthreads();  // this step's sums stand
    }
    float total = shared[0];
    __syncthreads();  // all have read
    return total;
}

__global__ void layer_norm_kernel(const float* x, const float* weight, const float* bias, float* out, int features) {
    __shared__ float shared[THREADS];
    const float* row = x + (size_t)blockIdx.x * features;
    float part = 0.0f;
    for (int i = threadIdx.x; i < features; i += THREADS) part += row[i];
    float mean = block_sum(part, shared) / features;
    part = 0.0f;
    for (int i = threadIdx.x; i < features; i += THREADS) part += (row[i] - mean) * (row[i] - mean);
    float variance = block_sum(part, shared) / features;
    float scale = rsqrtf(variance + 1e-5f);
    for (int i = threadIdx.x; i < features; i += THREADS) {
        float y = (row[i] - mean) * scale * weight[i] + bias[i];
        out[(size_t)blockIdx.x * features + i] = fmaxf(y, 0.0f);
    }
}

torch::Tensor layer_norm(torch::Tensor x, torch::Tensor weight, torch::Tensor bias) {
    auto out = torch::empty_like(x);
    int features = x.size(-1), rows = x.numel() / features;
    layer_norm_kernel<<<rows, THREADS>>>(x.data_ptr<float>(), weight.data_ptr<float>(), bias.data_ptr<float>(),
                                         out.data_ptr<float>(), features);
    return out;
}
"""
extension = load_inline(
    "layer_norm",
    "torch::Tensor layer_norm(torch::Tensor x, torch::Tensor weight, torch::Tensor bias);",
    SOURCE,
    functions=["layer_norm"],
)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x):
        return extension.layer_norm(x.contiguous(), self.norm.weight, self.norm.bias)
