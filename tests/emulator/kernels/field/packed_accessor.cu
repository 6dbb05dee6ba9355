// inputs: float32[6,9,14] float32[9]
// declare: torch::Tensor run(torch::Tensor x, torch::Tensor shift);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

template <typename scalar_t>
__global__ void shift_and_flip(const torch::PackedTensorAccessor32<scalar_t, 3, torch::RestrictPtrTraits> x,
                               const torch::PackedTensorAccessor32<scalar_t, 1, torch::RestrictPtrTraits> shift,
                               torch::PackedTensorAccessor32<scalar_t, 3, torch::RestrictPtrTraits> out) {
    const int n = blockIdx.y;
    const int c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c < x.size(2)) {
        for (int k = 0; k < x.size(1); ++k) {
            out[n][k][x.size(2) - 1 - c] = x[n][k][c] + shift[k];
        }
    }
}

torch::Tensor run(torch::Tensor x, torch::Tensor shift) {
    auto out = torch::empty_like(x);
    const int threads = 8;
    const dim3 blocks((x.size(2) + threads - 1) / threads, x.size(0));
    AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "shift_and_flip", ([&] {
        shift_and_flip<scalar_t><<<blocks, threads>>>(
            x.packed_accessor32<scalar_t, 3, torch::RestrictPtrTraits>(),
            shift.packed_accessor32<scalar_t, 1, torch::RestrictPtrTraits>(),
            out.packed_accessor32<scalar_t, 3, torch::RestrictPtrTraits>());
    }));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
