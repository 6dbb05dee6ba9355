// kind: out-of-bounds-global
// inputs: float32[300] float32[5]
// declare: torch::Tensor run(torch::Tensor x, torch::Tensor w);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

// The output is allocated for the "valid" length, the faulty kernel writes the "same" length.
__global__ void correlate(const float* x, const float* w, float* out, int n, int taps, int out_n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= out_n) return;
    float acc = 0.0f;
    for (int k = 0; k < taps; ++k) {
        if (i + k < n) acc += w[k] * x[i + k];
    }
    out[i] = acc; // FAULT
}

torch::Tensor run(torch::Tensor x, torch::Tensor w) {
    int n = x.numel(), taps = w.numel();
    auto out = torch::empty({n - taps + 1}, x.options());
#ifdef REPAIRED
    int out_n = n - taps + 1;
#else
    int out_n = n;
#endif
    correlate<<<(n + 127) / 128, 128>>>(x.data_ptr<float>(), w.data_ptr<float>(), out.data_ptr<float>(), n, taps, out_n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
