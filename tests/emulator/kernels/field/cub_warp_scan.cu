// inputs: float32[9,32]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>
#include <cub/warp/warp_scan.cuh>
#include <cub/warp/warp_reduce.cuh>

// Exclusive prefix sums of a row over the sum of its magnitudes; one warp per row.
__global__ void relative_prefix(const float* x, float* out, int rows) {
    using Scan = cub::WarpScan<float>;
    using Reduce = cub::WarpReduce<float>;
    __shared__ typename Scan::TempStorage scan_temp[4];
    __shared__ typename Reduce::TempStorage reduce_temp[4];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int row = blockIdx.x * 4 + warp;
    if (row >= rows) return;
    float v = x[row * 32 + lane];
    float before;
    Scan(scan_temp[warp]).ExclusiveSum(v, before);
    float size = Reduce(reduce_temp[warp]).Sum(fabsf(v));
    size = __shfl_sync(0xffffffff, size, 0);
    out[row * 32 + lane] = before / size;
}

torch::Tensor run(torch::Tensor x) {
    int rows = x.size(0);
    auto out = torch::empty_like(x);
    relative_prefix<<<(rows + 3) / 4, 128>>>(x.data_ptr<float>(), out.data_ptr<float>(), rows);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
