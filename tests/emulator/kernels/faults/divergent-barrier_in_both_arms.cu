// kind: divergent-barrier
// inputs: float32[512]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

// Two barriers in two arms are not one barrier.
__global__ void odd_and_even(const float* x, float* out) {
    __shared__ float s[128];
    int t = threadIdx.x;
    int i = blockIdx.x * 128 + t;
#ifdef REPAIRED
    if (t % 2 == 0) s[t] = x[i];
    else s[t] = -x[i];
    __syncthreads();
#else
    if (t % 2 == 0) {
        s[t] = x[i];
        __syncthreads(); // FAULT
    } else {
        s[t] = -x[i];
        __syncthreads(); // FAULT
    }
#endif
    out[i] = s[t] + s[t ^ 64];
}

torch::Tensor run(torch::Tensor x) {
    int n = x.numel();
    TORCH_CHECK(n % 128 == 0);
    auto out = torch::empty_like(x);
    odd_and_even<<<n / 128, 128>>>(x.data_ptr<float>(), out.data_ptr<float>());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
