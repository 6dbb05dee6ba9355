// inputs: float32[2,6,5,9] float32[6] float32[6]
// declare: torch::Tensor run(torch::Tensor x, torch::Tensor gamma, torch::Tensor beta);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

// Two channels to a group; mean and variance by Welford's update, joined through shuffles.
__global__ void group_norm_kernel(const float* x, const float* gamma, const float* beta, float* y, int channels, int groups,
                                  int plane) {
    const int per_group = channels / groups;
    const int size = per_group * plane;
    const int group = blockIdx.x % groups;
    const float* in = x + (size_t)blockIdx.x * size;
    float count = 0.0f, mean = 0.0f, m2 = 0.0f;
    for (int i = threadIdx.x; i < size; i += 32) {
        count += 1.0f;
        float d = in[i] - mean;
        mean += d / count;
        m2 += d * (in[i] - mean);
    }
    for (int s = 16; s > 0; s >>= 1) {
        float c = __shfl_xor_sync(0xffffffff, count, s);
        float m = __shfl_xor_sync(0xffffffff, mean, s);
        float q = __shfl_xor_sync(0xffffffff, m2, s);
        float all = count + c;
        if (all > 0.0f) {
            float d = m - mean;
            m2 += q + d * d * count * c / all;
            mean = (mean * count + m * c) / all;
        }
        count = all;
    }
    const float scale = rsqrtf(m2 / size + 1e-5f);
    for (int i = threadIdx.x; i < size; i += 32) {
        int c = group * per_group + i / plane;
        y[(size_t)blockIdx.x * size + i] = (in[i] - mean) * scale * gamma[c] + beta[c];
    }
}

torch::Tensor run(torch::Tensor x, torch::Tensor gamma, torch::Tensor beta) {
    const int batch = x.size(0), channels = x.size(1), groups = 3, plane = x.size(2) * x.size(3);
    auto y = torch::empty_like(x);
    group_norm_kernel<<<batch * groups, 32>>>(x.data_ptr<float>(), gamma.data_ptr<float>(), beta.data_ptr<float>(),
                                              y.data_ptr<float>(), channels, groups, plane);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
