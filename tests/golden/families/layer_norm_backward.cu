// layer_norm_backward: 8192 rows of 768: a block of 128 threads a row; elements stay in registers from pass to pass
// layer_norm_backward<<<(8192, 1, 1), 128>>>(x, weight, bias, grad_out, grad_x, partial_total, partial_squares)

__device__ __forceinline__ float reciprocal_approx(float x) {  // 1 / x, right to a unit in the last place
    float inverse;
    asm("rcp.approx.f32 %0, %1;" : "=f"(inverse) : "f"(x));
    return inverse;
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

// 8192 rows of 768: a block of 128 threads a row; elements stay in registers from pass to pass
// total = sum of x
// squares = sum of square(x - total * 0.0013020833333333333)
// partial_total = total
// partial_squares = squares
__global__ void __launch_bounds__(128) layer_norm_backward(
    const float* __restrict__ x,
    const float* __restrict__ weight,
    const float* __restrict__ bias,
    const float* __restrict__ grad_out,
    float* __restrict__ grad_x,
    float* __restrict__ partial_total,
    float* __restrict__ partial_squares) {
    constexpr unsigned columns = 768;
    constexpr unsigned grad_out_stride_0 = 768;
    constexpr unsigned grad_x_stride_0 = 768;
    constexpr unsigned x_stride_0 = 768;
    constexpr int threads = 128;
    constexpr int vector = 4;  // neighbours that a thread takes at once
    constexpr int packs = 2;  // of a thread
    __builtin_assume(threadIdx.x < 128);
    const unsigned row = blockIdx.x;
    const float* x_row = x + row * x_stride_0;
    const float* grad_out_row = grad_out + row * grad_out_stride_0;
    float* grad_x_row = grad_x + row * grad_x_stride_0;

    // pass 1
    float kept_x[packs][vector];
    float kept_grad_out[packs][vector];
    float total = 0.0f;
    {
        Pack<float, vector> x_read[packs];
        Pack<float, vector> grad_out_read[packs];
#pragma unroll
        for (int k = 0; k < packs; ++k) {
            const unsigned column = (k * threads + threadIdx.x) * vector;
            if (column < columns) {
                x_read[k] = load<vector>(x_row + column);
                grad_out_read[k] = load<vector>(grad_out_row + column);
            }
        }
#pragma unroll
        for (int k = 0; k < packs; ++k) {
            const unsigned column = (k * threads + threadIdx.x) * vector;
            if (column < columns) {
#pragma unroll
                for (int j = 0; j < vector; ++j) {
                    const float x_value = x_read[k].at[j];
                    const float grad_out_value = grad_out_read[k].at[j];
                    total += x_value;
                    kept_x[k][j] = x_value;
                    kept_grad_out[k][j] = grad_out_value;
                }
            }
        }
    }
    __shared__ float parts[threads / 32];
    total = sum_over_block<threads>(total, parts);

    // pass 2
    const float row_product = total * 0.0013020834f;
    float kept_difference[packs][vector];
    float kept_product[packs][vector];
    float squares = 0.0f;
    {
#pragma unroll
        for (int k = 0; k < packs; ++k) {
            const unsigned column = (k * threads + threadIdx.x) * vector;
            if (column < columns) {
#pragma unroll
                for (int j = 0; j < vector; ++j) {
                    const float kept_difference_value = kept_x[k][j] - row_product;
                    const float squares_value = kept_difference_value * kept_difference_value;
                    const float kept_product_value = 2.0f * kept_difference_value;
                    squares += squares_value;
                    kept_difference[k][j] = kept_difference_value;
                    kept_product[k][j] = kept_product_value;
                }
            }
        }
    }
    __syncthreads();  // others may still be reading the parts
    squares = sum_over_block<threads>(squares, parts);

    // pass 3
    const float row_inverse_root = rsqrtf(fmaf(squares, 0.0013020834f, 1e-05f));
    const float row_product_2 = row_inverse_root * row_inverse_root * row_inverse_root;
    float kept_product_2[packs][vector];
    float grad_squares = 0.0f;
    float grad_total = 0.0f;
    {
#pragma unroll
        for (int k = 0; k < packs; ++k) {
            const unsigned column = (k * threads + threadIdx.x) * vector;
            if (column < columns) {
                const Pack<float, vector> weight_read = load<vector>(weight + column);
                const Pack<float, vector> bias_read = load<vector>(bias + column);
#pragma unroll
                for (int j = 0; j < vector; ++j) {
                    const float weight_value = weight_read.at[j];
                    const float bias_value = bias_read.at[j];
                    const float sum = fmaf(kept_difference[k][j] * row_inverse_root, weight_value, bias_value);
                    const float reciprocal = reciprocal_approx(1.0f + expf(-sum));
                    const float silu_slope = reciprocal * fmaf(sum, 1.0f - reciprocal, 1.0f);
                    const float product = kept_grad_out[k][j] * silu_slope * weight_value;
                    const float grad_squares_value = -0.5f * (product * kept_difference[k][j]) * row_product_2 * 0.0013020834f;
                    const float kept_product_2_value = product * row_inverse_root;
                    const float grad_total_value = kept_product_2_value * -0.0013020834f;
                    grad_squares += grad_squares_value;
                    grad_total += grad_total_value;
                    kept_product_2[k][j] = kept_product_2_value;
                }
            }
        }
    }
    __syncthreads();  // others may still be reading the parts
    grad_squares = sum_over_block<threads>(grad_squares, parts);
    __syncthreads();  // others may still be reading the parts
    grad_total = sum_over_block<threads>(grad_total, parts);

    // pass 4
    {
#pragma unroll
        for (int k = 0; k < packs; ++k) {
            const unsigned column = (k * threads + threadIdx.x) * vector;
            if (column < columns) {
                Pack<float, vector> grad_x_pack;
#pragma unroll
                for (int j = 0; j < vector; ++j) {
                    const float grad_x_value = fmaf(grad_squares, kept_product[k][j], kept_product_2[k][j]) + grad_total;
                    grad_x_pack.at[j] = grad_x_value;
                }
                store(grad_x_row + column, grad_x_pack);
            }
        }
    }

    if (threadIdx.x == 0) {
        partial_total[row] = total;
        partial_squares[row] = squares;
    }
}

// layer_norm_backward_grad_weight: 768 rows of 8192: neighbours in memory are rows, so a block takes 128 rows, 4 a thread, and 8 groups of threads share the columns; rows are few and long, so 32 blocks share each, and their parts are added in order
// layer_norm_backward_grad_weight_finish: 768 rows of 32: neighbours in memory are rows, so a block takes 16 rows, 4 a thread, and 32 groups of threads share the columns
// float32 grad_weight_total_parts[24576]
// float32 grad_bias_total_parts[24576]
// layer_norm_backward_grad_weight<<<(192, 1, 1), 256>>>(x, weight, bias, grad_out, partial_total, partial_squares, grad_weight_total_parts, grad_bias_total_parts)
// layer_norm_backward_grad_weight_finish<<<(48, 1, 1), 128>>>(grad_weight_total_parts, grad_bias_total_parts, grad_weight, grad_bias)

__device__ __forceinline__ float reciprocal_approx(float x) {  // 1 / x, right to a unit in the last place
    float inverse;
    asm("rcp.approx.f32 %0, %1;" : "=f"(inverse) : "f"(x));
    return inverse;
}
template <typename T, int count>
struct __align__(sizeof(T) * count) Pack {  // neighbours that are loaded or stored by one instruction
    T at[count];
};
template <int count, typename T>
__device__ __forceinline__ Pack<T, count> load(const T* from) {
    return *reinterpret_cast<const Pack<T, count>*>(from);
}
template <int groups, int lanes, int vector, typename T>
__device__ __forceinline__ void sum_over_groups(T (&values)[vector], T (&parts)[groups][(vector | 1) * lanes]) {
    const int lane = threadIdx.x % lanes, own = threadIdx.x / lanes;
#pragma unroll
    for (int j = 0; j < vector; ++j) parts[own][j * lanes + lane] = values[j];
    __syncthreads();
    for (int place = threadIdx.x; place < vector * lanes; place += groups * lanes) {  // each by one thread, in order
        T value = parts[0][place];
        for (int group = 1; group < groups; ++group) value += parts[group][place];
        parts[0][place] = value;
    }
    __syncthreads();
#pragma unroll
    for (int j = 0; j < vector; ++j) values[j] = parts[0][j * lanes + lane];
}

// 768 rows of 8192: neighbours in memory are rows, so a block takes 128 rows, 4 a thread, and 8 groups of threads share the columns; rows are few and long, so 32 blocks share each, and their parts are added in order
__global__ void __launch_bounds__(256) layer_norm_backward_grad_weight(
    const float* __restrict__ x,
    const float* __restrict__ weight,
    const float* __restrict__ bias,
    const float* __restrict__ grad_out,
    const float* __restrict__ partial_total,
    const float* __restrict__ partial_squares,
    float* __restrict__ grad_weight_total_parts,
    float* __restrict__ grad_bias_total_parts) {
    constexpr unsigned rows = 768;
    constexpr unsigned columns = 8192;
    constexpr unsigned row_blocks = 6;  // blocks that share a part of the columns
    constexpr unsigned chunk_columns = 256;  // of a block
    constexpr unsigned step = 16;  // columns that a block takes at once
    constexpr unsigned grad_out_stride_1 = 768;
    constexpr unsigned x_stride_1 = 768;
    constexpr int lanes = 32;  // threads side by side
    constexpr int groups = 8;  // of threads, which share the columns
    constexpr int vector = 4;  // neighbours that a thread takes at once
    constexpr int packs = 2;  // of a thread
    constexpr int pitch = 160;  // odd, so that groups meet different banks
    const unsigned chunk = blockIdx.x / row_blocks;
    const unsigned row = (blockIdx.x % row_blocks * lanes + threadIdx.x % lanes) * vector;
    const unsigned group = threadIdx.x / lanes;
    const unsigned begin = chunk * chunk_columns;
    const unsigned end = begin + chunk_columns < columns ? begin + chunk_columns : columns;
    const float* x_row = x + row;
    const float* grad_out_row = grad_out + row;
    float weight_value[vector];
#pragma unroll
    for (int j = 0; j < vector; ++j) {
        weight_value[j] = weight[row + j];
    }
    float bias_value[vector];
#pragma unroll
    for (int j = 0; j < vector; ++j) {
        bias_value[j] = bias[row + j];
    }

    float grad_weight_total[vector] = {0.0f, 0.0f, 0.0f, 0.0f};
    float grad_bias_total[vector] = {0.0f, 0.0f, 0.0f, 0.0f};
    for (unsigned tile = begin; tile < end; tile += step) {
        Pack<float, vector> x_read[packs];
        Pack<float, vector> grad_out_read[packs];
        float partial_total_read[packs];
        float partial_squares_read[packs];
#pragma unroll
        for (int k = 0; k < packs; ++k) {
            const unsigned column = tile + k * groups + group;
            x_read[k] = load<vector>(x_row + column * x_stride_1);
            grad_out_read[k] = load<vector>(grad_out_row + column * grad_out_stride_1);
            partial_total_read[k] = partial_total[column];
            partial_squares_read[k] = partial_squares[column];
        }
#pragma unroll
        for (int k = 0; k < packs; ++k) {
#pragma unroll
            for (int j = 0; j < vector; ++j) {
                const float x_value = x_read[k].at[j];
                const float grad_out_value = grad_out_read[k].at[j];
                const float partial_total_value = partial_total_read[k];
                const float partial_squares_value = partial_squares_read[k];
                const float product = fmaf(-partial_total_value, 0.0013020834f, x_value) * rsqrtf(fmaf(partial_squares_value, 0.0013020834f, 1e-05f));
                const float sum = fmaf(product, weight_value[j], bias_value[j]);
                const float reciprocal = reciprocal_approx(1.0f + expf(-sum));
                const float silu_slope = reciprocal * fmaf(sum, 1.0f - reciprocal, 1.0f);
                const float grad_bias_total_value = grad_out_value * silu_slope;
                const float grad_weight_total_value = grad_bias_total_value * product;
                grad_weight_total[j] += grad_weight_total_value;
                grad_bias_total[j] += grad_bias_total_value;
            }
        }
    }
    __shared__ float parts[groups][pitch];
    sum_over_groups<groups, lanes>(grad_weight_total, parts);
    __syncthreads();  // others may still be reading the parts
    sum_over_groups<groups, lanes>(grad_bias_total, parts);

    if (group == 0) {
#pragma unroll
        for (int j = 0; j < vector; ++j) {
            grad_weight_total_parts[chunk * rows + row + j] = grad_weight_total[j];
            grad_bias_total_parts[chunk * rows + row + j] = grad_bias_total[j];
        }
    }
}

// 768 rows of 32: neighbours in memory are rows, so a block takes 16 rows, 4 a thread, and 32 groups of threads share the columns
// grad_weight_total = sum of grad_weight_total_parts
// grad_bias_total = sum of grad_bias_total_parts
// grad_weight = grad_weight_total
// grad_bias = grad_bias_total
__global__ void __launch_bounds__(128) layer_norm_backward_grad_weight_finish(
    const float* __restrict__ grad_weight_total_parts,
    const float* __restrict__ grad_bias_total_parts,
    float* __restrict__ grad_weight,
    float* __restrict__ grad_bias) {
    constexpr unsigned grad_bias_total_parts_stride_1 = 768;
    constexpr unsigned grad_weight_total_parts_stride_1 = 768;
    constexpr int lanes = 4;  // threads side by side
    constexpr int groups = 32;  // of threads, which share the columns
    constexpr int vector = 4;  // neighbours that a thread takes at once
    constexpr int pitch = 20;  // odd, so that groups meet different banks
    const unsigned row = (blockIdx.x * lanes + threadIdx.x % lanes) * vector;
    const unsigned group = threadIdx.x / lanes;
    const float* grad_weight_total_parts_row = grad_weight_total_parts + row;
    const float* grad_bias_total_parts_row = grad_bias_total_parts + row;

    float grad_weight_total[vector] = {0.0f, 0.0f, 0.0f, 0.0f};
    float grad_bias_total[vector] = {0.0f, 0.0f, 0.0f, 0.0f};
    const unsigned column = group;
    const Pack<float, vector> grad_weight_total_parts_read = load<vector>(grad_weight_total_parts_row + column * grad_weight_total_parts_stride_1);
    const Pack<float, vector> grad_bias_total_parts_read = load<vector>(grad_bias_total_parts_row + column * grad_bias_total_parts_stride_1);
#pragma unroll
    for (int j = 0; j < vector; ++j) {
        const float grad_weight_total_parts_value = grad_weight_total_parts_read.at[j];
        const float grad_bias_total_parts_value = grad_bias_total_parts_read.at[j];
        grad_weight_total[j] += grad_weight_total_parts_value;
        grad_bias_total[j] += grad_bias_total_parts_value;
    }
    __shared__ float parts[groups][pitch];
    sum_over_groups<groups, lanes>(grad_weight_total, parts);
    __syncthreads();  // others may still be reading the parts
    sum_over_groups<groups, lanes>(grad_bias_total, parts);

    if (group == 0) {
#pragma unroll
        for (int j = 0; j < vector; ++j) {
            grad_weight[row + j] = grad_weight_total[j];
            grad_bias[row + j] = grad_bias_total[j];
        }
    }
}
