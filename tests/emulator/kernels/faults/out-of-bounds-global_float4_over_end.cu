// kind: out-of-bounds-global
// inputs: float32[1001]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

__global__ void group_norms(const float* x, float* out, int n, int groups) {
    int g = blockIdx.x * blockDim.x + threadIdx.x;
    if (g >= groups) return;
#ifdef REPAIRED
    if (4 * g + 3 >= n) {
        float tail = 0.0f;
        for (int j = 4 * g; j < n; ++j) tail += x[j] * x[j];
        out[g] = tail;
        return;
    }
#endif
    float4 v = reinterpret_cast<const float4*>(x)[g]; // FAULT
    out[g] = v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
}

torch::Tensor run(torch::Tensor x) {
    int n = x.numel();
    int groups = (n + 3) / 4;
    auto out = torch::empty({groups}, x.options());
    group_norms<<<(groups + 127) / 128, 128>>>(x.data_ptr<float>(), out.data_ptr<float>(), n, groups);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
