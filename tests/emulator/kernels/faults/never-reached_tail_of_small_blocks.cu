// kind: never-reached
// inputs: float32[256]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

#ifdef REPAIRED
#define LIMIT 64
#else
#define LIMIT 128
#endif

// A step for blocks of more threads than this one is ever launched with.
__global__ void halves(const float* x, float* out) {
    __shared__ float s[256];
    int t = threadIdx.x;
    s[t] = x[blockIdx.x * blockDim.x + t];
    __syncthreads();
    if (blockDim.x > LIMIT) {
        if (t < 64) s[t] += s[t + 64];
        __syncthreads(); // FAULT
    }
    out[blockIdx.x * blockDim.x + t] = s[t];
}

torch::Tensor run(torch::Tensor x) {
    auto out = torch::empty_like(x);
    halves<<<2, 128>>>(x.data_ptr<float>(), out.data_ptr<float>());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
