// inputs: float32[1003] float32[1003] 2.5
// declare: torch::Tensor run(torch::Tensor x, torch::Tensor y, double alpha);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

__global__ void axpy4(const float* __restrict__ x, const float* __restrict__ y, float* __restrict__ out, float alpha, int n) {
    int i = (blockIdx.x * blockDim.x + threadIdx.x) * 4;
    if (i + 3 < n) {
        float4 a = *reinterpret_cast<const float4*>(x + i);
        float4 b = *reinterpret_cast<const float4*>(y + i);
        float4 r;
        r.x = alpha * a.x + b.x;
        r.y = alpha * a.y + b.y;
        r.z = alpha * a.z + b.z;
        r.w = alpha * a.w + b.w;
        *reinterpret_cast<float4*>(out + i) = r;
    } else {
        for (int j = i; j < n; ++j) out[j] = alpha * x[j] + y[j];
    }
}

torch::Tensor run(torch::Tensor x, torch::Tensor y, double alpha) {
    int n = x.numel();
    auto out = torch::empty_like(x);
    int threads = 64;
    int blocks = ((n + 3) / 4 + threads - 1) / threads;
    axpy4<<<blocks, threads>>>(x.data_ptr<float>(), y.data_ptr<float>(), out.data_ptr<float>(), (float)alpha, n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
