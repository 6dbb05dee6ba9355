// inputs: float32[2500] float32[2500]
// inputs: float32[512] float32[512]
// declare: torch::Tensor run(torch::Tensor prediction, torch::Tensor target);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

__global__ void huber_mean(const float* p, const float* t, float* out, int n) {
    __shared__ float block_total;
    if (threadIdx.x == 0) {
        block_total = 0.0f;
    }
    __syncthreads();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float loss = 0.0f;
    if (i < n) {
        float d = fabsf(p[i] - t[i]);
        loss = d < 1.0f ? 0.5f * d * d : d - 0.5f;
    }
    for (int s = warpSize / 2; s > 0; s /= 2) loss += __shfl_xor_sync(0xffffffff, loss, s);
    if (threadIdx.x % warpSize == 0) {
        atomicAdd(&block_total, loss);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        atomicAdd(out, block_total / n);
    }
}

torch::Tensor run(torch::Tensor prediction, torch::Tensor target) {
    int n = prediction.numel();
    auto out = torch::zeros({}, prediction.options());
    huber_mean<<<(n + 255) / 256, 256>>>(prediction.data_ptr<float>(), target.data_ptr<float>(), out.data_ptr<float>(), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
