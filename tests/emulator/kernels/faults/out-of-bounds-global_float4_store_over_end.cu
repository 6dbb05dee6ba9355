// kind: out-of-bounds-global
// inputs: float32[1003]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>

__global__ void relu4(const float* x, float* out, int n) {
    int i = (blockIdx.x * blockDim.x + threadIdx.x) * 4;
    if (i >= n) return;
    float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    v.x = fmaxf(x[i], 0.0f);
    if (i + 1 < n) v.y = fmaxf(x[i + 1], 0.0f);
    if (i + 2 < n) v.z = fmaxf(x[i + 2], 0.0f);
    if (i + 3 < n) v.w = fmaxf(x[i + 3], 0.0f);
#ifdef REPAIRED
    if (i + 3 >= n) {
        out[i] = v.x;
        if (i + 1 < n) out[i + 1] = v.y;
        if (i + 2 < n) out[i + 2] = v.z;
        return;
    }
#endif
    *reinterpret_cast<float4*>(out + i) = v; // FAULT
}

torch::Tensor run(torch::Tensor x) {
    int n = x.numel();
    auto out = torch::empty_like(x);
    int groups = (n + 3) / 4;
    relu4<<<(groups + 63) / 64, 64>>>(x.data_ptr<float>(), out.data_ptr<float>(), n);
    TORCH_CHECK(cudaGetLastError() == cudaSuccess);
    return out;
}
