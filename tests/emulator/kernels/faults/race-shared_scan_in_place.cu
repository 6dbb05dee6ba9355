// kind: race-shared
// inputs: float32[5,200]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

// Inclusive scan of each row in one array: all must have read before anyone writes.
__global__ void scan_rows(const float* x, float* out, int cols) {
    __shared__ float s[256];
    int t = threadIdx.x;
    s[t] = t < cols ? x[blockIdx.x * cols + t] : 0.0f;
    __syncthreads();
    for (int d = 1; d < 256; d *= 2) {
        float add = t >= d ? s[t - d] : 0.0f; // FAULT
#ifdef REPAIRED
        __syncthreads();
#endif
        s[t] += add;
        __syncthreads();
    }
    if (t < cols) out[blockIdx.x * cols + t] = s[t];
}

torch::Tensor run(torch::Tensor x) {
    int rows = x.size(0), cols = x.size(1);
    TORCH_CHECK(cols <= 256);
    auto out = torch::empty_like(x);
    scan_rows<<<rows, 256>>>(x.data_ptr<float>(), out.data_ptr<float>(), cols);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
