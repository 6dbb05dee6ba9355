// kind: uninitialised-shared
// inputs: float32[16,16]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

__global__ void column_sums(const float* x, float* out) {
    __shared__ float tile[16][17];
    int tx = threadIdx.x, ty = threadIdx.y;
    tile[ty][tx] = x[ty * 16 + tx];
    __syncthreads();
    if (ty == 0) {
        float sum = 0.0f;
#ifdef REPAIRED
        const int width = 16;
#else
        const int width = 17;
#endif
        for (int c = 0; c < width; ++c) {
            sum += tile[tx][c]; // FAULT
        }
        out[tx] = sum;
    }
}

torch::Tensor run(torch::Tensor x) {
    auto out = torch::empty({16}, x.options());
    column_sums<<<1, dim3(16, 16)>>>(x.data_ptr<float>(), out.data_ptr<float>());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
