// kind: launch-limits
// inputs: float32[2,6000]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

// Ten copies of a row, 240000 bytes, are more than the 227 KiB that a block can have.
__global__ void sum_of_rolls(const float* x, float* out, int cols, int copies) {
    extern __shared__ float rows[];
    for (int c = threadIdx.x; c < cols; c += blockDim.x) {
        for (int k = 0; k < copies; ++k) rows[k * cols + (c + k) % cols] = x[blockIdx.x * cols + c];
    }
    __syncthreads();
    for (int c = threadIdx.x; c < cols; c += blockDim.x) {
        float sum = 0.0f;
        for (int k = 0; k < copies; ++k) sum += rows[k * cols + c];
        out[blockIdx.x * cols + c] = sum;
    }
}

torch::Tensor run(torch::Tensor x) {
    int rows = x.size(0), cols = x.size(1);
    auto out = torch::empty_like(x);
#ifdef REPAIRED
    int copies = 4;
#else
    int copies = 10;
#endif
    int bytes = copies * cols * (int)sizeof(float);
    cudaFuncSetAttribute(sum_of_rolls, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    sum_of_rolls<<<rows, 256, bytes>>>(x.data_ptr<float>(), out.data_ptr<float>(), cols, copies); // FAULT
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
