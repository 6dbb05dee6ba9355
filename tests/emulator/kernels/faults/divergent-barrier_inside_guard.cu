// kind: divergent-barrier
// inputs: float32[1000]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

__global__ void difference_in_guard(const float* x, float* out, int n) {
    __shared__ float s[256];
    int t = threadIdx.x;
    int i = blockIdx.x * 256 + t;
#ifdef REPAIRED
    s[t] = i < n ? x[i] : 0.0f;
    __syncthreads();
    if (i < n) out[i] = t > 0 ? s[t] - s[t - 1] : s[t];
#else
    if (i < n) {
        s[t] = x[i];
        __syncthreads(); // FAULT
        out[i] = t > 0 ? s[t] - s[t - 1] : s[t];
    }
#endif
    __syncthreads(); // FAULT
    if (i < n && t == 0) out[i] += s[1];
}

torch::Tensor run(torch::Tensor x) {
    int n = x.numel();
    auto out = torch::empty_like(x);
    difference_in_guard<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), out.data_ptr<float>(), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
