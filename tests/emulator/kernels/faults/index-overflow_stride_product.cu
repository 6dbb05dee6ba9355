// kind: index-overflow
// inputs: float32[1000] 3000000
// declare: torch::Tensor run(torch::Tensor x, int64_t stride);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

// A walk with a great stride, taken modulo the length; the product overflows before it is widened.
__global__ void strided_pick(const float* x, float* out, int stride, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
#ifdef REPAIRED
    long long at = (long long)i * stride;
#else
    long long at = i * stride; // FAULT
#endif
    at %= n;
    if (at < 0) at += n;
    out[i] = x[at];
}

torch::Tensor run(torch::Tensor x, int64_t stride) {
    int n = x.numel();
    auto out = torch::empty_like(x);
    strided_pick<<<(n + 127) / 128, 128>>>(x.data_ptr<float>(), out.data_ptr<float>(), (int)stride, n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
