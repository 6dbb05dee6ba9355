// kind: uninitialised-global
// inputs: float32[25,40] float32[40]
// declare: torch::Tensor run(torch::Tensor x, torch::Tensor w);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

__global__ void matvec(const float* x, const float* w, float* out, int rows, int cols) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r < rows) {
#ifdef REPAIRED
        out[r] = 0.0f;
#endif
        for (int c = 0; c < cols; ++c) {
            out[r] += x[r * cols + c] * w[c]; // FAULT
        }
    }
}

torch::Tensor run(torch::Tensor x, torch::Tensor w) {
    int rows = x.size(0), cols = x.size(1);
    auto out = torch::empty({rows}, x.options());
    matvec<<<(rows + 31) / 32, 32>>>(x.data_ptr<float>(), w.data_ptr<float>(), out.data_ptr<float>(), rows, cols);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
