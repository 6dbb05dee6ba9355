// kind: race-shared
// inputs: float32[32,80]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

// A block walks along a stripe of tiles; the next load may not overtake the transposed reads.
__global__ void transpose_stripe(const float* x, float* out, int rows, int cols) {
    __shared__ float tile[16][17];
    int tx = threadIdx.x, ty = threadIdx.y;
    int r0 = blockIdx.x * 16;
    for (int c0 = 0; c0 < cols; c0 += 16) {
        tile[ty][tx] = x[(r0 + ty) * cols + c0 + tx];
        __syncthreads();
        float v = tile[tx][ty]; // FAULT
        out[(c0 + ty) * rows + r0 + tx] = v;
#ifdef REPAIRED
        __syncthreads();
#endif
    }
}

torch::Tensor run(torch::Tensor x) {
    int rows = x.size(0), cols = x.size(1);
    TORCH_CHECK(rows % 16 == 0 && cols % 16 == 0);
    auto out = torch::empty({cols, rows}, x.options());
    transpose_stripe<<<rows / 16, dim3(16, 16)>>>(x.data_ptr<float>(), out.data_ptr<float>(), rows, cols);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
