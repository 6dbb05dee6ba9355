"""A block for each image and output channel, whose weights stand in shared memory."""

from torch import nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
__global__ void conv_kernel(const float* x, const float* weight, const float* bias, float* out, int ins, int outs,
                            int height, int width, int oh, int ow) {
    extern __shared__ float taps[];
    int n = blockIdx.x / outs, o = blockIdx.x % outs;
    for (int i = threadIdx.x; i < ins * 9; i += blockDim.x) taps[i] = weight[o * ins * 9 + i];
    __syncthreads();
    for (int p = threadIdx.x; p < oh * ow; p += blockDim.x) {
        int row = p / ow, column = p % ow;
        float sum = bias[o];
        for (int c = 0; c < ins; ++c) {
            for (int kh = 0; kh < 3; ++kh) {
                for (int kw = 0; kw < 3; ++kw) {
                    int h = 2 * row - 1 + kh, w = 2 * column - 1 + kw;
                    if (h >= 0 && h < height && w >= 0 && w < width) {
                        sum += x[((n * ins + c) * height + h) * width + w] * taps[c * 9 + kh * 3 + kw];
                    }
                }
            }
        }
        out[(blockIdx.x * oh + row) * ow + column] = fminf(fmaxf(sum, -0.6f), 0.8f);
    }
}

torch::Tensor conv(torch::Tensor x, torch::Tensor weight, torch::Tensor bias) {
    int n = x.size(0), ins = x.size(1), height = x.size(2), width = x.size(3), outs = weight.size(0);
    int oh = (height - 1) / 2 + 1, ow = (width - 1) / 2 + 1;
    auto out = torch::empty({n, outs, oh, ow}, x.options());
    conv_kernel<<<n * outs, 32, ins * 9 * sizeof(float)>>>(x.data_ptr<float>(), weight.data_ptr<float>(),
                                                           bias.data_ptr<float>(), out.data_ptr<float>(), ins, outs,
                                                           height, width, oh, ow);
    return out;
}
"""
extension = load_inline(
    "conv_stride",
    "torch::Tensor conv(torch::Tensor x, torch::Tensor weight, torch::Tensor bias);",
    SOURCE,
    functions=["conv"],
)


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size=3, stride=2, padding=1)

    def forward(self, x):
        return extension.conv(x.contiguous(), self.conv.weight, self.conv.bias)
