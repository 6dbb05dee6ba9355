// inputs: float32[5,170]
// inputs: float32[4,192]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

#define THREADS 96

template <typename Op>
__device__ float block_reduce(float v, float* scratch, Op op) {
    for (int d = 16; d > 0; d >>= 1) v = op(v, __shfl_xor_sync(0xffffffff, v, d));
    if (threadIdx.x % 32 == 0) {
        scratch[threadIdx.x / 32] = v;
    }
    __syncthreads();
    v = scratch[0];
    for (int w = 1; w < THREADS / 32; ++w) v = op(v, scratch[w]);
    __syncthreads();
    return v;
}

struct Max {
    __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

struct Sum {
    __device__ float operator()(float a, float b) const { return a + b; }
};

__global__ void log_softmax_kernel(const float* x, float* y, int cols) {
    __shared__ float scratch[THREADS / 32];
    const float* in = x + blockIdx.x * cols;
    float* to = y + blockIdx.x * cols;
    float top = -INFINITY;
    for (int c = threadIdx.x; c < cols; c += THREADS) top = fmaxf(top, in[c]);
    top = block_reduce(top, scratch, Max());
    float sum = 0.0f;
    for (int c = threadIdx.x; c < cols; c += THREADS) sum += expf(in[c] - top);
    sum = block_reduce(sum, scratch, Sum());
    float shift = top + logf(sum);
    for (int c = threadIdx.x; c < cols; c += THREADS) {
        to[c] = in[c] - shift;
    }
}

torch::Tensor run(torch::Tensor x) {
    auto y = torch::empty_like(x);
    log_softmax_kernel<<<x.size(0), THREADS>>>(x.data_ptr<float>(), y.data_ptr<float>(), (int)x.size(1));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
