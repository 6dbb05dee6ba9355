// inputs: float32[1500]
// inputs: float32[1024]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>
#include <cooperative_groups.h>

namespace cg = cooperative_groups;

// Standardises a whole tensor in one launch: sums by block, a barrier over the grid, then everybody divides.
__global__ void standardise(const float* x, float* partial, float* out, int n) {
    cg::grid_group grid = cg::this_grid();
    __shared__ float sum[128], square[128];
    const int t = threadIdx.x;
    float a = 0.0f, b = 0.0f;
    for (int i = grid.thread_rank(); i < n; i += grid.size()) {
        a += x[i];
        b += x[i] * x[i];
    }
    sum[t] = a;
    square[t] = b;
    __syncthreads();
    for (int d = 64; d > 0; d >>= 1) {
        if (t < d) {
            sum[t] += sum[t + d];
            square[t] += square[t + d];
        }
        __syncthreads();
    }
    if (t == 0) {
        partial[2 * blockIdx.x] = sum[0];
        partial[2 * blockIdx.x + 1] = square[0];
    }
    grid.sync();
    a = 0.0f;
    b = 0.0f;
    for (unsigned k = 0; k < gridDim.x; ++k) {
        a += partial[2 * k];
        b += partial[2 * k + 1];
    }
    const float mean = a / n;
    const float inverse = rsqrtf(b / n - mean * mean + 1e-5f);
    for (int i = grid.thread_rank(); i < n; i += grid.size()) {
        out[i] = (x[i] - mean) * inverse;
    }
}

torch::Tensor run(torch::Tensor x) {
    int n = x.numel();
    const int blocks = 4, threads = 128;
    auto partial = torch::empty({blocks, 2}, x.options());
    auto out = torch::empty_like(x);
    const float* xp = x.data_ptr<float>();
    float* pp = partial.data_ptr<float>();
    float* op = out.data_ptr<float>();
    void* args[] = {&xp, &pp, &op, &n};
    C10_CUDA_CHECK(cudaLaunchCooperativeKernel((void*)standardise, dim3(blocks), dim3(threads), args, 0, nullptr));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
