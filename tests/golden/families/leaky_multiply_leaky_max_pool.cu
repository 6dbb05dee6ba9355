// max_pool: 16384 blocks of 256
// max_pool_backward: 2048 blocks of 256

__device__ __forceinline__ float max_nan(float a, float b) {  // the larger; NaN if either is, unlike fmaxf
    float larger;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
    return larger;
}

__device__ __forceinline__ float min_nan(float a, float b) {  // the smaller; NaN if either is, unlike fminf
    float smaller;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(smaller) : "f"(a), "f"(b));
    return smaller;
}

template <typename T, int count>
struct __align__(sizeof(T) * count) Pack {  // neighbours that are loaded or stored by one instruction
    T at[count];
};

template <int count, typename T>
__device__ __forceinline__ Pack<T, count> load(const T* from) {
    return *reinterpret_cast<const Pack<T, count>*>(from);
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

// The largest of windows of 2x2x2: [16, 32, 32, 64, 64] to [16, 32, 16, 32, 32]. leaky_relu(leaky_relu(u, 0.2) *
// multiplier, 0.2) only rises or only falls with u, by the sign of a parameter: it is computed at both ends of a
// window. A thread takes 2 neighbouring windows and reads their rows 4 at a time.
__global__ void __launch_bounds__(256) max_pool(
    const float* __restrict__ x,
    const float* __restrict__ multiplier,
    float* __restrict__ out) {
    constexpr int lanes = 2;
    constexpr int out_stride_c = 16384;
    constexpr int out_stride_d = 1024;
    constexpr int out_stride_h = 32;
    constexpr int out_stride_n = 524288;
    constexpr int row_elements = 4;
    constexpr int size_d = 2;
    constexpr int size_h = 2;
    constexpr int size_w = 2;
    constexpr int stride_d = 2;
    constexpr int stride_h = 2;
    constexpr int stride_w = 2;
    constexpr int threads = 256;
    constexpr int together = 2;
    constexpr int windows_c = 32;
    constexpr int windows_d = 16;
    constexpr int windows_h = 32;
    constexpr int windows_w = 16;
    constexpr int x_stride_c = 131072;
    constexpr int x_stride_d = 4096;
    constexpr int x_stride_h = 64;
    constexpr int x_stride_n = 4194304;
    const unsigned item = blockIdx.x * threads + threadIdx.x;
    const int w = item % windows_w * together;
    const int h = item / windows_w % windows_h;
    const int d = item / (windows_w * windows_h) % windows_d;
    const int c = item / (windows_w * windows_h * windows_d) % windows_c;
    const int n = item / (windows_w * windows_h * windows_d * windows_c);
    Pack<float, 2> out_row;
    const int x_at = n * x_stride_n + c * x_stride_c;
    const float multiplier_value = multiplier[c];
    float largest[lanes] = {-INFINITY, -INFINITY};
    float smallest[lanes] = {INFINITY, INFINITY};
    const int in_w = w * stride_w;
#pragma unroll
    for (int kd = 0; kd < size_d; ++kd) {
        const int in_d = d * stride_d + kd;
#pragma unroll
        for (int kh = 0; kh < size_h; ++kh) {
            const int in_h = h * stride_h + kh;
            const Pack<float, 4> x_row = load<4>(x + x_at + in_d * x_stride_d + in_h * x_stride_h + in_w);
#pragma unroll
            for (int k = 0; k < row_elements; ++k) {
                const float x_value = x_row.at[k];
                largest[k / size_w] = max_nan(largest[k / size_w], x_value);
                smallest[k / size_w] = min_nan(smallest[k / size_w], x_value);
            }
        }
    }
#pragma unroll
    for (int j = 0; j < lanes; ++j) {
        const float leaky_relu = largest[j] > 0.0f ? largest[j] : largest[j] * 0.2f;
        const float product = leaky_relu * multiplier_value;
        const float leaky_relu_2 = product > 0.0f ? product : product * 0.2f;
        const float leaky_relu_3 = smallest[j] > 0.0f ? smallest[j] : smallest[j] * 0.2f;
        const float product_2 = leaky_relu_3 * multiplier_value;
        const float leaky_relu_4 = product_2 > 0.0f ? product_2 : product_2 * 0.2f;
        const float out_value = max_nan(leaky_relu_2, leaky_relu_4);
        out_row.at[j] = out_value;
    }
    *reinterpret_cast<Pack<float, 2>*>(out + n * out_stride_n + c * out_stride_c + d * out_stride_d +
        h * out_stride_h + w) = out_row;
}

// A thread writes the gradients of all elements of its 2 windows, in one pass. The gradient of multiplier is added
// up from parts of each block.
__global__ void __launch_bounds__(256) max_pool_backward(
    const float* __restrict__ x,
    const float* __restrict__ multiplier,
    const float* __restrict__ grad_out,
    float* __restrict__ grad_x,
    float* __restrict__ parts_grad_multiplier) {
    constexpr int chunk = 2048;
    constexpr int chunks = 4;
    constexpr int grad_out_stride_c = 16384;
    constexpr int grad_out_stride_d = 1024;
    constexpr int grad_out_stride_h = 32;
    constexpr int grad_out_stride_n = 524288;
    constexpr int lanes = 2;
    constexpr int row_elements = 4;
    constexpr int size_d = 2;
    constexpr int size_h = 2;
    constexpr int size_w = 2;
    constexpr int stride_d = 2;
    constexpr int stride_h = 2;
    constexpr int stride_w = 2;
    constexpr int threads = 256;
    constexpr int together = 2;
    constexpr int windows_c = 32;
    constexpr int windows_h = 32;
    constexpr int windows_w = 16;
    constexpr int x_stride_c = 131072;
    constexpr int x_stride_d = 4096;
    constexpr int x_stride_h = 64;
    constexpr int x_stride_n = 4194304;
    const int row = blockIdx.x / chunks;
    const int first = blockIdx.x % chunks * chunk;
    const int c = row % windows_c;
    const int n = row / windows_c;
    const int x_at = n * x_stride_n + c * x_stride_c;
    const float multiplier_value = multiplier[c];
    const int grad_x_at = n * x_stride_n + c * x_stride_c;
    float multiplier_total = 0.0f;
    const int past = first + chunk;
    for (int item = first + threadIdx.x; item < past; item += threads) {
        const int w = item % windows_w * together;
        const int h = item / windows_w % windows_h;
        const int d = item / (windows_w * windows_h);
        float best[lanes] = {-INFINITY, -INFINITY};
        int choice[lanes] = {-1, -1};
        float x_chosen[lanes] = {0.0f, 0.0f};
        const int in_w = w * stride_w;
#pragma unroll
        for (int kd = 0; kd < size_d; ++kd) {
            const int in_d = d * stride_d + kd;
#pragma unroll
            for (int kh = 0; kh < size_h; ++kh) {
                const int in_h = h * stride_h + kh;
                const Pack<float, 4> x_row = load<4>(x + x_at + in_d * x_stride_d + in_h * x_stride_h + in_w);
#pragma unroll
                for (int k = 0; k < row_elements; ++k) {
                    const float x_value = x_row.at[k];
                    const float leaky_relu = x_value > 0.0f ? x_value : x_value * 0.2f;
                    const float product = leaky_relu * multiplier_value;
                    const float value = product > 0.0f ? product : product * 0.2f;
                    const bool taken = (choice[k / size_w] < 0) | (value > best[k / size_w]) | isnan(value);
                    best[k / size_w] = taken ? value : best[k / size_w];
                    choice[k / size_w] = taken ? (kd * size_h + kh) * size_w + k % size_w : choice[k / size_w];
                    x_chosen[k / size_w] = taken ? x_value : x_chosen[k / size_w];
                }
            }
        }
        const Pack<float, 2> grad_out_row = load<2>(grad_out + n * grad_out_stride_n + c * grad_out_stride_c +
            d * grad_out_stride_d + h * grad_out_stride_h + w);
        float x_gradient_of[lanes];
#pragma unroll
        for (int j = 0; j < lanes; ++j) {
            const float grad_out_value = grad_out_row.at[j];
            const bool above = x_chosen[j] > 0.0f;
            const float leaky_relu = above ? x_chosen[j] : x_chosen[j] * 0.2f;
            const float chosen = leaky_relu * multiplier_value > 0.0f ? grad_out_value : grad_out_value * 0.2f;
            const float product = chosen * multiplier_value;
            const float x_gradient = above ? product : product * 0.2f;
            const float multiplier_gradient = chosen * leaky_relu;
            x_gradient_of[j] = x_gradient;
            multiplier_total += multiplier_gradient;
        }
#pragma unroll
        for (int kd = 0; kd < size_d; ++kd) {
            const int in_d = d * stride_d + kd;
#pragma unroll
            for (int kh = 0; kh < size_h; ++kh) {
                const int in_h = h * stride_h + kh;
                Pack<float, 4> grad_x_row;
#pragma unroll
                for (int k = 0; k < row_elements; ++k) {
                    const float grad_x_value = choice[k / size_w] == (kd * size_h + kh) * size_w + k % size_w ?
                        x_gradient_of[k / size_w] : 0.0f;
                    grad_x_row.at[k] = grad_x_value;
                }
                *reinterpret_cast<Pack<float, 4>*>(grad_x + grad_x_at + in_d * x_stride_d + in_h * x_stride_h + in_w) =
                    grad_x_row;
            }
        }
    }
    multiplier_total = sum_over_warps<threads>(multiplier_total);
    if (threadIdx.x == 0) {
        parts_grad_multiplier[blockIdx.x] = multiplier_total;
    }
}

