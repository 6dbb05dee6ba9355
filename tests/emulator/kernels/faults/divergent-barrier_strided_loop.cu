// kind: divergent-barrier
// inputs: float32[1000]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

// 1000 elements in steps of 256: threads below 232 go round four times, the others three times.
__global__ void sum_by_slabs(const float* x, float* out, int n) {
    __shared__ float s[2][256];
    int t = threadIdx.x;
    int turn = 0;
    float acc = 0.0f;
#ifdef REPAIRED
    for (int base = 0; base < n; base += 256) {
        s[turn][t] = base + t < n ? x[base + t] : 0.0f;
        __syncthreads();
        acc += s[turn][t ^ 1];
        turn ^= 1;
    }
#else
    for (int i = t; i < n; i += 256) {
        s[turn][t] = x[i];
        __syncthreads(); // FAULT
        acc += s[turn][t ^ 1];
        turn ^= 1;
    }
#endif
    s[turn][t] = acc;
    __syncthreads(); // FAULT
    out[t] = acc + s[turn][t ^ 2];
}

torch::Tensor run(torch::Tensor x) {
    auto out = torch::empty({256}, x.options());
    sum_by_slabs<<<1, 256>>>(x.data_ptr<float>(), out.data_ptr<float>(), (int)x.numel());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
