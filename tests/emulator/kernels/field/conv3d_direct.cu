// inputs: float32[2,3,6,7,9] float32[4,3,3,3,3] float32[4]
// declare: torch::Tensor run(torch::Tensor x, torch::Tensor weight, torch::Tensor bias);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

__global__ void conv3d_leaky(const float* x, const float* weight, const float* bias, float* out, int batch, int cin, int d,
                             int h, int w, int cout, int k) {
    const int od = d - k + 1, oh = h - k + 1, ow = w - k + 1;
    const int64_t total = (int64_t)batch * cout * od * oh * ow;
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= total) {
        return;
    }
    int64_t rest = i;
    const int x0 = rest % ow; rest /= ow;
    const int y0 = rest % oh; rest /= oh;
    const int z0 = rest % od; rest /= od;
    const int f = rest % cout;
    const int b = rest / cout;
    float acc = bias ? bias[f] : 0.0f;
    for (int c = 0; c < cin; ++c)
        for (int kz = 0; kz < k; ++kz)
            for (int ky = 0; ky < k; ++ky)
                for (int kx = 0; kx < k; ++kx) {
                    const int xi = (((b * cin + c) * d + z0 + kz) * h + y0 + ky) * w + x0 + kx;
                    const int wi = (((f * cin + c) * k + kz) * k + ky) * k + kx;
                    acc += x[xi] * weight[wi];
                }
    out[i] = acc > 0.0f ? acc : 0.01f * acc;
}

torch::Tensor run(torch::Tensor x, torch::Tensor weight, torch::Tensor bias) {
    const int batch = x.size(0), cin = x.size(1), d = x.size(2), h = x.size(3), w = x.size(4);
    const int cout = weight.size(0), k = weight.size(2);
    auto out = torch::empty({batch, cout, d - k + 1, h - k + 1, w - k + 1}, x.options());
    const int64_t total = out.numel();
    conv3d_leaky<<<(total + 127) / 128, 128>>>(x.data_ptr<float>(), weight.data_ptr<float>(), bias.data_ptr<float>(),
                                               out.data_ptr<float>(), batch, cin, d, h, w, cout, k);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
