// kind: index-overflow
// inputs: float32[4,100] 40000 65536
// declare: torch::Tensor run(torch::Tensor x, int64_t row0, int64_t pitch);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

// x is a window, four rows from row0 on, of a matrix of 65536 columns; positions are those of the matrix.
__global__ void window_copy(const float* x, float* out, int row0, int pitch, int rows, int cols) {
    int c = blockIdx.x * blockDim.x + threadIdx.x;
    int r = blockIdx.y;
    if (c >= cols) return;
    long long base = (long long)row0 * pitch;
#ifdef REPAIRED
    long long at = (long long)(row0 + r) * pitch + c;
#else
    long long at = (row0 + r) * pitch + c; // FAULT
#endif
    long long local = at - base;
    long long row = local / pitch, col = local % pitch;
    if (row >= 0 && row < rows && col >= 0 && col < cols) {
        out[r * cols + c] = x[row * cols + col];
    }
}

torch::Tensor run(torch::Tensor x, int64_t row0, int64_t pitch) {
    int rows = x.size(0), cols = x.size(1);
    auto out = torch::zeros_like(x);
    window_copy<<<dim3((cols + 63) / 64, rows), 64>>>(x.data_ptr<float>(), out.data_ptr<float>(), (int)row0, (int)pitch,
                                                      rows, cols);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
