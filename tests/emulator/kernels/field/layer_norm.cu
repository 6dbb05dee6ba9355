// inputs: float32[9,203] float32[203] float32[203]
// inputs: float32[4,256] float32[256] float32[256]
// declare: torch::Tensor run(torch::Tensor x, torch::Tensor gamma, torch::Tensor beta);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

__global__ void layer_norm_kernel(const float* __restrict__ x, const float* __restrict__ gamma,
                                  const float* __restrict__ beta, float* __restrict__ y, int width, float eps) {
    __shared__ float sum[128];
    __shared__ float square[128];
    __shared__ float mean, inv_std;
    const int tid = threadIdx.x;
    const float* row = x + blockIdx.x * width;
    float local_sum = 0.0f, local_square = 0.0f;
    for (int i = tid; i < width; i += blockDim.x) {
        float v = row[i];
        local_sum += v;
        local_square += v * v;
    }
    sum[tid] = local_sum;
    square[tid] = local_square;
    __syncthreads();
    for (int stride = blockDim.x / 2; stride > 0; stride /= 2) {
        if (tid < stride) {
            sum[tid] += sum[tid + stride];
            square[tid] += square[tid + stride];
        }
        __syncthreads();
    }
    if (tid == 0) {
        mean = sum[0] / width;
        inv_std = rsqrtf(square[0] / width - mean * mean + eps);
    }
    __syncthreads();
    for (int i = tid; i < width; i += blockDim.x) {
        y[blockIdx.x * width + i] = (row[i] - mean) * inv_std * gamma[i] + beta[i];
    }
}

torch::Tensor run(torch::Tensor x, torch::Tensor gamma, torch::Tensor beta) {
    auto y = torch::empty_like(x);
    layer_norm_kernel<<<x.size(0), 128>>>(x.data_ptr<float>(), gamma.data_ptr<float>(), beta.data_ptr<float>(),
                                          y.data_ptr<float>(), (int)x.size(1), 1e-5f);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
