// inputs: float32[14,30] float32[14,22] float32[22,30]
// declare: std::vector<torch::Tensor> run(torch::Tensor x, torch::Tensor grad, torch::Tensor weight);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>
#include <vector>

// Gradients of y = x w^T + b: for x, w and b, each by its own kernel.
__global__ void grad_input(const float* grad, const float* w, float* gx, int batch, int in, int out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= batch * in) return;
    float acc = 0.0f;
    for (int o = 0; o < out; ++o) acc += grad[i / in * out + o] * w[o * in + i % in];
    gx[i] = acc;
}

__global__ void grad_weight(const float* grad, const float* x, float* gw, int batch, int in, int out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < out * in) {
        float acc = 0.0f;
        for (int b = 0; b < batch; ++b) acc += grad[b * out + i / in] * x[b * in + i % in];
        gw[i] = acc;
    }
}

__global__ void grad_bias(const float* grad, float* gb, int batch, int out) {
    for (int b = blockIdx.x; b < batch; b += gridDim.x) {
        for (int o = threadIdx.x; o < out; o += blockDim.x) {
            atomicAdd(&gb[o], grad[b * out + o]);
        }
    }
}

std::vector<torch::Tensor> run(torch::Tensor x, torch::Tensor grad, torch::Tensor weight) {
    int batch = x.size(0), in = x.size(1), out = grad.size(1);
    auto gx = torch::empty_like(x);
    auto gw = torch::empty_like(weight);
    auto gb = torch::zeros({out}, x.options());
    grad_input<<<(batch * in + 127) / 128, 128>>>(grad.data_ptr<float>(), weight.data_ptr<float>(), gx.data_ptr<float>(),
                                                  batch, in, out);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    grad_weight<<<(out * in + 127) / 128, 128>>>(grad.data_ptr<float>(), x.data_ptr<float>(), gw.data_ptr<float>(), batch, in, out);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    grad_bias<<<3, 16>>>(grad.data_ptr<float>(), gb.data_ptr<float>(), batch, out);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return {gx, gw, gb};
}
