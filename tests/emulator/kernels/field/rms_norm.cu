// inputs: float32[13,150] float32[150]
// declare: torch::Tensor run(torch::Tensor x, torch::Tensor weight);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

__device__ __forceinline__ float warp_sum(float v) {
    for (int offset = 16; offset > 0; offset >>= 1) v += __shfl_xor_sync(0xffffffff, v, offset);
    return v;
}

// Four warps to a block, one row per warp.
__global__ void rms_norm_kernel(const float* x, const float* weight, float* out, int rows, int width) {
    const int row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    const int lane = threadIdx.x;
    float ss = 0.0f;
    for (int c = lane; c < width; c += 32) {
        const float v = x[row * width + c];
        ss = fmaf(v, v, ss);
    }
    ss = warp_sum(ss);
    const float scale = rsqrtf(ss / width + 1e-6f);
    for (int c = lane; c < width; c += 32) {
        out[row * width + c] = x[row * width + c] * scale * weight[c];
    }
}

torch::Tensor run(torch::Tensor x, torch::Tensor weight) {
    const int rows = x.size(0), width = x.size(1);
    auto out = torch::empty_like(x);
    rms_norm_kernel<<<(rows + 3) / 4, dim3(32, 4)>>>(x.data_ptr<float>(), weight.data_ptr<float>(), out.data_ptr<float>(),
                                                     rows, width);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
