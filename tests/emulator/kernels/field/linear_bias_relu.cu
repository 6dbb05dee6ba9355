// inputs: float32[19,70] float32[33,70] float32[33]
// inputs: float32[16,32] float32[24,32] float32[24]
// declare: torch::Tensor run(torch::Tensor x, torch::Tensor weight, torch::Tensor bias);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

// The weight lies transposed, as nn.Linear keeps it.
template <int T>
__global__ void linear_kernel(const float* x, const float* w, const float* bias, float* y, int batch, int in, int out) {
    __shared__ float xs[T][T + 1];
    __shared__ float ws[T][T + 1];
    const int tx = threadIdx.x, ty = threadIdx.y;
    const int r = blockIdx.y * T + ty;
    const int q = blockIdx.x * T + tx;
    const int wrow = blockIdx.x * T + ty;
    float acc = 0.f;
    for (int k0 = 0; k0 < in; k0 += T) {
        const int kk = k0 + tx;
        xs[ty][tx] = (r < batch && kk < in) ? x[r * in + kk] : 0.f;
        ws[ty][tx] = (wrow < out && kk < in) ? w[wrow * in + kk] : 0.f;
        __syncthreads();
        for (int j = 0; j < T; j++) {
            acc += xs[ty][j] * ws[tx][j];
        }
        __syncthreads();
    }
    if (r < batch && q < out) {
        acc += bias[q];
        y[r * out + q] = acc > 0.f ? acc : 0.f;
    }
}

torch::Tensor run(torch::Tensor x, torch::Tensor weight, torch::Tensor bias) {
    int batch = x.size(0), in = x.size(1), out = weight.size(0);
    auto y = torch::empty({batch, out}, x.options());
    constexpr int T = 8;
    linear_kernel<T><<<dim3((out + T - 1) / T, (batch + T - 1) / T), dim3(T, T)>>>(
        x.data_ptr<float>(), weight.data_ptr<float>(), bias.data_ptr<float>(), y.data_ptr<float>(), batch, in, out);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
