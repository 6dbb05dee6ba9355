// kind: absent-lanes
// inputs: float32[1000]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

// The last warp has eight threads left when it shuffles with the full mask.
__global__ void warp_sums(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
#ifdef REPAIRED
    float v = i < n ? x[i] : 0.0f;
#else
    if (i >= n) return;
    float v = x[i];
#endif
    for (int d = 16; d > 0; d >>= 1) {
        v += __shfl_xor_sync(0xffffffff, v, d); // FAULT
    }
    if (i % 32 == 0 && i < n) out[i / 32] = v;
}

torch::Tensor run(torch::Tensor x) {
    int n = x.numel();
    auto out = torch::empty({(n + 31) / 32}, x.options());
    warp_sums<<<(n + 127) / 128, 128>>>(x.data_ptr<float>(), out.data_ptr<float>(), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
