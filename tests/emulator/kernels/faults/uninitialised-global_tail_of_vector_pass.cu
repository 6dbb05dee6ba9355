// kind: uninitialised-global
// inputs: float32[1003]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

// The first pass works by fours and leaves the last three elements out, the second reads them all.
__global__ void square4(const float* x, float* tmp, int n) {
    int i = (blockIdx.x * blockDim.x + threadIdx.x) * 4;
    if (i + 3 < n) {
        float4 v = *reinterpret_cast<const float4*>(x + i);
        *reinterpret_cast<float4*>(tmp + i) = make_float4(v.x * v.x, v.y * v.y, v.z * v.z, v.w * v.w);
    }
#ifdef REPAIRED
    else {
        for (int j = i; j < n; ++j) tmp[j] = x[j] * x[j];
    }
#endif
}

__global__ void add_one(const float* tmp, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        out[i] = tmp[i] + 1.0f; // FAULT
    }
}

torch::Tensor run(torch::Tensor x) {
    int n = x.numel();
    auto tmp = torch::empty_like(x);
    auto out = torch::empty_like(x);
    int groups = (n + 3) / 4;
    square4<<<(groups + 63) / 64, 64>>>(x.data_ptr<float>(), tmp.data_ptr<float>(), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    add_one<<<(n + 255) / 256, 256>>>(tmp.data_ptr<float>(), out.data_ptr<float>(), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
