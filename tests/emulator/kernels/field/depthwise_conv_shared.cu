// inputs: float32[2,5,19,21] float32[5,1,3,3]
// inputs: float32[1,3,16,32] float32[3,1,3,3]
// declare: torch::Tensor run(torch::Tensor x, torch::Tensor weight);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

constexpr int TW = 16, TH = 8;

__global__ void depthwise3x3(const float* x, const float* weight, float* out, int channels, int h, int w) {
    __shared__ float tile[TH + 2][TW + 2];
    __shared__ float taps[9];
    const int plane = blockIdx.z;
    const int c = plane % channels;
    const float* in = x + (size_t)plane * h * w;
    const int x0 = blockIdx.x * TW, y0 = blockIdx.y * TH;
    const int tid = threadIdx.y * TW + threadIdx.x;
    if (tid < 9) {
        taps[tid] = weight[c * 9 + tid];
    }
    for (int e = tid; e < (TH + 2) * (TW + 2); e += TW * TH) {
        int ty = e / (TW + 2), tx = e % (TW + 2);
        int iy = y0 + ty - 1, ix = x0 + tx - 1;
        float v = 0.0f;
        if (iy >= 0 && iy < h && ix >= 0 && ix < w) {
            v = in[iy * w + ix];
        }
        tile[ty][tx] = v;
    }
    __syncthreads();
    const int ox = x0 + threadIdx.x, oy = y0 + threadIdx.y;
    if (ox < w && oy < h) {
        float acc = 0.0f;
        for (int ky = 0; ky < 3; ++ky)
            for (int kx = 0; kx < 3; ++kx) acc += taps[ky * 3 + kx] * tile[threadIdx.y + ky][threadIdx.x + kx];
        out[(size_t)plane * h * w + oy * w + ox] = acc;
    }
}

torch::Tensor run(torch::Tensor x, torch::Tensor weight) {
    int batch = x.size(0), channels = x.size(1), h = x.size(2), w = x.size(3);
    auto out = torch::empty_like(x);
    dim3 grid((w + TW - 1) / TW, (h + TH - 1) / TH, batch * channels);
    depthwise3x3<<<grid, dim3(TW, TH)>>>(x.data_ptr<float>(), weight.data_ptr<float>(), out.data_ptr<float>(), channels, h, w);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
