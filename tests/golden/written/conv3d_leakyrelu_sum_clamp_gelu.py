"""conv3d_leakyrelu_sum_clamp_gelu, fused by Crucible for x [2, 8, 4, 6, 7] float32. Other inputs go through
PyTorch.

- conv_without_bias = conv3d by PyTorch: a matrix product
- bias_leaky_relu_add_clamp_gelu: bias of conv3d -> leaky_relu -> add -> clamp -> gelu; 41.5 KB
    - bias_leaky_relu_add_clamp_gelu_kernel: 5120 elements, 4 a thread, 4 at once
    - gelu(clamp(leaky_relu(conv_without_bias + conv_bias, 0.2) + sum_tensor, -1, 1)) is a polynomial, right
      to 1.5e-07
    - bias_leaky_relu_add_clamp_gelu_backward: 64 rows of 80: 32 threads a row, 4 rows a block
    - gelu_slope(clamp(leaky_relu(conv_without_bias + conv_bias, 0.2) + sum_tensor, -1, 1)) is a polynomial,
      right to 2.4e-07
    - backward keeps conv_without_bias, conv_bias, sum_tensor; the chain is computed again

Forward moves 128 KB in 2 steps; operation by operation it would be 251 KB in 5.
"""


import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.cpp_extension import load_inline


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, sum_tensor_shape):
        super().__init__()
        self.conv = nn.Conv3d(in_channels, out_channels, kernel_size)
        self.sum_tensor = nn.Parameter(torch.randn(sum_tensor_shape))

    def forward(self, x):
        x = self.conv(x)
        x = F.leaky_relu(x, negative_slope=0.2)
        x = x + self.sum_tensor
        x = torch.clamp(x, min=-1.0, max=1.0)
        return F.gelu(x)


DECLARATIONS = """
#include <torch/extension.h>

std::vector<torch::Tensor> run_bias_leaky_relu_add_clamp_gelu(const torch::Tensor& conv_without_bias_given,
    const torch::Tensor& conv_bias_given, const torch::Tensor& sum_tensor_given);
std::vector<torch::Tensor> run_bias_leaky_relu_add_clamp_gelu_backward(const torch::Tensor& grad_gelu_given,
    const torch::Tensor& conv_without_bias_given, const torch::Tensor& conv_bias_given,
    const torch::Tensor& sum_tensor_given);
"""


KERNELS = r"""
#include <torch/types.h>

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

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

template <int bytes, typename... T>
__device__ __forceinline__ bool are_aligned(const T*... pointers) {
    return (... && (reinterpret_cast<unsigned long long>(pointers) % bytes == 0));
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

template <bool aligned, int count, typename T>
__device__ __forceinline__ void store(T* to, const Pack<T, count>& pack) {
    if constexpr (aligned) {
        *reinterpret_cast<Pack<T, count>*>(to) = pack;
    } else {
#pragma unroll
        for (int j = 0; j < count; ++j) to[j] = pack.at[j];
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

// 5120 elements, 4 a thread, 4 at once
template <bool aligned>
__device__ __forceinline__ void bias_leaky_relu_add_clamp_gelu_kernel_block(
    const float* __restrict__ conv_without_bias,
    const float* __restrict__ conv_bias,
    const float* __restrict__ sum_tensor,
    float* __restrict__ gelu) {
    constexpr unsigned step = 1024;  // of a block
    constexpr unsigned size_1 = 64;
    constexpr unsigned size_2 = 40;
    constexpr int vector = 4;  // neighbours that a thread takes at once
    const unsigned chunk = blockIdx.x;

    const unsigned i = chunk * step + threadIdx.x * vector;
    const Pack<float, vector> conv_without_bias_read = load<aligned, vector>(conv_without_bias + i);
    const float conv_bias_read = conv_bias[i / size_2 % size_1];
    const float sum_tensor_read = sum_tensor[i / size_2 % size_1];
    Pack<float, vector> gelu_pack;
#pragma unroll
    for (int j = 0; j < vector; ++j) {
        const float conv_without_bias_value = conv_without_bias_read.at[j];
        const float conv_bias_value = conv_bias_read;
        const float sum_tensor_value = sum_tensor_read;
        const float sum = conv_without_bias_value + conv_bias_value;
        const float leaky_relu = sum > 0.0f ? sum : sum * 0.2f;
        const float clamp = min_nan(max_nan(leaky_relu + sum_tensor_value, -1.0f), 1.0f);
        const float clamp_squared = clamp * clamp;
        // gelu on [-1, 1]: off by at most 1.5e-07 (proven, rounding included)
        float gelu_value = 9.431737e-05f;
        gelu_value = fmaf(gelu_value, clamp_squared, -0.0011695193f);
        gelu_value = fmaf(gelu_value, clamp_squared, 0.009967302f);
        gelu_value = fmaf(gelu_value, clamp_squared, -0.06648961f);
        gelu_value = fmaf(gelu_value, clamp_squared, 0.39894226f);
        gelu_value = fmaf(gelu_value, clamp_squared, 0.5f * clamp);
        gelu_pack.at[j] = gelu_value;
    }
    store<aligned>(gelu + i, gelu_pack);
}

__global__ void __launch_bounds__(256) bias_leaky_relu_add_clamp_gelu_kernel(
    const float* __restrict__ conv_without_bias,
    const float* __restrict__ conv_bias,
    const float* __restrict__ sum_tensor,
    float* __restrict__ gelu) {
    if (are_aligned<16>(conv_without_bias, gelu)) {
        bias_leaky_relu_add_clamp_gelu_kernel_block<true>(conv_without_bias, conv_bias, sum_tensor, gelu);
    } else {  // a tensor that begins in the middle of another
        bias_leaky_relu_add_clamp_gelu_kernel_block<false>(conv_without_bias, conv_bias, sum_tensor, gelu);
    }
}

// 64 rows of 80: 32 threads a row, 4 rows a block
// grad_conv_bias = grad_conv_bias_row
// grad_sum_tensor = grad_sum_tensor_row
template <bool aligned>
__device__ __forceinline__ void bias_leaky_relu_add_clamp_gelu_backward_block(
    const float* __restrict__ conv_without_bias,
    const float* __restrict__ conv_bias,
    const float* __restrict__ sum_tensor,
    const float* __restrict__ grad_gelu,
    float* __restrict__ grad_conv_without_bias,
    float* __restrict__ grad_conv_bias,
    float* __restrict__ grad_sum_tensor) {
    constexpr unsigned columns = 80;
    constexpr unsigned block_rows = 4;  // of a block
    constexpr unsigned conv_without_bias_stride_0 = 40;
    constexpr unsigned conv_without_bias_stride_1 = 2560;
    constexpr unsigned grad_conv_without_bias_stride_0 = 40;
    constexpr unsigned grad_conv_without_bias_stride_1 = 2560;
    constexpr unsigned grad_gelu_stride_0 = 40;
    constexpr unsigned grad_gelu_stride_1 = 2560;
    constexpr unsigned size_2 = 40;
    constexpr int team = 32;  // threads that share a row
    constexpr int vector = 4;  // neighbours that a thread takes at once
    const unsigned thread = threadIdx.x % team;
    const unsigned row = blockIdx.x * block_rows + threadIdx.x / team;
    const float* conv_without_bias_row = conv_without_bias + row * conv_without_bias_stride_0;
    const float* grad_gelu_row = grad_gelu + row * grad_gelu_stride_0;
    float* grad_conv_without_bias_row = grad_conv_without_bias + row * grad_conv_without_bias_stride_0;
    const float conv_bias_value = conv_bias[row];
    const float sum_tensor_value = sum_tensor[row];

    float grad_conv_bias_row = 0.0f;
    float grad_sum_tensor_row = 0.0f;
    const unsigned column = thread * vector;
    if (column < columns) {
        const Pack<float, vector> conv_without_bias_read = load<aligned, vector>(conv_without_bias_row + column / size_2 * conv_without_bias_stride_1 + column % size_2);
        const Pack<float, vector> grad_gelu_read = load<aligned, vector>(grad_gelu_row + column / size_2 * grad_gelu_stride_1 + column % size_2);
        Pack<float, vector> grad_conv_without_bias_pack;
#pragma unroll
        for (int j = 0; j < vector; ++j) {
            const float conv_without_bias_value = conv_without_bias_read.at[j];
            const float grad_gelu_value = grad_gelu_read.at[j];
            const float sum = conv_without_bias_value + conv_bias_value;
            const bool above = sum > 0.0f;
            const float leaky_relu = above ? sum : sum * 0.2f;
            const float sum_2 = leaky_relu + sum_tensor_value;
            const float clamp = min_nan(max_nan(sum_2, -1.0f), 1.0f);
            const float clamp_squared = clamp * clamp;
            // gelu_slope on [-1, 1]: off by at most 2.4e-07 (proven, rounding included)
            float gelu_slope = -8.875188e-05f;
            gelu_slope = fmaf(gelu_slope, clamp_squared, 0.001127868f);
            gelu_slope = fmaf(gelu_slope, clamp_squared, -0.009485175f);
            gelu_slope = fmaf(gelu_slope, clamp_squared, 0.059838224f);
            gelu_slope = fmaf(gelu_slope, clamp_squared, -0.26596126f);
            gelu_slope = fmaf(gelu_slope, clamp_squared, 0.7978846f);
            gelu_slope = fmaf(gelu_slope, clamp, 0.5f);
            const float grad_sum_tensor_row_value = sum_2 >= -1.0f && sum_2 <= 1.0f ? grad_gelu_value * gelu_slope : 0.0f;
            const float grad_conv_bias_row_value = above ? grad_sum_tensor_row_value : grad_sum_tensor_row_value * 0.2f;
            grad_conv_bias_row += grad_conv_bias_row_value;
            grad_sum_tensor_row += grad_sum_tensor_row_value;
            grad_conv_without_bias_pack.at[j] = grad_conv_bias_row_value;
        }
        store<aligned>(grad_conv_without_bias_row + column / size_2 * grad_conv_without_bias_stride_1 + column % size_2, grad_conv_without_bias_pack);
    }
    grad_conv_bias_row = sum_over_team<team>(grad_conv_bias_row);
    grad_sum_tensor_row = sum_over_team<team>(grad_sum_tensor_row);

    if (thread == 0) {
        grad_conv_bias[row] = grad_conv_bias_row;
        grad_sum_tensor[row] = grad_sum_tensor_row;
    }
}

__global__ void __launch_bounds__(128) bias_leaky_relu_add_clamp_gelu_backward(
    const float* __restrict__ conv_without_bias,
    const float* __restrict__ conv_bias,
    const float* __restrict__ sum_tensor,
    const float* __restrict__ grad_gelu,
    float* __restrict__ grad_conv_without_bias,
    float* __restrict__ grad_conv_bias,
    float* __restrict__ grad_sum_tensor) {
    if (are_aligned<16>(conv_without_bias, grad_gelu, grad_conv_without_bias)) {
        bias_leaky_relu_add_clamp_gelu_backward_block<true>(conv_without_bias, conv_bias, sum_tensor,
            grad_gelu, grad_conv_without_bias, grad_conv_bias, grad_sum_tensor);
    } else {  // a tensor that begins in the middle of another
        bias_leaky_relu_add_clamp_gelu_backward_block<false>(conv_without_bias, conv_bias, sum_tensor,
            grad_gelu, grad_conv_without_bias, grad_conv_bias, grad_sum_tensor);
    }
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

std::vector<torch::Tensor> run_bias_leaky_relu_add_clamp_gelu(const torch::Tensor& conv_without_bias_given,
        const torch::Tensor& conv_bias_given, const torch::Tensor& sum_tensor_given) {
  const c10::cuda::CUDAGuard guard(conv_without_bias_given.device());
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream();
  const torch::Tensor conv_without_bias = laid(conv_without_bias_given, {2, 64, 2, 4, 5}, {2560, 40, 20, 5,
      1}, torch::kFloat32);
  const torch::Tensor conv_bias = laid(conv_bias_given, {64}, {1}, torch::kFloat32);
  const torch::Tensor sum_tensor = laid(sum_tensor_given, {64, 1, 1, 1}, {1, 1, 1, 1}, torch::kFloat32);
  torch::Tensor gelu = torch::empty_strided({2, 64, 2, 4, 5}, {2560, 40, 20, 5, 1},
      conv_without_bias.options().dtype(torch::kFloat32));
  bias_leaky_relu_add_clamp_gelu_kernel<<<5, 256, 0, stream>>>(conv_without_bias.data_ptr<float>(),
      conv_bias.data_ptr<float>(), sum_tensor.data_ptr<float>(), gelu.data_ptr<float>());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return {gelu};
}

std::vector<torch::Tensor> run_bias_leaky_relu_add_clamp_gelu_backward(const torch::Tensor& grad_gelu_given,
        const torch::Tensor& conv_without_bias_given, const torch::Tensor& conv_bias_given, const torch::Tensor& sum_tensor_given) {
  const c10::cuda::CUDAGuard guard(grad_gelu_given.device());
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream();
  const torch::Tensor grad_gelu = laid(grad_gelu_given, {2, 64, 2, 4, 5}, {2560, 40, 20, 5, 1},
      torch::kFloat32);
  const torch::Tensor conv_without_bias = laid(conv_without_bias_given, {2, 64, 2, 4, 5}, {2560, 40, 20, 5,
      1}, torch::kFloat32);
  const torch::Tensor conv_bias = laid(conv_bias_given, {64}, {1}, torch::kFloat32);
  const torch::Tensor sum_tensor = laid(sum_tensor_given, {64, 1, 1, 1}, {1, 1, 1, 1}, torch::kFloat32);
  torch::Tensor grad_conv_without_bias = torch::empty_strided({2, 64, 2, 4, 5}, {2560, 40, 20, 5, 1},
      grad_gelu.options().dtype(torch::kFloat32));
  torch::Tensor grad_conv_bias = torch::empty_strided({64}, {1}, grad_gelu.options().dtype(torch::kFloat32));
  torch::Tensor grad_sum_tensor = torch::empty_strided({64, 1, 1, 1}, {1, 1, 1, 1},
      grad_gelu.options().dtype(torch::kFloat32));
  bias_leaky_relu_add_clamp_gelu_backward<<<16, 128, 0, stream>>>(conv_without_bias.data_ptr<float>(),
      conv_bias.data_ptr<float>(), sum_tensor.data_ptr<float>(), grad_gelu.data_ptr<float>(),
      grad_conv_without_bias.data_ptr<float>(), grad_conv_bias.data_ptr<float>(),
      grad_sum_tensor.data_ptr<float>());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return {grad_conv_without_bias, grad_conv_bias, grad_sum_tensor};
}
"""


kernels = load_inline(
    name="conv3d_leakyrelu_sum_clamp_gelu_f2b7feac",
    cpp_sources=DECLARATIONS,
    cuda_sources=KERNELS,
    functions=["run_bias_leaky_relu_add_clamp_gelu", "run_bias_leaky_relu_add_clamp_gelu_backward"],
    extra_cuda_cflags=["-O3"],
)
library = torch.library.Library(f"crucible_{__name__}".replace(".", "_"), "DEF")
operators = getattr(torch.ops, library.ns)


library.define("bias_leaky_relu_add_clamp_gelu(Tensor conv_without_bias, Tensor conv_bias, Tensor sum_tensor) -> Tensor")


@torch.library.impl(library, "bias_leaky_relu_add_clamp_gelu", "CompositeExplicitAutograd")
def run_bias_leaky_relu_add_clamp_gelu(conv_without_bias, conv_bias, sum_tensor):
    return kernels.run_bias_leaky_relu_add_clamp_gelu(conv_without_bias, conv_bias, sum_tensor)[0]


@torch.library.register_fake(f"{library.ns}::bias_leaky_relu_add_clamp_gelu", lib=library)
def run_bias_leaky_relu_add_clamp_gelu_shapes(conv_without_bias, conv_bias, sum_tensor):
    return conv_without_bias.new_empty_strided((2, 64, 2, 4, 5), (2560, 40, 20, 5, 1), dtype=torch.float32)


library.define("bias_leaky_relu_add_clamp_gelu_backward(Tensor grad_gelu, Tensor conv_without_bias, Tensor conv_bias, Tensor sum_tensor) -> (Tensor, Tensor, Tensor)")


@torch.library.impl(library, "bias_leaky_relu_add_clamp_gelu_backward", "CompositeExplicitAutograd")
def run_bias_leaky_relu_add_clamp_gelu_backward(grad_gelu, conv_without_bias, conv_bias, sum_tensor):
    return tuple(kernels.run_bias_leaky_relu_add_clamp_gelu_backward(grad_gelu, conv_without_bias, conv_bias,
        sum_tensor))


@torch.library.register_fake(f"{library.ns}::bias_leaky_relu_add_clamp_gelu_backward", lib=library)
def run_bias_leaky_relu_add_clamp_gelu_backward_shapes(grad_gelu, conv_without_bias, conv_bias, sum_tensor):
    return (
        grad_gelu.new_empty_strided((2, 64, 2, 4, 5), (2560, 40, 20, 5, 1), dtype=torch.float32),
        grad_gelu.new_empty_strided((64,), (1,), dtype=torch.float32),
        grad_gelu.new_empty_strided((64, 1, 1, 1), (1, 1, 1, 1), dtype=torch.float32),
    )


def bias_leaky_relu_add_clamp_gelu_keeps(ctx, inputs, output):
    conv_without_bias, conv_bias, sum_tensor = inputs
    ctx.save_for_backward(conv_without_bias, conv_bias, sum_tensor)


def bias_leaky_relu_add_clamp_gelu_gradients(ctx, grad_gelu):
    return operators.bias_leaky_relu_add_clamp_gelu_backward(grad_gelu, *ctx.saved_tensors)


torch.library.register_autograd(
    f"{library.ns}::bias_leaky_relu_add_clamp_gelu",
    bias_leaky_relu_add_clamp_gelu_gradients,
    setup_context=bias_leaky_relu_add_clamp_gelu_keeps,
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
        if not (_fits(x, (2, 8, 4, 6, 7), torch.float32)):
            return super().forward(x)
        conv_without_bias = torch.ops.aten.conv3d.default(input=x, weight=self.conv.weight, bias=None,
            stride=[1, 1, 1], padding=[0, 0, 0], dilation=[1, 1, 1], groups=1)
        gelu = operators.bias_leaky_relu_add_clamp_gelu(conv_without_bias, self.conv.bias, self.sum_tensor)
        return gelu
