// layer_norm: 8192 rows of 768: 32 threads a row, 4 rows a block; elements stay in registers from pass to pass
// layer_norm<<<(2048, 1, 1), 128>>>(x, weight, bias, out)

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

// 8192 rows of 768: 32 threads a row, 4 rows a block; elements stay in registers from pass to pass
// total = sum of x
// squares = sum of square(x - total * 0.0013020833333333333)
__global__ void __launch_bounds__(128) layer_norm(
    const float* __restrict__ x,
    const float* __restrict__ weight,
    const float* __restrict__ bias,
    float* __restrict__ out) {
    constexpr unsigned block_rows = 4;  // of a block
    constexpr unsigned out_stride_0 = 768;
    constexpr unsigned x_stride_0 = 768;
    constexpr int team = 32;  // threads that share a row
    constexpr int vector = 4;  // neighbours that a thread takes at once
    constexpr int packs = 6;  // of a thread
    const unsigned thread = threadIdx.x % team;
    const unsigned row = blockIdx.x * block_rows + threadIdx.x / team;
    const float* x_row = x + row * x_stride_0;
    float* out_row = out + row * out_stride_0;

    // pass 1
    float kept_x[packs][vector];
    float total = 0.0f;
    {
        Pack<float, vector> x_read[packs];
#pragma unroll
        for (int k = 0; k < packs; ++k) {
            const unsigned column = (k * team + thread) * vector;
            x_read[k] = load<vector>(x_row + column);
        }
#pragma unroll
        for (int k = 0; k < packs; ++k) {
#pragma unroll
            for (int j = 0; j < vector; ++j) {
                const float x_value = x_read[k].at[j];
                total += x_value;
                kept_x[k][j] = x_value;
            }
        }
    }
    total = sum_over_team<team>(total);

    // pass 2
    const float row_product = total * 0.0013020834f;
    float kept_difference[packs][vector];
    float squares = 0.0f;
    {
#pragma unroll
        for (int k = 0; k < packs; ++k) {
#pragma unroll
            for (int j = 0; j < vector; ++j) {
                const float kept_difference_value = kept_x[k][j] - row_product;
                const float squares_value = kept_difference_value * kept_difference_value;
                squares += squares_value;
                kept_difference[k][j] = kept_difference_value;
            }
        }
    }
    squares = sum_over_team<team>(squares);

    // pass 3
    const float row_inverse_root = rsqrtf(fmaf(squares, 0.0013020834f, 1e-05f));
    {
#pragma unroll
        for (int k = 0; k < packs; ++k) {
            const unsigned column = (k * team + thread) * vector;
            const Pack<float, vector> weight_read = load<vector>(weight + column);
            const Pack<float, vector> bias_read = load<vector>(bias + column);
            Pack<float, vector> out_pack;
#pragma unroll
            for (int j = 0; j < vector; ++j) {
                const float weight_value = weight_read.at[j];
                const float bias_value = bias_read.at[j];
                const float sum = fmaf(kept_difference[k][j] * row_inverse_root, weight_value, bias_value);
                const float out_value = sum * reciprocal_approx(1.0f + expf(-sum));
                out_pack.at[j] = out_value;
            }
            store(out_row + column, out_pack);
        }
    }
}
