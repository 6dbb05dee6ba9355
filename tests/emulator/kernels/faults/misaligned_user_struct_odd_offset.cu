// kind: misaligned
// inputs: float32[65]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

template <typename T>
struct __align__(16) Pack {
    T values[4];
};

__global__ void scale_packs(const float* x, float* out) {
    Pack<float> p = *reinterpret_cast<const Pack<float>*>(x + 4 * threadIdx.x); // FAULT
    for (int k = 0; k < 4; ++k) p.values[k] *= 2.0f;
    *reinterpret_cast<Pack<float>*>(out + 4 * threadIdx.x) = p;
}

torch::Tensor run(torch::Tensor x) {
    auto out = torch::empty({64}, x.options());
#ifdef REPAIRED
    const float* from = x.data_ptr<float>();
#else
    const float* from = x.data_ptr<float>() + 1;
#endif
    scale_packs<<<1, 16>>>(from, out.data_ptr<float>());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
