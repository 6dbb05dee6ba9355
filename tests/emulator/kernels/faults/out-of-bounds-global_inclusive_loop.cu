// kind: out-of-bounds-global
// inputs: float32[13,50]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

__global__ void row_max(const float* x, float* out, int rows, int cols) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    const float* row = x + r * cols;
    float best = row[0];
#ifdef REPAIRED
    int last = cols - 1;
#else
    int last = cols;
#endif
    for (int c = 1; c <= last; ++c) {
        best = fmaxf(best, row[c]); // FAULT
    }
    out[r] = best;
}

torch::Tensor run(torch::Tensor x) {
    int rows = x.size(0), cols = x.size(1);
    auto out = torch::empty({rows}, x.options());
    row_max<<<1, 32>>>(x.data_ptr<float>(), out.data_ptr<float>(), rows, cols);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
