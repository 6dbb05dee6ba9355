// kind: runaway-loop
// inputs: float32[1000] 0
// declare: torch::Tensor run(torch::Tensor x, int64_t rows_per_step);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

// A grid-stride loop whose step is given from outside, and is zero.
__global__ void strided_sums(const float* x, float* out, int step, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0.0f;
    for (int j = i; j < n; j += step) { // FAULT
        sum += x[j]; // FAULT
    }
    out[i] = sum;
}

torch::Tensor run(torch::Tensor x, int64_t rows_per_step) {
    auto out = torch::empty({256}, x.options());
#ifdef REPAIRED
    int step = 256;
#else
    int step = 256 * (int)rows_per_step;
#endif
    strided_sums<<<2, 128>>>(x.data_ptr<float>(), out.data_ptr<float>(), step, (int)x.numel());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
