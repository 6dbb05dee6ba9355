// inputs: float32[6,411]
// inputs: float32[4,256]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

struct Running {
    float top;
    float sum;
};

__device__ Running join(Running a, Running b) {
    Running r;
    r.top = fmaxf(a.top, b.top);
    r.sum = a.sum * expf(a.top - r.top) + b.sum * expf(b.top - r.top);
    return r;
}

__global__ void softmax_kernel(const float* x, float* y, int cols) {
    __shared__ Running s[64];
    int t = threadIdx.x;
    const float* row = x + blockIdx.x * cols;
    Running mine = {-3.0e38f, 0.0f};
    for (int c = t; c < cols; c += blockDim.x) {
        Running one = {row[c], 1.0f};
        mine = join(mine, one);
    }
    s[t] = mine;
    __syncthreads();
    for (int d = 32; d > 0; d >>= 1) {
        if (t < d) {
            s[t] = join(s[t], s[t + d]);
        }
        __syncthreads();
    }
    Running all = s[0];
    for (int c = t; c < cols; c += blockDim.x) {
        y[blockIdx.x * cols + c] = expf(row[c] - all.top) / all.sum;
    }
}

torch::Tensor run(torch::Tensor x) {
    auto y = torch::empty_like(x);
    softmax_kernel<<<x.size(0), 64>>>(x.data_ptr<float>(), y.data_ptr<float>(), (int)x.size(1));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
