// kind: out-of-bounds-shared
// inputs: int32[1500]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

// The values go up to 9.
#ifdef REPAIRED
constexpr int BINS = 10;
#else
constexpr int BINS = 8;
#endif

__global__ void histogram(const int* x, int* out, int n) {
    __shared__ int bins[BINS];
    if (threadIdx.x < BINS) bins[threadIdx.x] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        atomicAdd(&bins[x[i]], 1); // FAULT
    }
    __syncthreads();
    if (threadIdx.x < BINS) atomicAdd(&out[threadIdx.x], bins[threadIdx.x]);
}

torch::Tensor run(torch::Tensor x) {
    auto out = torch::zeros({10}, x.options());
    histogram<<<3, 128>>>(x.data_ptr<int>(), out.data_ptr<int>(), (int)x.numel());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
