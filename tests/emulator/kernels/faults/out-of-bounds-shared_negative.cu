// kind: out-of-bounds-shared
// inputs: float32[640]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

__global__ void local_maximum(const float* x, float* out, int n) {
    __shared__ float tile[128];
    int t = threadIdx.x;
    int i = blockIdx.x * 128 + t;
    tile[t] = i < n ? x[i] : -INFINITY;
    __syncthreads();
    if (i < n) {
        float best = tile[t];
#ifdef REPAIRED
        if (t > 0)
#endif
        best = fmaxf(best, tile[t - 1]); // FAULT
        out[i] = best;
    }
}

torch::Tensor run(torch::Tensor x) {
    int n = x.numel();
    auto out = torch::empty_like(x);
    local_maximum<<<(n + 127) / 128, 128>>>(x.data_ptr<float>(), out.data_ptr<float>(), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
