// inputs: float32[5,1000] float32[1000]
// inputs: float32[4,768] float32[768]
// declare: torch::Tensor run(torch::Tensor x, torch::Tensor w);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

// Dot products of rows; the next tile is on its way while this one is used. cols is a multiple of four.
constexpr int TILE = 256, THREADS = 64;

__device__ __forceinline__ void copy16(float* to, const float* from, int bytes) {
    unsigned at = (unsigned)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(at), "l"(from), "r"(bytes));
}

__global__ void dot_rows(const float* x, const float* w, float* out, int cols) {
    __shared__ __align__(16) float xs[2][TILE];
    __shared__ __align__(16) float ws[2][TILE];
    __shared__ float sums[THREADS];
    const int t = threadIdx.x;
    const float* row = x + blockIdx.x * cols;
    const int tiles = (cols + TILE - 1) / TILE;
    auto fetch = [&](int tile) {
        int c = tile * TILE + 4 * t;
        int bytes = c < cols ? 16 : 0;
        int from = c < cols ? c : 0;
        copy16(&xs[tile & 1][4 * t], row + from, bytes);
        copy16(&ws[tile & 1][4 * t], w + from, bytes);
        asm volatile("cp.async.commit_group;\n" ::);
    };
    fetch(0);
    float acc = 0.0f;
    for (int tile = 0; tile < tiles; ++tile) {
        if (tile + 1 < tiles) {
            fetch(tile + 1);
            asm volatile("cp.async.wait_group 1;\n" ::: "memory");
        } else {
            asm volatile("cp.async.wait_group 0;\n" ::: "memory");
        }
        __syncthreads();
        for (int j = t; j < TILE; j += THREADS) acc += xs[tile & 1][j] * ws[tile & 1][j];
        __syncthreads();
    }
    sums[t] = acc;
    __syncthreads();
    for (int d = THREADS / 2; d > 0; d >>= 1) {
        if (t < d) {
            sums[t] += sums[t + d];
        }
        __syncthreads();
    }
    if (t == 0) {
        out[blockIdx.x] = sums[0];
    }
}

torch::Tensor run(torch::Tensor x, torch::Tensor w) {
    int rows = x.size(0), cols = x.size(1);
    TORCH_CHECK(cols % 4 == 0);
    auto out = torch::empty({rows}, x.options());
    dot_rows<<<rows, THREADS>>>(x.data_ptr<float>(), w.data_ptr<float>(), out.data_ptr<float>(), cols);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
