// kind: uninitialised-global
// inputs: float32[18,23]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

// The copy with a border of one is made by empty(), only its inside is written.
__global__ void copy_inside(const float* x, float* padded, int rows, int cols) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < rows * cols) {
        int r = i / cols, c = i % cols;
        padded[(r + 1) * (cols + 2) + c + 1] = x[i];
    }
}

__global__ void cross_sum(const float* padded, float* out, int rows, int cols) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= rows * cols) return;
    int pitch = cols + 2;
    const float* centre = padded + (i / cols + 1) * pitch + i % cols + 1;
    const int steps[5] = {0, -1, 1, -pitch, pitch};
    float sum = 0.0f;
    for (int k = 0; k < 5; ++k) {
        sum += centre[steps[k]]; // FAULT
    }
    out[i] = sum;
}

torch::Tensor run(torch::Tensor x) {
    int rows = x.size(0), cols = x.size(1), n = rows * cols;
#ifdef REPAIRED
    auto padded = torch::zeros({rows + 2, cols + 2}, x.options());
#else
    auto padded = torch::empty({rows + 2, cols + 2}, x.options());
#endif
    auto out = torch::empty_like(x);
    copy_inside<<<(n + 127) / 128, 128>>>(x.data_ptr<float>(), padded.data_ptr<float>(), rows, cols);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    cross_sum<<<(n + 127) / 128, 128>>>(padded.data_ptr<float>(), out.data_ptr<float>(), rows, cols);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
