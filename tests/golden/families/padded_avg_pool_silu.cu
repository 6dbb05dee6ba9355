// avg_pool: 73 blocks of 256
// avg_pool_backward: 320 blocks of 256

__device__ __forceinline__ float reciprocal_approx(float x) {  // 1 / x, right to a unit in the last place
    float inverse;
    asm("rcp.approx.f32 %0, %1;" : "=f"(inverse) : "f"(x));
    return inverse;
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

// The mean of windows of 3x3: [4, 16, 33, 33] to [4, 16, 17, 17]. The chain before the average is computed for
// every element. A thread takes one window; neighbouring threads read neighbouring memory.
__global__ void __launch_bounds__(256) avg_pool(
    const float* __restrict__ x,
    const float* __restrict__ scale,
    const float* __restrict__ shape,
    float* __restrict__ out,
    float* __restrict__ avg_pool_pooled) {
    constexpr int extent_h = 33;
    constexpr int extent_w = 33;
    constexpr int out_stride_c = 289;
    constexpr int out_stride_h = 17;
    constexpr int out_stride_n = 4624;
    constexpr int padding_h = 1;
    constexpr int padding_w = 1;
    constexpr int shape_stride_c = 289;
    constexpr int shape_stride_h = 17;
    constexpr int size_h = 3;
    constexpr int size_w = 3;
    constexpr int stride_h = 2;
    constexpr int stride_w = 2;
    constexpr int threads = 256;
    constexpr int windows = 18496;
    constexpr int windows_c = 16;
    constexpr int windows_h = 17;
    constexpr int windows_w = 17;
    constexpr int x_stride_c = 1089;
    constexpr int x_stride_h = 33;
    constexpr int x_stride_n = 17424;
    const unsigned item = blockIdx.x * threads + threadIdx.x;
    if (item >= windows) return;
    const int w = item % windows_w;
    const int h = item / windows_w % windows_h;
    const int c = item / (windows_w * windows_h) % windows_c;
    const int n = item / (windows_w * windows_h * windows_c);
    const int x_at = n * x_stride_n + c * x_stride_c;
    const float scale_value = scale[0];
    float total = 0.0f;
#pragma unroll
    for (int kh = 0; kh < size_h; ++kh) {
        const int in_h = h * stride_h - padding_h + kh;
        if (in_h < 0 || in_h >= extent_h) continue;
#pragma unroll
        for (int kw = 0; kw < size_w; ++kw) {
            const int in_w = w * stride_w - padding_w + kw;
            if (in_w < 0 || in_w >= extent_w) continue;
            const float x_value = x[x_at + in_h * x_stride_h + in_w];
            const float gelu = 0.5f * x_value * (1.0f + erff(x_value * 0.70710677f));
            const float value = gelu * scale_value;
            total += value;
        }
    }
    const int from_h = h * stride_h - padding_h;
    const int to_h = min(from_h + size_h, extent_h);
    const int from_w = w * stride_w - padding_w;
    const int to_w = min(from_w + size_w, extent_w);
    const float count = (to_h - max(from_h, 0)) * (to_w - max(from_w, 0));
    const float shape_value = shape[c * shape_stride_c + h * shape_stride_h + w];
    const float avg_pool_pooled_value = total / count;
    const float product = avg_pool_pooled_value * shape_value;
    const float out_value = product * reciprocal_approx(1.0f + expf(-product));
    out[n * out_stride_n + c * out_stride_c + h * out_stride_h + w] = out_value;
    avg_pool_pooled[n * out_stride_n + c * out_stride_c + h * out_stride_h + w] = avg_pool_pooled_value;
}

// Windows overlap: a thread takes an element of the input and gathers from the windows that it is in.
__global__ void __launch_bounds__(256) avg_pool_backward(
    const float* __restrict__ x,
    const float* __restrict__ scale,
    const float* __restrict__ grad_avg_pool_pooled,
    float* __restrict__ grad_x,
    float* __restrict__ parts_grad_scale) {
    constexpr int chunk = 256;
    constexpr int chunks = 5;
    constexpr int elements_c = 16;
    constexpr int elements_w = 33;
    constexpr int extent_h = 33;
    constexpr int extent_w = 33;
    constexpr int grad_avg_pool_pooled_stride_c = 289;
    constexpr int grad_avg_pool_pooled_stride_h = 17;
    constexpr int grad_avg_pool_pooled_stride_n = 4624;
    constexpr int outputs_h = 17;
    constexpr int outputs_w = 17;
    constexpr int padding_h = 1;
    constexpr int padding_w = 1;
    constexpr int row_items = 1089;
    constexpr int size_h = 3;
    constexpr int size_w = 3;
    constexpr int stride_h = 2;
    constexpr int stride_w = 2;
    constexpr int threads = 256;
    constexpr int x_stride_c = 1089;
    constexpr int x_stride_h = 33;
    constexpr int x_stride_n = 17424;
    const int row = blockIdx.x / chunks;
    const int first = blockIdx.x % chunks * chunk;
    const int c = row % elements_c;
    const int n = row / elements_c;
    const int x_at = n * x_stride_n + c * x_stride_c;
    const float scale_value = scale[0];
    const int grad_x_at = n * x_stride_n + c * x_stride_c;
    float scale_total = 0.0f;
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
                const int from_h = h * stride_h - padding_h;
                const int to_h = min(from_h + size_h, extent_h);
                const int from_w = w * stride_w - padding_w;
                const int to_w = min(from_w + size_w, extent_w);
                const float count = (to_h - max(from_h, 0)) * (to_w - max(from_w, 0));
                const float grad_avg_pool_pooled_value = grad_avg_pool_pooled[n * grad_avg_pool_pooled_stride_n +
                    c * grad_avg_pool_pooled_stride_c + h * grad_avg_pool_pooled_stride_h + w];
                const float window = grad_avg_pool_pooled_value / count;
                from_windows += window;
            }
        }
        const float x_value = x[x_at + in_h * x_stride_h + in_w];
        const float sum = 1.0f + erff(x_value * 0.70710677f);
        const float gelu_slope = fmaf(0.5f, sum, x_value * (expf(-0.5f * (x_value * x_value)) * 0.3989423f));
        const float x_gradient = from_windows * scale_value * gelu_slope;
        const float gelu = 0.5f * x_value * sum;
        const float scale_gradient = from_windows * gelu;
        grad_x[grad_x_at + in_h * x_stride_h + in_w] = x_gradient;
        scale_total += scale_gradient;
    }
    scale_total = sum_over_warps<threads>(scale_total);
    if (threadIdx.x == 0) {
        parts_grad_scale[blockIdx.x] = scale_total;
    }
}

