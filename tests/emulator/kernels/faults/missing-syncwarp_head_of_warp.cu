// kind: missing-syncwarp
// inputs: float32[10,32]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

// Lane 0 leaves the sum of the warp in shared memory for the other lanes.
__global__ void divide_by_sum(const float* x, float* out, int rows) {
    __shared__ float head[2];
    int lane = threadIdx.x % 32, w = threadIdx.x / 32;
    int row = blockIdx.x * 2 + w;
    float v = row < rows ? fabsf(x[row * 32 + lane]) : 1.0f;
    float sum = v;
    for (int d = 16; d > 0; d >>= 1) sum += __shfl_down_sync(0xffffffff, sum, d);
    if (lane == 0) head[w] = sum;
#ifdef REPAIRED
    __syncwarp();
#endif
    float share = v / head[w]; // FAULT
    if (row < rows) out[row * 32 + lane] = share;
}

torch::Tensor run(torch::Tensor x) {
    int rows = x.size(0);
    auto out = torch::empty_like(x);
    divide_by_sum<<<(rows + 1) / 2, 64>>>(x.data_ptr<float>(), out.data_ptr<float>(), rows);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
