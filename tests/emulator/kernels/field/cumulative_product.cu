// inputs: float32[21,60]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

// A warp per row, shuffled up; the product so far goes on to the next 32.
__global__ void cumprod_kernel(const float* x, float* out, int rows, int cols) {
    int row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    int lane = threadIdx.x;
    float carry = 1.0f;
    for (int base = 0; base < cols; base += 32) {
        int c = base + lane;
        float v = c < cols ? x[row * cols + c] : 1.0f;
        #pragma unroll
        for (int d = 1; d < 32; d <<= 1) {
            float left = __shfl_up_sync(0xffffffff, v, d);
            if (lane >= d) v *= left;
        }
        v *= carry;
        if (c < cols) {
            out[row * cols + c] = v;
        }
        carry = __shfl_sync(0xffffffff, v, 31);
    }
}

torch::Tensor run(torch::Tensor x) {
    int rows = x.size(0);
    auto out = torch::empty_like(x);
    cumprod_kernel<<<(rows + 3) / 4, dim3(32, 4)>>>(x.data_ptr<float>(), out.data_ptr<float>(), rows, (int)x.size(1));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
