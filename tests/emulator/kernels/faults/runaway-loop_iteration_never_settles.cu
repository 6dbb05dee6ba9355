// kind: runaway-loop
// inputs: float32[64]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

// Newton's square root until the residue is exactly zero, which float arithmetic need not reach.
__global__ void square_root(const float* x, float* out, float* residue, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float a = fabsf(x[i]) + 0.5f;
    float r = a;
    residue[i] = 1.0f;
#ifdef REPAIRED
    for (int k = 0; k < 20 && residue[i] > 1e-5f; ++k) {
        r = 0.5f * (r + a / r);
        residue[i] = fabsf(r * r - a);
    }
#else
    while (residue[i] > 0.0f) { // FAULT
        r = 0.5f * (r + a / r);
        residue[i] = fabsf(r * r - a);
    }
#endif
    out[i] = r;
}

torch::Tensor run(torch::Tensor x) {
    int n = x.numel();
    auto out = torch::empty_like(x);
    auto residue = torch::empty_like(x);
    square_root<<<1, 64>>>(x.data_ptr<float>(), out.data_ptr<float>(), residue.data_ptr<float>(), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
