// inputs: float32[1237] float32[1237]
// declare: torch::Tensor run(torch::Tensor x, torch::Tensor y);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

template <typename scalar_t>
__global__ void hypotenuse_kernel(const scalar_t* __restrict__ x, const scalar_t* __restrict__ y,
                                  scalar_t* __restrict__ out, size_t n) {
    const size_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        out[i] = sqrt(x[i] * x[i] + y[i] * y[i] + scalar_t(1));
    }
}

static torch::Tensor hypotenuse(torch::Tensor x, torch::Tensor y) {
    auto out = torch::empty_like(x);
    const size_t n = x.numel();
    const int threads = 256;
    const int blocks = (n + threads - 1) / threads;
    AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "hypotenuse", ([&] {
        hypotenuse_kernel<scalar_t><<<blocks, threads>>>(
            x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), out.data_ptr<scalar_t>(), n);
    }));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}

torch::Tensor run(torch::Tensor x, torch::Tensor y) {
    auto narrow = hypotenuse(x, y);
    auto wide = hypotenuse(x.to(torch::kFloat64), y.to(torch::kFloat64));
    return torch::stack({narrow.to(torch::kFloat64), wide});
}
