// inputs: float32[7,201] float32[7,201]
// inputs: float32[4,256] float32[4,256]
// declare: torch::Tensor run(torch::Tensor a, torch::Tensor b);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

// Three sums at once: in warps by shuffle, across warps by the first of them.
constexpr int THREADS = 128, WARPS = THREADS / 32;

__device__ float3 warp_sum(float3 v) {
    for (int d = 16; d > 0; d /= 2) {
        v.x += __shfl_xor_sync(0xffffffffu, v.x, d);
        v.y += __shfl_xor_sync(0xffffffffu, v.y, d);
        v.z += __shfl_xor_sync(0xffffffffu, v.z, d);
    }
    return v;
}

__global__ void cosine(const float* a, const float* b, float* out, int cols) {
    __shared__ float3 part[WARPS];
    const int t = threadIdx.x, lane = t % 32, warp = t / 32;
    float3 sum = make_float3(0.0f, 0.0f, 0.0f);
    for (int c = t; c < cols; c += THREADS) {
        const float p = a[blockIdx.x * cols + c], q = b[blockIdx.x * cols + c];
        sum.x += p * q;
        sum.y += p * p;
        sum.z += q * q;
    }
    sum = warp_sum(sum);
    if (lane == 0) part[warp] = sum;
    __syncthreads();
    if (warp > 0) return;
    sum = lane < WARPS ? part[lane] : make_float3(0.0f, 0.0f, 0.0f);
    sum = warp_sum(sum);
    if (lane == 0) out[blockIdx.x] = sum.x * rsqrtf(sum.y * sum.z);
}

torch::Tensor run(torch::Tensor a, torch::Tensor b) {
    auto out = torch::empty({a.size(0)}, a.options());
    cosine<<<a.size(0), THREADS>>>(a.data_ptr<float>(), b.data_ptr<float>(), out.data_ptr<float>(), (int)a.size(1));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
