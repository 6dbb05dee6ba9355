// inputs: float32[7,300]
// inputs: float32[4,256]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

__global__ void row_sum_kernel(const float* x, float* out, int cols) {
    __shared__ float s[128];
    int t = threadIdx.x;
    const float* row = x + (size_t)blockIdx.x * cols;
    float acc = 0.0f;
    for (int c = t; c < cols; c += blockDim.x) {
        acc += row[c];
    }
    s[t] = acc;
    __syncthreads();
    for (int d = blockDim.x / 2; d > 0; d >>= 1) {
        if (t < d) {
            s[t] += s[t + d];
        }
        __syncthreads();
    }
    if (t == 0) {
        out[blockIdx.x] = s[0];
    }
}

torch::Tensor run(torch::Tensor x) {
    int rows = x.size(0), cols = x.size(1);
    auto out = torch::empty({rows}, x.options());
    row_sum_kernel<<<rows, 128>>>(x.data_ptr<float>(), out.data_ptr<float>(), cols);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
