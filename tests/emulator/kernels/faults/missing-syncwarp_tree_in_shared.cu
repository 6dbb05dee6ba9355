// kind: missing-syncwarp
// inputs: float32[21,32]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

// One warp per row, a tree in shared memory; lanes of a warp do not run in step.
__global__ void row_sums(const float* x, float* out, int rows) {
    __shared__ float s[4][32];
    int lane = threadIdx.x, w = threadIdx.y;
    int row = blockIdx.x * 4 + w;
    s[w][lane] = row < rows ? x[row * 32 + lane] : 0.0f;
    __syncwarp();
    for (int d = 16; d > 0; d >>= 1) {
        if (lane < d) s[w][lane] += s[w][lane + d]; // FAULT
#ifdef REPAIRED
        __syncwarp();
#endif
    }
    if (lane == 0 && row < rows) out[row] = s[w][0];
}

torch::Tensor run(torch::Tensor x) {
    int rows = x.size(0);
    auto out = torch::empty({rows}, x.options());
    row_sums<<<(rows + 3) / 4, dim3(32, 4)>>>(x.data_ptr<float>(), out.data_ptr<float>(), rows);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
