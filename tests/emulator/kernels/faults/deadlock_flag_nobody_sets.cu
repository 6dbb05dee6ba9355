// kind: deadlock
// inputs: float32[200]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

// Block 1 waits for a flag that block 0 was to raise.
__global__ void hand_over(const float* x, float* mid, float* out, int* flag, int n) {
    int t = threadIdx.x;
    if (blockIdx.x == 0) {
        if (t < n) mid[t] = 2.0f * x[t];
        __syncthreads();
#ifdef REPAIRED
        if (t == 0) {
            __threadfence();
            atomicExch(flag, 1);
        }
#endif
    } else {
        if (t == 0) {
            while (atomicAdd(flag, 0) == 0) { // FAULT
            }
            __threadfence();
        }
        __syncthreads();
        if (t < n) out[t] = mid[t] + 1.0f;
    }
}

torch::Tensor run(torch::Tensor x) {
    int n = x.numel();
    auto mid = torch::zeros_like(x);
    auto out = torch::zeros_like(x);
    auto flag = torch::zeros({1}, x.options().dtype(torch::kInt32));
    hand_over<<<2, 256>>>(x.data_ptr<float>(), mid.data_ptr<float>(), out.data_ptr<float>(), flag.data_ptr<int>(), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
