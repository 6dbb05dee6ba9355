// kind: race-global
// inputs: float32[600]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

// Every output is to be written once; i / 2 maps two threads to it.
__global__ void every_second(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
#ifdef REPAIRED
        if (i % 2 == 0)
#endif
        out[i / 2] = x[i]; // FAULT
    }
}

torch::Tensor run(torch::Tensor x) {
    int n = x.numel();
    auto out = torch::empty({(n + 1) / 2}, x.options());
    every_second<<<(n + 127) / 128, 128>>>(x.data_ptr<float>(), out.data_ptr<float>(), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
