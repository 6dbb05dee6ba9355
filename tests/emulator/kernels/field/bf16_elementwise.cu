// inputs: bfloat16[13,71] bfloat16[71]
// declare: torch::Tensor run(torch::Tensor x, torch::Tensor scale);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>
#include <cuda_bf16.h>

__global__ void scale_tanh_bf16(const __nv_bfloat16* x, const __nv_bfloat16* scale, __nv_bfloat16* out, int n, int width) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        float v = __bfloat162float(x[i]) * __bfloat162float(scale[i % width]);
        out[i] = __float2bfloat16(tanhf(v));
    }
}

torch::Tensor run(torch::Tensor x, torch::Tensor scale) {
    auto out = torch::empty_like(x);
    scale_tanh_bf16<<<3, 128>>>(reinterpret_cast<const __nv_bfloat16*>(x.data_ptr<at::BFloat16>()),
                                reinterpret_cast<const __nv_bfloat16*>(scale.data_ptr<at::BFloat16>()),
                                reinterpret_cast<__nv_bfloat16*>(out.data_ptr<at::BFloat16>()), (int)x.numel(),
                                (int)x.size(1));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
