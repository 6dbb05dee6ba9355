// kind: out-of-bounds-global
// inputs: float32[150]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

struct Chunk {
    float values[12];
};

// Twelve numbers at a time: 150 of them are twelve chunks and a half.
__global__ void copy_chunks(const Chunk* x, Chunk* out, int n) {
    int i = threadIdx.x;
#ifdef REPAIRED
    if (12 * (i + 1) <= n) out[i] = x[i];
    else if (12 * i < n)
        for (int k = 12 * i; k < n; ++k) ((float*)out)[k] = ((const float*)x)[k];
#else
    if (12 * i < n) out[i] = x[i]; // FAULT
#endif
}

torch::Tensor run(torch::Tensor x) {
    auto out = torch::empty_like(x);
    copy_chunks<<<1, 32>>>((const Chunk*)x.data_ptr<float>(), (Chunk*)out.data_ptr<float>(), (int)x.numel());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
