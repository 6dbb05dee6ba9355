// kind: misaligned
// inputs: float32[400]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>

// The output has a header of one element, the pairs follow behind it.
__global__ void swap_pairs(const float* x, float* out, int pairs) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i == 0) out[0] = (float)pairs;
    if (i < pairs) {
        float2 p = reinterpret_cast<const float2*>(x)[i];
        float* to = out + 1 + 2 * i;
#ifdef REPAIRED
        to[0] = p.y;
        to[1] = p.x;
#else
        *reinterpret_cast<float2*>(to) = make_float2(p.y, p.x); // FAULT
#endif
    }
}

torch::Tensor run(torch::Tensor x) {
    int pairs = x.numel() / 2;
    auto out = torch::empty({2 * pairs + 1}, x.options());
    swap_pairs<<<(pairs + 63) / 64, 64>>>(x.data_ptr<float>(), out.data_ptr<float>(), pairs);
    TORCH_CHECK(cudaGetLastError() == cudaSuccess);
    return out;
}
