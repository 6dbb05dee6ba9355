// kind: out-of-bounds-local
// inputs: float32[30,40] 5
// declare: torch::Tensor run(torch::Tensor x, int64_t lag);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

// A ring of the last eight values; in C++ the remainder of a negative number is negative.
__global__ void lagged(const float* x, float* out, int rows, int cols, int lag) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    float ring[8];
    for (int j = 0; j < 8; ++j) ring[j] = 0.0f;
    for (int c = 0; c < cols; ++c) {
        ring[c % 8] = x[r * cols + c];
#ifdef REPAIRED
        int slot = (c - lag + 8) % 8;
#else
        int slot = (c - lag) % 8;
#endif
        out[r * cols + c] = ring[slot]; // FAULT
    }
}

torch::Tensor run(torch::Tensor x, int64_t lag) {
    int rows = x.size(0), cols = x.size(1);
    auto out = torch::empty_like(x);
    lagged<<<1, 32>>>(x.data_ptr<float>(), out.data_ptr<float>(), rows, cols, (int)lag);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
