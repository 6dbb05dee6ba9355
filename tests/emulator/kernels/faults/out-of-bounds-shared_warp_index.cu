// kind: out-of-bounds-shared
// inputs: float32[1000]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

// A block of 256 has eight warps, the faulty kernel has room for four.
#ifdef REPAIRED
#define WARPS 8
#else
#define WARPS 4
#endif

__global__ void sum_of_warps(const float* x, float* out, int n) {
    __shared__ float part[WARPS];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float v = i < n ? x[i] : 0.0f;
    for (int d = 16; d > 0; d /= 2) v += __shfl_down_sync(0xffffffffu, v, d);
    if (lane == 0) part[warp] = v; // FAULT
    __syncthreads();
    if (threadIdx.x == 0) {
        float sum = 0.0f;
        for (int w = 0; w < WARPS; ++w) sum += part[w];
        out[blockIdx.x] = sum;
    }
}

torch::Tensor run(torch::Tensor x) {
    int n = x.numel();
    int blocks = (n + 255) / 256;
    auto out = torch::empty({blocks}, x.options());
    sum_of_warps<<<blocks, 256>>>(x.data_ptr<float>(), out.data_ptr<float>(), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
