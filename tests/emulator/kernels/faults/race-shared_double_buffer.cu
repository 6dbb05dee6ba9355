// kind: race-shared
// inputs: float32[1000]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

// Two buffers in turn: one barrier per step is enough, none is not.
__global__ void pipelined_lag(const float* x, float* out, int n) {
    __shared__ float buf[2][128];
    int t = threadIdx.x;
    int steps = (n + 127) / 128;
    int from = t >= 32 ? t - 32 : t;
    buf[0][t] = t < n ? x[t] : 0.0f;
    __syncthreads();
    for (int s = 0; s < steps; ++s) {
        int next = (s + 1) * 128 + t;
        if (s + 1 < steps) buf[(s + 1) & 1][t] = next < n ? x[next] : 0.0f;
        float v = buf[s & 1][from]; // FAULT
        if (s * 128 + t < n) out[s * 128 + t] = v;
#ifdef REPAIRED
        __syncthreads();
#endif
    }
}

torch::Tensor run(torch::Tensor x) {
    auto out = torch::empty_like(x);
    pipelined_lag<<<1, 128>>>(x.data_ptr<float>(), out.data_ptr<float>(), (int)x.numel());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
