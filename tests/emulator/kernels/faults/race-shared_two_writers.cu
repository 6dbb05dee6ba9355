// kind: race-shared
// inputs: float32[700]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

// Sixty-four slots for 256 threads: four threads write each.
__global__ void sample_block(const float* x, float* out, int n) {
    __shared__ float slot[64];
    int t = threadIdx.x;
    int i = blockIdx.x * blockDim.x + t;
    float v = i < n ? x[i] : 0.0f;
#ifdef REPAIRED
    if (t < 64)
#endif
    slot[t % 64] = v; // FAULT
    __syncthreads();
    if (t < 64) out[blockIdx.x * 64 + t] = slot[t];
}

torch::Tensor run(torch::Tensor x) {
    int n = x.numel();
    int blocks = (n + 255) / 256;
    auto out = torch::empty({blocks * 64}, x.options());
    sample_block<<<blocks, 256>>>(x.data_ptr<float>(), out.data_ptr<float>(), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
