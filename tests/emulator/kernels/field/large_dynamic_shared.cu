// inputs: float32[3,15000]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

// 60000 bytes of dynamic shared memory, asked for as it must be.
__global__ void centre_rows(const float* x, float* out, int cols) {
    extern __shared__ float row[];
    __shared__ float part[8];
    float sum = 0.0f;
    for (int c = threadIdx.x; c < cols; c += blockDim.x) {
        float v = x[(size_t)blockIdx.x * cols + c];
        row[c] = v;
        sum += v;
    }
    for (int d = 16; d > 0; d >>= 1) sum += __shfl_down_sync(0xffffffff, sum, d);
    if (threadIdx.x % 32 == 0) {
        part[threadIdx.x / 32] = sum;
    }
    __syncthreads();
    float mean = 0.0f;
    for (int w = 0; w < 8; ++w) mean += part[w];
    mean /= cols;
    for (int c = threadIdx.x; c < cols; c += blockDim.x) {
        out[(size_t)blockIdx.x * cols + c] = row[cols - 1 - c] - mean;
    }
}

torch::Tensor run(torch::Tensor x) {
    int rows = x.size(0), cols = x.size(1);
    int bytes = cols * (int)sizeof(float);
    auto out = torch::empty_like(x);
    C10_CUDA_CHECK(cudaFuncSetAttribute(centre_rows, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    centre_rows<<<rows, 256, bytes>>>(x.data_ptr<float>(), out.data_ptr<float>(), cols);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
