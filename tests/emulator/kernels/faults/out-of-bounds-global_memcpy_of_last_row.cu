// kind: out-of-bounds-global
// inputs: float32[7,40]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

// Rows are copied in pairs; the last row of an odd number has no partner.
__global__ void copy_pairs(const float* x, float* out, int rows, int cols) {
    int pair = threadIdx.x;
    if (2 * pair >= rows) return;
#ifdef REPAIRED
    int count = min(2, rows - 2 * pair) * cols;
#else
    int count = 2 * cols;
#endif
    memcpy(out + 2 * pair * cols, x + 2 * pair * cols, count * sizeof(float)); // FAULT
}

torch::Tensor run(torch::Tensor x) {
    auto out = torch::empty_like(x);
    copy_pairs<<<1, 32>>>(x.data_ptr<float>(), out.data_ptr<float>(), (int)x.size(0), (int)x.size(1));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
