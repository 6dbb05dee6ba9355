// inputs: float32[2,3,11,13] float32[5,3,3,3]
// inputs: float32[1,4,8,16] float32[4,4,3,3]
// declare: torch::Tensor run(torch::Tensor x, torch::Tensor weight);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

// One channel after the other through the same tile; four filters to a block, z of the threads.
constexpr int S = 8, F = 4;

__global__ void convolve(const float* x, const float* weight, float* y, int channels, int filters, int h, int w) {
    __shared__ float tile[S + 2][S + 2];
    __shared__ float taps[F][9];
    const int tx = threadIdx.x, ty = threadIdx.y, f = threadIdx.z;
    const int groups = (filters + F - 1) / F;
    const int image = blockIdx.z / groups, filter = blockIdx.z % groups * F + f;
    const int ox = blockIdx.x * S + tx, oy = blockIdx.y * S + ty;
    const int tid = (f * S + ty) * S + tx;
    float sum = 0.0f;
    for (int c = 0; c < channels; ++c) {
        const float* plane = x + (image * channels + c) * h * w;
        if (tid < (S + 2) * (S + 2)) {
            const int r = blockIdx.y * S + tid / (S + 2) - 1, q = blockIdx.x * S + tid % (S + 2) - 1;
            tile[tid / (S + 2)][tid % (S + 2)] = r >= 0 && r < h && q >= 0 && q < w ? plane[r * w + q] : 0.0f;
        }
        if (ty == 0) {
            for (int k = tx; k < 9; k += S) taps[f][k] = filter < filters ? weight[(filter * channels + c) * 9 + k] : 0.0f;
        }
        __syncthreads();
        for (int k = 0; k < 9; ++k) sum += taps[f][k] * tile[ty + k / 3][tx + k % 3];
        __syncthreads();
    }
    if (ox < w && oy < h && filter < filters) y[((image * filters + filter) * h + oy) * w + ox] = sum;
}

torch::Tensor run(torch::Tensor x, torch::Tensor weight) {
    int batch = x.size(0), channels = x.size(1), h = x.size(2), w = x.size(3), filters = weight.size(0);
    auto y = torch::empty({batch, filters, h, w}, x.options());
    dim3 grid((w + S - 1) / S, (h + S - 1) / S, batch * ((filters + F - 1) / F));
    convolve<<<grid, dim3(S, S, F)>>>(x.data_ptr<float>(), weight.data_ptr<float>(), y.data_ptr<float>(), channels, filters,
                                      h, w);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
