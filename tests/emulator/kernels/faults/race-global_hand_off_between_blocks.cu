// kind: race-global
// inputs: float32[1000]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

// The last block adds up what the others wrote, in the same launch and without waiting for them.
__device__ float sum_of(const float* partial, int count) {
    float sum = 0.0f;
    for (int b = 0; b < count; ++b) {
        sum += partial[b]; // FAULT
    }
    return sum;
}

__global__ void partial_sums(const float* x, float* partial, float* out, int n) {
    __shared__ float s[128];
    int t = threadIdx.x;
    int i = blockIdx.x * blockDim.x + t;
    s[t] = i < n ? x[i] : 0.0f;
    __syncthreads();
    for (int d = 64; d > 0; d >>= 1) {
        if (t < d) s[t] += s[t + d];
        __syncthreads();
    }
    if (t == 0) {
        partial[blockIdx.x] = s[0];
#ifndef REPAIRED
        if (blockIdx.x == gridDim.x - 1) out[0] = sum_of(partial, gridDim.x);
#endif
    }
}

__global__ void finish(const float* partial, float* out, int count) {
    out[0] = sum_of(partial, count);
}

torch::Tensor run(torch::Tensor x) {
    int n = x.numel();
    int blocks = (n + 127) / 128;
    auto partial = torch::zeros({blocks}, x.options());
    auto out = torch::zeros({1}, x.options());
    partial_sums<<<blocks, 128>>>(x.data_ptr<float>(), partial.data_ptr<float>(), out.data_ptr<float>(), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
#ifdef REPAIRED
    finish<<<1, 1>>>(partial.data_ptr<float>(), out.data_ptr<float>(), blocks);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
#endif
    return out;
}
