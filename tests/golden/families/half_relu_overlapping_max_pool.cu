// max_pool: 6272 blocks of 256
// max_pool_backward: 3584 blocks of 256

#include <cuda_fp16.h>

__device__ __forceinline__ float max_nan(float a, float b) {  // the larger; NaN if either is, unlike fmaxf
    float larger;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
    return larger;
}

template <int Threads, typename T>
__device__ __forceinline__ T sum_of_block(T value) {  // in an order that is always the same; in thread 0
    __shared__ T sums[Threads / 32];
    for (int lanes = 16; lanes > 0; lanes /= 2) value += __shfl_xor_sync(0xffffffff, value, lanes);
    __syncthreads();  // sums may still be read from the last time
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = value;
    __syncthreads();
    T total = 0;
    if (threadIdx.x == 0)
        for (int warp = 0; warp < Threads / 32; ++warp) total += sums[warp];
    return total;
}

// The largest of windows of 3x3: [8, 64, 112, 112] to [8, 64, 56, 56]. Which element is the largest is kept for the
// backward pass. A thread takes one window; neighbouring threads read neighbouring memory.
__global__ void __launch_bounds__(256) max_pool(
        const __half* __restrict__ x,
        const __half* __restrict__ bias,
        __half* __restrict__ out,
        unsigned char* __restrict__ max_pool_choice) {
    const unsigned item = blockIdx.x * 256 + threadIdx.x;
    const int w = item % 56, h = item / 56 % 56, c = item / 3136 % 64, n = item / 200704;
    const int x_at = n * 802816 + c * 12544;
    const float bias_value = __half2float(bias[c]);
    float best = -INFINITY;
    int choice = -1;
#pragma unroll
    for (int kh = 0; kh < 3; ++kh) {
        const int in_h = h * 2 - 1 + kh;
        if (in_h < 0) continue;
#pragma unroll
        for (int kw = 0; kw < 3; ++kw) {
            const int in_w = w * 2 - 1 + kw;
            if (in_w < 0) continue;
            const float x_value = __half2float(x[x_at + in_h * 112 + in_w]);
            const float value = max_nan(x_value + bias_value, 0.0f);
            const bool taken = (choice < 0) | (value > best) | isnan(value);
            best = taken ? value : best;
            choice = taken ? kh * 3 + kw : choice;
        }
    }
    out[n * 200704 + c * 3136 + h * 56 + w] = __float2half_rn(best);
    max_pool_choice[n * 200704 + c * 3136 + h * 56 + w] = choice;
}

// Windows overlap: a thread takes an element of the input and gathers from the windows that it is in.
__global__ void __launch_bounds__(256) max_pool_backward(
        const __half* __restrict__ x,
        const __half* __restrict__ bias,
        const __half* __restrict__ grad_out,
        const unsigned char* __restrict__ max_pool_choice,
        __half* __restrict__ grad_x,
        float* __restrict__ parts_grad_bias) {
    const int row = blockIdx.x / 7, first = blockIdx.x % 7 * 2048;
    const int c = row % 64, n = row / 64;
    const int x_at = n * 802816 + c * 12544;
    const float bias_value = __half2float(bias[c]);
    const int grad_x_at = n * 802816 + c * 12544;
    float bias_total = 0;
    for (int item = first + threadIdx.x; item < min(first + 2048, 12544); item += 256) {
        const int in_w = item % 112, in_h = item / 112;
        float from_windows = 0;
#pragma unroll
        for (int kh = 0; kh < 3; ++kh) {
            const int past_h = in_h + 1 - kh;
            if (past_h < 0 || past_h >= 112 || past_h % 2 != 0) continue;
            const int h = past_h / 2;
#pragma unroll
            for (int kw = 0; kw < 3; ++kw) {
                const int past_w = in_w + 1 - kw;
                if (past_w < 0 || past_w >= 112 || past_w % 2 != 0) continue;
                const int w = past_w / 2;
                if (max_pool_choice[n * 200704 + c * 3136 + h * 56 + w] == kh * 3 + kw) {
                    const float grad_out_value = __half2float(grad_out[n * 200704 + c * 3136 + h * 56 + w]);
                    from_windows += grad_out_value;
                }
            }
        }
        const float x_value = __half2float(x[x_at + in_h * 112 + in_w]);
        const float x_gradient = x_value + bias_value <= 0.0f ? 0.0f : from_windows;
        const float bias_gradient = x_gradient;
        grad_x[grad_x_at + in_h * 112 + in_w] = __float2half_rn(x_gradient);
        bias_total += bias_gradient;
    }
    const float bias_total_sum = sum_of_block<256>(bias_total);
    if (threadIdx.x == 0) {
        parts_grad_bias[blockIdx.x] = bias_total_sum;
    }
}

