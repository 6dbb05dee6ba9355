// kind: race-global
// inputs: float32[1000]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

__global__ void add_neighbour(const float* from, float* to, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n - 1) {
        to[i] = from[i] + from[i + 1]; // FAULT
    }
}

torch::Tensor run(torch::Tensor x) {
    int n = x.numel();
    auto out = x.clone();
#ifdef REPAIRED
    const float* from = x.data_ptr<float>();
#else
    const float* from = out.data_ptr<float>();
#endif
    add_neighbour<<<(n + 255) / 256, 256>>>(from, out.data_ptr<float>(), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
