// kind: out-of-bounds-shared
// inputs: float32[1000]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

__global__ void forward_difference(const float* x, float* out, int n) {
    __shared__ float tile[256];
    int t = threadIdx.x;
    int i = blockIdx.x * 256 + t;
    tile[t] = i < n ? x[i] : 0.0f;
    __syncthreads();
    float next = 0.0f;
#ifdef REPAIRED
    if (t + 1 < 256)
#endif
    next = tile[t + 1]; // FAULT
    if (i < n) out[i] = next - tile[t];
}

torch::Tensor run(torch::Tensor x) {
    int n = x.numel();
    auto out = torch::empty_like(x);
    forward_difference<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), out.data_ptr<float>(), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
