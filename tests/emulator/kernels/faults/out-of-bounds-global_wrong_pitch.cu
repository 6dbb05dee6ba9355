// kind: out-of-bounds-global
// inputs: float32[21,37]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>

// The rows lie 37 apart, the faulty kernel takes them for padded to 40.
__global__ void row_sums(const float* x, float* out, int rows, int cols, int pitch) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r < rows) {
        float sum = 0.0f;
        for (int c = 0; c < cols; ++c) {
            sum += x[r * pitch + c]; // FAULT
        }
        out[r] = sum;
    }
}

torch::Tensor run(torch::Tensor x) {
    int rows = x.size(0), cols = x.size(1);
#ifdef REPAIRED
    int pitch = cols;
#else
    int pitch = (cols + 7) / 8 * 8;
#endif
    auto out = torch::empty({rows}, x.options());
    row_sums<<<(rows + 31) / 32, 32>>>(x.data_ptr<float>(), out.data_ptr<float>(), rows, cols, pitch);
    cudaError_t err = cudaGetLastError();
    TORCH_CHECK(err == cudaSuccess, cudaGetErrorString(err));
    return out;
}
