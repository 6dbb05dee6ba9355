// inputs: float32[4,700]
// inputs: float32[2,512]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

// Chunks of 256 in two alternating buffers, the total of a chunk carried on to the next.
__global__ void cumulative_sum(const float* x, float* out, int cols) {
    __shared__ float buf[2][256];
    const int t = threadIdx.x;
    const float* in = x + blockIdx.x * cols;
    float* to = out + blockIdx.x * cols;
    float carry = 0.0f;
    for (int base = 0; base < cols; base += 256) {
        int which = 0;
        buf[0][t] = 0.0f;
        if (base + t < cols) {
            buf[0][t] = in[base + t];
        }
        __syncthreads();
        for (int d = 1; d < 256; d <<= 1) {
            float v = buf[which][t];
            if (t >= d) {
                v += buf[which][t - d];
            }
            buf[which ^ 1][t] = v;
            which ^= 1;
            __syncthreads();
        }
        if (base + t < cols) {
            to[base + t] = buf[which][t] + carry;
        }
        carry += buf[which][255];
        __syncthreads();
    }
}

torch::Tensor run(torch::Tensor x) {
    auto out = torch::empty_like(x);
    cumulative_sum<<<x.size(0), 256>>>(x.data_ptr<float>(), out.data_ptr<float>(), (int)x.size(1));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
