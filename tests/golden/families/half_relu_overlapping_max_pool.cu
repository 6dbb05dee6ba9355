// max_pool: 6272 blocks of 256
// max_pool_backward: 3584 blocks of 256

#include <cuda_fp16.h>

__device__ __forceinline__ float max_nan(float a, float b) {  // the larger; NaN if either is, unlike fmaxf
    float larger;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
    return larger;
}

template <int team, typename T>
__device__ __forceinline__ T sum_over_team(T value) {  // of `team` neighbouring lanes, the same for each of them
#pragma unroll
    for (int distance = team / 2; distance > 0; distance /= 2) {
        value += __shfl_xor_sync(0xffffffffu, value, distance);
    }
    return value;
}

template <int threads, typename T>
__device__ __forceinline__ T sum_over_warps(T value) {  // of a block, in a fixed order; in thread 0
    __shared__ T parts[threads / 32];
    value = sum_over_team<32>(value);
    __syncthreads();  // parts may still be read from the last time
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
    __syncthreads();
    T total = 0.0f;
    if (threadIdx.x == 0) {
        for (int warp = 0; warp < threads / 32; ++warp) total += parts[warp];
    }
    return total;
}

// The largest of windows of 3x3: [8, 64, 112, 112] to [8, 64, 56, 56]. Which element is the largest is kept for the
// backward pass. A thread takes one window; neighbouring threads read neighbouring memory.
__global__ void __launch_bounds__(256) max_pool(
    const __half* __restrict__ x,
    const __half* __restrict__ bias,
    __half* __restrict__ out,
    unsigned char* __restrict__ max_pool_choice) {
    constexpr int out_stride_c = 3136;
    constexpr int out_stride_h = 56;
    constexpr int out_stride_n = 200704;
    constexpr int padding_h = 1;
    constexpr int padding_w = 1;
    constexpr int size_h = 3;
    constexpr int size_w = 3;
    constexpr int stride_h = 2;
    constexpr int stride_w = 2;
    constexpr int threads = 256;
    constexpr int windows_c = 64;
    constexpr int windows_h = 56;
    constexpr int windows_w = 56;
    constexpr int x_stride_c = 12544;
    constexpr int x_stride_h = 112;
    constexpr int x_stride_n = 802816;
    const unsigned item = blockIdx.x * threads + threadIdx.x;
    const int w = item % windows_w;
    const int h = item / windows_w % windows_h;
    const int c = item / (windows_w * windows_h) % windows_c;
    const int n = item / (windows_w * windows_h * windows_c);
    const int x_at = n * x_stride_n + c * x_stride_c;
    const float bias_value = __half2float(bias[c]);
    float best = -INFINITY;
    int choice = -1;
#pragma unroll
    for (int kh = 0; kh < size_h; ++kh) {
        const int in_h = h * stride_h - padding_h + kh;
        if (in_h < 0) continue;
#pragma unroll
        for (int kw = 0; kw < size_w; ++kw) {
            const int in_w = w * stride_w - padding_w + kw;
            if (in_w < 0) continue;
            const float x_value = __half2float(x[x_at + in_h * x_stride_h + in_w]);
            const float value = max_nan(x_value + bias_value, 0.0f);
            const bool taken = (choice < 0) | (value > best) | isnan(value);
            best = taken ? value : best;
            choice = taken ? kh * size_w + kw : choice;
        }
    }
    out[n * out_stride_n + c * out_stride_c + h * out_stride_h + w] = __float2half_rn(best);
    max_pool_choice[n * out_stride_n + c * out_stride_c + h * out_stride_h + w] =
        static_cast<unsigned char>(choice);
}

// Windows overlap: a thread takes an element of the input and gathers from the windows that it is in.
__global__ void __launch_bounds__(256) max_pool_backward(
    const __half* __restrict__ x,
    const __half* __restrict__ bias,
    const __half* __restrict__ grad_out,
    const unsigned char* __restrict__ max_pool_choice,
    __half* __restrict__ grad_x,
    float* __restrict__ parts_grad_bias) {
    constexpr int chunk = 2048;
    constexpr int chunks = 7;
    constexpr int elements_c = 64;
    constexpr int elements_w = 112;
    constexpr int max_pool_choice_stride_c = 3136;
    constexpr int max_pool_choice_stride_h = 56;
    constexpr int max_pool_choice_stride_n = 200704;
    constexpr int outputs_h = 56;
    constexpr int outputs_w = 56;
    constexpr int padding_h = 1;
    constexpr int padding_w = 1;
    constexpr int row_items = 12544;
    constexpr int size_h = 3;
    constexpr int size_w = 3;
    constexpr int stride_h = 2;
    constexpr int stride_w = 2;
    constexpr int threads = 256;
    constexpr int x_stride_c = 12544;
    constexpr int x_stride_h = 112;
    constexpr int x_stride_n = 802816;
    const int row = blockIdx.x / chunks;
    const int first = blockIdx.x % chunks * chunk;
    const int c = row % elements_c;
    const int n = row / elements_c;
    const int x_at = n * x_stride_n + c * x_stride_c;
    const float bias_value = __half2float(bias[c]);
    const int grad_x_at = n * x_stride_n + c * x_stride_c;
    float bias_total = 0.0f;
    const int past = min(first + chunk, row_items);
    for (int item = first + threadIdx.x; item < past; item += threads) {
        const int in_w = item % elements_w;
        const int in_h = item / elements_w;
        float from_windows = 0.0f;
#pragma unroll
        for (int kh = 0; kh < size_h; ++kh) {
            const int past_h = in_h + padding_h - kh;
            if (past_h < 0 || past_h >= outputs_h * stride_h || past_h % stride_h != 0) continue;
            const int h = past_h / stride_h;
#pragma unroll
            for (int kw = 0; kw < size_w; ++kw) {
                const int past_w = in_w + padding_w - kw;
                if (past_w < 0 || past_w >= outputs_w * stride_w || past_w % stride_w != 0) continue;
                const int w = past_w / stride_w;
                const int choice = max_pool_choice[n * max_pool_choice_stride_n + c * max_pool_choice_stride_c +
                    h * max_pool_choice_stride_h + w];
                if (choice == kh * size_w + kw) {
                    const float grad_out_value = __half2float(grad_out[n * max_pool_choice_stride_n +
                        c * max_pool_choice_stride_c + h * max_pool_choice_stride_h + w]);
                    from_windows += grad_out_value;
                }
            }
        }
        const float x_value = __half2float(x[x_at + in_h * x_stride_h + in_w]);
        const float x_gradient = x_value + bias_value <= 0.0f ? 0.0f : from_windows;
        grad_x[grad_x_at + in_h * x_stride_h + in_w] = __float2half_rn(x_gradient);
        bias_total += x_gradient;
    }
    bias_total = sum_over_warps<threads>(bias_total);
    if (threadIdx.x == 0) {
        parts_grad_bias[blockIdx.x] = bias_total;
    }
}

