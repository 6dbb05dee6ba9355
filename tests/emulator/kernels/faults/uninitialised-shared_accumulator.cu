// kind: uninitialised-shared
// inputs: float32[1000]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

__global__ void block_sum(const float* x, float* out, int n) {
    __shared__ float total;
#ifdef REPAIRED
    if (threadIdx.x == 0) total = 0.0f;
    __syncthreads();
#endif
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        atomicAdd(&total, x[i]); // FAULT
    }
    __syncthreads();
    if (threadIdx.x == 0) out[blockIdx.x] = total;
}

torch::Tensor run(torch::Tensor x) {
    int n = x.numel();
    int blocks = (n + 127) / 128;
    auto out = torch::empty({blocks}, x.options());
    block_sum<<<blocks, 128>>>(x.data_ptr<float>(), out.data_ptr<float>(), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
