// inputs: float32[2,4,17,15] float32[6,4,3,3] float32[6] 2
// declare: torch::Tensor run(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, int64_t stride);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

__global__ void conv2d_kernel(const float* __restrict__ x, const float* __restrict__ weight, const float* __restrict__ bias,
                              float* __restrict__ out, int channels, int h, int w, int filters, int kh, int kw,
                              int stride, int pad, int oh, int ow) {
    int ox = blockIdx.x * blockDim.x + threadIdx.x;
    int oy = blockIdx.y * blockDim.y + threadIdx.y;
    int f = blockIdx.z % filters;
    int b = blockIdx.z / filters;
    if (ox >= ow || oy >= oh) return;
    float acc = bias[f];
    for (int c = 0; c < channels; ++c) {
        for (int ky = 0; ky < kh; ++ky) {
            int iy = oy * stride + ky - pad;
            if (iy < 0 || iy >= h) continue;
            for (int kx = 0; kx < kw; ++kx) {
                int ix = ox * stride + kx - pad;
                if (ix < 0 || ix >= w) continue;
                acc += x[((b * channels + c) * h + iy) * w + ix] * weight[((f * channels + c) * kh + ky) * kw + kx];
            }
        }
    }
    out[((b * filters + f) * oh + oy) * ow + ox] = acc;
}

torch::Tensor run(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, int64_t stride) {
    x = x.contiguous();
    weight = weight.contiguous();
    int batch = x.size(0), channels = x.size(1), h = x.size(2), w = x.size(3);
    int filters = weight.size(0), kh = weight.size(2), kw = weight.size(3), pad = 1;
    int oh = (h + 2 * pad - kh) / (int)stride + 1, ow = (w + 2 * pad - kw) / (int)stride + 1;
    auto out = torch::empty({batch, filters, oh, ow}, x.options());
    dim3 block(8, 4), grid((ow + 7) / 8, (oh + 3) / 4, batch * filters);
    conv2d_kernel<<<grid, block>>>(x.data_ptr<float>(), weight.data_ptr<float>(), bias.data_ptr<float>(),
                                   out.data_ptr<float>(), channels, h, w, filters, kh, kw, (int)stride, pad, oh, ow);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
