// avg_pool: 8192 blocks of 256
// avg_pool_backward: 32768 blocks of 256

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

// The mean of windows of 2x2x2: [32, 32, 32, 64, 64] to [32, 32, 16, 32, 32]. A thread takes 8 windows along c,
// which lie side by side in the output.
template <bool aligned>
__device__ __forceinline__ void avg_pool_body(
        const float* __restrict__ x,
        float* __restrict__ out) {
    const unsigned item = blockIdx.x * 256 + threadIdx.x;
    const int w = item % 32, h = item / 32 % 32, d = item / 1024 % 16, first_c = item / 16384 % 4 * 8, n = item / 65536;
    Row<float, 8> out_row;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
        const int c = first_c + j;
        const int x_at = n * 4194304 + c * 131072;
        float total = 0;
        const int in_w = w * 2;
#pragma unroll
        for (int kd = 0; kd < 2; ++kd) {
            const int in_d = d * 2 + kd;
#pragma unroll
            for (int kh = 0; kh < 2; ++kh) {
                const int in_h = h * 2 + kh;
                const auto x_row = read_row<2, aligned>(x + x_at + in_d * 4096 + in_h * 64 + in_w);
#pragma unroll
                for (int k = 0; k < 2; ++k) {
                    const float x_value = x_row.at[k];
                    total += x_value;
                }
            }
        }
        const float out_value = total * 0.125f;
        out_row.at[j] = out_value;
    }
    write_row<aligned>(out + n * 524288 + first_c + d * 32768 + h * 1024 + w * 32, out_row);
}
__global__ void __launch_bounds__(256) avg_pool(
        const float* __restrict__ x,
        float* __restrict__ out) {
    if (begin_at_16_bytes(x, out))
        avg_pool_body<true>(x, out);
    else
        avg_pool_body<false>(x, out);
}

// A thread writes the gradients of all elements of its 2 windows, in one pass.
template <bool aligned>
__device__ __forceinline__ void avg_pool_backward_body(
        const float* __restrict__ grad_out,
        float* __restrict__ grad_x) {
    const unsigned item = blockIdx.x * 256 + threadIdx.x;
    const int w = item % 16 * 2, h = item / 16 % 32, d = item / 512 % 16, c = item / 8192 % 32, n = item / 262144;
    const int grad_x_at = n * 4194304 + c * 131072;
    float share_of[2];
#pragma unroll
    for (int j = 0; j < 2; ++j) {
        const float grad_out_value = grad_out[n * 524288 + c + d * 32768 + h * 1024 + (w + j) * 32];
        const float share = grad_out_value * 0.125f;
        share_of[j] = share;
    }
    const int in_w = w * 2;
#pragma unroll
    for (int kd = 0; kd < 2; ++kd) {
        const int in_d = d * 2 + kd;
#pragma unroll
        for (int kh = 0; kh < 2; ++kh) {
            const int in_h = h * 2 + kh;
            Row<float, 4> grad_x_row;
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                const float element_share = share_of[k / 2];
                grad_x_row.at[k] = element_share;
            }
            write_row<aligned>(grad_x + grad_x_at + in_d * 4096 + in_h * 64 + in_w, grad_x_row);
        }
    }
}
__global__ void __launch_bounds__(256) avg_pool_backward(
        const float* __restrict__ grad_out,
        float* __restrict__ grad_x) {
    if (begin_at_16_bytes(grad_x))
        avg_pool_backward_body<true>(grad_out, grad_x);
    else
        avg_pool_backward_body<false>(grad_out, grad_x);
}

