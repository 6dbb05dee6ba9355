// kind: deadlock
// inputs: float32[128]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

// The lower half waits at the barrier more often than the upper half comes by; the upper half waits for the lower.
__global__ void uneven_rounds(const float* x, float* out) {
    __shared__ int done;
    int t = threadIdx.x;
    if (t == 0) done = 0;
    __syncthreads();
#ifdef REPAIRED
    int rounds = 3;
#else
    int rounds = t < 64 ? 3 : 2;
#endif
    float v = x[t];
    for (int k = 0; k < rounds; ++k) {
        v = 0.5f * v + 1.0f;
        __syncthreads(); // FAULT
    }
    if (t == 0) atomicExch(&done, 1);
    if (t >= 64) {
        while (atomicAdd(&done, 0) == 0) { // FAULT
        }
    }
    out[t] = v;
}

torch::Tensor run(torch::Tensor x) {
    auto out = torch::empty_like(x);
    uneven_rounds<<<1, 128>>>(x.data_ptr<float>(), out.data_ptr<float>());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
