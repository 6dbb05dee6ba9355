// kind: race-shared
// inputs: float32[7,150]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

// Maximum and sum share one scratch array: everybody must have read the maximum before it is overwritten.
__global__ void softmax_rows(const float* x, float* out, int cols) {
    __shared__ float s[256];
    int t = threadIdx.x;
    float v = t < cols ? x[blockIdx.x * cols + t] : -INFINITY;
    s[t] = v;
    __syncthreads();
    for (int d = 128; d > 0; d >>= 1) {
        if (t < d) s[t] = fmaxf(s[t], s[t + d]);
        __syncthreads();
    }
    float top = s[0]; // FAULT
#ifdef REPAIRED
    __syncthreads();
#endif
    float e = expf(v - top);
    s[t] = e;
    __syncthreads();
    for (int d = 128; d > 0; d >>= 1) {
        if (t < d) s[t] += s[t + d];
        __syncthreads();
    }
    if (t < cols) out[blockIdx.x * cols + t] = e / s[0];
}

torch::Tensor run(torch::Tensor x) {
    int rows = x.size(0), cols = x.size(1);
    auto out = torch::empty_like(x);
    softmax_rows<<<rows, 256>>>(x.data_ptr<float>(), out.data_ptr<float>(), cols);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
