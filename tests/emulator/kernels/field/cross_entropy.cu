// inputs: float32[45,10] int64[45]
// inputs: float32[64,12] int64[64]
// declare: torch::Tensor run(torch::Tensor logits, torch::Tensor target);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

__global__ void cross_entropy_kernel(const float* logits, const int64_t* target, float* loss, int rows, int classes) {
    __shared__ float s[32];
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    float mine = 0.0f;
    if (row < rows) {
        const float* z = logits + row * classes;
        float top = z[0];
        for (int c = 1; c < classes; ++c) top = fmaxf(top, z[c]);
        float sum = 0.0f;
        for (int c = 0; c < classes; ++c) sum += expf(z[c] - top);
        mine = logf(sum) + top - z[target[row]];
    }
    s[threadIdx.x] = mine;
    __syncthreads();
    for (int d = 16; d > 0; d /= 2) {
        if (threadIdx.x < d) {
            s[threadIdx.x] += s[threadIdx.x + d];
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        atomicAdd(loss, s[0] / rows);
    }
}

torch::Tensor run(torch::Tensor logits, torch::Tensor target) {
    int rows = logits.size(0), classes = logits.size(1);
    auto loss = torch::zeros({}, logits.options());
    cross_entropy_kernel<<<(rows + 31) / 32, 32>>>(logits.data_ptr<float>(), target.data_ptr<int64_t>(),
                                                   loss.data_ptr<float>(), rows, classes);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return loss;
}
