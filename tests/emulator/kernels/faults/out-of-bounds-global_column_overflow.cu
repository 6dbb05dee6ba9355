// kind: out-of-bounds-global
// inputs: float32[20,37]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

__global__ void transpose16(const float* x, float* out, int rows, int cols) {
    __shared__ float tile[16][17];
    int r = blockIdx.y * 16 + threadIdx.y;
    int c = blockIdx.x * 16 + threadIdx.x;
    float v = 0.0f;
#ifdef REPAIRED
    if (r < rows && c < cols)
#else
    if (r < rows)
#endif
        v = x[r * cols + c]; // FAULT
    tile[threadIdx.y][threadIdx.x] = v;
    __syncthreads();
    int tr = blockIdx.x * 16 + threadIdx.y;
    int tc = blockIdx.y * 16 + threadIdx.x;
    if (tr < cols && tc < rows) {
        out[tr * rows + tc] = tile[threadIdx.x][threadIdx.y];
    }
}

torch::Tensor run(torch::Tensor x) {
    int rows = x.size(0), cols = x.size(1);
    auto out = torch::empty({cols, rows}, x.options());
    dim3 block(16, 16);
    dim3 grid((cols + 15) / 16, (rows + 15) / 16);
    transpose16<<<grid, block>>>(x.data_ptr<float>(), out.data_ptr<float>(), rows, cols);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
