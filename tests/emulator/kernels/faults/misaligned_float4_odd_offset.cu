// kind: misaligned
// inputs: float32[1001]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

// Skips the first element, so that the vector loads start 4 bytes into the tensor.
__global__ void quad_sums(const float* x, float* out, int groups) {
    int g = blockIdx.x * blockDim.x + threadIdx.x;
    if (g < groups) {
#ifdef REPAIRED
        float4 v = make_float4(x[4 * g], x[4 * g + 1], x[4 * g + 2], x[4 * g + 3]);
#else
        float4 v = *reinterpret_cast<const float4*>(x + 4 * g); // FAULT
#endif
        out[g] = v.x + v.y + v.z + v.w;
    }
}

torch::Tensor run(torch::Tensor x) {
    int groups = (x.numel() - 1) / 4;
    auto out = torch::empty({groups}, x.options());
    quad_sums<<<(groups + 127) / 128, 128>>>(x.data_ptr<float>() + 1, out.data_ptr<float>(), groups);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
