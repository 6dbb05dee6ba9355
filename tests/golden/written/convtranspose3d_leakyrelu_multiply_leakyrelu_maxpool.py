"""convtranspose3d_leakyrelu_multiply_leakyrelu_maxpool, fused by Crucible for x [2, 16, 2, 3, 5] float32 on
NVIDIA H200. Other inputs go through PyTorch.

- conv_transpose3d_leaky_relu_mul: conv_transpose3d -> leaky_relu -> mul -> leaky_relu; 121 KB
    - [2, 16, 2, 3, 5] to [2, 32, 4, 6, 10] by 27 products of 16 channels, TF32 (rounded to nearest), sums in
      fp32.
    - A block makes 32 channels of 8 phases at 2x3x5 positions; its inputs are in shared memory with their
      halo, its weights stay there (87 KiB). The next inputs are loaded beside the multiplication.
    - conv_transpose3d_leaky_relu_mul_kernel_grad_conv_transpose_bias: 32 rows of 2: neighbours in memory are
      rows, so a block takes 16 rows, 4 a thread, and 2 groups of threads share the columns
    - conv_transpose3d_leaky_relu_mul_kernel_grad_multiplier: 32 rows of 2: neighbours in memory are rows, so
      a block takes 16 rows, 4 a thread, and 2 groups of threads share the columns
    - [2, 32, 4, 6, 10] to [2, 16, 2, 3, 5] by 27 products of 32 channels, TF32 (rounded to nearest), sums in
      fp32.
    - A block makes 16 channels at 2x3x5 positions; its inputs are in shared memory with their halo, its
      weights stay there (106 KiB).
    - backward keeps x, conv_transpose_weight, conv_transpose_bias, multiplier; the chain is computed again
- max_pool3d: max_pool3d; 69.1 KB
    - The values are pooled as they are stored.
    - A thread takes one window; neighbouring threads read neighbouring memory.
    - A thread writes the gradients of all elements of its window, in one pass.
    - backward keeps leaky_relu_2; the chain is computed again

Forward moves 190 KB in 2 steps; operation by operation it would be 559 KB in 5.
"""


import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.cpp_extension import load_inline


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride, padding, output_padding,
            multiplier_shape):
        super().__init__()
        self.conv_transpose = nn.ConvTranspose3d(
            in_channels, out_channels, kernel_size, stride=stride, padding=padding, output_padding=output_padding
        )
        self.multiplier = nn.Parameter(torch.randn(multiplier_shape))

    def forward(self, x):
        x = self.conv_transpose(x)
        x = F.leaky_relu(x, negative_slope=0.2)
        x = x * self.multiplier
        x = F.leaky_relu(x, negative_slope=0.2)
        return F.max_pool3d(x, kernel_size=2)


DECLARATIONS = """
#include <torch/extension.h>

std::vector<torch::Tensor> run_conv_transpose3d_leaky_relu_mul(const torch::Tensor& x_given,
    const torch::Tensor& conv_transpose_weight_given, const torch::Tensor& conv_transpose_bias_given,
    const torch::Tensor& multiplier_given);
std::vector<torch::Tensor> run_conv_transpose3d_leaky_relu_mul_backward(const torch::Tensor& grad_leaky_relu_2_given, const torch::Tensor& x_given, const torch::Tensor& conv_transpose_weight_given, const torch::Tensor& conv_transpose_bias_given, const torch::Tensor& multiplier_given);
std::vector<torch::Tensor> run_max_pool3d(const torch::Tensor& leaky_relu_2_given);
std::vector<torch::Tensor> run_max_pool3d_backward(const torch::Tensor& grad_max_pool3d_given,
    const torch::Tensor& leaky_relu_2_given);
"""


KERNELS = r"""
#include <torch/types.h>

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

__device__ __forceinline__ unsigned rounded(float value) {  // to TF32, to nearest: tensor cores would cut it off
    unsigned word;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(word) : "f"(value));
    return word;
}

struct Tf32 {  // what a word holds
    // sum += a b: 16 channels x 8 of the input, times those x 8 positions
    static __device__ __forceinline__ void multiply(float (&sum)[4], const uint4& a, const unsigned (&b)[2]) {
        asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
            : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b[0]), "r"(b[1]));
    }
};

__device__ __forceinline__ void copy_ahead(unsigned* to, const float* from,
    bool inside) {  // 0 where it is not
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                 :: "r"(static_cast<unsigned>(__cvta_generic_to_shared(to))), "l"(from), "r"(inside ? 4 : 0)
                 : "memory");
}
__device__ __forceinline__ void copy_ahead(uint4* to, const uint4* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                 :: "r"(static_cast<unsigned>(__cvta_generic_to_shared(to))), "l"(from)
                 : "memory");
}
__device__ __forceinline__ void wait_for_copies() {  // of this thread
    asm volatile("cp.async.wait_all;" ::: "memory");
}

__device__ __forceinline__ uint4 load_matrix(const unsigned* row) {  // four times 8 rows of 16 bytes
    uint4 a;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a.x), "=r"(a.y), "=r"(a.z), "=r"(a.w)
                 : "r"(static_cast<unsigned>(__cvta_generic_to_shared(row)))
                 : "memory");
    return a;
}

template <int tiles>
__device__ __forceinline__ void read(const unsigned* halo, const int (&place)[(tiles + 1) / 2],
                                     unsigned (&b)[tiles][2]) {
#pragma unroll
    for (int j = 0; j + 1 < tiles; j += 2) {
        const uint4 two = load_matrix(halo + place[j / 2]);  // both units of channels, of two tiles
        b[j][0] = two.x, b[j][1] = two.y, b[j + 1][0] = two.z, b[j + 1][1] = two.w;
    }
    if constexpr (tiles % 2) {
        const uint4 one = load_matrix(halo + place[tiles / 2]);
        b[tiles - 1][0] = one.x, b[tiles - 1][1] = one.y;
    }
}

template <typename Words, int m_tiles, int n_tiles>
__device__ __forceinline__ void accumulate(const unsigned* weights, const unsigned (&b)[n_tiles][2],
                                           float (&sums)[m_tiles][n_tiles][4]) {
#pragma unroll
    for (int i = 0; i < m_tiles; ++i) {
        const uint4 a = *reinterpret_cast<const uint4*>(weights + i * 128);
#pragma unroll
        for (int j = 0; j < n_tiles; ++j) Words::multiply(sums[i][j], a, b[j]);
    }
}

template <int bytes, typename... T>
__device__ __forceinline__ bool are_aligned(const T*... pointers) {
    return (... && (reinterpret_cast<unsigned long long>(pointers) % bytes == 0));
}

template <typename T, int count>
struct __align__(sizeof(T) * count) Pack {  // neighbours that are loaded or stored by one instruction
    T at[count];
};

template <bool aligned, int count, typename T>
__device__ __forceinline__ void store(T* to, const Pack<T, count>& pack) {
    if constexpr (aligned) {
        *reinterpret_cast<Pack<T, count>*>(to) = pack;
    } else {
#pragma unroll
        for (int j = 0; j < count; ++j) to[j] = pack.at[j];
    }
}

template <bool aligned, int count, typename T>
__device__ __forceinline__ Pack<T, count> load(const T* from) {
    if constexpr (aligned) {
        return *reinterpret_cast<const Pack<T, count>*>(from);
    } else {
        Pack<T, count> pack;
#pragma unroll
        for (int j = 0; j < count; ++j) pack.at[j] = from[j];
        return pack;
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

template <int groups, int lanes, int vector, typename T>
__device__ __forceinline__ void sum_over_groups(T (&values)[vector],
        T (&parts)[groups][(vector | 1) * lanes]) {
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

// The weight in the order in which tensor cores take it: 27 taps, tiles of 16 channels.
__global__ void __launch_bounds__(256) conv_transpose3d_leaky_relu_mul_kernel_pack(
        const float* __restrict__ weight, int* __restrict__ packed) {
    constexpr int taps[27] = {13, 12, 14, 10, 16, 9, 11, 15, 17, 4, 22, 3, 5, 21, 23, 1, 7, 19, 25, 0, 2, 6,
        8, 18, 20, 24, 26};
    const int word = blockIdx.x * 256 + threadIdx.x;
    if (word >= 13824) return;
    const int corner = word % 4, lane = word / 4 % 32;
    const int tile = word / 128 % 2, rest = word / 256;
    const int tap = taps[rest % 27], step = rest / 27 % 2;
    const int part = rest / 54;  // a tile of channels of a group
    const int group = part / 1;
    const int channel = part % 1 * 32 + tile * 16 + lane / 4 + corner % 2 * 8;
    const int input = (step * 8 + lane % 4 + corner / 2 * 4) * 1;
    const auto at = [&](int made, int read) {
        const bool inside = made < 32 && read < 16;
        return inside ? weight[group * 13824LL + made * 27LL + read * 864LL + tap] : float(0.0f);
    };
    packed[word] = static_cast<int>(rounded(at(channel, input)));
}

// [2, 16, 2, 3, 5] to [2, 32, 4, 6, 10] by 27 products of 16 channels, TF32 (rounded to nearest), sums in
// fp32.
// A block makes 32 channels of 8 phases at 2x3x5 positions; its inputs are in shared memory with their
// halo, its weights stay there (87 KiB). The next inputs are loaded beside the multiplication.
__global__ void __launch_bounds__(256, 2) conv_transpose3d_leaky_relu_mul_kernel(
        const float* __restrict__ x,
        const int* __restrict__ conv_transpose3d_leaky_relu_mul_kernel_packed,
        const float* __restrict__ conv_transpose_bias,
        const float* __restrict__ multiplier,
        float* __restrict__ leaky_relu_2) {
    extern __shared__ uint4 memory[];
    unsigned* weights = reinterpret_cast<unsigned*>(memory);
    unsigned* halo = weights + 13824;
    unsigned* coming = halo + 4224;  // the next halo
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int column = warp % 2, row = warp / 2 % 1;
    const int team = warp / 2;  // takes some of the phases
    int place[1];  // in the halo, of the 16 bytes that a lane takes of each two tiles
#pragma unroll
    for (int j = 0; j < 1; ++j) {
        const int position = min((column * 2 + j * 2 + lane / 16) * 8 + lane % 8, 29);
        place[j] = ((position / 15) * 24 + (position / 5 % 3) * 6 + (position % 5)) * 4 + lane / 8 % 2 * 288;
    }
    int spot[2];  // in the tile of products
#pragma unroll
    for (int j = 0; j < 2; ++j) {
        const int position = (column * 2 + j) * 8 + lane % 4 * 2;
        spot[j] = (position / 15) * 120 + (position / 5 % 3) * 20 + (position % 5) * 2;
    }
    const bool aligned = are_aligned<16>(leaky_relu_2);
    const int part = blockIdx.x % 1;
    const int first_channel = part % 1 * 32;
    for (int p = threadIdx.x; p < 3456; p += 256) {
        reinterpret_cast<uint4*>(weights)[p] = reinterpret_cast<const uint4*>(conv_transpose3d_leaky_relu_mul_kernel_packed + part * 13824)[p];
    }
    {
        const int n = static_cast<int>(blockIdx.x) / 1;
        const int box_d = 0;
        const int box_h = 0;
        const int box_w = 0;
        const auto* origin = x + n * 480LL;
        for (int p = threadIdx.x; p < 72; p += 256) {
            const int d = box_d + p / 24;
            const int h = box_h + p / 6 % 4;
            const int w = box_w + p % 6;
            const bool inside = static_cast<unsigned>(d) < 2 && static_cast<unsigned>(h) < 3 && static_cast<unsigned>(w) < 5;
            const auto* from = origin + d * 15 + h * 5 + w;
#pragma unroll
            for (int u = 0; u < 4; ++u) {
                copy_ahead(coming + (u * 72 + p) * 4 + 0, inside ? from + (u * 4 + 0) * 30 : origin, inside);
                copy_ahead(coming + (u * 72 + p) * 4 + 1, inside ? from + (u * 4 + 1) * 30 : origin, inside);
                copy_ahead(coming + (u * 72 + p) * 4 + 2, inside ? from + (u * 4 + 2) * 30 : origin, inside);
                copy_ahead(coming + (u * 72 + p) * 4 + 3, inside ? from + (u * 4 + 3) * 30 : origin, inside);
            }
        }
    }
    for (int item = static_cast<int>(blockIdx.x) / 1; item < 2; item += 2) {
        const int n = item;
        const int box_d = 0;
        const int box_h = 0;
        const int box_w = 0;
        float sums[3][2][2][4] = {};
        {  // what was coming is there
            unsigned* const before = halo;
            halo = coming, coming = before;
        }
        wait_for_copies();
        for (int p = threadIdx.x; p < 72; p += 256) {
#pragma unroll
            for (int u = 0; u < 4; ++u) {
                uint4& word = reinterpret_cast<uint4*>(halo)[u * 72 + p];
                word = {rounded(__uint_as_float(word.x)), rounded(__uint_as_float(word.y)),
                    rounded(__uint_as_float(word.z)), rounded(__uint_as_float(word.w))};
            }
        }
        __syncthreads();
        const int next = item + 2;
        if (next < 2) {
            const int n = next;
            const int box_d = 0;
            const int box_h = 0;
            const int box_w = 0;
            const auto* origin = x + n * 480LL;
            for (int p = threadIdx.x; p < 72; p += 256) {
                const int d = box_d + p / 24;
                const int h = box_h + p / 6 % 4;
                const int w = box_w + p % 6;
                const bool inside = static_cast<unsigned>(d) < 2 && static_cast<unsigned>(h) < 3 && static_cast<unsigned>(w) < 5;
                const auto* from = origin + d * 15 + h * 5 + w;
#pragma unroll
                for (int u = 0; u < 4; ++u) {
                    copy_ahead(coming + (u * 72 + p) * 4 + 0, inside ? from + (u * 4 + 0) * 30 : origin,
                        inside);
                    copy_ahead(coming + (u * 72 + p) * 4 + 1, inside ? from + (u * 4 + 1) * 30 : origin,
                        inside);
                    copy_ahead(coming + (u * 72 + p) * 4 + 2, inside ? from + (u * 4 + 2) * 30 : origin,
                        inside);
                    copy_ahead(coming + (u * 72 + p) * 4 + 3, inside ? from + (u * 4 + 3) * 30 : origin,
                        inside);
                }
            }
        }
#pragma unroll 1
        for (int s = 0; s < 2; ++s) {
            const unsigned* own = weights + s * 6912 + row * 256 + lane * 4;
            const unsigned* at = halo + s * 576;
            unsigned b[2][2];
            if (team == 0) {
                read(at + 0, place, b);
                accumulate<Tf32>(own + 6656, b, sums[0]);
                read(at + 4, place, b);
                accumulate<Tf32>(own + 6400, b, sums[0]);
                read(at + 24, place, b);
                accumulate<Tf32>(own + 6144, b, sums[0]);
                read(at + 28, place, b);
                accumulate<Tf32>(own + 5888, b, sums[0]);
                read(at + 96, place, b);
                accumulate<Tf32>(own + 5632, b, sums[0]);
                read(at + 100, place, b);
                accumulate<Tf32>(own + 5376, b, sums[0]);
                read(at + 120, place, b);
                accumulate<Tf32>(own + 5120, b, sums[0]);
                read(at + 124, place, b);
                accumulate<Tf32>(own + 4864, b, sums[0]);
            }
            else if (team == 1) {
                read(at + 0, place, b);
                accumulate<Tf32>(own + 0, b, sums[0]);
                accumulate<Tf32>(own + 512, b, sums[1]);
                accumulate<Tf32>(own + 2048, b, sums[2]);
                read(at + 4, place, b);
                accumulate<Tf32>(own + 256, b, sums[1]);
                accumulate<Tf32>(own + 1792, b, sums[2]);
                read(at + 24, place, b);
                accumulate<Tf32>(own + 1536, b, sums[2]);
                read(at + 28, place, b);
                accumulate<Tf32>(own + 1280, b, sums[2]);
            }
            else if (team == 2) {
                read(at + 0, place, b);
                accumulate<Tf32>(own + 2560, b, sums[0]);
                accumulate<Tf32>(own + 4608, b, sums[1]);
                read(at + 24, place, b);
                accumulate<Tf32>(own + 4352, b, sums[1]);
                read(at + 96, place, b);
                accumulate<Tf32>(own + 2304, b, sums[0]);
                accumulate<Tf32>(own + 4096, b, sums[1]);
                read(at + 120, place, b);
                accumulate<Tf32>(own + 3840, b, sums[1]);
            }
            else if (team == 3) {
                read(at + 0, place, b);
                accumulate<Tf32>(own + 1024, b, sums[0]);
                accumulate<Tf32>(own + 3584, b, sums[1]);
                read(at + 4, place, b);
                accumulate<Tf32>(own + 3328, b, sums[1]);
                read(at + 24, place, b);
                accumulate<Tf32>(own + 768, b, sums[0]);
                read(at + 96, place, b);
                accumulate<Tf32>(own + 3072, b, sums[1]);
                read(at + 100, place, b);
                accumulate<Tf32>(own + 2816, b, sums[1]);
            }
        }
        float* tile = reinterpret_cast<float*>(halo);  // of products, when the halo is done with
#pragma unroll
        for (int slice = 0; slice < 2; ++slice) {
            __syncthreads();
#pragma unroll
            for (int j = 0; j < 2; ++j) {
                if ((column * 2 + j) * 8 + lane % 4 * 2 >= 30) continue;
                float* into = tile + (row * 16 + lane / 4) * 264 + spot[j] + (team == 0 ? 71 : team == 1 ? 0 : team == 2 ? 60 : 10);
                const auto& own = sums[0][slice][j];
                into[0] = own[0];
                into[2112] = own[2];
                const int position = (column * 2 + j) * 8 + lane % 4 * 2 + 1;
                if (position >= 30) continue;
                into += (position / 15) * 120 + (position / 5 % 3) * 20 + (position % 5) * 2 - spot[j];
                into[0] = own[1];
                into[2112] = own[3];
            }
            if (team != 0) {
#pragma unroll
                for (int j = 0; j < 2; ++j) {
                    if ((column * 2 + j) * 8 + lane % 4 * 2 >= 30) continue;
                    float* into = tile + (row * 16 + lane / 4) * 264 + spot[j] + (team == 1 ? 1 : team == 2 ? 70 : 61);
                    const auto& own = sums[1][slice][j];
                    into[0] = own[0];
                    into[2112] = own[2];
                    const int position = (column * 2 + j) * 8 + lane % 4 * 2 + 1;
                    if (position >= 30) continue;
                    into += (position / 15) * 120 + (position / 5 % 3) * 20 + (position % 5) * 2 - spot[j];
                    into[0] = own[1];
                    into[2112] = own[3];
                }
            }
            if (team != 0 && team != 2 && team != 3) {
#pragma unroll
                for (int j = 0; j < 2; ++j) {
                    if ((column * 2 + j) * 8 + lane % 4 * 2 >= 30) continue;
                    float* into = tile + (row * 16 + lane / 4) * 264 + spot[j] + 11;
                    const auto& own = sums[2][slice][j];
                    into[0] = own[0];
                    into[2112] = own[2];
                    const int position = (column * 2 + j) * 8 + lane % 4 * 2 + 1;
                    if (position >= 30) continue;
                    into += (position / 15) * 120 + (position / 5 % 3) * 20 + (position % 5) * 2 - spot[j];
                    into[0] = own[1];
                    into[2112] = own[3];
                }
            }
            __syncthreads();
            for (int r = warp; r < 16; r += 8) {
                const int channel = first_channel + r + slice * 16;
                const int c = channel;
                const float conv_transpose_bias_value = conv_transpose_bias[c];
                const float multiplier_value = multiplier[c];
#pragma unroll 4
                for (int v = lane; v < 60; v += 32) {
                    const int i = v * 4;
                    const auto products = *reinterpret_cast<const Pack<float, 4>*>(tile + r * 264 + v * 4);
                    Pack<float, 4> leaky_relu_2_pack;
#pragma unroll
                    for (int k = 0; k < 4; ++k) {
                        const float product = products.at[k];
                        const float sum = product + conv_transpose_bias_value;
                        const float leaky_relu = multiplier_value > 0.0f ? multiplier_value : multiplier_value * 0.2f;
                        const float negative = -multiplier_value;
                        const float leaky_relu_3 = negative > 0.0f ? negative : negative * 0.2f;
                        const float leaky_relu_2_is = sum * (sum > 0.0f ? leaky_relu : -(leaky_relu_3 * 0.2f));
                        leaky_relu_2_pack.at[k] = leaky_relu_2_is;
                    }
                    if (aligned) store<true>(leaky_relu_2 + n * 7680LL + c * 240 + i, leaky_relu_2_pack);
                    else store<false>(leaky_relu_2 + n * 7680LL + c * 240 + i, leaky_relu_2_pack);
                }
            }
        }
    }
}

// The weight in the order in which tensor cores take it: 27 taps, tiles of 16 channels.
__global__ void __launch_bounds__(256) conv_transpose3d_leaky_relu_mul_kernel_again_pack(
        const float* __restrict__ weight, int* __restrict__ packed) {
    constexpr int taps[27] = {13, 12, 14, 10, 16, 9, 11, 15, 17, 4, 22, 3, 5, 21, 23, 1, 7, 19, 25, 0, 2, 6,
        8, 18, 20, 24, 26};
    const int word = blockIdx.x * 256 + threadIdx.x;
    if (word >= 13824) return;
    const int corner = word % 4, lane = word / 4 % 32;
    const int tile = word / 128 % 2, rest = word / 256;
    const int tap = taps[rest % 27], step = rest / 27 % 2;
    const int part = rest / 54;  // a tile of channels of a group
    const int group = part / 1;
    const int channel = part % 1 * 32 + tile * 16 + lane / 4 + corner % 2 * 8;
    const int input = (step * 8 + lane % 4 + corner / 2 * 4) * 1;
    const auto at = [&](int made, int read) {
        const bool inside = made < 32 && read < 16;
        return inside ? weight[group * 13824LL + made * 27LL + read * 864LL + tap] : float(0.0f);
    };
    packed[word] = static_cast<int>(rounded(at(channel, input)));
}

// [2, 16, 2, 3, 5] to [2, 32, 4, 6, 10] by 27 products of 16 channels, TF32 (rounded to nearest), sums in
// fp32.
// A block makes 32 channels of 8 phases at 2x3x5 positions; its inputs are in shared memory with their
// halo, its weights stay there (87 KiB). The next inputs are loaded beside the multiplication.
__global__ void __launch_bounds__(256, 2) conv_transpose3d_leaky_relu_mul_kernel_again(
        const float* __restrict__ x,
        const int* __restrict__ conv_transpose3d_leaky_relu_mul_kernel_again_packed,
        const float* __restrict__ conv_transpose_bias,
        const float* __restrict__ multiplier,
        const float* __restrict__ grad_leaky_relu_2,
        float* __restrict__ grad_product,
        float* __restrict__ grad_conv_transpose_bias_parts,
        float* __restrict__ grad_multiplier_parts) {
    extern __shared__ uint4 memory[];
    unsigned* weights = reinterpret_cast<unsigned*>(memory);
    unsigned* halo = weights + 13824;
    unsigned* coming = halo + 4224;  // the next halo
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int column = warp % 2, row = warp / 2 % 1;
    const int team = warp / 2;  // takes some of the phases
    int place[1];  // in the halo, of the 16 bytes that a lane takes of each two tiles
#pragma unroll
    for (int j = 0; j < 1; ++j) {
        const int position = min((column * 2 + j * 2 + lane / 16) * 8 + lane % 8, 29);
        place[j] = ((position / 15) * 24 + (position / 5 % 3) * 6 + (position % 5)) * 4 + lane / 8 % 2 * 288;
    }
    int spot[2];  // in the tile of products
#pragma unroll
    for (int j = 0; j < 2; ++j) {
        const int position = (column * 2 + j) * 8 + lane % 4 * 2;
        spot[j] = (position / 15) * 120 + (position / 5 % 3) * 20 + (position % 5) * 2;
    }
    const bool aligned = are_aligned<16>(grad_leaky_relu_2, grad_product);
    const int part = blockIdx.x % 1;
    const int first_channel = part % 1 * 32;
    __shared__ float totals[64];  // of this block, for each channel
    for (int p = threadIdx.x; p < 64; p += 256) totals[p] = 0;
    __syncthreads();
    for (int p = threadIdx.x; p < 3456; p += 256) {
        reinterpret_cast<uint4*>(weights)[p] = reinterpret_cast<const uint4*>(conv_transpose3d_leaky_relu_mul_kernel_again_packed + part * 13824)[p];
    }
    {
        const int n = static_cast<int>(blockIdx.x) / 1;
        const int box_d = 0;
        const int box_h = 0;
        const int box_w = 0;
        const auto* origin = x + n * 480LL;
        for (int p = threadIdx.x; p < 72; p += 256) {
            const int d = box_d + p / 24;
            const int h = box_h + p / 6 % 4;
            const int w = box_w + p % 6;
            const bool inside = static_cast<unsigned>(d) < 2 && static_cast<unsigned>(h) < 3 && static_cast<unsigned>(w) < 5;
            const auto* from = origin + d * 15 + h * 5 + w;
#pragma unroll
            for (int u = 0; u < 4; ++u) {
                copy_ahead(coming + (u * 72 + p) * 4 + 0, inside ? from + (u * 4 + 0) * 30 : origin, inside);
                copy_ahead(coming + (u * 72 + p) * 4 + 1, inside ? from + (u * 4 + 1) * 30 : origin, inside);
                copy_ahead(coming + (u * 72 + p) * 4 + 2, inside ? from + (u * 4 + 2) * 30 : origin, inside);
                copy_ahead(coming + (u * 72 + p) * 4 + 3, inside ? from + (u * 4 + 3) * 30 : origin, inside);
            }
        }
    }
    for (int item = static_cast<int>(blockIdx.x) / 1; item < 2; item += 2) {
        const int n = item;
        const int box_d = 0;
        const int box_h = 0;
        const int box_w = 0;
        float sums[3][2][2][4] = {};
        {  // what was coming is there
            unsigned* const before = halo;
            halo = coming, coming = before;
        }
        wait_for_copies();
        for (int p = threadIdx.x; p < 72; p += 256) {
#pragma unroll
            for (int u = 0; u < 4; ++u) {
                uint4& word = reinterpret_cast<uint4*>(halo)[u * 72 + p];
                word = {rounded(__uint_as_float(word.x)), rounded(__uint_as_float(word.y)),
                    rounded(__uint_as_float(word.z)), rounded(__uint_as_float(word.w))};
            }
        }
        __syncthreads();
        const int next = item + 2;
        if (next < 2) {
            const int n = next;
            const int box_d = 0;
            const int box_h = 0;
            const int box_w = 0;
            const auto* origin = x + n * 480LL;
            for (int p = threadIdx.x; p < 72; p += 256) {
                const int d = box_d + p / 24;
                const int h = box_h + p / 6 % 4;
                const int w = box_w + p % 6;
                const bool inside = static_cast<unsigned>(d) < 2 && static_cast<unsigned>(h) < 3 && static_cast<unsigned>(w) < 5;
                const auto* from = origin + d * 15 + h * 5 + w;
#pragma unroll
                for (int u = 0; u < 4; ++u) {
                    copy_ahead(coming + (u * 72 + p) * 4 + 0, inside ? from + (u * 4 + 0) * 30 : origin,
                        inside);
                    copy_ahead(coming + (u * 72 + p) * 4 + 1, inside ? from + (u * 4 + 1) * 30 : origin,
                        inside);
                    copy_ahead(coming + (u * 72 + p) * 4 + 2, inside ? from + (u * 4 + 2) * 30 : origin,
                        inside);
                    copy_ahead(coming + (u * 72 + p) * 4 + 3, inside ? from + (u * 4 + 3) * 30 : origin,
                        inside);
                }
            }
        }
#pragma unroll 1
        for (int s = 0; s < 2; ++s) {
            const unsigned* own = weights + s * 6912 + row * 256 + lane * 4;
            const unsigned* at = halo + s * 576;
            unsigned b[2][2];
            if (team == 0) {
                read(at + 0, place, b);
                accumulate<Tf32>(own + 6656, b, sums[0]);
                read(at + 4, place, b);
                accumulate<Tf32>(own + 6400, b, sums[0]);
                read(at + 24, place, b);
                accumulate<Tf32>(own + 6144, b, sums[0]);
                read(at + 28, place, b);
                accumulate<Tf32>(own + 5888, b, sums[0]);
                read(at + 96, place, b);
                accumulate<Tf32>(own + 5632, b, sums[0]);
                read(at + 100, place, b);
                accumulate<Tf32>(own + 5376, b, sums[0]);
                read(at + 120, place, b);
                accumulate<Tf32>(own + 5120, b, sums[0]);
                read(at + 124, place, b);
                accumulate<Tf32>(own + 4864, b, sums[0]);
            }
            else if (team == 1) {
                read(at + 0, place, b);
                accumulate<Tf32>(own + 0, b, sums[0]);
                accumulate<Tf32>(own + 512, b, sums[1]);
                accumulate<Tf32>(own + 2048, b, sums[2]);
                read(at + 4, place, b);
                accumulate<Tf32>(own + 256, b, sums[1]);
                accumulate<Tf32>(own + 1792, b, sums[2]);
                read(at + 24, place, b);
                accumulate<Tf32>(own + 1536, b, sums[2]);
                read(at + 28, place, b);
                accumulate<Tf32>(own + 1280, b, sums[2]);
            }
            else if (team == 2) {
                read(at + 0, place, b);
                accumulate<Tf32>(own + 2560, b, sums[0]);
                accumulate<Tf32>(own + 4608, b, sums[1]);
                read(at + 24, place, b);
                accumulate<Tf32>(own + 4352, b, sums[1]);
                read(at + 96, place, b);
                accumulate<Tf32>(own + 2304, b, sums[0]);
                accumulate<Tf32>(own + 4096, b, sums[1]);
                read(at + 120, place, b);
                accumulate<Tf32>(own + 3840, b, sums[1]);
            }
            else if (team == 3) {
                read(at + 0, place, b);
                accumulate<Tf32>(own + 1024, b, sums[0]);
                accumulate<Tf32>(own + 3584, b, sums[1]);
                read(at + 4, place, b);
                accumulate<Tf32>(own + 3328, b, sums[1]);
                read(at + 24, place, b);
                accumulate<Tf32>(own + 768, b, sums[0]);
                read(at + 96, place, b);
                accumulate<Tf32>(own + 3072, b, sums[1]);
                read(at + 100, place, b);
                accumulate<Tf32>(own + 2816, b, sums[1]);
            }
        }
        float* tile = reinterpret_cast<float*>(halo);  // of products, when the halo is done with
#pragma unroll
        for (int slice = 0; slice < 2; ++slice) {
            __syncthreads();
#pragma unroll
            for (int j = 0; j < 2; ++j) {
                if ((column * 2 + j) * 8 + lane % 4 * 2 >= 30) continue;
                float* into = tile + (row * 16 + lane / 4) * 264 + spot[j] + (team == 0 ? 71 : team == 1 ? 0 : team == 2 ? 60 : 10);
                const auto& own = sums[0][slice][j];
                into[0] = own[0];
                into[2112] = own[2];
                const int position = (column * 2 + j) * 8 + lane % 4 * 2 + 1;
                if (position >= 30) continue;
                into += (position / 15) * 120 + (position / 5 % 3) * 20 + (position % 5) * 2 - spot[j];
                into[0] = own[1];
                into[2112] = own[3];
            }
            if (team != 0) {
#pragma unroll
                for (int j = 0; j < 2; ++j) {
                    if ((column * 2 + j) * 8 + lane % 4 * 2 >= 30) continue;
                    float* into = tile + (row * 16 + lane / 4) * 264 + spot[j] + (team == 1 ? 1 : team == 2 ? 70 : 61);
                    const auto& own = sums[1][slice][j];
                    into[0] = own[0];
                    into[2112] = own[2];
                    const int position = (column * 2 + j) * 8 + lane % 4 * 2 + 1;
                    if (position >= 30) continue;
                    into += (position / 15) * 120 + (position / 5 % 3) * 20 + (position % 5) * 2 - spot[j];
                    into[0] = own[1];
                    into[2112] = own[3];
                }
            }
            if (team != 0 && team != 2 && team != 3) {
#pragma unroll
                for (int j = 0; j < 2; ++j) {
                    if ((column * 2 + j) * 8 + lane % 4 * 2 >= 30) continue;
                    float* into = tile + (row * 16 + lane / 4) * 264 + spot[j] + 11;
                    const auto& own = sums[2][slice][j];
                    into[0] = own[0];
                    into[2112] = own[2];
                    const int position = (column * 2 + j) * 8 + lane % 4 * 2 + 1;
                    if (position >= 30) continue;
                    into += (position / 15) * 120 + (position / 5 % 3) * 20 + (position % 5) * 2 - spot[j];
                    into[0] = own[1];
                    into[2112] = own[3];
                }
            }
            __syncthreads();
            for (int r = warp; r < 16; r += 8) {
                const int channel = first_channel + r + slice * 16;
                const int c = channel;
                const float conv_transpose_bias_value = conv_transpose_bias[c];
                const float multiplier_value = multiplier[c];
                float grad_conv_transpose_bias_total = 0;
                float grad_multiplier_total = 0;
#pragma unroll 4
                for (int v = lane; v < 60; v += 32) {
                    const int i = v * 4;
                    const auto products = *reinterpret_cast<const Pack<float, 4>*>(tile + r * 264 + v * 4);
                    const auto grad_leaky_relu_2_pack = aligned ? load<true, 4>(grad_leaky_relu_2 + n * 7680LL + c * 240 + i) : load<false, 4>(grad_leaky_relu_2 + n * 7680LL + c * 240 + i);
                    Pack<float, 4> grad_product_pack;
#pragma unroll
                    for (int k = 0; k < 4; ++k) {
                        const float product = products.at[k];
                        const float grad_leaky_relu_2_value = grad_leaky_relu_2_pack.at[k];
                        const float sum = product + conv_transpose_bias_value;
                        const bool above = sum > 0.0f;
                        const float leaky_relu = above ? sum : sum * 0.2f;
                        const float chosen = leaky_relu * multiplier_value > 0.0f ? grad_leaky_relu_2_value : grad_leaky_relu_2_value * 0.2f;
                        const float product_2 = chosen * multiplier_value;
                        const float grad_product_is = above ? product_2 : product_2 * 0.2f;
                        const float grad_multiplier_is = chosen * leaky_relu;
                        const float grad_conv_transpose_bias_is = grad_product_is;
                        grad_product_pack.at[k] = grad_product_is;
                        grad_conv_transpose_bias_total += grad_conv_transpose_bias_is;
                        grad_multiplier_total += grad_multiplier_is;
                    }
                    if (aligned) store<true>(grad_product + n * 7680LL + c * 240 + i, grad_product_pack);
                    else store<false>(grad_product + n * 7680LL + c * 240 + i, grad_product_pack);
                }
                grad_conv_transpose_bias_total = sum_over_team<32>(grad_conv_transpose_bias_total);
                if (lane == 0) totals[0 + channel - first_channel] += grad_conv_transpose_bias_total;
                grad_multiplier_total = sum_over_team<32>(grad_multiplier_total);
                if (lane == 0) totals[32 + channel - first_channel] += grad_multiplier_total;
            }
        }
    }
    __syncthreads();
    for (int p = threadIdx.x; p < 32; p += 256) grad_conv_transpose_bias_parts[blockIdx.x / 1 * 32 + part * 32 + p] = totals[0 + p];
    for (int p = threadIdx.x; p < 32; p += 256) grad_multiplier_parts[blockIdx.x / 1 * 32 + part * 32 + p] = totals[32 + p];
}

// 32 rows of 2: neighbours in memory are rows, so a block takes 16 rows, 4 a thread, and 2 groups of threads
// share the columns
// total = sum of grad_conv_transpose_bias_parts
// grad_conv_transpose_bias = total
template <bool aligned>
__device__ __forceinline__ void conv_transpose3d_leaky_relu_mul_kernel_grad_conv_transpose_bias_block(
    const float* __restrict__ grad_conv_transpose_bias_parts,
    float* __restrict__ grad_conv_transpose_bias) {
    constexpr unsigned grad_conv_transpose_bias_parts_stride_1 = 32;
    constexpr int lanes = 4;  // threads side by side
    constexpr int groups = 2;  // of threads, which share the columns
    constexpr int vector = 4;  // neighbours that a thread takes at once
    const unsigned row = (blockIdx.x * lanes + threadIdx.x % lanes) * vector;
    const unsigned group = threadIdx.x / lanes;
    const float* grad_conv_transpose_bias_parts_row = grad_conv_transpose_bias_parts + row;

    float total[vector] = {0.0f, 0.0f, 0.0f, 0.0f};
    const unsigned column = group;
    const Pack<float, vector> grad_conv_transpose_bias_parts_read = load<aligned, vector>(grad_conv_transpose_bias_parts_row + column * grad_conv_transpose_bias_parts_stride_1);
#pragma unroll
    for (int j = 0; j < vector; ++j) {
        const float grad_conv_transpose_bias_parts_value = grad_conv_transpose_bias_parts_read.at[j];
        total[j] += grad_conv_transpose_bias_parts_value;
    }
    __shared__ float parts[groups][(vector | 1) * lanes];  // odd, so that groups meet different banks
    sum_over_groups<groups, lanes>(total, parts);

    if (group == 0) {
#pragma unroll
        for (int j = 0; j < vector; ++j) {
            grad_conv_transpose_bias[row + j] = total[j];
        }
    }
}

__global__ void __launch_bounds__(8) conv_transpose3d_leaky_relu_mul_kernel_grad_conv_transpose_bias(
    const float* __restrict__ grad_conv_transpose_bias_parts,
    float* __restrict__ grad_conv_transpose_bias) {
    if (are_aligned<16>(grad_conv_transpose_bias_parts)) {
        conv_transpose3d_leaky_relu_mul_kernel_grad_conv_transpose_bias_block<true>(grad_conv_transpose_bias_parts, grad_conv_transpose_bias);
    } else {  // a tensor that begins in the middle of another
        conv_transpose3d_leaky_relu_mul_kernel_grad_conv_transpose_bias_block<false>(grad_conv_transpose_bias_parts, grad_conv_transpose_bias);
    }
}

// 32 rows of 2: neighbours in memory are rows, so a block takes 16 rows, 4 a thread, and 2 groups of threads
// share the columns
// total = sum of grad_multiplier_parts
// grad_multiplier = total
template <bool aligned>
__device__ __forceinline__ void conv_transpose3d_leaky_relu_mul_kernel_grad_multiplier_block(
    const float* __restrict__ grad_multiplier_parts,
    float* __restrict__ grad_multiplier) {
    constexpr unsigned grad_multiplier_parts_stride_1 = 32;
    constexpr int lanes = 4;  // threads side by side
    constexpr int groups = 2;  // of threads, which share the columns
    constexpr int vector = 4;  // neighbours that a thread takes at once
    const unsigned row = (blockIdx.x * lanes + threadIdx.x % lanes) * vector;
    const unsigned group = threadIdx.x / lanes;
    const float* grad_multiplier_parts_row = grad_multiplier_parts + row;

    float total[vector] = {0.0f, 0.0f, 0.0f, 0.0f};
    const unsigned column = group;
    const Pack<float, vector> grad_multiplier_parts_read = load<aligned, vector>(grad_multiplier_parts_row + column * grad_multiplier_parts_stride_1);
#pragma unroll
    for (int j = 0; j < vector; ++j) {
        const float grad_multiplier_parts_value = grad_multiplier_parts_read.at[j];
        total[j] += grad_multiplier_parts_value;
    }
    __shared__ float parts[groups][(vector | 1) * lanes];  // odd, so that groups meet different banks
    sum_over_groups<groups, lanes>(total, parts);

    if (group == 0) {
#pragma unroll
        for (int j = 0; j < vector; ++j) {
            grad_multiplier[row + j] = total[j];
        }
    }
}

__global__ void __launch_bounds__(8) conv_transpose3d_leaky_relu_mul_kernel_grad_multiplier(
    const float* __restrict__ grad_multiplier_parts,
    float* __restrict__ grad_multiplier) {
    if (are_aligned<16>(grad_multiplier_parts)) {
        conv_transpose3d_leaky_relu_mul_kernel_grad_multiplier_block<true>(grad_multiplier_parts,
            grad_multiplier);
    } else {  // a tensor that begins in the middle of another
        conv_transpose3d_leaky_relu_mul_kernel_grad_multiplier_block<false>(grad_multiplier_parts,
            grad_multiplier);
    }
}

// The weight in the order in which tensor cores take it: 27 taps, tiles of 16 channels.
__global__ void __launch_bounds__(256) conv_transpose3d_leaky_relu_mul_kernel_input_pack(
        const float* __restrict__ weight, int* __restrict__ packed) {
    constexpr int taps[27] = {13, 12, 14, 10, 9, 11, 16, 15, 17, 4, 3, 5, 1, 0, 2, 7, 6, 8, 22, 21, 23, 19,
        18, 20, 25, 24, 26};
    const int word = blockIdx.x * 256 + threadIdx.x;
    if (word >= 13824) return;
    const int corner = word % 4, lane = word / 4 % 32;
    const int tile = word / 128 % 1, rest = word / 128;
    const int tap = taps[rest % 27], step = rest / 27 % 4;
    const int part = rest / 108;  // a tile of channels of a group
    const int group = part / 1;
    const int channel = part % 1 * 16 + tile * 16 + lane / 4 + corner % 2 * 8;
    const int input = (step * 8 + lane % 4 + corner / 2 * 4) * 1;
    const auto at = [&](int made, int read) {
        const bool inside = made < 16 && read < 32;
        return inside ? weight[group * 13824LL + made * 864LL + read * 27LL + tap] : float(0.0f);
    };
    packed[word] = static_cast<int>(rounded(at(channel, input)));
}

// [2, 32, 4, 6, 10] to [2, 16, 2, 3, 5] by 27 products of 32 channels, TF32 (rounded to nearest), sums in
// fp32.
// A block makes 16 channels at 2x3x5 positions; its inputs are in shared memory with their halo, its
// weights stay there (106 KiB).
__global__ void __launch_bounds__(256, 2) conv_transpose3d_leaky_relu_mul_kernel_input(
        const float* __restrict__ grad_product,
        const int* __restrict__ conv_transpose3d_leaky_relu_mul_kernel_input_packed,
        float* __restrict__ grad_x) {
    extern __shared__ uint4 memory[];
    unsigned* weights = reinterpret_cast<unsigned*>(memory);
    unsigned* halo = weights + 13824;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int column = warp % 8, row = warp / 8 % 1;
    int place[1];  // in the halo, of the 16 bytes that a lane takes of each two tiles
#pragma unroll
    for (int j = 0; j < 1; ++j) {
        const int position = min((column * 1 + j * 2 + lane / 16) * 8 + lane % 8, 29);
        place[j] = ((position / 15) * 168 + (position / 5 % 3) * 24 + (position % 5)) * 4 + lane / 8 % 2 * 1680;
    }
    const bool aligned = are_aligned<8>(grad_x);
    const int part = blockIdx.x % 1;
    const int first_channel = part % 1 * 16;
    for (int p = threadIdx.x; p < 3456; p += 256) {
        reinterpret_cast<uint4*>(weights)[p] = reinterpret_cast<const uint4*>(conv_transpose3d_leaky_relu_mul_kernel_input_packed + part * 13824)[p];
    }
    for (int item = static_cast<int>(blockIdx.x) / 1; item < 2; item += 2) {
        const int n = item;
        const int box_d = 0;
        const int box_h = 0;
        const int box_w = 0;
        float sums[1][1][1][4] = {};
        __syncthreads();  // what was there before is done with
        {
            const auto* origin = grad_product + n * 7680LL;
            for (int p = threadIdx.x; p < 385; p += 256) {
                const int d = box_d * 2 + p / 77 - 1;
                const int h = box_h * 2 + p / 11 % 7 - 1;
                const int w = box_w * 2 + p % 11 - 1;
                const bool inside = static_cast<unsigned>(d) < 4 && static_cast<unsigned>(h) < 6 && static_cast<unsigned>(w) < 10;
                const auto* from = origin + d * 60 + h * 10 + w;
                const int dealt = p / 11 * 12 + p % 11 % 2 * 6 + p % 11 / 2;  // so that strided reads are of neighbours
#pragma unroll
                for (int u = 0; u < 8; ++u) {
                    uint4 word;
                    word.x = inside ? rounded(from[(u * 4 + 0) * 240]) : 0u;
                    word.y = inside ? rounded(from[(u * 4 + 1) * 240]) : 0u;
                    word.z = inside ? rounded(from[(u * 4 + 2) * 240]) : 0u;
                    word.w = inside ? rounded(from[(u * 4 + 3) * 240]) : 0u;
                    reinterpret_cast<uint4*>(halo)[u * 420 + dealt] = word;
                }
            }
        }
        __syncthreads();
#pragma unroll 1
        for (int s = 0; s < 4; ++s) {
            const unsigned* own = weights + s * 3456 + row * 128 + lane * 4;
            const unsigned* at = halo + s * 3360;
            unsigned b[1][2];
            read(at + 0, place, b);
            accumulate<Tf32>(own + 1664, b, sums[0]);
            read(at + 24, place, b);
            accumulate<Tf32>(own + 1536, b, sums[0]);
            read(at + 4, place, b);
            accumulate<Tf32>(own + 1792, b, sums[0]);
            read(at + 48, place, b);
            accumulate<Tf32>(own + 1280, b, sums[0]);
            read(at + 72, place, b);
            accumulate<Tf32>(own + 1152, b, sums[0]);
            read(at + 52, place, b);
            accumulate<Tf32>(own + 1408, b, sums[0]);
            read(at + 96, place, b);
            accumulate<Tf32>(own + 2048, b, sums[0]);
            read(at + 120, place, b);
            accumulate<Tf32>(own + 1920, b, sums[0]);
            read(at + 100, place, b);
            accumulate<Tf32>(own + 2176, b, sums[0]);
            read(at + 336, place, b);
            accumulate<Tf32>(own + 512, b, sums[0]);
            read(at + 360, place, b);
            accumulate<Tf32>(own + 384, b, sums[0]);
            read(at + 340, place, b);
            accumulate<Tf32>(own + 640, b, sums[0]);
            read(at + 384, place, b);
            accumulate<Tf32>(own + 128, b, sums[0]);
            read(at + 408, place, b);
            accumulate<Tf32>(own + 0, b, sums[0]);
            read(at + 388, place, b);
            accumulate<Tf32>(own + 256, b, sums[0]);
            read(at + 432, place, b);
            accumulate<Tf32>(own + 896, b, sums[0]);
            read(at + 456, place, b);
            accumulate<Tf32>(own + 768, b, sums[0]);
            read(at + 436, place, b);
            accumulate<Tf32>(own + 1024, b, sums[0]);
            read(at + 672, place, b);
            accumulate<Tf32>(own + 2816, b, sums[0]);
            read(at + 696, place, b);
            accumulate<Tf32>(own + 2688, b, sums[0]);
            read(at + 676, place, b);
            accumulate<Tf32>(own + 2944, b, sums[0]);
            read(at + 720, place, b);
            accumulate<Tf32>(own + 2432, b, sums[0]);
            read(at + 744, place, b);
            accumulate<Tf32>(own + 2304, b, sums[0]);
            read(at + 724, place, b);
            accumulate<Tf32>(own + 2560, b, sums[0]);
            read(at + 768, place, b);
            accumulate<Tf32>(own + 3200, b, sums[0]);
            read(at + 792, place, b);
            accumulate<Tf32>(own + 3072, b, sums[0]);
            read(at + 772, place, b);
            accumulate<Tf32>(own + 3328, b, sums[0]);
        }
        float* tile = reinterpret_cast<float*>(halo);  // of products, when the halo is done with
        __syncthreads();
#pragma unroll
        for (int j = 0; j < 1; ++j) {
            float* into = tile + (row * 16 + lane / 4) * 72 + (column * 1 + j) * 8 + lane % 4 * 2;
            const auto& own = sums[0][0][j];
            *reinterpret_cast<float2*>(into) = make_float2(own[0], own[1]);
            *reinterpret_cast<float2*>(into + 576) = make_float2(own[2], own[3]);
        }
        __syncthreads();
        for (int r = threadIdx.x / 16; r < 16; r += 16) {
            const int channel = first_channel + r;
            const int c = channel;
#pragma unroll 4
            for (int v = lane % 16; v < 15; v += 16) {
                const int i = v * 2;
                const auto products = *reinterpret_cast<const Pack<float, 2>*>(tile + r * 72 + v * 2);
                Pack<float, 2> grad_x_pack;
#pragma unroll
                for (int k = 0; k < 2; ++k) {
                    const float product = products.at[k];
                    const float grad_x_is = product;
                    grad_x_pack.at[k] = grad_x_is;
                }
                if (aligned) store<true>(grad_x + n * 480LL + c * 30 + i, grad_x_pack);
                else store<false>(grad_x + n * 480LL + c * 30 + i, grad_x_pack);
            }
        }
    }
}

// The gradient of a weight of 27 taps: a block adds up 16 x 32 channels over boxes of 2x1x8 positions.
__global__ void __launch_bounds__(256, 2) conv_transpose3d_leaky_relu_mul_kernel_weight(
        const float* __restrict__ source, const float* __restrict__ grad,
        float* __restrict__ partial) {
    extern __shared__ uint4 memory[];
    unsigned* halo = reinterpret_cast<unsigned*>(memory);  // of the input, and gradients behind it
    unsigned* coming = halo + 9152;  // the next ones
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    constexpr int shifts[27] = {324, 288, 292, 252, 216, 220, 396, 360, 364, 108, 72, 76, 36, 0, 4, 180, 144,
        148, 540, 504, 508, 468, 432, 436, 612, 576, 580};  // in words of the halo
    const int part = blockIdx.x % 1;
    const int first_step = part % 1 * 4;
    const int first_channel = part / 1 % 1 * 16;
    int own[14];  // where a lane begins to read, of each tile of its warp
#pragma unroll
    for (int j = 0; j < 14; ++j) {
        const int tile = min(warp + j * 8, 107);
        own[j] = shifts[tile / 4] + ((tile % 4 * 2 + lane / 16) * 276 + lane % 4) * 4 + lane / 4 % 4;
    }
    float sums[14][1][4] = {};
    {
        const int n = static_cast<int>(blockIdx.x) / 1 / 3;
        const int box_d = 0;
        const int box_h = (static_cast<int>(blockIdx.x) / 1 % 3) * 1;
        const int box_w = 0;
        const auto* origin = source + n * 7680LL + first_step * 1920LL;
        for (int p = threadIdx.x; p < 255; p += 256) {
            const int d = box_d * 2 + p / 51 - 1;
            const int h = box_h * 2 + p / 17 % 3 - 1;
            const int w = box_w * 2 + p % 17 - 1;
            const bool inside = static_cast<unsigned>(d) < 4 && static_cast<unsigned>(h) < 6 && static_cast<unsigned>(w) < 10;
            const auto* from = origin + d * 60 + h * 10 + w;
            const int dealt = p / 17 * 18 + p % 17 % 2 * 9 + p % 17 / 2;  // so that strided reads are of neighbours
#pragma unroll
            for (int u = 0; u < 8; ++u) {
                copy_ahead(coming + (u * 276 + dealt) * 4 + 0, inside ? from + (u * 4 + 0) * 240 : origin,
                    inside);
                copy_ahead(coming + (u * 276 + dealt) * 4 + 1, inside ? from + (u * 4 + 1) * 240 : origin,
                    inside);
                copy_ahead(coming + (u * 276 + dealt) * 4 + 2, inside ? from + (u * 4 + 2) * 240 : origin,
                    inside);
                copy_ahead(coming + (u * 276 + dealt) * 4 + 3, inside ? from + (u * 4 + 3) * 240 : origin,
                    inside);
            }
        }
        unsigned* grads = coming + 8832;
        for (int p = threadIdx.x; p < 16; p += 256) {
            const int d = box_d + p / 8;
            const int h = box_h + 0;
            const int w = box_w + p % 8;
            const bool inside = w < 5;
            const int from = d * 15 + h * 5 + w;
#pragma unroll 8
            for (int c = 0; c < 16; ++c) {
                const auto* of_channel = grad + n * 480LL + (first_channel + c) * 30LL;
                copy_ahead(&grads[c * 20 + p], inside ? of_channel + from : grad, inside);
            }
        }
    }
    for (int item = static_cast<int>(blockIdx.x) / 1; item < 6; item += 6) {
        {  // what was coming is there
            unsigned* const before = halo;
            halo = coming, coming = before;
        }
        unsigned* grads = halo + 8832;
        wait_for_copies();
        for (int p = threadIdx.x; p < 255; p += 256) {
            const int dealt = p / 17 * 18 + p % 17 % 2 * 9 + p % 17 / 2;  // so that strided reads are of neighbours
#pragma unroll
            for (int u = 0; u < 8; ++u) {
                uint4& word = reinterpret_cast<uint4*>(halo)[u * 276 + dealt];
                word = {rounded(__uint_as_float(word.x)), rounded(__uint_as_float(word.y)),
                    rounded(__uint_as_float(word.z)), rounded(__uint_as_float(word.w))};
            }
        }
        for (int p = threadIdx.x; p < 16; p += 256) {
#pragma unroll
            for (int c = 0; c < 16; ++c) {
                grads[c * 20 + p] = rounded(__uint_as_float(grads[c * 20 + p]));
            }
        }
        __syncthreads();
        if (item + 6 < 6) {
            const int n = (item + 6) / 3;
            const int box_d = 0;
            const int box_h = ((item + 6) % 3) * 1;
            const int box_w = 0;
            const auto* origin = source + n * 7680LL + first_step * 1920LL;
            for (int p = threadIdx.x; p < 255; p += 256) {
                const int d = box_d * 2 + p / 51 - 1;
                const int h = box_h * 2 + p / 17 % 3 - 1;
                const int w = box_w * 2 + p % 17 - 1;
                const bool inside = static_cast<unsigned>(d) < 4 && static_cast<unsigned>(h) < 6 && static_cast<unsigned>(w) < 10;
                const auto* from = origin + d * 60 + h * 10 + w;
                const int dealt = p / 17 * 18 + p % 17 % 2 * 9 + p % 17 / 2;  // so that strided reads are of neighbours
#pragma unroll
                for (int u = 0; u < 8; ++u) {
                    copy_ahead(coming + (u * 276 + dealt) * 4 + 0,
                        inside ? from + (u * 4 + 0) * 240 : origin, inside);
                    copy_ahead(coming + (u * 276 + dealt) * 4 + 1,
                        inside ? from + (u * 4 + 1) * 240 : origin, inside);
                    copy_ahead(coming + (u * 276 + dealt) * 4 + 2,
                        inside ? from + (u * 4 + 2) * 240 : origin, inside);
                    copy_ahead(coming + (u * 276 + dealt) * 4 + 3,
                        inside ? from + (u * 4 + 3) * 240 : origin, inside);
                }
            }
            unsigned* grads = coming + 8832;
            for (int p = threadIdx.x; p < 16; p += 256) {
                const int d = box_d + p / 8;
                const int h = box_h + 0;
                const int w = box_w + p % 8;
                const bool inside = w < 5;
                const int from = d * 15 + h * 5 + w;
#pragma unroll 8
                for (int c = 0; c < 16; ++c) {
                    const auto* of_channel = grad + n * 480LL + (first_channel + c) * 30LL;
                    copy_ahead(&grads[c * 20 + p], inside ? of_channel + from : grad, inside);
                }
            }
        }
#pragma unroll 1
        for (int row = 0; row < 2; ++row) {
            const unsigned* at = halo + (row) * 432;
#pragma unroll 2
            for (int k = 0; k < 1; ++k) {
                uint4 a[1];
#pragma unroll
                for (int i = 0; i < 1; ++i) {
                    a[i] = load_matrix(grads + i * 320 + lane % 16 * 20 + lane / 16 * 4 + row * 8 + k * 8);
                }
#pragma unroll
                for (int j = 0; j < 14; ++j) {
                    unsigned b[2];
                    b[0] = at[own[j] + k * 32];
                    b[1] = at[own[j] + k * 32 + 16];
#pragma unroll
                    for (int i = 0; i < 1; ++i) {
                        Tf32::multiply(sums[j][i], a[i], b);
                    }
                }
            }
        }
    }
    float* into = partial + blockIdx.x / 1 * 13824 + part * 13824;
#pragma unroll
    for (int j = 0; j < 14; ++j) {
        const int tile = warp + j * 8;
        if (tile < 108) {
#pragma unroll
            for (int i = 0; i < 1; ++i) {
                float* to = into + (tile * 16 + i * 16 + lane / 4) * 8 + lane % 4 * 2;
                *reinterpret_cast<float2*>(to) = make_float2(sums[j][i][0], sums[j][i][1]);
                *reinterpret_cast<float2*>(to + 64) = make_float2(sums[j][i][2], sums[j][i][3]);
            }
        }
    }
}

// Adds up what 6 blocks made of each element of the weight's gradient.
__global__ void __launch_bounds__(256) conv_transpose3d_leaky_relu_mul_kernel_weight_finish(
        const float* __restrict__ partial, float* __restrict__ result) {
    __shared__ float totals[8][32];
    constexpr int taps[27] = {13, 12, 14, 10, 9, 11, 16, 15, 17, 4, 3, 5, 1, 0, 2, 7, 6, 8, 22, 21, 23, 19,
        18, 20, 25, 24, 26};
    const int lane = threadIdx.x % 32, slice = threadIdx.x / 32, word = blockIdx.x * 32 + lane;
    float total = 0;
    for (int b = slice; b < 6; b += 8) total += partial[b * 13824LL + word];
    totals[slice][lane] = total;
    __syncthreads();
    if (slice) return;
#pragma unroll
    for (int s = 1; s < 8; ++s) total += totals[s][lane];
    const int place = word % 13824, part = word / 13824;
    const int tile = place / 128;
    const int channel = part / 1 % 1 * 16 + place / 8 % 16;
    const int input = part % 1 * 32 + tile % 4 * 8 + place % 8;
    const int group = part / 1;
    if (channel < 16 && input < 32) {
        const int tap = taps[tile / 4];
        result[group * 13824LL + channel * 864LL + input * 27LL + tap] = total;
    }
}

// The largest of windows of 2x2x2: [2, 32, 4, 6, 10] to [2, 32, 2, 3, 5]. The values are pooled as they are
// stored.
// A thread takes one window; neighbouring threads read neighbouring memory.
template <bool aligned>
__device__ __forceinline__ void max_pool3d_kernel_body(
        const float* __restrict__ leaky_relu_2,
        float* __restrict__ max_pool3d) {
    const unsigned item = blockIdx.x * 256 + threadIdx.x;
    if (item >= 1920) return;
    const int w = item % 5, h = item / 5 % 3, d = item / 15 % 2, plane = item / 30;
    const int leaky_relu_2_at = plane * 240;
    float largest = -INFINITY;
    const int in_w = w * 2;
#pragma unroll
    for (int kd = 0; kd < 2; ++kd) {
        const int in_d = d * 2 + kd;
#pragma unroll
        for (int kh = 0; kh < 2; ++kh) {
            const int in_h = h * 2 + kh;
            const auto leaky_relu_2_row = read_row<2, aligned>(leaky_relu_2 + leaky_relu_2_at + in_d * 60 + in_h * 10 + in_w);
#pragma unroll
            for (int k = 0; k < 2; ++k) {
                const float leaky_relu_2_value = leaky_relu_2_row.at[k];
                largest = max_nan(largest, leaky_relu_2_value);
            }
        }
    }
    max_pool3d[plane * 30 + d * 15 + h * 5 + w] = largest;
}
__global__ void __launch_bounds__(256) max_pool3d_kernel(
        const float* __restrict__ leaky_relu_2,
        float* __restrict__ max_pool3d) {
    if (begin_at_16_bytes(leaky_relu_2))
        max_pool3d_kernel_body<true>(leaky_relu_2, max_pool3d);
    else
        max_pool3d_kernel_body<false>(leaky_relu_2, max_pool3d);
}

// A thread writes the gradients of all elements of its window, in one pass.
template <bool aligned>
__device__ __forceinline__ void max_pool3d_kernel_backward_body(
        const float* __restrict__ leaky_relu_2,
        const float* __restrict__ grad_max_pool3d,
        float* __restrict__ grad_leaky_relu_2) {
    const unsigned item = blockIdx.x * 256 + threadIdx.x;
    if (item >= 1920) return;
    const int w = item % 5, h = item / 5 % 3, d = item / 15 % 2, plane = item / 30;
    const int leaky_relu_2_at = plane * 240;
    const int grad_leaky_relu_2_at = plane * 240;
    float best = -INFINITY;
    int choice = -1;
    const int in_w = w * 2;
#pragma unroll
    for (int kd = 0; kd < 2; ++kd) {
        const int in_d = d * 2 + kd;
#pragma unroll
        for (int kh = 0; kh < 2; ++kh) {
            const int in_h = h * 2 + kh;
            const auto leaky_relu_2_row = read_row<2, aligned>(leaky_relu_2 + leaky_relu_2_at + in_d * 60 + in_h * 10 + in_w);
#pragma unroll
            for (int k = 0; k < 2; ++k) {
                const float leaky_relu_2_value = leaky_relu_2_row.at[k];
                const bool taken = (choice < 0) | (leaky_relu_2_value > best) | isnan(leaky_relu_2_value);
                best = taken ? leaky_relu_2_value : best;
                choice = taken ? (kd * 2 + kh) * 2 + k : choice;
            }
        }
    }
    const float grad_max_pool3d_value = grad_max_pool3d[plane * 30 + d * 15 + h * 5 + w];
#pragma unroll
    for (int kd = 0; kd < 2; ++kd) {
        const int in_d = d * 2 + kd;
#pragma unroll
        for (int kh = 0; kh < 2; ++kh) {
            const int in_h = h * 2 + kh;
            Row<float, 2> grad_leaky_relu_2_row;
#pragma unroll
            for (int k = 0; k < 2; ++k) {
                const bool chosen = choice == (kd * 2 + kh) * 2 + k;
                grad_leaky_relu_2_row.at[k] = chosen ? grad_max_pool3d_value : 0;
            }
            write_row<aligned>(grad_leaky_relu_2 + grad_leaky_relu_2_at + in_d * 60 + in_h * 10 + in_w,
                grad_leaky_relu_2_row);
        }
    }
}
__global__ void __launch_bounds__(256) max_pool3d_kernel_backward(
        const float* __restrict__ leaky_relu_2,
        const float* __restrict__ grad_max_pool3d,
        float* __restrict__ grad_leaky_relu_2) {
    if (begin_at_16_bytes(leaky_relu_2, grad_leaky_relu_2))
        max_pool3d_kernel_backward_body<true>(leaky_relu_2, grad_max_pool3d, grad_leaky_relu_2);
    else
        max_pool3d_kernel_backward_body<false>(leaky_relu_2, grad_max_pool3d, grad_leaky_relu_2);
}

// The tensor as the kernels read it: copied where it lies in memory in another way.
static torch::Tensor laid(const torch::Tensor& given, at::IntArrayRef sizes, at::IntArrayRef strides,
                          at::ScalarType type) {
  TORCH_CHECK(given.sizes() == sizes && given.scalar_type() == type, "written for a tensor of shape ", sizes,
      " and ",
              type, ", given one of shape ", given.sizes(), " and ", given.scalar_type());
  bool fits = true;
  for (int64_t dim = 0; dim < given.dim(); ++dim) fits &= sizes[dim] < 2 || given.stride(dim) == strides[dim];
  return fits ? given : torch::empty_strided(sizes, strides, given.options()).copy_(given);
}

std::vector<torch::Tensor> run_conv_transpose3d_leaky_relu_mul(const torch::Tensor& x_given,
        const torch::Tensor& conv_transpose_weight_given, const torch::Tensor& conv_transpose_bias_given, const torch::Tensor& multiplier_given) {
  const c10::cuda::CUDAGuard guard(x_given.device());
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream();
  const torch::Tensor x = laid(x_given, {2, 16, 2, 3, 5}, {480, 30, 15, 5, 1}, torch::kFloat32);
  const torch::Tensor conv_transpose_weight = laid(conv_transpose_weight_given, {16, 32, 3, 3, 3}, {864, 27,
      9, 3, 1}, torch::kFloat32);
  const torch::Tensor conv_transpose_bias = laid(conv_transpose_bias_given, {32}, {1}, torch::kFloat32);
  const torch::Tensor multiplier = laid(multiplier_given, {32, 1, 1, 1}, {1, 1, 1, 1}, torch::kFloat32);
  torch::Tensor leaky_relu_2 = torch::empty_strided({2, 32, 4, 6, 10}, {7680, 240, 60, 10, 1},
      x.options().dtype(torch::kFloat32));
  torch::Tensor conv_transpose3d_leaky_relu_mul_kernel_packed = torch::empty_strided({13824}, {1},
      x.options().dtype(torch::kInt32));
  conv_transpose3d_leaky_relu_mul_kernel_pack<<<54, 256, 0, stream>>>(conv_transpose_weight.data_ptr<float>(), conv_transpose3d_leaky_relu_mul_kernel_packed.data_ptr<int>());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  C10_CUDA_CHECK(cudaFuncSetAttribute(conv_transpose3d_leaky_relu_mul_kernel,
      cudaFuncAttributeMaxDynamicSharedMemorySize, 89088));
  conv_transpose3d_leaky_relu_mul_kernel<<<2, 256, 89088, stream>>>(x.data_ptr<float>(),
      conv_transpose3d_leaky_relu_mul_kernel_packed.data_ptr<int>(), conv_transpose_bias.data_ptr<float>(),
      multiplier.data_ptr<float>(), leaky_relu_2.data_ptr<float>());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return {leaky_relu_2};
}

std::vector<torch::Tensor> run_conv_transpose3d_leaky_relu_mul_backward(const torch::Tensor& grad_leaky_relu_2_given, const torch::Tensor& x_given, const torch::Tensor& conv_transpose_weight_given, const torch::Tensor& conv_transpose_bias_given, const torch::Tensor& multiplier_given) {
  const c10::cuda::CUDAGuard guard(grad_leaky_relu_2_given.device());
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream();
  const torch::Tensor grad_leaky_relu_2 = laid(grad_leaky_relu_2_given, {2, 32, 4, 6, 10}, {7680, 240, 60,
      10, 1}, torch::kFloat32);
  const torch::Tensor x = laid(x_given, {2, 16, 2, 3, 5}, {480, 30, 15, 5, 1}, torch::kFloat32);
  const torch::Tensor conv_transpose_weight = laid(conv_transpose_weight_given, {16, 32, 3, 3, 3}, {864, 27,
      9, 3, 1}, torch::kFloat32);
  const torch::Tensor conv_transpose_bias = laid(conv_transpose_bias_given, {32}, {1}, torch::kFloat32);
  const torch::Tensor multiplier = laid(multiplier_given, {32, 1, 1, 1}, {1, 1, 1, 1}, torch::kFloat32);
  torch::Tensor grad_conv_transpose_bias = torch::empty_strided({32}, {1},
      grad_leaky_relu_2.options().dtype(torch::kFloat32));
  torch::Tensor grad_multiplier = torch::empty_strided({32, 1, 1, 1}, {1, 1, 1, 1},
      grad_leaky_relu_2.options().dtype(torch::kFloat32));
  torch::Tensor grad_x = torch::empty_strided({2, 16, 2, 3, 5}, {480, 30, 15, 5, 1},
      grad_leaky_relu_2.options().dtype(torch::kFloat32));
  torch::Tensor grad_conv_transpose_weight = torch::empty_strided({16, 32, 3, 3, 3}, {864, 27, 9, 3, 1},
      grad_leaky_relu_2.options().dtype(torch::kFloat32));
  torch::Tensor grad_product = torch::empty_strided({15360}, {1},
      grad_leaky_relu_2.options().dtype(torch::kFloat32));
  torch::Tensor conv_transpose3d_leaky_relu_mul_kernel_again_packed = torch::empty_strided({13824}, {1},
      grad_leaky_relu_2.options().dtype(torch::kInt32));
  torch::Tensor grad_conv_transpose_bias_parts = torch::empty_strided({64}, {1},
      grad_leaky_relu_2.options().dtype(torch::kFloat32));
  torch::Tensor grad_multiplier_parts = torch::empty_strided({64}, {1},
      grad_leaky_relu_2.options().dtype(torch::kFloat32));
  conv_transpose3d_leaky_relu_mul_kernel_again_pack<<<54, 256, 0, stream>>>(conv_transpose_weight.data_ptr<float>(), conv_transpose3d_leaky_relu_mul_kernel_again_packed.data_ptr<int>());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  C10_CUDA_CHECK(cudaFuncSetAttribute(conv_transpose3d_leaky_relu_mul_kernel_again,
      cudaFuncAttributeMaxDynamicSharedMemorySize, 89088));
  conv_transpose3d_leaky_relu_mul_kernel_again<<<2, 256, 89088, stream>>>(x.data_ptr<float>(),
      conv_transpose3d_leaky_relu_mul_kernel_again_packed.data_ptr<int>(),
      conv_transpose_bias.data_ptr<float>(), multiplier.data_ptr<float>(),
      grad_leaky_relu_2.data_ptr<float>(), grad_product.data_ptr<float>(),
      grad_conv_transpose_bias_parts.data_ptr<float>(), grad_multiplier_parts.data_ptr<float>());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  conv_transpose3d_leaky_relu_mul_kernel_grad_conv_transpose_bias<<<2, 8, 0, stream>>>(grad_conv_transpose_bias_parts.data_ptr<float>(), grad_conv_transpose_bias.data_ptr<float>());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  conv_transpose3d_leaky_relu_mul_kernel_grad_multiplier<<<2, 8, 0, stream>>>(grad_multiplier_parts.data_ptr<float>(), grad_multiplier.data_ptr<float>());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  torch::Tensor conv_transpose3d_leaky_relu_mul_kernel_input_packed = torch::empty_strided({13824}, {1},
      grad_leaky_relu_2.options().dtype(torch::kInt32));
  conv_transpose3d_leaky_relu_mul_kernel_input_pack<<<54, 256, 0, stream>>>(conv_transpose_weight.data_ptr<float>(), conv_transpose3d_leaky_relu_mul_kernel_input_packed.data_ptr<int>());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  C10_CUDA_CHECK(cudaFuncSetAttribute(conv_transpose3d_leaky_relu_mul_kernel_input,
      cudaFuncAttributeMaxDynamicSharedMemorySize, 109056));
  conv_transpose3d_leaky_relu_mul_kernel_input<<<2, 256, 109056, stream>>>(grad_product.data_ptr<float>(),
      conv_transpose3d_leaky_relu_mul_kernel_input_packed.data_ptr<int>(), grad_x.data_ptr<float>());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  torch::Tensor grad_conv_transpose_weight_parts = torch::empty_strided({82944}, {1},
      grad_leaky_relu_2.options().dtype(torch::kFloat32));
  C10_CUDA_CHECK(cudaFuncSetAttribute(conv_transpose3d_leaky_relu_mul_kernel_weight,
      cudaFuncAttributeMaxDynamicSharedMemorySize, 73216));
  conv_transpose3d_leaky_relu_mul_kernel_weight<<<6, 256, 73216, stream>>>(grad_product.data_ptr<float>(),
      x.data_ptr<float>(), grad_conv_transpose_weight_parts.data_ptr<float>());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  conv_transpose3d_leaky_relu_mul_kernel_weight_finish<<<432, 256, 0, stream>>>(grad_conv_transpose_weight_parts.data_ptr<float>(), grad_conv_transpose_weight.data_ptr<float>());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return {grad_conv_transpose_bias, grad_multiplier, grad_x, grad_conv_transpose_weight};
}

std::vector<torch::Tensor> run_max_pool3d(const torch::Tensor& leaky_relu_2_given) {
  const c10::cuda::CUDAGuard guard(leaky_relu_2_given.device());
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream();
  const torch::Tensor leaky_relu_2 = laid(leaky_relu_2_given, {2, 32, 4, 6, 10}, {7680, 240, 60, 10, 1},
      torch::kFloat32);
  torch::Tensor max_pool3d = torch::empty_strided({2, 32, 2, 3, 5}, {960, 30, 15, 5, 1},
      leaky_relu_2.options().dtype(torch::kFloat32));
  max_pool3d_kernel<<<8, 256, 0, stream>>>(leaky_relu_2.data_ptr<float>(), max_pool3d.data_ptr<float>());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return {max_pool3d};
}

std::vector<torch::Tensor> run_max_pool3d_backward(const torch::Tensor& grad_max_pool3d_given,
        const torch::Tensor& leaky_relu_2_given) {
  const c10::cuda::CUDAGuard guard(grad_max_pool3d_given.device());
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream();
  const torch::Tensor grad_max_pool3d = laid(grad_max_pool3d_given, {2, 32, 2, 3, 5}, {960, 30, 15, 5, 1},
      torch::kFloat32);
  const torch::Tensor leaky_relu_2 = laid(leaky_relu_2_given, {2, 32, 4, 6, 10}, {7680, 240, 60, 10, 1},
      torch::kFloat32);
  torch::Tensor grad_leaky_relu_2 = torch::empty_strided({2, 32, 4, 6, 10}, {7680, 240, 60, 10, 1},
      grad_max_pool3d.options().dtype(torch::kFloat32));
  max_pool3d_kernel_backward<<<8, 256, 0, stream>>>(leaky_relu_2.data_ptr<float>(),
      grad_max_pool3d.data_ptr<float>(), grad_leaky_relu_2.data_ptr<float>());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return {grad_leaky_relu_2};
}
"""


kernels = load_inline(
    name="convtranspose3d_leakyrelu_multiply_leakyrelu_maxpool_7ddcf033",
    cpp_sources=DECLARATIONS,
    cuda_sources=KERNELS,
    functions=["run_conv_transpose3d_leaky_relu_mul", "run_conv_transpose3d_leaky_relu_mul_backward",
        "run_max_pool3d", "run_max_pool3d_backward"],
    extra_cuda_cflags=["-O3"],
)
library = torch.library.Library(f"crucible_{__name__}".replace(".", "_"), "DEF")
operators = getattr(torch.ops, library.ns)


library.define("conv_transpose3d_leaky_relu_mul(Tensor x, Tensor conv_transpose_weight, Tensor conv_transpose_bias, Tensor multiplier) -> Tensor")


@torch.library.impl(library, "conv_transpose3d_leaky_relu_mul", "CompositeExplicitAutograd")
def run_conv_transpose3d_leaky_relu_mul(x, conv_transpose_weight, conv_transpose_bias, multiplier):
    return kernels.run_conv_transpose3d_leaky_relu_mul(x, conv_transpose_weight, conv_transpose_bias,
        multiplier)[0]


@torch.library.register_fake(f"{library.ns}::conv_transpose3d_leaky_relu_mul", lib=library)
def run_conv_transpose3d_leaky_relu_mul_shapes(x, conv_transpose_weight, conv_transpose_bias, multiplier):
    return x.new_empty_strided((2, 32, 4, 6, 10), (7680, 240, 60, 10, 1), dtype=torch.float32)


library.define("conv_transpose3d_leaky_relu_mul_backward(Tensor grad_leaky_relu_2, Tensor x, Tensor conv_transpose_weight, Tensor conv_transpose_bias, Tensor multiplier) -> (Tensor, Tensor, Tensor, Tensor)")


@torch.library.impl(library, "conv_transpose3d_leaky_relu_mul_backward", "CompositeExplicitAutograd")
def run_conv_transpose3d_leaky_relu_mul_backward(grad_leaky_relu_2, x, conv_transpose_weight,
        conv_transpose_bias, multiplier):
    return tuple(kernels.run_conv_transpose3d_leaky_relu_mul_backward(grad_leaky_relu_2, x,
        conv_transpose_weight, conv_transpose_bias, multiplier))


@torch.library.register_fake(f"{library.ns}::conv_transpose3d_leaky_relu_mul_backward", lib=library)
def run_conv_transpose3d_leaky_relu_mul_backward_shapes(grad_leaky_relu_2, x, conv_transpose_weight,
        conv_transpose_bias, multiplier):
    return (
        grad_leaky_relu_2.new_empty_strided((32,), (1,), dtype=torch.float32),
        grad_leaky_relu_2.new_empty_strided((32, 1, 1, 1), (1, 1, 1, 1), dtype=torch.float32),
        grad_leaky_relu_2.new_empty_strided((2, 16, 2, 3, 5), (480, 30, 15, 5, 1), dtype=torch.float32),
        grad_leaky_relu_2.new_empty_strided((16, 32, 3, 3, 3), (864, 27, 9, 3, 1), dtype=torch.float32),
    )


def conv_transpose3d_leaky_relu_mul_keeps(ctx, inputs, output):
    x, conv_transpose_weight, conv_transpose_bias, multiplier = inputs
    ctx.save_for_backward(x, conv_transpose_weight, conv_transpose_bias, multiplier)


def conv_transpose3d_leaky_relu_mul_gradients(ctx, grad_leaky_relu_2):
    grad_conv_transpose_bias, grad_multiplier, grad_x, grad_conv_transpose_weight = operators.conv_transpose3d_leaky_relu_mul_backward(grad_leaky_relu_2, *ctx.saved_tensors)
    return grad_x, grad_conv_transpose_weight, grad_conv_transpose_bias, grad_multiplier


torch.library.register_autograd(
    f"{library.ns}::conv_transpose3d_leaky_relu_mul",
    conv_transpose3d_leaky_relu_mul_gradients,
    setup_context=conv_transpose3d_leaky_relu_mul_keeps,
    lib=library,
)


library.define("max_pool3d(Tensor leaky_relu_2) -> Tensor")


@torch.library.impl(library, "max_pool3d", "CompositeExplicitAutograd")
def run_max_pool3d(leaky_relu_2):
    return kernels.run_max_pool3d(leaky_relu_2)[0]


@torch.library.register_fake(f"{library.ns}::max_pool3d", lib=library)
def run_max_pool3d_shapes(leaky_relu_2):
    return leaky_relu_2.new_empty_strided((2, 32, 2, 3, 5), (960, 30, 15, 5, 1), dtype=torch.float32)


library.define("max_pool3d_backward(Tensor grad_max_pool3d, Tensor leaky_relu_2) -> Tensor")


@torch.library.impl(library, "max_pool3d_backward", "CompositeExplicitAutograd")
def run_max_pool3d_backward(grad_max_pool3d, leaky_relu_2):
    return kernels.run_max_pool3d_backward(grad_max_pool3d, leaky_relu_2)[0]


@torch.library.register_fake(f"{library.ns}::max_pool3d_backward", lib=library)
def run_max_pool3d_backward_shapes(grad_max_pool3d, leaky_relu_2):
    return grad_max_pool3d.new_empty_strided((2, 32, 4, 6, 10), (7680, 240, 60, 10, 1), dtype=torch.float32)


def max_pool3d_keeps(ctx, inputs, output):
    leaky_relu_2, = inputs
    ctx.save_for_backward(leaky_relu_2)


def max_pool3d_gradients(ctx, grad_max_pool3d):
    return operators.max_pool3d_backward(grad_max_pool3d, *ctx.saved_tensors)


torch.library.register_autograd(
    f"{library.ns}::max_pool3d",
    max_pool3d_gradients,
    setup_context=max_pool3d_keeps,
    lib=library,
)


def _fits(given, shape, dtype):
    """Whether the kernels, whose sizes are built in, were written for such a tensor."""
    if torch.is_autocast_enabled(given.device.type):
        raise RuntimeError("this module was written for fixed dtypes: call it outside of torch.autocast")
    return given.shape == shape and given.dtype == dtype


class ModelNew(Model):
    """The module, its parameters built as before."""

    def forward(self, x):
        if not (_fits(x, (2, 16, 2, 3, 5), torch.float32)):
            return super().forward(x)
        leaky_relu_2 = operators.conv_transpose3d_leaky_relu_mul(x, self.conv_transpose.weight,
            self.conv_transpose.bias, self.multiplier)
        max_pool3d = operators.max_pool3d(leaky_relu_2)
        return max_pool3d
