// inputs: float16[777] float16[777] 0.5
// declare: torch::Tensor run(torch::Tensor x, torch::Tensor y, double alpha);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>
#include <cuda_fp16.h>

__global__ void axpy_relu_half2(const __half* __restrict__ x, const __half* __restrict__ y, __half* __restrict__ out,
                                __half alpha, int n) {
    int pair = blockIdx.x * blockDim.x + threadIdx.x;
    int i = 2 * pair;
    if (i + 1 < n) {
        __half2 a = reinterpret_cast<const __half2*>(x)[pair];
        __half2 b = reinterpret_cast<const __half2*>(y)[pair];
        __half2 v = __hfma2(__half2half2(alpha), a, b);
        v = __hmax2(v, __float2half2_rn(0.0f));
        reinterpret_cast<__half2*>(out)[pair] = v;
    } else if (i < n) {
        __half v = __hfma(alpha, x[i], y[i]);
        out[i] = __hgt(v, __float2half(0.0f)) ? v : __float2half(0.0f);
    }
}

torch::Tensor run(torch::Tensor x, torch::Tensor y, double alpha) {
    int n = x.numel();
    auto out = torch::empty_like(x);
    int pairs = (n + 1) / 2;
    axpy_relu_half2<<<(pairs + 127) / 128, 128>>>(reinterpret_cast<const __half*>(x.data_ptr<at::Half>()),
                                                  reinterpret_cast<const __half*>(y.data_ptr<at::Half>()),
                                                  reinterpret_cast<__half*>(out.data_ptr<at::Half>()),
                                                  __float2half((float)alpha), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
