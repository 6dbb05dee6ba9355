// channel_softmax: 1048576 rows of 21: neighbours in memory are rows, so a block takes 128 rows, 4 a thread, and 8 groups of threads share the columns; elements stay in registers from pass to pass
// divided by what a row shares: multiplied by its reciprocal, which is off by 1.2e-7 of the value more, and is infinite where a divisor is below 3e-39
// channel_softmax<<<(8192, 1, 1), 256>>>(x, bias, out)

__device__ __forceinline__ float max_nan(float a, float b) {  // the larger; NaN if either is, unlike fmaxf
    float larger;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
    return larger;
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
template <int groups, int lanes, int vector, typename T>
__device__ __forceinline__ void max_over_groups(T (&values)[vector], T (&parts)[groups][(vector | 1) * lanes]) {
    const int lane = threadIdx.x % lanes, own = threadIdx.x / lanes;
#pragma unroll
    for (int j = 0; j < vector; ++j) parts[own][j * lanes + lane] = values[j];
    __syncthreads();
    for (int place = threadIdx.x; place < vector * lanes; place += groups * lanes) {  // each by one thread, in order
        T value = parts[0][place];
        for (int group = 1; group < groups; ++group) value = max_nan(value, parts[group][place]);
        parts[0][place] = value;
    }
    __syncthreads();
#pragma unroll
    for (int j = 0; j < vector; ++j) values[j] = parts[0][j * lanes + lane];
}

// 1048576 rows of 21: neighbours in memory are rows, so a block takes 128 rows, 4 a thread, and 8 groups of threads share the columns; elements stay in registers from pass to pass
// largest = max of x + bias
// total = sum of exp(x + bias - largest)
// out = exp(x + bias - largest) * reciprocal(total)
__global__ void __launch_bounds__(256) channel_softmax(
    const float* __restrict__ x,
    const float* __restrict__ bias,
    float* __restrict__ out) {
    constexpr unsigned columns = 21;
    constexpr unsigned out_stride_0 = 1376256;
    constexpr unsigned out_stride_2 = 65536;
    constexpr unsigned size_1 = 65536;
    constexpr unsigned x_stride_0 = 1376256;
    constexpr unsigned x_stride_2 = 65536;
    constexpr int lanes = 32;  // threads side by side
    constexpr int groups = 8;  // of threads, which share the columns
    constexpr int vector = 4;  // neighbours that a thread takes at once
    constexpr int packs = 3;  // of a thread
    constexpr int pitch = 160;  // odd, so that groups meet different banks
    __builtin_assume(threadIdx.x < 256);
    const unsigned row = (blockIdx.x * lanes + threadIdx.x % lanes) * vector;
    const unsigned group = threadIdx.x / lanes;
    const float* x_row = x + row / size_1 * x_stride_0 + row % size_1;
    float* out_row = out + row / size_1 * out_stride_0 + row % size_1;

    // pass 1
    float kept_sum[packs][vector];
    float largest[vector] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
    {
        Pack<float, vector> x_read[packs];
        float bias_read[packs];
#pragma unroll
        for (int k = 0; k < packs; ++k) {
            const unsigned column = k * groups + group;
            if (column < columns) {
                x_read[k] = load<vector>(x_row + column * x_stride_2);
                bias_read[k] = bias[column];
            }
        }
#pragma unroll
        for (int k = 0; k < packs; ++k) {
            const unsigned column = k * groups + group;
            if (column < columns) {
#pragma unroll
                for (int j = 0; j < vector; ++j) {
                    const float x_value = x_read[k].at[j];
                    const float bias_value = bias_read[k];
                    const float largest_value = x_value + bias_value;
                    largest[j] = max_nan(largest[j], largest_value);
                    kept_sum[k][j] = largest_value;
                }
            }
        }
    }
    __shared__ float parts[groups][pitch];
    max_over_groups<groups, lanes>(largest, parts);

    // pass 2
    float kept_power[packs][vector];
    float total[vector] = {0.0f, 0.0f, 0.0f, 0.0f};
    {
#pragma unroll
        for (int k = 0; k < packs; ++k) {
            const unsigned column = k * groups + group;
            if (column < columns) {
#pragma unroll
                for (int j = 0; j < vector; ++j) {
                    const float total_value = expf(kept_sum[k][j] - largest[j]);
                    total[j] += total_value;
                    kept_power[k][j] = total_value;
                }
            }
        }
    }
    __syncthreads();  // others may still be reading the parts
    sum_over_groups<groups, lanes>(total, parts);

    // pass 3
    float row_reciprocal[vector];
#pragma unroll
    for (int j = 0; j < vector; ++j) {
        const float row_reciprocal_value = 1.0f / total[j];
        row_reciprocal[j] = row_reciprocal_value;
    }
    {
#pragma unroll
        for (int k = 0; k < packs; ++k) {
            const unsigned column = k * groups + group;
            if (column < columns) {
                Pack<float, vector> out_pack;
#pragma unroll
                for (int j = 0; j < vector; ++j) {
                    const float out_value = kept_power[k][j] * row_reciprocal[j];
                    out_pack.at[j] = out_value;
                }
                store(out_row + column * out_stride_2, out_pack);
            }
        }
    }
}
