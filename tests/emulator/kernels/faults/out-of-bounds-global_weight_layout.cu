// kind: out-of-bounds-global
// inputs: float32[2,5,11] float32[5,1,3]
// declare: torch::Tensor run(torch::Tensor x, torch::Tensor weight);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

// Depthwise: the weight is [channels, 1, taps]; the faulty kernel indexes it as [channels, channels, taps].
__global__ void depthwise1d(const float* x, const float* weight, float* out, int batch, int channels, int length, int taps) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int out_length = length - taps + 1;
    if (i >= batch * channels * out_length) return;
    int p = i % out_length;
    int c = i / out_length % channels;
    int b = i / out_length / channels;
    float acc = 0.0f;
    for (int k = 0; k < taps; ++k) {
#ifdef REPAIRED
        float w = weight[c * taps + k];
#else
        float w = weight[(c * channels + c) * taps + k]; // FAULT
#endif
        acc += w * x[(b * channels + c) * length + p + k];
    }
    out[i] = acc;
}

torch::Tensor run(torch::Tensor x, torch::Tensor weight) {
    int batch = x.size(0), channels = x.size(1), length = x.size(2), taps = weight.size(2);
    auto out = torch::empty({batch, channels, length - taps + 1}, x.options());
    int total = out.numel();
    depthwise1d<<<(total + 63) / 64, 64>>>(x.data_ptr<float>(), weight.data_ptr<float>(), out.data_ptr<float>(),
                                           batch, channels, length, taps);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
