// kind: uninitialised-global
// inputs: float32[1000]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

// The last element of the output is never written; whoever reads the result reads what nobody wrote.
__global__ void negate(const float* x, float* out, int n) { // FAULT
    int i = blockIdx.x * blockDim.x + threadIdx.x;
#ifdef REPAIRED
    if (i < n)
#else
    if (i < n - 1)
#endif
        out[i] = -x[i];
}

torch::Tensor run(torch::Tensor x) {
    int n = x.numel();
    auto out = torch::empty_like(x);
    negate<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), out.data_ptr<float>(), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
