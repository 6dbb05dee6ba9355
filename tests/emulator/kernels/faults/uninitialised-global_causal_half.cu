// kind: uninitialised-global
// inputs: float32[24,24]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

// The first kernel fills the lower triangle, the second sums whole rows.
__global__ void causal_scores(const float* x, float* scores, int n) {
    int j = threadIdx.x, i = blockIdx.x;
    if (j <= i) scores[i * n + j] = 0.125f * x[i * n + j];
}

__global__ void row_totals(const float* scores, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float sum = 0.0f;
#ifdef REPAIRED
    for (int j = 0; j <= i; ++j)
#else
    for (int j = 0; j < n; ++j)
#endif
        sum += scores[i * n + j]; // FAULT
    out[i] = sum;
}

torch::Tensor run(torch::Tensor x) {
    int n = x.size(0);
    auto scores = torch::empty_like(x);
    auto out = torch::empty({n}, x.options());
    causal_scores<<<n, n>>>(x.data_ptr<float>(), scores.data_ptr<float>(), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    row_totals<<<1, 32>>>(scores.data_ptr<float>(), out.data_ptr<float>(), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
