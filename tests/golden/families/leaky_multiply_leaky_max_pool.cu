// max_pool: 16384 blocks of 256
// max_pool_backward: 2048 blocks of 256

template <typename T, int N>
struct alignas(sizeof(T) * N % 16 == 0 ? 16 : sizeof(T) * N % 8 == 0 ? 8 : 4) Row {
    T at[N];  // neighbours in memory
};
template <int N, bool aligned, typename T>
__device__ __forceinline__ Row<T, N> read_row(const T* from) {  // if aligned, by as few accesses as its size allows
    if constexpr (aligned) {
        return *reinterpret_cast<const Row<T, N>*>(from);
    } else {
        Row<T, N> row;
#pragma unroll
        for (int k = 0; k < N; ++k) row.at[k] = from[k];
        return row;
    }
}
template <bool aligned, typename T, int N>
__device__ __forceinline__ void write_row(T* to, const Row<T, N>& row) {
    if constexpr (aligned) {
        *reinterpret_cast<Row<T, N>*>(to) = row;
    } else {
#pragma unroll
        for (int k = 0; k < N; ++k) to[k] = row.at[k];
    }
}

template <typename... T>
__device__ __forceinline__ bool begin_at_16_bytes(const T*... tensors) {
    return (... && (reinterpret_cast<size_t>(tensors) % 16 == 0));
}

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

// The largest of windows of 2x2x2: [16, 32, 32, 64, 64] to [16, 32, 16, 32, 32]. leaky_relu(leaky_relu(u, 0.2) *
// multiplier, 0.2) only rises or only falls with u, by the sign of a parameter: it is computed at both ends of a
// window. A thread takes 2 neighbouring windows and reads their rows 4 at a time.
template <bool aligned>
__device__ __forceinline__ void max_pool_body(
        const float* __restrict__ x,
        const float* __restrict__ multiplier,
        float* __restrict__ out) {
    const unsigned item = blockIdx.x * 256 + threadIdx.x;
    const int w = item % 16 * 2, h = item / 16 % 32, d = item / 512 % 16, c = item / 8192 % 32, n = item / 262144;
    Row<float, 2> out_row;
    const int x_at = n * 4194304 + c * 131072;
    const float multiplier_value = multiplier[c];
    float largest[2] = {-INFINITY, -INFINITY};
    float smallest[2] = {INFINITY, INFINITY};
    const int in_w = w * 2;
#pragma unroll
    for (int kd = 0; kd < 2; ++kd) {
        const int in_d = d * 2 + kd;
#pragma unroll
        for (int kh = 0; kh < 2; ++kh) {
            const int in_h = h * 2 + kh;
            const auto x_row = read_row<4, aligned>(x + x_at + in_d * 4096 + in_h * 64 + in_w);
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                const float x_value = x_row.at[k];
                largest[k / 2] = max_nan(largest[k / 2], x_value);
                smallest[k / 2] = min_nan(smallest[k / 2], x_value);
            }
        }
    }
#pragma unroll
    for (int j = 0; j < 2; ++j) {
        const float leaky_relu = largest[j] > 0.0f ? largest[j] : largest[j] * 0.2f;
        const float product = leaky_relu * multiplier_value;
        const float leaky_relu_2 = product > 0.0f ? product : product * 0.2f;
        const float leaky_relu_3 = smallest[j] > 0.0f ? smallest[j] : smallest[j] * 0.2f;
        const float product_2 = leaky_relu_3 * multiplier_value;
        const float leaky_relu_4 = product_2 > 0.0f ? product_2 : product_2 * 0.2f;
        const float out_value = max_nan(leaky_relu_2, leaky_relu_4);
        out_row.at[j] = out_value;
    }
    write_row<aligned>(out + n * 524288 + c * 16384 + d * 1024 + h * 32 + w, out_row);
}
__global__ void __launch_bounds__(256) max_pool(
        const float* __restrict__ x,
        const float* __restrict__ multiplier,
        float* __restrict__ out) {
    if (begin_at_16_bytes(x, out))
        max_pool_body<true>(x, multiplier, out);
    else
        max_pool_body<false>(x, multiplier, out);
}

// A thread writes the gradients of all elements of its 2 windows, in one pass. The gradient of multiplier is added
// up from parts of each block.
template <bool aligned>
__device__ __forceinline__ void max_pool_backward_body(
        const float* __restrict__ x,
        const float* __restrict__ multiplier,
        const float* __restrict__ grad_out,
        float* __restrict__ grad_x,
        float* __restrict__ parts_grad_multiplier) {
    const int row = blockIdx.x / 4, first = blockIdx.x % 4 * 2048;
    const int c = row % 32, n = row / 32;
    const int x_at = n * 4194304 + c * 131072;
    const float multiplier_value = multiplier[c];
    const int grad_x_at = n * 4194304 + c * 131072;
    float multiplier_total = 0;
    for (int item = first + threadIdx.x; item < first + 2048; item += 256) {
        const int w = item % 16 * 2, h = item / 16 % 32, d = item / 512;
        float best[2] = {-INFINITY, -INFINITY};
        int choice[2] = {-1, -1};
        float x_chosen[2] = {0, 0};
        const int in_w = w * 2;
#pragma unroll
        for (int kd = 0; kd < 2; ++kd) {
            const int in_d = d * 2 + kd;
#pragma unroll
            for (int kh = 0; kh < 2; ++kh) {
                const int in_h = h * 2 + kh;
                const auto x_row = read_row<4, aligned>(x + x_at + in_d * 4096 + in_h * 64 + in_w);
#pragma unroll
                for (int k = 0; k < 4; ++k) {
                    const float x_value = x_row.at[k];
                    const float leaky_relu = x_value > 0.0f ? x_value : x_value * 0.2f;
                    const float product = leaky_relu * multiplier_value;
                    const float value = product > 0.0f ? product : product * 0.2f;
                    const bool taken = (choice[k / 2] < 0) | (value > best[k / 2]) | isnan(value);
                    best[k / 2] = taken ? value : best[k / 2];
                    choice[k / 2] = taken ? (kd * 2 + kh) * 2 + k % 2 : choice[k / 2];
                    x_chosen[k / 2] = taken ? x_value : x_chosen[k / 2];
                }
            }
        }
        const auto grad_out_row = read_row<2, aligned>(grad_out + n * 524288 + c * 16384 + d * 1024 + h * 32 + w);
        float x_gradient_of[2];
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            const float grad_out_value = grad_out_row.at[j];
            const bool above = x_chosen[j] > 0.0f;
            const float leaky_relu = above ? x_chosen[j] : x_chosen[j] * 0.2f;
            const float chosen_2 = leaky_relu * multiplier_value > 0.0f ? grad_out_value : grad_out_value * 0.2f;
            const float product = chosen_2 * multiplier_value;
            const float x_gradient = above ? product : product * 0.2f;
            const float multiplier_gradient = chosen_2 * leaky_relu;
            x_gradient_of[j] = x_gradient;
            multiplier_total += multiplier_gradient;
        }
#pragma unroll
        for (int kd = 0; kd < 2; ++kd) {
            const int in_d = d * 2 + kd;
#pragma unroll
            for (int kh = 0; kh < 2; ++kh) {
                const int in_h = h * 2 + kh;
                Row<float, 4> grad_x_row;
#pragma unroll
                for (int k = 0; k < 4; ++k) {
                    const bool chosen = choice[k / 2] == (kd * 2 + kh) * 2 + k % 2;
                    grad_x_row.at[k] = chosen ? x_gradient_of[k / 2] : 0;
                }
                write_row<aligned>(grad_x + grad_x_at + in_d * 4096 + in_h * 64 + in_w, grad_x_row);
            }
        }
    }
    const float multiplier_total_sum = sum_of_block<256>(multiplier_total);
    if (threadIdx.x == 0) {
        parts_grad_multiplier[blockIdx.x] = multiplier_total_sum;
    }
}
__global__ void __launch_bounds__(256) max_pool_backward(
        const float* __restrict__ x,
        const float* __restrict__ multiplier,
        const float* __restrict__ grad_out,
        float* __restrict__ grad_x,
        float* __restrict__ parts_grad_multiplier) {
    if (begin_at_16_bytes(x, grad_out, grad_x))
        max_pool_backward_body<true>(x, multiplier, grad_out, grad_x, parts_grad_multiplier);
    else
        max_pool_backward_body<false>(x, multiplier, grad_out, grad_x, parts_grad_multiplier);
}

