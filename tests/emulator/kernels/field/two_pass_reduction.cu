// inputs: float32[6011]
// inputs: float32[4608]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

template <int THREADS>
__global__ void sum_pass(const float* in, float* out, int n) {
    __shared__ float s[THREADS];
    int t = threadIdx.x;
    float acc = 0.0f;
    for (int i = blockIdx.x * THREADS + t; i < n; i += THREADS * gridDim.x) {
        acc += in[i];
    }
    s[t] = acc;
    __syncthreads();
    #pragma unroll
    for (int d = THREADS / 2; d >= 32; d >>= 1) {
        if (t < d) {
            s[t] += s[t + d];
        }
        __syncthreads();
    }
    if (t < 32) {
        float v = s[t];
        for (int d = 16; d > 0; d >>= 1) v += __shfl_down_sync(0xffffffffu, v, d);
        if (t == 0) out[blockIdx.x] = v;
    }
}

torch::Tensor run(torch::Tensor x) {
    int n = x.numel();
    const int blocks = 9;
    auto partial = torch::empty({blocks}, x.options());
    auto out = torch::empty({}, x.options());
    sum_pass<256><<<blocks, 256>>>(x.data_ptr<float>(), partial.data_ptr<float>(), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    sum_pass<64><<<1, 64>>>(partial.data_ptr<float>(), out.data_ptr<float>(), blocks);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
