// inputs: float32[17,45]
// inputs: float32[16,32]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>
#include <cooperative_groups.h>

namespace cg = cooperative_groups;

// A row by a tile of sixteen threads.
__global__ void row_norms(const float* x, float* out, int rows, int cols) {
    cg::thread_block block = cg::this_thread_block();
    cg::thread_block_tile<16> tile = cg::tiled_partition<16>(block);
    __shared__ float result[8];
    int row = blockIdx.x * tile.meta_group_size() + tile.meta_group_rank();
    float sum = 0.0f;
    if (row < rows) {
        for (int c = tile.thread_rank(); c < cols; c += tile.size()) sum += x[row * cols + c] * x[row * cols + c];
    }
    for (int d = tile.size() / 2; d > 0; d /= 2) {
        sum += tile.shfl_down(sum, d);
    }
    if (tile.thread_rank() == 0) {
        result[tile.meta_group_rank()] = sqrtf(sum);
    }
    block.sync();
    int t = block.thread_rank();
    if (t < 8 && blockIdx.x * 8 + t < rows) {
        out[blockIdx.x * 8 + t] = result[t];
    }
}

torch::Tensor run(torch::Tensor x) {
    int rows = x.size(0);
    auto out = torch::empty({rows}, x.options());
    row_norms<<<(rows + 7) / 8, 128>>>(x.data_ptr<float>(), out.data_ptr<float>(), rows, (int)x.size(1));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
