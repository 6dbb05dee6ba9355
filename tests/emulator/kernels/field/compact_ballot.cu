// inputs: float32[9,77]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

// Moves the positive entries of a row to its front, in order, and fills up with zeros; one warp per row.
__global__ void compact_rows(const float* x, float* out, int cols) {
    const unsigned full = 0xffffffffu;
    int lane = threadIdx.x;
    const float* in = x + blockIdx.x * cols;
    float* to = out + blockIdx.x * cols;
    int filled = 0;
    for (int base = 0; base < cols; base += 32) {
        int c = base + lane;
        float v = c < cols ? in[c] : 0.0f;
        bool keep = v > 0.0f;
        unsigned votes = __ballot_sync(full, keep);
        int before = __popc(votes & ((1u << lane) - 1));
        if (keep) {
            to[filled + before] = v;
        }
        filled += __popc(votes);
    }
    for (int c = filled + lane; c < cols; c += 32) {
        to[c] = 0.0f;
    }
}

torch::Tensor run(torch::Tensor x) {
    auto out = torch::empty_like(x);
    compact_rows<<<x.size(0), 32>>>(x.data_ptr<float>(), out.data_ptr<float>(), (int)x.size(1));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
