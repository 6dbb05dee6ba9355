// kind: unchecked-launch
// inputs: float32[3,13000]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

// 52000 bytes of dynamic shared memory without the attribute; the error is never asked for.
__global__ void rotate_row(const float* x, float* out, int cols, int shift) {
    extern __shared__ float row[];
    for (int c = threadIdx.x; c < cols; c += blockDim.x) row[c] = x[blockIdx.x * cols + c];
    __syncthreads();
    for (int c = threadIdx.x; c < cols; c += blockDim.x) out[blockIdx.x * cols + c] = row[(c + shift) % cols];
}

torch::Tensor run(torch::Tensor x) {
    int rows = x.size(0), cols = x.size(1);
    auto out = torch::zeros_like(x);
    int bytes = cols * (int)sizeof(float);
#ifdef REPAIRED
    C10_CUDA_CHECK(cudaFuncSetAttribute(rotate_row, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
#endif
    rotate_row<<<rows, 256, bytes>>>(x.data_ptr<float>(), out.data_ptr<float>(), cols, 100); // FAULT
#ifdef REPAIRED
    C10_CUDA_KERNEL_LAUNCH_CHECK();
#endif
    return out;
}
