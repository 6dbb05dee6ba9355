// kind: uninitialised-global
// inputs: int32[1000]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

// A workspace straight from cudaMalloc, which clears nothing.
__global__ void count_values(const int* x, int* bins, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        atomicAdd(&bins[x[i]], 1); // FAULT
    }
}

__global__ void copy_bins(const int* bins, int* out) {
    out[threadIdx.x] = bins[threadIdx.x];
}

torch::Tensor run(torch::Tensor x) {
    int n = x.numel();
    int* bins = nullptr;
    TORCH_CHECK(cudaMalloc(&bins, 10 * sizeof(int)) == cudaSuccess);
#ifdef REPAIRED
    TORCH_CHECK(cudaMemset(bins, 0, 10 * sizeof(int)) == cudaSuccess);
#endif
    auto out = torch::empty({10}, x.options());
    count_values<<<(n + 127) / 128, 128>>>(x.data_ptr<int>(), bins, n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    copy_bins<<<1, 10>>>(bins, out.data_ptr<int>());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    TORCH_CHECK(cudaFree(bins) == cudaSuccess);
    return out;
}
