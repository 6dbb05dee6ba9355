// kind: out-of-bounds-global
// inputs: float32[777] 1.5
// declare: torch::Tensor run(torch::Tensor x, double scale);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

__global__ void scale_all(const float* __restrict__ x, float* __restrict__ out, float scale, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float v = 0.0f;
    if (i < n) v = x[i] * scale;
#ifdef REPAIRED
    if (i < n)
#endif
    out[i] = v; // FAULT
}

torch::Tensor run(torch::Tensor x, double scale) {
    int n = x.numel();
    auto out = torch::empty_like(x);
    scale_all<<<(n + 127) / 128, 128>>>(x.data_ptr<float>(), out.data_ptr<float>(), (float)scale, n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
