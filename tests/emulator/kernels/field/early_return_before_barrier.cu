// inputs: float32[500]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

__global__ void reverse_blocks(const float* x, float* out, int n) {
    __shared__ float s[128];
    int t = threadIdx.x;
    int i = blockIdx.x * 128 + t;
    s[t] = 0.0f;
    if (i >= n) return;  // since Volta a barrier waits for threads that have not ended, and for no others
    s[t] = x[i];
    __syncthreads();
    int last = min(128, n - (int)blockIdx.x * 128) - 1;
    out[i] = s[last - t];
}

torch::Tensor run(torch::Tensor x) {
    int n = x.numel();
    auto out = torch::empty_like(x);
    reverse_blocks<<<(n + 127) / 128, 128>>>(x.data_ptr<float>(), out.data_ptr<float>(), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
