// kind: uninitialised-global
// inputs: float32[2000]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

__global__ void block_partials(const float* x, float* partial, int n) {
    __shared__ float s[256];
    int t = threadIdx.x;
    int i = blockIdx.x * blockDim.x + t;
    s[t] = i < n ? x[i] : 0.0f;
    __syncthreads();
    for (int d = 128; d > 0; d >>= 1) {
        if (t < d) s[t] += s[t + d];
        __syncthreads();
    }
    if (t == 0) partial[blockIdx.x] = s[0];
}

__global__ void finish(const float* partial, float* out, int count) {
    float sum = 0.0f;
    for (int i = 0; i < count; ++i) {
        sum += partial[i]; // FAULT
    }
    out[0] = sum;
}

torch::Tensor run(torch::Tensor x) {
    int n = x.numel();
    int blocks = (n + 255) / 256;
    auto partial = torch::empty({64}, x.options());
    auto out = torch::empty({1}, x.options());
    block_partials<<<blocks, 256>>>(x.data_ptr<float>(), partial.data_ptr<float>(), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
#ifdef REPAIRED
    finish<<<1, 1>>>(partial.data_ptr<float>(), out.data_ptr<float>(), blocks);
#else
    finish<<<1, 1>>>(partial.data_ptr<float>(), out.data_ptr<float>(), 64);
#endif
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
