// kind: out-of-bounds-local
// inputs: float32[40,50] 4
// declare: torch::Tensor run(torch::Tensor x, int64_t k);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

// Keeps the k greatest of a row in a small local list, by insertion.
__global__ void top_k(const float* x, float* out, int rows, int cols, int k) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    float best[4];
    for (int j = 0; j < 4; ++j) best[j] = -INFINITY;
    for (int c = 0; c < cols; ++c) {
        float v = x[r * cols + c];
        int j = k - 1;
        if (v <= best[j]) continue;
        while (j > 0 && best[j - 1] < v) {
            best[j] = best[j - 1];
            --j;
        }
        best[j] = v;
    }
#ifdef REPAIRED
    int last = k - 1;
#else
    int last = k;
#endif
    float sum = 0.0f;
    for (int j = 0; j <= last; ++j) {
        sum += best[j]; // FAULT
    }
    out[r] = sum;
}

torch::Tensor run(torch::Tensor x, int64_t k) {
    int rows = x.size(0), cols = x.size(1);
    auto out = torch::empty({rows}, x.options());
    top_k<<<2, 32>>>(x.data_ptr<float>(), out.data_ptr<float>(), rows, cols, (int)k);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
