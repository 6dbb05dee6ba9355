// inputs: int32[3001]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

__global__ void histogram_kernel(const int* __restrict__ x, int* __restrict__ out, int n, int bins) {
    extern __shared__ int local_bins[];
    for (int b = threadIdx.x; b < bins; b += blockDim.x) local_bins[b] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) {
        int v = x[i];
        if (v >= 0 && v < bins) {
            atomicAdd(&local_bins[v], 1);
        }
    }
    __syncthreads();
    for (int b = threadIdx.x; b < bins; b += blockDim.x) {
        if (local_bins[b] > 0) atomicAdd(&out[b], local_bins[b]);
    }
}

torch::Tensor run(torch::Tensor x) {
    const int bins = 10;
    auto out = torch::zeros({bins}, x.options());
    histogram_kernel<<<5, 128, bins * sizeof(int)>>>(x.data_ptr<int>(), out.data_ptr<int>(), (int)x.numel(), bins);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
