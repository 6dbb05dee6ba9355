// inputs: float32[11,333]
// inputs: float32[4,320]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

__inline__ __device__ float warp_max(float v) {
    #pragma unroll
    for (int d = 16; d > 0; d >>= 1) {
        v = fmaxf(v, __shfl_down_sync(0xffffffff, v, d));
    }
    return v;
}

__inline__ __device__ float block_max(float v) {
    static __shared__ float part[32];
    int lane = threadIdx.x % warpSize;
    int warp = threadIdx.x / warpSize;
    v = warp_max(v);
    if (lane == 0) {
        part[warp] = v;
    }
    __syncthreads();
    v = -INFINITY;
    if (threadIdx.x < blockDim.x / warpSize) {
        v = part[lane];
    }
    if (warp == 0) v = warp_max(v);
    return v;
}

__global__ void row_max_kernel(const float* x, float* out, int cols) {
    float best = -INFINITY;
    for (int c = threadIdx.x; c < cols; c += blockDim.x) {
        best = fmaxf(best, fabsf(x[blockIdx.x * cols + c]));
    }
    best = block_max(best);
    if (threadIdx.x == 0) {
        out[blockIdx.x] = best;
    }
}

torch::Tensor run(torch::Tensor x) {
    auto out = torch::empty({x.size(0)}, x.options());
    row_max_kernel<<<x.size(0), 160>>>(x.data_ptr<float>(), out.data_ptr<float>(), (int)x.size(1));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
