// inputs: float32[900] 0.25
// declare: torch::Tensor run(torch::Tensor x, double limit);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>
#include <cooperative_groups.h>

namespace cg = cooperative_groups;

// The threads that pass the test gather in a group; its first adds once for all.
__global__ void count_above(const float* x, int* count, float limit, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && x[i] > limit) {
        cg::coalesced_group active = cg::coalesced_threads();
        if (active.thread_rank() == 0) {
            atomicAdd(count, (int)active.size());
        }
    }
}

torch::Tensor run(torch::Tensor x, double limit) {
    int n = x.numel();
    auto count = torch::zeros({}, x.options().dtype(torch::kInt32));
    count_above<<<(n + 127) / 128, 128>>>(x.data_ptr<float>(), count.data_ptr<int>(), (float)limit, n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return count;
}
