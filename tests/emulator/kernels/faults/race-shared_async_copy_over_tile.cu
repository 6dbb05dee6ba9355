// kind: race-shared
// inputs: float32[3,1024]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

// The copy of the tile after next begins while other warps still read this one. It lands before it is waited for, which is
// behind a barrier; but it may land at once. cols is a multiple of 256.
__global__ void sum_of_products(const float* x, float* out, int cols) {
    __shared__ __align__(16) float tiles[2][256];
    const int t = threadIdx.x;
    auto fetch = [&](int c) {
        if (c < cols) {
            const unsigned to = (unsigned)__cvta_generic_to_shared(&tiles[c / 256 & 1][4 * t]);
            const float* from = x + blockIdx.x * cols + c + 4 * t;
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\n" ::"r"(to), "l"(from)); // FAULT
        }
        asm volatile("cp.async.commit_group;\n" ::);
    };
    fetch(0);
    float sum = 0.0f;
    for (int c = 0; c < cols; c += 256) {
        fetch(c + 256);
        asm volatile("cp.async.wait_group 1;\n" ::: "memory");
        __syncthreads();
        const float* tile = tiles[c / 256 & 1];
        for (int j = t; j < 256; j += 64) sum += tile[j] * tile[255 - j];
#ifdef REPAIRED
        __syncthreads();
#endif
    }
    for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffff, sum, d);
    if (t % 32 == 0) atomicAdd(&out[blockIdx.x], sum);
}

torch::Tensor run(torch::Tensor x) {
    auto out = torch::zeros({x.size(0)}, x.options());
    sum_of_products<<<x.size(0), 64>>>(x.data_ptr<float>(), out.data_ptr<float>(), (int)x.size(1));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
