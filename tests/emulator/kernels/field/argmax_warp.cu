// inputs: float32[12,100]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

__global__ void argmax_kernel(const float* x, int64_t* out, int rows, int cols) {
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    int lane = threadIdx.x & 31;
    if (row >= rows) return;
    float best = -INFINITY;
    int at = cols;
    for (int c = lane; c < cols; c += 32) {
        float v = x[row * cols + c];
        if (v > best) {
            best = v;
            at = c;
        }
    }
    for (int d = 16; d > 0; d >>= 1) {
        float other = __shfl_down_sync(0xffffffff, best, d);
        int other_at = __shfl_down_sync(0xffffffff, at, d);
        if (other > best || (other == best && other_at < at)) {
            best = other;
            at = other_at;
        }
    }
    if (lane == 0) {
        out[row] = at;
    }
}

torch::Tensor run(torch::Tensor x) {
    int rows = x.size(0);
    auto out = torch::empty({rows}, x.options().dtype(torch::kInt64));
    argmax_kernel<<<(rows * 32 + 63) / 64, 64>>>(x.data_ptr<float>(), out.data_ptr<int64_t>(), rows, (int)x.size(1));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
