// kind: absent-lanes
// inputs: float32[256]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

__global__ void lower_lanes(const float* x, float* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int lane = threadIdx.x & 31;
    float v = x[i];
#ifdef REPAIRED
    float w = __shfl_down_sync(0xffffffff, v, 8);
    if (lane < 20) v += w;
#else
    if (lane < 20) {
        v += __shfl_down_sync(0xffffffff, v, 8); // FAULT
    }
#endif
    out[i] = v;
}

torch::Tensor run(torch::Tensor x) {
    auto out = torch::empty_like(x);
    lower_lanes<<<x.numel() / 64, 64>>>(x.data_ptr<float>(), out.data_ptr<float>());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
