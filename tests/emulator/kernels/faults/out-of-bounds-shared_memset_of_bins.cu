// kind: out-of-bounds-shared
// inputs: int32[1000]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

__global__ void histogram(const int* x, int* out, int n) {
    __shared__ int bins[10];
    if (threadIdx.x == 0) {
#ifdef REPAIRED
        memset(bins, 0, sizeof(bins));
#else
        memset(bins, 0, 16 * sizeof(int)); // FAULT
#endif
    }
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) atomicAdd(&bins[x[i]], 1);
    __syncthreads();
    if (threadIdx.x < 10) out[threadIdx.x] = bins[threadIdx.x];
}

torch::Tensor run(torch::Tensor x) {
    auto out = torch::empty({10}, x.options());
    histogram<<<1, 128>>>(x.data_ptr<int>(), out.data_ptr<int>(), (int)x.numel());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
