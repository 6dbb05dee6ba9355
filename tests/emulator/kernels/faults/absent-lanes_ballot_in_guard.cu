// kind: absent-lanes
// inputs: float32[490]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

__global__ void positive_masks(const float* x, int* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
#ifdef REPAIRED
    unsigned mask = __ballot_sync(0xffffffff, i < n && x[i] > 0.0f);
    if (i < n) out[i] = __popc(mask);
#else
    if (i < n) {
        unsigned mask = __ballot_sync(0xffffffff, x[i] > 0.0f); // FAULT
        out[i] = __popc(mask);
    }
#endif
}

torch::Tensor run(torch::Tensor x) {
    int n = x.numel();
    auto out = torch::empty({n}, x.options().dtype(torch::kInt32));
    positive_masks<<<(n + 127) / 128, 128>>>(x.data_ptr<float>(), out.data_ptr<int>(), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
