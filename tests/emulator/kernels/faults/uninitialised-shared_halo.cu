// kind: uninitialised-shared
// inputs: float32[900]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

__global__ void smooth(const float* x, float* out, int n) {
    __shared__ float tile[130];
    int t = threadIdx.x;
    int i = blockIdx.x * 128 + t;
    tile[t + 1] = i < n ? x[i] : 0.0f;
    if (t == 0) tile[0] = i > 0 ? x[i - 1] : 0.0f;
#ifdef REPAIRED
    if (t == 127) tile[129] = i + 1 < n ? x[i + 1] : 0.0f;
#endif
    __syncthreads();
    if (i < n) {
        out[i] = 0.25f * tile[t] + 0.5f * tile[t + 1] + 0.25f * tile[t + 2]; // FAULT
    }
}

torch::Tensor run(torch::Tensor x) {
    int n = x.numel();
    auto out = torch::empty_like(x);
    smooth<<<(n + 127) / 128, 128>>>(x.data_ptr<float>(), out.data_ptr<float>(), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
