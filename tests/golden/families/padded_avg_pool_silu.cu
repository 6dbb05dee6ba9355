// avg_pool: 73 blocks of 256
// avg_pool_backward: 320 blocks of 256

__device__ __forceinline__ float reciprocal_approx(float x) {  // 1 / x, right to a unit in the last place
    float inverse;
    asm("rcp.approx.f32 %0, %1;" : "=f"(inverse) : "f"(x));
    return inverse;
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

// The mean of windows of 3x3: [4, 16, 33, 33] to [4, 16, 17, 17]. The chain before the average is computed for
// every element. A thread takes one window; neighbouring threads read neighbouring memory.
__global__ void __launch_bounds__(256) avg_pool(
        const float* __restrict__ x,
        const float* __restrict__ scale,
        const float* __restrict__ shape,
        float* __restrict__ out,
        float* __restrict__ avg_pool_pooled) {
    const unsigned item = blockIdx.x * 256 + threadIdx.x;
    if (item >= 18496) return;
    const int w = item % 17, h = item / 17 % 17, c = item / 289 % 16, n = item / 4624;
    const int x_at = n * 17424 + c * 1089;
    const float scale_value = scale[0];
    float total = 0;
#pragma unroll
    for (int kh = 0; kh < 3; ++kh) {
        const int in_h = h * 2 - 1 + kh;
        if (in_h < 0 || in_h >= 33) continue;
#pragma unroll
        for (int kw = 0; kw < 3; ++kw) {
            const int in_w = w * 2 - 1 + kw;
            if (in_w < 0 || in_w >= 33) continue;
            const float x_value = x[x_at + in_h * 33 + in_w];
            const float gelu = 0.5f * x_value * (1.0f + erff(x_value * 0.70710677f));
            const float value = gelu * scale_value;
            total += value;
        }
    }
    const float count = (min(h * 2 - 1 + 3, 33) - max(h * 2 - 1, 0)) * (min(w * 2 - 1 + 3, 33) - max(w * 2 - 1, 0));
    const float shape_value = shape[c * 289 + h * 17 + w];
    const float avg_pool_pooled_value = total / count;
    const float product = avg_pool_pooled_value * shape_value;
    const float out_value = product * reciprocal_approx(1.0f + expf(-product));
    out[n * 4624 + c * 289 + h * 17 + w] = out_value;
    avg_pool_pooled[n * 4624 + c * 289 + h * 17 + w] = avg_pool_pooled_value;
}

// Windows overlap: a thread takes an element of the input and gathers from the windows that it is in.
__global__ void __launch_bounds__(256) avg_pool_backward(
        const float* __restrict__ x,
        const float* __restrict__ scale,
        const float* __restrict__ grad_avg_pool_pooled,
        float* __restrict__ grad_x,
        float* __restrict__ parts_grad_scale) {
    const int row = blockIdx.x / 5, first = blockIdx.x % 5 * 256;
    const int c = row % 16, n = row / 16;
    const int x_at = n * 17424 + c * 1089;
    const float scale_value = scale[0];
    const int grad_x_at = n * 17424 + c * 1089;
    float scale_total = 0;
    for (int item = first + threadIdx.x; item < min(first + 256, 1089); item += 256) {
        const int in_w = item % 33, in_h = item / 33;
        float from_windows = 0;
#pragma unroll
        for (int kh = 0; kh < 3; ++kh) {
            const int past_h = in_h + 1 - kh;
            if (past_h < 0 || past_h >= 34 || past_h % 2 != 0) continue;
            const int h = past_h / 2;
#pragma unroll
            for (int kw = 0; kw < 3; ++kw) {
                const int past_w = in_w + 1 - kw;
                if (past_w < 0 || past_w >= 34 || past_w % 2 != 0) continue;
                const int w = past_w / 2;
                const float count = (min(h * 2 - 1 + 3, 33) - max(h * 2 - 1, 0)) * (min(w * 2 - 1 + 3, 33) - max(w * 2 - 1, 0));
                const float grad_avg_pool_pooled_value = grad_avg_pool_pooled[n * 4624 + c * 289 + h * 17 + w];
                const float window = grad_avg_pool_pooled_value / count;
                from_windows += window;
            }
        }
        const float x_value = x[x_at + in_h * 33 + in_w];
        const float sum = 1.0f + erff(x_value * 0.70710677f);
        const float gelu_slope = fmaf(0.5f, sum, x_value * (expf(-0.5f * (x_value * x_value)) * 0.3989423f));
        const float x_gradient = from_windows * scale_value * gelu_slope;
        const float gelu = 0.5f * x_value * sum;
        const float scale_gradient = from_windows * gelu;
        grad_x[grad_x_at + in_h * 33 + in_w] = x_gradient;
        scale_total += scale_gradient;
    }
    const float scale_total_sum = sum_of_block<256>(scale_total);
    if (threadIdx.x == 0) {
        parts_grad_scale[blockIdx.x] = scale_total_sum;
    }
}

