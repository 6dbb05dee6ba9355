// kind: absent-lanes
// inputs: float32[128]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

// The lower half-warp asks lane 20 for its value, which takes no part.
__global__ void half_warp_broadcast(const float* x, float* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int lane = threadIdx.x & 31;
    float v = x[i];
    if (lane < 16) {
#ifdef REPAIRED
        v = __shfl_sync(0x0000ffff, v, 4);
#else
        v = __shfl_sync(0x0000ffff, v, 20); // FAULT
#endif
    }
    out[i] = v;
}

torch::Tensor run(torch::Tensor x) {
    auto out = torch::empty_like(x);
    half_warp_broadcast<<<x.numel() / 64, 64>>>(x.data_ptr<float>(), out.data_ptr<float>());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
