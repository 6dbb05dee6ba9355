// chain_backward: 64 rows of 6888448: a block of 256 threads a row; rows are few and long, so 66 blocks share each, and their parts are added in order
// chain_backward_finish: 64 rows of 66: a block of 64 threads a row
// gelu_slope(clamp(leaky_relu(x, 0.2) + bias, -1, 1)) is a polynomial, right to 2.4e-07
// gelu(clamp(leaky_relu(x, 0.2) + bias, -1, 1)) is a polynomial, right to 1.5e-07
// float32 grad_bias_row_parts[4224]
// float32 grad_scale_row_parts[4224]
// chain_backward<<<(4224, 1, 1), 256>>>(x, bias, scale, grad_out, grad_x, grad_other, grad_bias_row_parts, grad_scale_row_parts)
// chain_backward_finish<<<(64, 1, 1), 64>>>(grad_bias_row_parts, grad_scale_row_parts, grad_bias, partial_grad_scale)

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
template <int count, typename T>
__device__ __forceinline__ void store(T* to, const Pack<T, count>& pack) {
    if constexpr (sizeof(T) < 8 && sizeof(T) * count == 16) {
        const uint4 words = reinterpret_cast<const uint4&>(pack);
        asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};"
                     :: "l"(to), "r"(words.x), "r"(words.y), "r"(words.z), "r"(words.w));
    } else if constexpr (sizeof(T) < 8 && sizeof(T) * count == 8) {
        const uint2 words = reinterpret_cast<const uint2&>(pack);
        asm volatile("st.global.v2.b32 [%0], {%1, %2};" :: "l"(to), "r"(words.x), "r"(words.y));
    } else {
        *reinterpret_cast<Pack<T, count>*>(to) = pack;
    }
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
__device__ __forceinline__ T sum_over_block(T value, T (&parts)[threads / 32]) {  // in a fixed order
    value = sum_over_team<32>(value);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
    __syncthreads();
    return sum_over_team<threads / 32>(parts[threadIdx.x % (threads / 32)]);
}

// 64 rows of 6888448: a block of 256 threads a row; rows are few and long, so 66 blocks share each, and their parts are added in order
// grad_other = grad_out
__global__ void __launch_bounds__(256) chain_backward(
    const float* __restrict__ x,
    const float* __restrict__ bias,
    const float* __restrict__ scale,
    const float* __restrict__ grad_out,
    float* __restrict__ grad_x,
    float* __restrict__ grad_other,
    float* __restrict__ grad_bias_row_parts,
    float* __restrict__ grad_scale_row_parts) {
    constexpr unsigned columns = 6888448;
    constexpr unsigned chunks = 66;  // blocks that share a row
    constexpr unsigned chunk_columns = 104448;  // of a block
    constexpr unsigned step = 2048;  // columns that a block takes at once
    constexpr unsigned grad_other_stride_0 = 53816;
    constexpr unsigned grad_other_stride_1 = 3444224;
    constexpr unsigned grad_out_stride_0 = 53816;
    constexpr unsigned grad_out_stride_1 = 3444224;
    constexpr unsigned grad_x_stride_0 = 53816;
    constexpr unsigned grad_x_stride_1 = 3444224;
    constexpr unsigned size_2 = 53816;
    constexpr unsigned x_stride_0 = 53816;
    constexpr unsigned x_stride_1 = 3444224;
    constexpr int threads = 256;
    constexpr int vector = 4;  // neighbours that a thread takes at once
    constexpr int packs = 2;  // of a thread
    const unsigned chunk = blockIdx.x % chunks;
    const unsigned row = blockIdx.x / chunks;
    const unsigned begin = chunk * chunk_columns;
    const unsigned end = begin + chunk_columns < columns ? begin + chunk_columns : columns;
    const float* x_row = x + row * x_stride_0;
    const float* grad_out_row = grad_out + row * grad_out_stride_0;
    float* grad_x_row = grad_x + row * grad_x_stride_0;
    float* grad_other_row = grad_other + row * grad_other_stride_0;
    const float bias_value = bias[row];
    const float scale_value = scale[0];

    float grad_bias_row = 0.0f;
    float grad_scale_row = 0.0f;
    for (unsigned tile = begin; tile < end; tile += step) {
        Pack<float, vector> x_read[packs];
        Pack<float, vector> grad_out_read[packs];
#pragma unroll
        for (int k = 0; k < packs; ++k) {
            const unsigned column = tile + (k * threads + threadIdx.x) * vector;
            if (column < end) {
                x_read[k] = load<vector>(x_row + column / size_2 * x_stride_1 + column % size_2);
                grad_out_read[k] = load<vector>(grad_out_row + column / size_2 * grad_out_stride_1 + column % size_2);
            }
        }
#pragma unroll
        for (int k = 0; k < packs; ++k) {
            const unsigned column = tile + (k * threads + threadIdx.x) * vector;
            if (column < end) {
                Pack<float, vector> grad_x_pack;
                Pack<float, vector> grad_other_pack;
#pragma unroll
                for (int j = 0; j < vector; ++j) {
                    const float x_value = x_read[k].at[j];
                    const float grad_out_value = grad_out_read[k].at[j];
                    const bool above = x_value > 0.0f;
                    const float leaky_relu = above ? x_value : x_value * 0.2f;
                    const float sum = leaky_relu + bias_value;
                    const float clamp = min_nan(max_nan(sum, -1.0f), 1.0f);
                    const float clamp_squared = clamp * clamp;
                    // gelu_slope on [-1, 1]: off by at most 2.4e-07 (proven, rounding included)
                    float gelu_slope = -8.875188e-05f;
                    gelu_slope = fmaf(gelu_slope, clamp_squared, 0.001127868f);
                    gelu_slope = fmaf(gelu_slope, clamp_squared, -0.009485175f);
                    gelu_slope = fmaf(gelu_slope, clamp_squared, 0.059838224f);
                    gelu_slope = fmaf(gelu_slope, clamp_squared, -0.26596126f);
                    gelu_slope = fmaf(gelu_slope, clamp_squared, 0.7978846f);
                    gelu_slope = fmaf(gelu_slope, clamp, 0.5f);
                    const float grad_bias_row_value = sum >= -1.0f && sum <= 1.0f ? grad_out_value * scale_value * gelu_slope : 0.0f;
                    // gelu on [-1, 1]: off by at most 1.5e-07 (proven, rounding included)
                    float gelu = 9.431737e-05f;
                    gelu = fmaf(gelu, clamp_squared, -0.0011695193f);
                    gelu = fmaf(gelu, clamp_squared, 0.009967302f);
                    gelu = fmaf(gelu, clamp_squared, -0.06648961f);
                    gelu = fmaf(gelu, clamp_squared, 0.39894226f);
                    gelu = fmaf(gelu, clamp_squared, 0.5f * clamp);
                    const float grad_scale_row_value = grad_out_value * gelu;
                    const float grad_x_value = above ? grad_bias_row_value : grad_bias_row_value * 0.2f;
                    grad_bias_row += grad_bias_row_value;
                    grad_scale_row += grad_scale_row_value;
                    grad_x_pack.at[j] = grad_x_value;
                    grad_other_pack.at[j] = grad_out_value;
                }
                store(grad_x_row + column / size_2 * grad_x_stride_1 + column % size_2, grad_x_pack);
                store(grad_other_row + column / size_2 * grad_other_stride_1 + column % size_2, grad_other_pack);
            }
        }
    }
    __shared__ float parts[threads / 32];
    grad_bias_row = sum_over_block<threads>(grad_bias_row, parts);
    __syncthreads();  // others may still be reading the parts
    grad_scale_row = sum_over_block<threads>(grad_scale_row, parts);

    if (threadIdx.x == 0) {
        grad_bias_row_parts[row * chunks + chunk] = grad_bias_row;
        grad_scale_row_parts[row * chunks + chunk] = grad_scale_row;
    }
}

// 64 rows of 66: a block of 64 threads a row
// grad_bias_row = sum of grad_bias_row_parts
// grad_scale_row = sum of grad_scale_row_parts
// grad_bias = grad_bias_row
// partial_grad_scale = grad_scale_row
__global__ void __launch_bounds__(64) chain_backward_finish(
    const float* __restrict__ grad_bias_row_parts,
    const float* __restrict__ grad_scale_row_parts,
    float* __restrict__ grad_bias,
    float* __restrict__ partial_grad_scale) {
    constexpr unsigned columns = 66;
    constexpr unsigned grad_bias_row_parts_stride_0 = 66;
    constexpr unsigned grad_scale_row_parts_stride_0 = 66;
    constexpr int threads = 64;
    constexpr int vector = 2;  // neighbours that a thread takes at once
    const unsigned row = blockIdx.x;
    const float* grad_bias_row_parts_row = grad_bias_row_parts + row * grad_bias_row_parts_stride_0;
    const float* grad_scale_row_parts_row = grad_scale_row_parts + row * grad_scale_row_parts_stride_0;

    float grad_bias_row = 0.0f;
    float grad_scale_row = 0.0f;
    const unsigned column = threadIdx.x * vector;
    if (column < columns) {
        const Pack<float, vector> grad_bias_row_parts_read = load<vector>(grad_bias_row_parts_row + column);
        const Pack<float, vector> grad_scale_row_parts_read = load<vector>(grad_scale_row_parts_row + column);
#pragma unroll
        for (int j = 0; j < vector; ++j) {
            const float grad_bias_row_parts_value = grad_bias_row_parts_read.at[j];
            const float grad_scale_row_parts_value = grad_scale_row_parts_read.at[j];
            grad_bias_row += grad_bias_row_parts_value;
            grad_scale_row += grad_scale_row_parts_value;
        }
    }
    __shared__ float parts[threads / 32];
    grad_bias_row = sum_over_block<threads>(grad_bias_row, parts);
    __syncthreads();  // others may still be reading the parts
    grad_scale_row = sum_over_block<threads>(grad_scale_row, parts);

    if (threadIdx.x == 0) {
        grad_bias[row] = grad_bias_row;
        partial_grad_scale[row] = grad_scale_row;
    }
}

// chain_backward_grad_scale: 1 row of 64: 16 threads a row, 8 rows a block
// chain_backward_grad_scale<<<(1, 1, 1), 128>>>(partial_grad_scale, grad_scale)

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

// 1 row of 64: 16 threads a row, 8 rows a block
// grad_scale_total = sum of partial_grad_scale
// grad_scale = grad_scale_total
__global__ void __launch_bounds__(128) chain_backward_grad_scale(
    const float* __restrict__ partial_grad_scale,
    float* __restrict__ grad_scale) {
    constexpr unsigned rows = 1;
    constexpr unsigned block_rows = 8;  // of a block
    constexpr int team = 16;  // threads that share a row
    constexpr int vector = 4;  // neighbours that a thread takes at once
    const unsigned thread = threadIdx.x % team;
    const unsigned row = blockIdx.x * block_rows + threadIdx.x / team;

    float grad_scale_total = 0.0f;
    const unsigned column = thread * vector;
    if (row < rows) {
        const Pack<float, vector> partial_grad_scale_read = load<vector>(partial_grad_scale + column);
#pragma unroll
        for (int j = 0; j < vector; ++j) {
            const float partial_grad_scale_value = partial_grad_scale_read.at[j];
            grad_scale_total += partial_grad_scale_value;
        }
    }
    grad_scale_total = sum_over_team<team>(grad_scale_total);

    if (thread == 0 && row < rows) {
        grad_scale[0] = grad_scale_total;
    }
}
