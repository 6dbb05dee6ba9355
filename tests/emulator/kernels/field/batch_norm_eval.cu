// inputs: float32[3,7,5,11] float32[7] float32[7] float32[7] float32[7]
// declare: torch::Tensor run(torch::Tensor x, torch::Tensor mean, torch::Tensor log_var, torch::Tensor gamma, torch::Tensor beta);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

__global__ void batch_norm_relu(const float* x, const float* mean, const float* log_var, const float* gamma,
                                const float* beta, float* out, int channels, int plane, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        int c = (i / plane) % channels;
        float a = gamma[c] / sqrtf(expf(log_var[c]) + 1e-5f);
        out[i] = fmaxf(0.0f, (x[i] - mean[c]) * a + beta[c]);
    }
}

torch::Tensor run(torch::Tensor x, torch::Tensor mean, torch::Tensor log_var, torch::Tensor gamma, torch::Tensor beta) {
    int n = x.numel(), plane = x.size(2) * x.size(3);
    auto out = torch::empty_like(x);
    const int threads = 192;
    batch_norm_relu<<<(n + threads - 1) / threads, threads>>>(x.data_ptr<float>(), mean.data_ptr<float>(),
                                                              log_var.data_ptr<float>(), gamma.data_ptr<float>(),
                                                              beta.data_ptr<float>(), out.data_ptr<float>(),
                                                              (int)x.size(1), plane, n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
