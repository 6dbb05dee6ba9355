// inputs: float32[21,43] float32[43,19]
// inputs: float32[16,32] float32[32,24]
// declare: torch::Tensor run(torch::Tensor a, torch::Tensor b);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

// The next tile is loaded while this one is multiplied: one barrier a tile.
constexpr int T = 8;

__device__ float at(const float* x, int r, int c, int rows, int cols) {
    return r < rows && c < cols ? x[r * cols + c] : 0.0f;
}

__global__ void product(const float* a, const float* b, float* c, int m, int n, int k) {
    __shared__ float as[2][T][T + 1], bs[2][T][T + 1];
    const int tx = threadIdx.x, ty = threadIdx.y;
    const int row = blockIdx.y * T + ty, col = blockIdx.x * T + tx;
    as[0][ty][tx] = at(a, row, tx, m, k);
    bs[0][ty][tx] = at(b, ty, col, k, n);
    __syncthreads();
    float sum = 0.0f;
    int now = 0;
    for (int k0 = 0; k0 < k; k0 += T) {
        if (k0 + T < k) {
            as[now ^ 1][ty][tx] = at(a, row, k0 + T + tx, m, k);
            bs[now ^ 1][ty][tx] = at(b, k0 + T + ty, col, k, n);
        }
        for (int j = 0; j < T; ++j) sum += as[now][ty][j] * bs[now][j][tx];
        __syncthreads();
        now ^= 1;
    }
    if (row < m && col < n) c[row * n + col] = sum;
}

torch::Tensor run(torch::Tensor a, torch::Tensor b) {
    int m = a.size(0), k = a.size(1), n = b.size(1);
    auto c = torch::empty({m, n}, a.options());
    dim3 grid((n + T - 1) / T, (m + T - 1) / T);
    product<<<grid, dim3(T, T)>>>(a.data_ptr<float>(), b.data_ptr<float>(), c.data_ptr<float>(), m, n, k);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return c;
}
