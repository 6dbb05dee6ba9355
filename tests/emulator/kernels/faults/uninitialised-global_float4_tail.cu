// kind: uninitialised-global
// inputs: float32[66]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

// 66 numbers in a scratch for 68: the last float4 holds two that nobody wrote.
__global__ void doubled(const float* x, float* scratch, int n) {
    int i = threadIdx.x;
#ifdef REPAIRED
    if (i < (n + 3) / 4 * 4) scratch[i] = i < n ? 2.0f * x[i] : 0.0f;
#else
    if (i < n) scratch[i] = 2.0f * x[i];
#endif
}
__global__ void sums_of_four(const float* scratch, float* out, int quads) {
    int i = threadIdx.x;
    if (i >= quads) return;
    float4 v = reinterpret_cast<const float4*>(scratch)[i]; // FAULT
    out[i] = v.x + v.y + v.z + v.w;
}

torch::Tensor run(torch::Tensor x) {
    int n = x.numel(), quads = (n + 3) / 4;
    auto scratch = torch::empty({4 * quads}, x.options());
    auto out = torch::empty({quads}, x.options());
    doubled<<<1, 128>>>(x.data_ptr<float>(), scratch.data_ptr<float>(), n);
    sums_of_four<<<1, 32>>>(scratch.data_ptr<float>(), out.data_ptr<float>(), quads);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
