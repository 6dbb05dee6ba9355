// inputs: int32[301]
// inputs: int32[256]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

// Keeps what is positive, in order: counts by block, their sums, then places by ballot and warp.
constexpr int THREADS = 64;

__global__ void count(const int* x, int* counts, int n) {
    __shared__ int sum;
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    const int i = blockIdx.x * THREADS + threadIdx.x;
    if (i < n && x[i] > 0) atomicAdd(&sum, 1);
    __syncthreads();
    if (threadIdx.x == 0) counts[blockIdx.x] = sum;
}

__global__ void place(const int* x, const int* counts, int* y, int n) {
    __shared__ int warps[THREADS / 32], base;
    const int i = blockIdx.x * THREADS + threadIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const bool kept = i < n && x[i] > 0;
    const unsigned votes = __ballot_sync(0xffffffffu, kept);
    if (lane == 0) warps[warp] = __popc(votes);
    if (threadIdx.x == 0) {
        base = 0;
        for (int b = 0; b < blockIdx.x; ++b) base += counts[b];
    }
    __syncthreads();
    int at = base + __popc(votes & ((1u << lane) - 1));
    for (int w = 0; w < warp; ++w) at += warps[w];
    if (kept) y[at] = x[i];
}

torch::Tensor run(torch::Tensor x) {
    int n = x.numel(), blocks = (n + THREADS - 1) / THREADS;
    auto counts = torch::empty({blocks}, x.options());
    auto y = torch::zeros_like(x);
    count<<<blocks, THREADS>>>(x.data_ptr<int>(), counts.data_ptr<int>(), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    place<<<blocks, THREADS>>>(x.data_ptr<int>(), counts.data_ptr<int>(), y.data_ptr<int>(), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
