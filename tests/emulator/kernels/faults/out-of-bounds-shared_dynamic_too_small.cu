// kind: out-of-bounds-shared
// inputs: float32[900]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

// The line needs one cell more than there are threads.
__global__ void shift_sum(const float* x, float* out, int n) {
    extern __shared__ float line[];
    int t = threadIdx.x;
    int i = blockIdx.x * blockDim.x + t;
    if (t == 0) line[0] = 0.0f;
    line[t + 1] = i < n ? x[i] : 0.0f; // FAULT
    __syncthreads();
    if (i < n) out[i] = line[t];
}

torch::Tensor run(torch::Tensor x) {
    int n = x.numel();
    auto out = torch::empty_like(x);
    const int threads = 128;
#ifdef REPAIRED
    size_t bytes = (threads + 1) * sizeof(float);
#else
    size_t bytes = threads * sizeof(float);
#endif
    shift_sum<<<(n + threads - 1) / threads, threads, bytes>>>(x.data_ptr<float>(), out.data_ptr<float>(), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
