// kind: deadlock
// inputs: float32[600]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

// One thread of each block takes a lock to add its sum; the faulty one keeps it.
__global__ void locked_sum(const float* x, float* out, int* lock, int n) {
    __shared__ float s[128];
    int t = threadIdx.x;
    int i = blockIdx.x * blockDim.x + t;
    s[t] = i < n ? x[i] : 0.0f;
    __syncthreads();
    for (int d = 64; d > 0; d >>= 1) {
        if (t < d) s[t] += s[t + d];
        __syncthreads();
    }
    if (t == 0) {
        while (atomicCAS(lock, 0, 1) != 0) { // FAULT
        }
        __threadfence();
        atomicAdd(out, s[0]);
        __threadfence();
#ifdef REPAIRED
        atomicExch(lock, 0);
#endif
    }
}

torch::Tensor run(torch::Tensor x) {
    int n = x.numel();
    auto out = torch::zeros({1}, x.options());
    auto lock = torch::zeros({1}, x.options().dtype(torch::kInt32));
    locked_sum<<<(n + 127) / 128, 128>>>(x.data_ptr<float>(), out.data_ptr<float>(), lock.data_ptr<int>(), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
