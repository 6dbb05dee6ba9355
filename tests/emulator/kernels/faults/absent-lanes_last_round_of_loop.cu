// kind: absent-lanes
// inputs: float32[6,40]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

// A row of 40 by one warp: in the second round only eight lanes are left in the loop.
__global__ void row_sums(const float* x, float* out, int cols) {
    int lane = threadIdx.x;
    const float* row = x + blockIdx.x * cols;
    float sum = 0.0f;
#ifdef REPAIRED
    int last = (cols + 31) / 32 * 32;
#else
    int last = cols;
#endif
    for (int c = lane; c < last; c += 32) {
        float v = c < cols ? row[c] : 0.0f;
        for (int d = 16; d > 0; d >>= 1) {
            v += __shfl_xor_sync(0xffffffff, v, d); // FAULT
        }
        sum += v;
    }
    if (lane == 0) out[blockIdx.x] = sum;
}

torch::Tensor run(torch::Tensor x) {
    auto out = torch::empty({x.size(0)}, x.options());
    row_sums<<<x.size(0), 32>>>(x.data_ptr<float>(), out.data_ptr<float>(), (int)x.size(1));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
