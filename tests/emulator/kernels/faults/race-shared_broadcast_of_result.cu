// kind: race-shared
// inputs: float32[6,200]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

__global__ void normalise_rows(const float* x, float* out, int cols) {
    __shared__ float s[256];
    __shared__ float inverse;
    int t = threadIdx.x;
    float v = t < cols ? x[blockIdx.x * cols + t] : 0.0f;
    s[t] = v * v;
    __syncthreads();
    for (int d = 128; d > 0; d >>= 1) {
        if (t < d) s[t] += s[t + d];
        __syncthreads();
    }
    if (t == 0) inverse = rsqrtf(s[0] + 1e-6f);
#ifdef REPAIRED
    __syncthreads();
#endif
    if (t < cols) {
        out[blockIdx.x * cols + t] = v * inverse; // FAULT
    }
}

torch::Tensor run(torch::Tensor x) {
    int rows = x.size(0), cols = x.size(1);
    auto out = torch::empty_like(x);
    normalise_rows<<<rows, 256>>>(x.data_ptr<float>(), out.data_ptr<float>(), cols);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
