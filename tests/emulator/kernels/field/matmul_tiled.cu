// inputs: float32[37,50] float32[50,29]
// inputs: float32[32,32] float32[32,32]
// declare: torch::Tensor run(torch::Tensor a, torch::Tensor b);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

#define TILE 16

__global__ void matmul_tiled(const float* a, const float* b, float* c, int m, int n, int k) {
    __shared__ float as[TILE][TILE];
    __shared__ float bs[TILE][TILE];
    int row = blockIdx.y * TILE + threadIdx.y;
    int col = blockIdx.x * TILE + threadIdx.x;
    float sum = 0.0f;
    for (int step = 0; step < (k + TILE - 1) / TILE; ++step) {
        int ka = step * TILE + threadIdx.x;
        int kb = step * TILE + threadIdx.y;
        as[threadIdx.y][threadIdx.x] = 0.0f;
        bs[threadIdx.y][threadIdx.x] = 0.0f;
        if (row < m && ka < k) {
            as[threadIdx.y][threadIdx.x] = a[row * k + ka];
        }
        if (kb < k && col < n) {
            bs[threadIdx.y][threadIdx.x] = b[kb * n + col];
        }
        __syncthreads();
        #pragma unroll
        for (int j = 0; j < TILE; ++j) sum += as[threadIdx.y][j] * bs[j][threadIdx.x];
        __syncthreads();
    }
    if (row < m && col < n) {
        c[row * n + col] = sum;
    }
}

torch::Tensor run(torch::Tensor a, torch::Tensor b) {
    int m = a.size(0), k = a.size(1), n = b.size(1);
    auto c = torch::empty({m, n}, a.options());
    dim3 block(TILE, TILE);
    dim3 grid((n + TILE - 1) / TILE, (m + TILE - 1) / TILE);
    matmul_tiled<<<grid, block>>>(a.data_ptr<float>(), b.data_ptr<float>(), c.data_ptr<float>(), m, n, k);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return c;
}
