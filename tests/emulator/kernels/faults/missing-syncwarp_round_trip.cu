// kind: missing-syncwarp
// inputs: float32[4,96]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

// The warp's slot is used again in the next round, while some lane may still be reading the last one.
__global__ void reverse_by_warp(const float* x, float* out, int cols) {
    __shared__ float s[32];
    int lane = threadIdx.x;
    for (int c = 0; c < cols; c += 32) {
        s[lane] = x[blockIdx.x * cols + c + lane];
        __syncwarp();
        float v = s[31 - lane]; // FAULT
        out[blockIdx.x * cols + c + lane] = v;
#ifdef REPAIRED
        __syncwarp();
#endif
    }
}

torch::Tensor run(torch::Tensor x) {
    int cols = x.size(1);
    TORCH_CHECK(cols % 32 == 0);
    auto out = torch::empty_like(x);
    reverse_by_warp<<<x.size(0), 32>>>(x.data_ptr<float>(), out.data_ptr<float>(), cols);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
