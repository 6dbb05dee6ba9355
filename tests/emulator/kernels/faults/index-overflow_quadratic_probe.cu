// kind: index-overflow
// inputs: float32[257] 300
// declare: torch::Tensor run(torch::Tensor x, int64_t steps);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

__global__ void probe_sum(const float* x, float* out, int steps, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float sum = 0.0f;
    for (int k = 0; k < steps; ++k) {
#ifdef REPAIRED
        int at = (int)((i + (long long)k * k * 100003) % n);
#else
        int at = (i + k * k * 100003) % n; // FAULT
#endif
        if (at < 0) at += n;
        sum += x[at];
    }
    out[i] = sum;
}

torch::Tensor run(torch::Tensor x, int64_t steps) {
    int n = x.numel();
    auto out = torch::empty_like(x);
    probe_sum<<<(n + 63) / 64, 64>>>(x.data_ptr<float>(), out.data_ptr<float>(), (int)steps, n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
