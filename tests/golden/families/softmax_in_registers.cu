// softmax: 8192 rows of 1000: 32 threads a row, 4 rows a block; elements stay in registers from pass to pass
// divided by what a row shares: multiplied by its reciprocal, which is off by 1.2e-7 of the value more, and is infinite where a divisor is below 3e-39
// softmax<<<(2048, 1, 1), 128>>>(x, out)

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
template <int team, typename T>
__device__ __forceinline__ T sum_over_team(T value) {  // of `team` neighbouring lanes, the same for each of them
#pragma unroll
    for (int distance = team / 2; distance > 0; distance /= 2) {
        value += __shfl_xor_sync(0xffffffffu, value, distance);
    }
    return value;
}
template <int team, typename T>
__device__ __forceinline__ T max_over_team(T value) {  // of `team` neighbouring lanes, the same for each of them
#pragma unroll
    for (int distance = team / 2; distance > 0; distance /= 2) {
        value = max_nan(value, __shfl_xor_sync(0xffffffffu, value, distance));
    }
    return value;
}

// 8192 rows of 1000: 32 threads a row, 4 rows a block; elements stay in registers from pass to pass
// largest = max of x
// total = sum of exp(x - largest)
// out = exp(x - largest) * reciprocal(total)
__global__ void __launch_bounds__(128) softmax(const float* __restrict__ x, float* __restrict__ out) {
    constexpr unsigned columns = 1000;
    constexpr unsigned block_rows = 4;  // of a block
    constexpr unsigned out_stride_0 = 1000;
    constexpr unsigned x_stride_0 = 1000;
    constexpr int team = 32;  // threads that share a row
    constexpr int vector = 4;  // neighbours that a thread takes at once
    constexpr int packs = 8;  // of a thread
    __builtin_assume(threadIdx.x < 128);
    const unsigned thread = threadIdx.x % team;
    const unsigned row = blockIdx.x * block_rows + threadIdx.x / team;
    const float* x_row = x + row * x_stride_0;
    float* out_row = out + row * out_stride_0;

    // pass 1
    float kept_x[packs][vector];
    float largest = -INFINITY;
    {
        Pack<float, vector> x_read[packs];
#pragma unroll
        for (int k = 0; k < packs; ++k) {
            const unsigned column = (k * team + thread) * vector;
            if (column < columns) {
                x_read[k] = load<vector>(x_row + column);
            }
        }
#pragma unroll
        for (int k = 0; k < packs; ++k) {
            const unsigned column = (k * team + thread) * vector;
            if (column < columns) {
#pragma unroll
                for (int j = 0; j < vector; ++j) {
                    const float x_value = x_read[k].at[j];
                    largest = max_nan(largest, x_value);
                    kept_x[k][j] = x_value;
                }
            }
        }
    }
    largest = max_over_team<team>(largest);

    // pass 2
    float kept_power[packs][vector];
    float total = 0.0f;
    {
#pragma unroll
        for (int k = 0; k < packs; ++k) {
            const unsigned column = (k * team + thread) * vector;
            if (column < columns) {
#pragma unroll
                for (int j = 0; j < vector; ++j) {
                    const float total_value = expf(kept_x[k][j] - largest);
                    total += total_value;
                    kept_power[k][j] = total_value;
                }
            }
        }
    }
    total = sum_over_team<team>(total);

    // pass 3
    const float row_reciprocal = 1.0f / total;
    {
#pragma unroll
        for (int k = 0; k < packs; ++k) {
            const unsigned column = (k * team + thread) * vector;
            if (column < columns) {
                Pack<float, vector> out_pack;
#pragma unroll
                for (int j = 0; j < vector; ++j) {
                    const float out_value = kept_power[k][j] * row_reciprocal;
                    out_pack.at[j] = out_value;
                }
                store(out_row + column, out_pack);
            }
        }
    }
}
