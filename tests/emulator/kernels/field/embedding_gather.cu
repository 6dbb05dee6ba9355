// inputs: int64[7,6] float32[10,21] float32[6,21]
// declare: torch::Tensor run(torch::Tensor tokens, torch::Tensor table, torch::Tensor positions);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

__global__ void embed(const int64_t* __restrict__ tokens, const float* __restrict__ table,
                      const float* __restrict__ positions, float* __restrict__ out, int count, int length, int width,
                      int vocabulary) {
    int token_at = blockIdx.x;
    if (token_at >= count) return;
    int64_t token = tokens[token_at];
    if (token < 0 || token >= vocabulary) return;
    for (int c = threadIdx.x; c < width; c += blockDim.x) {
        out[token_at * width + c] = table[token * width + c] + positions[token_at % length * width + c];
    }
}

torch::Tensor run(torch::Tensor tokens, torch::Tensor table, torch::Tensor positions) {
    int count = tokens.numel(), length = tokens.size(1), width = table.size(1);
    auto out = torch::empty({tokens.size(0), tokens.size(1), width}, table.options());
    embed<<<count, 16>>>(tokens.data_ptr<int64_t>(), table.data_ptr<float>(), positions.data_ptr<float>(),
                         out.data_ptr<float>(), count, length, width, (int)table.size(0));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
