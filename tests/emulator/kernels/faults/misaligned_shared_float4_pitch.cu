// kind: misaligned
// inputs: float32[32,32]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

// Rows padded to 33 against bank conflicts are no longer on 16 bytes.
#ifdef REPAIRED
#define PITCH 36
#else
#define PITCH 33
#endif

__global__ void quad_max(const float* x, float* out) {
    __shared__ __align__(16) float tile[32 * PITCH];
    int t = threadIdx.x;
    for (int i = t; i < 32 * 32; i += blockDim.x) {
        tile[i / 32 * PITCH + i % 32] = x[i];
    }
    __syncthreads();
    int row = t / 8, quad = t % 8;
    float4 v = *reinterpret_cast<const float4*>(&tile[row * PITCH + quad * 4]); // FAULT
    out[t] = fmaxf(fmaxf(v.x, v.y), fmaxf(v.z, v.w));
}

torch::Tensor run(torch::Tensor x) {
    auto out = torch::empty({32, 8}, x.options());
    quad_max<<<1, 256>>>(x.data_ptr<float>(), out.data_ptr<float>());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
