// kind: race-shared
// inputs: float32[33,50] float32[50,29]
// declare: torch::Tensor run(torch::Tensor a, torch::Tensor b);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

__global__ void matmul16(const float* a, const float* b, float* out, int m, int n, int k) {
    __shared__ float at[16][16];
    __shared__ float bt[16][16];
    int tx = threadIdx.x, ty = threadIdx.y;
    int row = blockIdx.y * 16 + ty, col = blockIdx.x * 16 + tx;
    float acc = 0.0f;
    for (int k0 = 0; k0 < k; k0 += 16) {
        at[ty][tx] = row < m && k0 + tx < k ? a[row * k + k0 + tx] : 0.0f;
        bt[ty][tx] = col < n && k0 + ty < k ? b[(k0 + ty) * n + col] : 0.0f;
        __syncthreads();
        for (int j = 0; j < 16; ++j) {
            acc += at[ty][j] * bt[j][tx]; // FAULT
        }
#ifdef REPAIRED
        __syncthreads();
#endif
    }
    if (row < m && col < n) out[row * n + col] = acc;
}

torch::Tensor run(torch::Tensor a, torch::Tensor b) {
    int m = a.size(0), k = a.size(1), n = b.size(1);
    auto out = torch::empty({m, n}, a.options());
    dim3 block(16, 16), grid((n + 15) / 16, (m + 15) / 16);
    matmul16<<<grid, block>>>(a.data_ptr<float>(), b.data_ptr<float>(), out.data_ptr<float>(), m, n, k);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
