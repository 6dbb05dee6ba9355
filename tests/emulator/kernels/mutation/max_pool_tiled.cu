// inputs: float32[2,3,19,27]
// inputs: float32[1,2,16,32]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

// Windows of 3 x 3, stride two, padding one, out of a tile in shared memory.
constexpr int TW = 8, TH = 4, SIDE_W = 2 * TW + 1, SIDE_H = 2 * TH + 1;

__global__ void pool(const float* x, float* y, int h, int w, int oh, int ow) {
    __shared__ float tile[SIDE_H][SIDE_W];
    const float* plane = x + blockIdx.z * h * w;
    const int x0 = 2 * blockIdx.x * TW - 1, y0 = 2 * blockIdx.y * TH - 1;
    for (int e = threadIdx.y * TW + threadIdx.x; e < SIDE_H * SIDE_W; e += TW * TH) {
        const int r = y0 + e / SIDE_W, c = x0 + e % SIDE_W;
        tile[e / SIDE_W][e % SIDE_W] = r >= 0 && r < h && c >= 0 && c < w ? plane[r * w + c] : -INFINITY;
    }
    __syncthreads();
    const int ox = blockIdx.x * TW + threadIdx.x, oy = blockIdx.y * TH + threadIdx.y;
    if (ox >= ow || oy >= oh) return;
    float best = -INFINITY;
    for (int ky = 0; ky < 3; ++ky)
        for (int kx = 0; kx < 3; ++kx) best = fmaxf(best, tile[2 * threadIdx.y + ky][2 * threadIdx.x + kx]);
    y[(blockIdx.z * oh + oy) * ow + ox] = best;
}

torch::Tensor run(torch::Tensor x) {
    int planes = x.size(0) * x.size(1), h = x.size(2), w = x.size(3);
    int oh = (h - 1) / 2 + 1, ow = (w - 1) / 2 + 1;
    auto y = torch::empty({x.size(0), x.size(1), oh, ow}, x.options());
    dim3 grid((ow + TW - 1) / TW, (oh + TH - 1) / TH, planes);
    pool<<<grid, dim3(TW, TH)>>>(x.data_ptr<float>(), y.data_ptr<float>(), h, w, oh, ow);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
