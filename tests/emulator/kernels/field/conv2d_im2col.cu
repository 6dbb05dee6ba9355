// inputs: float32[2,3,11,13] float32[5,3,3,3] float32[5]
// inputs: float32[1,4,8,8] float32[16,4,3,3] float32[16]
// declare: torch::Tensor run(torch::Tensor x, torch::Tensor weight, torch::Tensor bias);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

__global__ void im2col(const float* x, float* cols, int channels, int h, int w, int k, int pad, int oh, int ow) {
    int total = channels * k * k * oh * ow;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < total; i += blockDim.x * gridDim.x) {
        int ox = i % ow;
        int oy = i / ow % oh;
        int kx = i / (ow * oh) % k;
        int ky = i / (ow * oh * k) % k;
        int c = i / (ow * oh * k * k);
        int iy = oy + ky - pad, ix = ox + kx - pad;
        float v = 0.0f;
        if (iy >= 0 && iy < h && ix >= 0 && ix < w) {
            v = x[(c * h + iy) * w + ix];
        }
        cols[i] = v;
    }
}

__global__ void gemm_bias(const float* a, const float* b, const float* bias, float* c, int m, int n, int k) {
    __shared__ float as[16][16], bs[16][16];
    int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
    float acc = 0.0f;
    for (int k0 = 0; k0 < k; k0 += 16) {
        as[threadIdx.y][threadIdx.x] = row < m && k0 + threadIdx.x < k ? a[row * k + k0 + threadIdx.x] : 0.0f;
        bs[threadIdx.y][threadIdx.x] = col < n && k0 + threadIdx.y < k ? b[(k0 + threadIdx.y) * n + col] : 0.0f;
        __syncthreads();
        for (int j = 0; j < 16; ++j) acc += as[threadIdx.y][j] * bs[j][threadIdx.x];
        __syncthreads();
    }
    if (row < m && col < n) {
        c[row * n + col] = acc + bias[row];
    }
}

torch::Tensor run(torch::Tensor x, torch::Tensor weight, torch::Tensor bias) {
    int batch = x.size(0), channels = x.size(1), h = x.size(2), w = x.size(3);
    int filters = weight.size(0), k = weight.size(2), pad = 1;
    int oh = h + 2 * pad - k + 1, ow = w + 2 * pad - k + 1;
    int depth = channels * k * k, pixels = oh * ow;
    auto cols = torch::empty({depth, pixels}, x.options());
    auto out = torch::empty({batch, filters, oh, ow}, x.options());
    for (int b = 0; b < batch; ++b) {
        im2col<<<8, 128>>>(x.data_ptr<float>() + b * channels * h * w, cols.data_ptr<float>(), channels, h, w, k, pad, oh, ow);
        C10_CUDA_KERNEL_LAUNCH_CHECK();
        dim3 grid((pixels + 15) / 16, (filters + 15) / 16);
        gemm_bias<<<grid, dim3(16, 16)>>>(weight.data_ptr<float>(), cols.data_ptr<float>(), bias.data_ptr<float>(),
                                          out.data_ptr<float>() + b * filters * pixels, filters, pixels, depth);
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    }
    return out;
}
