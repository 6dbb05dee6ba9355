// inputs: float32[2,3,41,20] float32[2,3,41,20] float32[2,3,41,20]
// inputs: float32[1,2,64,16] float32[1,2,64,16] float32[1,2,64,16]
// declare: torch::Tensor run(torch::Tensor q, torch::Tensor k, torch::Tensor v);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

// One query per thread, keys and values by tiles of 16 through shared memory, softmax on the way.
constexpr int TILE = 16, MAX_DIM = 32;

__global__ void attention_kernel(const float* q, const float* k, const float* v, float* out, int length, int dim, float scale) {
    extern __shared__ float shared[];
    float* ks = shared;
    float* vs = shared + TILE * dim;
    const size_t head = (size_t)blockIdx.y * length * dim;
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    float mine[MAX_DIM], acc[MAX_DIM];
    for (int d = 0; d < dim; ++d) {
        mine[d] = row < length ? q[head + row * dim + d] : 0.0f;
        acc[d] = 0.0f;
    }
    float top = -INFINITY, sum = 0.0f;
    for (int start = 0; start < length; start += TILE) {
        for (int e = threadIdx.x; e < TILE * dim; e += blockDim.x) {
            bool inside = start + e / dim < length;
            ks[e] = inside ? k[head + start * dim + e] : 0.0f;
            vs[e] = inside ? v[head + start * dim + e] : 0.0f;
        }
        __syncthreads();
        const int count = min(TILE, length - start);
        for (int j = 0; j < count; ++j) {
            float score = 0.0f;
            for (int d = 0; d < dim; ++d) score += mine[d] * ks[j * dim + d];
            score *= scale;
            const float next = fmaxf(top, score);
            const float keep = expf(top - next), weight = expf(score - next);
            sum = sum * keep + weight;
            for (int d = 0; d < dim; ++d) acc[d] = acc[d] * keep + weight * vs[j * dim + d];
            top = next;
        }
        __syncthreads();
    }
    if (row < length) {
        for (int d = 0; d < dim; ++d) out[head + row * dim + d] = acc[d] / sum;
    }
}

torch::Tensor run(torch::Tensor q, torch::Tensor k, torch::Tensor v) {
    const int heads = q.size(0) * q.size(1), length = q.size(2), dim = q.size(3);
    TORCH_CHECK(dim <= MAX_DIM);
    auto out = torch::empty_like(q);
    attention_kernel<<<dim3((length + 31) / 32, heads), 32, 2 * TILE * dim * sizeof(float)>>>(
        q.data_ptr<float>(), k.data_ptr<float>(), v.data_ptr<float>(), out.data_ptr<float>(), length, dim,
        1.0f / sqrtf((float)dim));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
