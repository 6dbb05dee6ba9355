// inputs: float32[37,53] float32[53] 0.7
// declare: torch::Tensor run(torch::Tensor x, torch::Tensor bias, double scale);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

__global__ void bias_silu_scale(const float* __restrict__ x, const float* __restrict__ bias, float* __restrict__ out,
                                float scale, int n, int width) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float v = x[i] + __ldg(&bias[i % width]);
        out[i] = scale * v / (1.0f + expf(-v));
    }
}

torch::Tensor run(torch::Tensor x, torch::Tensor bias, double scale) {
    int n = x.numel();
    auto out = torch::empty_like(x);
    bias_silu_scale<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), bias.data_ptr<float>(), out.data_ptr<float>(),
                                              (float)scale, n, (int)x.size(1));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
