// chain: 6422528 elements, 8 a thread, 4 at once
// chain<<<(3136, 1, 1), 256>>>(x, y, bias, out)

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

// 6422528 elements, 8 a thread, 4 at once
// out = sigmoid(x * y + bias)
__global__ void __launch_bounds__(256) chain(
    const float* __restrict__ x,
    const float* __restrict__ y,
    const float* __restrict__ bias,
    float* __restrict__ out) {
    constexpr unsigned step = 2048;  // of a block
    constexpr unsigned size_1 = 64;
    constexpr int threads = 256;
    constexpr int vector = 4;  // neighbours that a thread takes at once
    constexpr int packs = 2;  // of a thread
    const unsigned chunk = blockIdx.x;

    Pack<float, vector> x_read[packs];
    Pack<float, vector> y_read[packs];
#pragma unroll
    for (int k = 0; k < packs; ++k) {
        const unsigned i = chunk * step + (k * threads + threadIdx.x) * vector;
        x_read[k] = load<vector>(x + i);
        y_read[k] = load<vector>(y + i);
    }
#pragma unroll
    for (int k = 0; k < packs; ++k) {
        const unsigned i = chunk * step + (k * threads + threadIdx.x) * vector;
        const Pack<float, vector> bias_read = load<vector>(bias + i % size_1);
        Pack<float, vector> out_pack;
#pragma unroll
        for (int j = 0; j < vector; ++j) {
            const float x_value = x_read[k].at[j];
            const float y_value = y_read[k].at[j];
            const float bias_value = bias_read.at[j];
            const float out_value = reciprocal_approx(1.0f + expf(-fmaf(x_value, y_value, bias_value)));
            out_pack.at[j] = out_value;
        }
        store(out + i, out_pack);
    }
}
