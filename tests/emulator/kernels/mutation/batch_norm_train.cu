// inputs: float32[3,5,7,9] float32[5] float32[5]
// inputs: float32[2,4,8,16] float32[4] float32[4]
// declare: torch::Tensor run(torch::Tensor x, torch::Tensor gamma, torch::Tensor beta);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

// A block a channel: the mean, then the squares about it, through one scratch array.
constexpr int THREADS = 64;

__device__ float block_sum(float v, float* s) {
    const int t = threadIdx.x;
    s[t] = v;
    __syncthreads();
    for (int d = THREADS / 2; d > 0; d /= 2) {
        if (t < d) s[t] += s[t + d];
        __syncthreads();
    }
    const float sum = s[0];
    __syncthreads();
    return sum;
}

__global__ void normalise(const float* x, const float* gamma, const float* beta, float* y, int batch, int channels, int size) {
    __shared__ float s[THREADS];
    const int c = blockIdx.x, count = batch * size;
    float sum = 0.0f, squares = 0.0f;
    for (int i = threadIdx.x; i < count; i += THREADS) sum += x[(i / size * channels + c) * size + i % size];
    const float mean = block_sum(sum, s) / count;
    for (int i = threadIdx.x; i < count; i += THREADS) {
        const float d = x[(i / size * channels + c) * size + i % size] - mean;
        squares += d * d;
    }
    const float scale = gamma[c] * rsqrtf(block_sum(squares, s) / count + 1e-5f);
    for (int i = threadIdx.x; i < count; i += THREADS) {
        const int at = (i / size * channels + c) * size + i % size;
        y[at] = (x[at] - mean) * scale + beta[c];
    }
}

torch::Tensor run(torch::Tensor x, torch::Tensor gamma, torch::Tensor beta) {
    int batch = x.size(0), channels = x.size(1), size = x.size(2) * x.size(3);
    auto y = torch::empty_like(x);
    normalise<<<channels, THREADS>>>(x.data_ptr<float>(), gamma.data_ptr<float>(), beta.data_ptr<float>(), y.data_ptr<float>(),
                                     batch, channels, size);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
