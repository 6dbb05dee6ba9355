// inputs: float32[2,3,6,7] float32[3,5,3,3] float32[5]
// declare: torch::Tensor run(torch::Tensor x, torch::Tensor weight, torch::Tensor bias);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

// Gathers: which inputs reach this output. Stride 2, padding 1, output padding 1.
__global__ void deconv2d(const float* x, const float* weight, const float* bias, float* out, int batch, int cin, int h, int w,
                         int cout, int k, int stride, int pad, int oh, int ow) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= batch * cout * oh * ow) return;
    int ox = i % ow, oy = i / ow % oh, f = i / (ow * oh) % cout, b = i / (ow * oh * cout);
    float acc = bias[f];
    for (int ky = 0; ky < k; ++ky) {
        int ty = oy + pad - ky;
        if (ty < 0 || ty % stride != 0) continue;
        int iy = ty / stride;
        if (iy >= h) continue;
        for (int kx = 0; kx < k; ++kx) {
            int tx = ox + pad - kx;
            if (tx < 0 || tx % stride != 0) continue;
            int ix = tx / stride;
            if (ix >= w) continue;
            for (int c = 0; c < cin; ++c) {
                acc += x[((b * cin + c) * h + iy) * w + ix] * weight[((c * cout + f) * k + ky) * k + kx];
            }
        }
    }
    out[i] = acc;
}

torch::Tensor run(torch::Tensor x, torch::Tensor weight, torch::Tensor bias) {
    int batch = x.size(0), cin = x.size(1), h = x.size(2), w = x.size(3), cout = weight.size(1), k = weight.size(2);
    int stride = 2, pad = 1, extra = 1;
    int oh = (h - 1) * stride - 2 * pad + k + extra, ow = (w - 1) * stride - 2 * pad + k + extra;
    auto out = torch::empty({batch, cout, oh, ow}, x.options());
    int total = out.numel();
    deconv2d<<<(total + 95) / 96, 96>>>(x.data_ptr<float>(), weight.data_ptr<float>(), bias.data_ptr<float>(),
                                        out.data_ptr<float>(), batch, cin, h, w, cout, k, stride, pad, oh, ow);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
