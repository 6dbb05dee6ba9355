// kind: deadlock
// inputs: float32[128]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

// The upper half spins before the barrier on what the lower half does behind it.
__global__ void wait_for_half(const float* x, float* out) {
    __shared__ int ready;
    int t = threadIdx.x;
    if (t == 0) ready = 0;
    __syncthreads();
#ifdef REPAIRED
    if (t == 0) atomicExch(&ready, 1);
    __syncthreads();
#endif
    if (t >= 64) {
        while (atomicAdd(&ready, 0) == 0) { // FAULT
        }
    }
    __syncthreads();
    if (t == 0) atomicExch(&ready, 1);
    out[t] = x[127 - t];
}

torch::Tensor run(torch::Tensor x) {
    auto out = torch::empty_like(x);
    wait_for_half<<<1, 128>>>(x.data_ptr<float>(), out.data_ptr<float>());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
