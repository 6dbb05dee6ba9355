// kind: divergent-barrier
// inputs: float32[300]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

__global__ void count_positive(const float* x, int* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
#ifdef REPAIRED
    int count = __syncthreads_count(i < n && x[i] > 0.0f);
    if (threadIdx.x == 0) out[blockIdx.x] = count;
#else
    if (i < n) {
        int count = __syncthreads_count(x[i] > 0.0f); // FAULT
        if (threadIdx.x == 0) out[blockIdx.x] = count;
    }
#endif
    __syncthreads(); // FAULT
    if (threadIdx.x == 1) out[blockIdx.x] += 1;
}

torch::Tensor run(torch::Tensor x) {
    int n = x.numel();
    int blocks = (n + 127) / 128;
    auto out = torch::empty({blocks}, x.options().dtype(torch::kInt32));
    count_positive<<<blocks, 128>>>(x.data_ptr<float>(), out.data_ptr<int>(), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
