// avg_pool: 8192 blocks of 256
// avg_pool_backward: 32768 blocks of 256

template <typename T, int count>
struct __align__(sizeof(T) * count) Pack {  // neighbours that are loaded or stored by one instruction
    T at[count];
};

template <int count, typename T>
__device__ __forceinline__ Pack<T, count> load(const T* from) {
    return *reinterpret_cast<const Pack<T, count>*>(from);
}

// The mean of windows of 2x2x2: [32, 32, 32, 64, 64] to [32, 32, 16, 32, 32]. A thread takes 8 windows along c,
// which lie side by side in the output.
__global__ void __launch_bounds__(256) avg_pool(const float* __restrict__ x, float* __restrict__ out) {
    constexpr int out_stride_d = 32768;
    constexpr int out_stride_h = 1024;
    constexpr int out_stride_n = 524288;
    constexpr int out_stride_w = 32;
    constexpr int row_elements = 2;
    constexpr int size_d = 2;
    constexpr int size_h = 2;
    constexpr int stride_d = 2;
    constexpr int stride_h = 2;
    constexpr int stride_w = 2;
    constexpr int threads = 256;
    constexpr int together = 8;
    constexpr int windows_c = 4;
    constexpr int windows_d = 16;
    constexpr int windows_h = 32;
    constexpr int windows_w = 32;
    constexpr int x_stride_c = 131072;
    constexpr int x_stride_d = 4096;
    constexpr int x_stride_h = 64;
    constexpr int x_stride_n = 4194304;
    const unsigned item = blockIdx.x * threads + threadIdx.x;
    const int w = item % windows_w;
    const int h = item / windows_w % windows_h;
    const int d = item / (windows_w * windows_h) % windows_d;
    const int first_c = item / (windows_w * windows_h * windows_d) % windows_c * together;
    const int n = item / (windows_w * windows_h * windows_d * windows_c);
    Pack<float, 4> out_row[2];
#pragma unroll
    for (int j = 0; j < together; ++j) {
        const int c = first_c + j;
        const int x_at = n * x_stride_n + c * x_stride_c;
        float total = 0.0f;
        const int in_w = w * stride_w;
#pragma unroll
        for (int kd = 0; kd < size_d; ++kd) {
            const int in_d = d * stride_d + kd;
#pragma unroll
            for (int kh = 0; kh < size_h; ++kh) {
                const int in_h = h * stride_h + kh;
                const Pack<float, 2> x_row = load<2>(x + x_at + in_d * x_stride_d + in_h * x_stride_h + in_w);
#pragma unroll
                for (int k = 0; k < row_elements; ++k) {
                    const float x_value = x_row.at[k];
                    total += x_value;
                }
            }
        }
        const float out_value = total * 0.125f;
        out_row[j / 4].at[j % 4] = out_value;
    }
#pragma unroll
    for (int p = 0; p < 2; ++p) {
        *reinterpret_cast<Pack<float, 4>*>(out + n * out_stride_n + first_c + d * out_stride_d +
            h * out_stride_h + w * out_stride_w + p * 4) = out_row[p];
    }
}

// A thread writes the gradients of all elements of its 2 windows, in one pass.
__global__ void __launch_bounds__(256) avg_pool_backward(
    const float* __restrict__ grad_out,
    float* __restrict__ grad_x) {
    constexpr int grad_out_stride_d = 32768;
    constexpr int grad_out_stride_h = 1024;
    constexpr int grad_out_stride_n = 524288;
    constexpr int grad_out_stride_w = 32;
    constexpr int grad_x_stride_c = 131072;
    constexpr int grad_x_stride_d = 4096;
    constexpr int grad_x_stride_h = 64;
    constexpr int grad_x_stride_n = 4194304;
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
    constexpr int windows_d = 16;
    constexpr int windows_h = 32;
    constexpr int windows_w = 16;
    const unsigned item = blockIdx.x * threads + threadIdx.x;
    const int w = item % windows_w * together;
    const int h = item / windows_w % windows_h;
    const int d = item / (windows_w * windows_h) % windows_d;
    const int c = item / (windows_w * windows_h * windows_d) % windows_c;
    const int n = item / (windows_w * windows_h * windows_d * windows_c);
    const int grad_x_at = n * grad_x_stride_n + c * grad_x_stride_c;
    float share_of[lanes];
#pragma unroll
    for (int j = 0; j < lanes; ++j) {
        const float grad_out_value = grad_out[n * grad_out_stride_n + c + d * grad_out_stride_d +
            h * grad_out_stride_h + (w + j) * grad_out_stride_w];
        const float share = grad_out_value * 0.125f;
        share_of[j] = share;
    }
    const int in_w = w * stride_w;
#pragma unroll
    for (int kd = 0; kd < size_d; ++kd) {
        const int in_d = d * stride_d + kd;
#pragma unroll
        for (int kh = 0; kh < size_h; ++kh) {
            const int in_h = h * stride_h + kh;
            Pack<float, 4> grad_x_row;
#pragma unroll
            for (int k = 0; k < row_elements; ++k) {
                const float element_share = share_of[k / size_w];
                grad_x_row.at[k] = element_share;
            }
            *reinterpret_cast<Pack<float, 4>*>(grad_x + grad_x_at + in_d * grad_x_stride_d +
                in_h * grad_x_stride_h + in_w) = grad_x_row;
        }
    }
}

