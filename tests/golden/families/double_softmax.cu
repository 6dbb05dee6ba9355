// softmax: 512 rows of 100: a block of 64 threads a row; elements stay in registers from pass to pass
// softmax<<<(512, 1, 1), 64>>>(x, out)

__device__ __forceinline__ double max_nan(double a, double b) {  // the larger; NaN if either is, unlike fmax
    return a != a || a > b ? a : b;
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
template <int team, typename T>
__device__ __forceinline__ T max_over_team(T value) {  // of `team` neighbouring lanes, the same for each of them
#pragma unroll
    for (int distance = team / 2; distance > 0; distance /= 2) {
        value = max_nan(value, __shfl_xor_sync(0xffffffffu, value, distance));
    }
    return value;
}
template <int threads, typename T>
__device__ __forceinline__ T max_over_block(T value, T (&parts)[threads / 32]) {  // in a fixed order
    value = max_over_team<32>(value);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
    __syncthreads();
    return max_over_team<threads / 32>(parts[threadIdx.x % (threads / 32)]);
}

// 512 rows of 100: a block of 64 threads a row; elements stay in registers from pass to pass
// largest = max of x
// total = sum of exp(x - largest)
// out = exp(x - largest) / total
__global__ void __launch_bounds__(64) softmax(const double* __restrict__ x, double* __restrict__ out) {
    constexpr unsigned columns = 100;
    constexpr unsigned out_stride_0 = 100;
    constexpr unsigned x_stride_0 = 100;
    constexpr int threads = 64;
    constexpr int vector = 2;  // neighbours that a thread takes at once
    const unsigned row = blockIdx.x;
    const double* x_row = x + row * x_stride_0;
    double* out_row = out + row * out_stride_0;

    // pass 1
    double kept_x[vector];
    double largest = -INFINITY;
    {
        const unsigned column = threadIdx.x * vector;
        if (column < columns) {
            const Pack<double, vector> x_read = load<vector>(x_row + column);
#pragma unroll
            for (int j = 0; j < vector; ++j) {
                const double x_value = x_read.at[j];
                largest = max_nan(largest, x_value);
                kept_x[j] = x_value;
            }
        }
    }
    __shared__ double parts[threads / 32];
    largest = max_over_block<threads>(largest, parts);

    // pass 2
    double kept_power[vector];
    double total = 0.0;
    {
        const unsigned column = threadIdx.x * vector;
        if (column < columns) {
#pragma unroll
            for (int j = 0; j < vector; ++j) {
                const double total_value = exp(kept_x[j] - largest);
                total += total_value;
                kept_power[j] = total_value;
            }
        }
    }
    __syncthreads();  // others may still be reading the parts
    total = sum_over_block<threads>(total, parts);

    // pass 3
    {
        const unsigned column = threadIdx.x * vector;
        if (column < columns) {
            Pack<double, vector> out_pack;
#pragma unroll
            for (int j = 0; j < vector; ++j) {
                const double out_value = kept_power[j] / total;
                out_pack.at[j] = out_value;
            }
            store(out_row + column, out_pack);
        }
    }
}
