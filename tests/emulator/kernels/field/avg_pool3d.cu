// inputs: float32[2,3,7,9,11]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

__global__ void avg_pool3d_kernel(const float* x, float* out, int d, int h, int w, int od, int oh, int ow) {
    int ox = blockIdx.x * blockDim.x + threadIdx.x;
    int oy = blockIdx.y * blockDim.y + threadIdx.y;
    int oz = blockIdx.z % od;
    int plane = blockIdx.z / od;
    if (ox >= ow) return;
    if (oy >= oh) return;
    const float* in = x + plane * d * h * w;
    float sum = 0.0f;
    #pragma unroll
    for (int k = 0; k < 8; ++k) {
        int z = 2 * oz + (k >> 2), y = 2 * oy + (k >> 1 & 1), c = 2 * ox + (k & 1);
        sum += in[(z * h + y) * w + c];
    }
    out[((plane * od + oz) * oh + oy) * ow + ox] = sum * 0.125f;
}

torch::Tensor run(torch::Tensor x) {
    int planes = x.size(0) * x.size(1), d = x.size(2), h = x.size(3), w = x.size(4);
    int od = d / 2, oh = h / 2, ow = w / 2;
    auto out = torch::empty({x.size(0), x.size(1), od, oh, ow}, x.options());
    dim3 block(4, 4), grid((ow + 3) / 4, (oh + 3) / 4, planes * od);
    avg_pool3d_kernel<<<grid, block>>>(x.data_ptr<float>(), out.data_ptr<float>(), d, h, w, od, oh, ow);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
