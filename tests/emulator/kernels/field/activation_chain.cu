// inputs: float32[4,9,33] 0.2 -1.5 1.5
// declare: torch::Tensor run(torch::Tensor x, double slope, double low, double high);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

__device__ __forceinline__ float gelu_tanh(float v) {
    const float k = 0.7978845608028654f;
    return 0.5f * v * (1.0f + tanhf(k * (v + 0.044715f * v * v * v)));
}

__global__ void leaky_clamp_gelu(const float* in, float* out, int n, float slope, float low, float high) {
    int idx = threadIdx.x + blockIdx.x * blockDim.x;
    if (idx < n) {
        float v = in[idx];
        v = v > 0.0f ? v : slope * v;
        v = fminf(fmaxf(v + v, low), high);
        out[idx] = gelu_tanh(v);
    }
}

torch::Tensor run(torch::Tensor x, double slope, double low, double high) {
    auto out = torch::empty_like(x);
    int n = x.numel();
    int block_size = 256;
    int num_blocks = (n + block_size - 1) / block_size;
    leaky_clamp_gelu<<<num_blocks, block_size>>>(x.data_ptr<float>(), out.data_ptr<float>(), n, static_cast<float>(slope),
                                                 static_cast<float>(low), static_cast<float>(high));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
