// kind: race-shared
// inputs: float32[1000]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

__global__ void block_sum(const float* x, float* out, int n) {
    __shared__ float part[32];
    int t = threadIdx.x, lane = t & 31, warp = t >> 5;
    if (t < 32) part[t] = 0.0f;
    __syncthreads();
    int i = blockIdx.x * blockDim.x + t;
    float v = i < n ? x[i] : 0.0f;
    for (int d = 16; d > 0; d >>= 1) v += __shfl_down_sync(0xffffffff, v, d);
    if (lane == 0) part[warp] = v;
#ifdef REPAIRED
    __syncthreads();
#endif
    if (t == 0) {
        float sum = 0.0f;
        for (int w = 0; w < 8; ++w) {
            sum += part[w]; // FAULT
        }
        out[blockIdx.x] = sum;
    }
}

torch::Tensor run(torch::Tensor x) {
    int n = x.numel();
    int blocks = (n + 255) / 256;
    auto out = torch::empty({blocks}, x.options());
    block_sum<<<blocks, 256>>>(x.data_ptr<float>(), out.data_ptr<float>(), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
