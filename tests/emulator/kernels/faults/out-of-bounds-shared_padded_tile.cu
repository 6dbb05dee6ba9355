// kind: out-of-bounds-shared
// inputs: float32[40,45]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>

// The tile has one halo column, the filter of three taps needs two.
__global__ void horizontal3(const float* x, float* out, int rows, int cols) {
#ifdef REPAIRED
    const int HALO = 2;
#else
    const int HALO = 1;
#endif
    __shared__ float tile[16][16 + HALO];
    int tx = threadIdx.x, ty = threadIdx.y;
    int r = blockIdx.y * 16 + ty;
    int c = blockIdx.x * 16 + tx;
    tile[ty][tx] = r < rows && c < cols ? x[r * cols + c] : 0.0f;
    if (tx < HALO) {
        int h = c + 16;
        tile[ty][16 + tx] = r < rows && h < cols ? x[r * cols + h] : 0.0f;
    }
    __syncthreads();
    float sum = 0.0f;
    for (int k = 0; k < 3; ++k) {
        sum += tile[ty][tx + k]; // FAULT
    }
    if (r < rows && c < cols) out[r * cols + c] = sum;
}

torch::Tensor run(torch::Tensor x) {
    int rows = x.size(0), cols = x.size(1);
    auto out = torch::empty_like(x);
    dim3 grid((cols + 15) / 16, (rows + 15) / 16);
    horizontal3<<<grid, dim3(16, 16)>>>(x.data_ptr<float>(), out.data_ptr<float>(), rows, cols);
    TORCH_CHECK(cudaGetLastError() == cudaSuccess, "launch failed");
    return out;
}
