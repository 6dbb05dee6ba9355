// kind: uninitialised-global
// inputs: float32[64]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

// The scratch has room for 96 numbers and holds 64; all of it is copied on.
__global__ void fill_scratch(const float* x, float* scratch, int n) {
    if (threadIdx.x < n) scratch[threadIdx.x] = 2.0f * x[threadIdx.x];
}
__global__ void copy_on(const float* scratch, float* out, int n) {
    float kept[96];
#ifdef REPAIRED
    std::memcpy(kept, scratch, n * sizeof(float));
#else
    std::memcpy(kept, scratch, 96 * sizeof(float)); // FAULT
#endif
    if (threadIdx.x < n) out[threadIdx.x] = kept[threadIdx.x] + kept[0];
}

torch::Tensor run(torch::Tensor x) {
    int n = x.numel();
    auto scratch = torch::empty({96}, x.options());
    auto out = torch::empty_like(x);
    fill_scratch<<<1, 64>>>(x.data_ptr<float>(), scratch.data_ptr<float>(), n);
    copy_on<<<1, 64>>>(scratch.data_ptr<float>(), out.data_ptr<float>(), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
