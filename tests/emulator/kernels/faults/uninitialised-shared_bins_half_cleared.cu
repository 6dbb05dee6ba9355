// kind: uninitialised-shared
// inputs: int32[1200]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

__global__ void histogram(const int* x, int* out, int n) {
    __shared__ int bins[10];
    int t = threadIdx.x;
#ifdef REPAIRED
    if (t < 10) bins[t] = 0;
#else
    if (t < 8) bins[t] = 0;
#endif
    __syncthreads();
    int i = blockIdx.x * blockDim.x + t;
    if (i < n) {
        atomicAdd(&bins[x[i]], 1); // FAULT
    }
    __syncthreads();
    if (t < 10) atomicAdd(&out[t], bins[t]);
}

torch::Tensor run(torch::Tensor x) {
    int n = x.numel();
    auto out = torch::zeros({10}, x.options());
    histogram<<<(n + 255) / 256, 256>>>(x.data_ptr<int>(), out.data_ptr<int>(), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
