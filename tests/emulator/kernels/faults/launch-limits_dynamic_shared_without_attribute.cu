// kind: launch-limits
// inputs: float32[5,14000]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

// Keeps a row of 14000 floats, 56000 bytes: over 48 KiB, which a kernel must ask for first.
__global__ void reverse_row(const float* x, float* out, int cols) {
    extern __shared__ float row[];
    for (int c = threadIdx.x; c < cols; c += blockDim.x) row[c] = x[blockIdx.x * cols + c];
    __syncthreads();
    for (int c = threadIdx.x; c < cols; c += blockDim.x) out[blockIdx.x * cols + c] = row[cols - 1 - c];
}

torch::Tensor run(torch::Tensor x) {
    int rows = x.size(0), cols = x.size(1);
    auto out = torch::empty_like(x);
    size_t bytes = cols * sizeof(float);
#ifdef REPAIRED
    C10_CUDA_CHECK(cudaFuncSetAttribute(reverse_row, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes));
#endif
    reverse_row<<<rows, 256, bytes>>>(x.data_ptr<float>(), out.data_ptr<float>(), cols); // FAULT
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
