// kind: absent-lanes
// inputs: int32[300]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

__global__ void equal_in_warp(const int* x, int* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int v = i < n ? x[i] : -1;
    int count = 0;
#ifdef REPAIRED
    unsigned same = __match_any_sync(0xffffffff, v);
    if (v >= 5) count = __popc(same);
#else
    if (v >= 5) {
        count = __popc(__match_any_sync(0xffffffff, v)); // FAULT
    }
#endif
    if (i < n) out[i] = count;
}

torch::Tensor run(torch::Tensor x) {
    int n = x.numel();
    auto out = torch::empty_like(x);
    equal_in_warp<<<(n + 63) / 64, 64>>>(x.data_ptr<int>(), out.data_ptr<int>(), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
