// kind: missing-syncwarp
// inputs: float32[320]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

__global__ void previous_lane(const float* x, float* out) {
    __shared__ float s[64];
    int t = threadIdx.x;
    int i = blockIdx.x * 64 + t;
    s[t] = x[i];
#ifdef REPAIRED
    __syncwarp();
#endif
    float before = t % 32 > 0 ? s[t - 1] : 0.0f; // FAULT
    out[i] = before;
}

torch::Tensor run(torch::Tensor x) {
    TORCH_CHECK(x.numel() % 64 == 0);
    auto out = torch::empty_like(x);
    previous_lane<<<x.numel() / 64, 64>>>(x.data_ptr<float>(), out.data_ptr<float>());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
