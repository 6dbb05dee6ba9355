// inputs: float32[2,3,13,15]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

__global__ void max_pool_kernel(const float* input, float* output, int planes, int h, int w, int kernel, int stride,
                                int padding, int oh, int ow) {
    int idx = blockIdx.x * blockDim.x + threadIdx.x;
    int total = planes * oh * ow;
    if (idx < total) {
        int ow_idx = idx % ow;
        int oh_idx = (idx / ow) % oh;
        int plane = idx / (ow * oh);
        float max_val = -INFINITY;
        for (int i = 0; i < kernel; i++) {
            for (int j = 0; j < kernel; j++) {
                int ih = oh_idx * stride - padding + i;
                int iw = ow_idx * stride - padding + j;
                if (ih >= 0 && ih < h && iw >= 0 && iw < w) {
                    max_val = max(max_val, input[(plane * h + ih) * w + iw]);
                }
            }
        }
        output[idx] = max_val;
    }
}

torch::Tensor run(torch::Tensor x) {
    int batch = x.size(0), channels = x.size(1), h = x.size(2), w = x.size(3);
    int kernel = 3, stride = 2, padding = 1;
    int oh = (h + 2 * padding - kernel) / stride + 1;
    int ow = (w + 2 * padding - kernel) / stride + 1;
    auto output = torch::empty({batch, channels, oh, ow}, x.options());
    int total = batch * channels * oh * ow;
    max_pool_kernel<<<(total + 255) / 256, 256>>>(x.data_ptr<float>(), output.data_ptr<float>(), batch * channels, h, w,
                                                  kernel, stride, padding, oh, ow);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return output;
}
