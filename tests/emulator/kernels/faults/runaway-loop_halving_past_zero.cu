// kind: runaway-loop
// inputs: float32[5,100]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

// All threads meet at the barrier again and again: none runs for long, and none ends.
__global__ void row_max(const float* x, float* out, int cols) {
    __shared__ float s[64];
    const int t = threadIdx.x;
    float best = -INFINITY;
    for (int c = t; c < cols; c += 64) best = fmaxf(best, x[blockIdx.x * cols + c]);
    s[t] = best;
    __syncthreads();
#ifdef REPAIRED
    for (int d = 32; d > 0; d /= 2) {
#else
    for (int d = 32; d >= 0; d /= 2) { // FAULT
#endif
        if (t < d) s[t] = fmaxf(s[t], s[t + d]);
        __syncthreads();
    }
    if (t == 0) out[blockIdx.x] = s[0];
}

torch::Tensor run(torch::Tensor x) {
    auto out = torch::empty({x.size(0)}, x.options());
    row_max<<<x.size(0), 64>>>(x.data_ptr<float>(), out.data_ptr<float>(), (int)x.size(1));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
