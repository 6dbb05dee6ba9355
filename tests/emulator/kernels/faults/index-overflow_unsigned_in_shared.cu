// kind: index-overflow
// inputs: float32[256]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

// A random generator wraps on purpose beside it; that is no fault.
__global__ void smooth(const float* x, float* out, unsigned seed) {
    extern __shared__ float s[];
    unsigned t = threadIdx.x;
    unsigned state = (seed + t) * 1664525u + 1013904223u;
    s[t] = x[blockIdx.x * blockDim.x + t];
    __syncthreads();
#ifdef REPAIRED
    float left = t ? s[t - 1] : s[t];
#else
    float left = s[t - 1]; // FAULT
#endif
    out[blockIdx.x * blockDim.x + t] = left + (state >> 31);
}

torch::Tensor run(torch::Tensor x) {
    auto out = torch::empty_like(x);
    smooth<<<2, 128, 128 * sizeof(float)>>>(x.data_ptr<float>(), out.data_ptr<float>(), 4000000000u);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
