// kind: race-global
// inputs: int32[800]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

__global__ void weighted_maximum(const int* x, int* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int v = x[i] * 1000 + i;
#ifdef REPAIRED
    atomicMax(out, v);
#else
    if (v > out[0]) out[0] = v; // FAULT
#endif
}

torch::Tensor run(torch::Tensor x) {
    int n = x.numel();
    auto out = torch::zeros({1}, x.options());
    weighted_maximum<<<(n + 127) / 128, 128>>>(x.data_ptr<int>(), out.data_ptr<int>(), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
