// inputs: float32[23,31] float32[5,5]
// declare: torch::Tensor run(torch::Tensor x, torch::Tensor taps);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

#define MAX_TAPS 49
__constant__ float filter_taps[MAX_TAPS];

__global__ void filter2d(const float* x, float* out, int rows, int cols, int k) {
    int c = blockIdx.x * blockDim.x + threadIdx.x;
    int r = blockIdx.y * blockDim.y + threadIdx.y;
    if (r >= rows || c >= cols) return;
    int half = k / 2;
    float acc = 0.0f;
    for (int dy = 0; dy < k; ++dy) {
        for (int dx = 0; dx < k; ++dx) {
            int y = min(max(r + dy - half, 0), rows - 1);
            int z = min(max(c + dx - half, 0), cols - 1);
            acc += filter_taps[dy * k + dx] * x[y * cols + z];
        }
    }
    out[r * cols + c] = acc;
}

torch::Tensor run(torch::Tensor x, torch::Tensor taps) {
    int rows = x.size(0), cols = x.size(1), k = taps.size(0);
    C10_CUDA_CHECK(cudaMemcpyToSymbol(filter_taps, taps.data_ptr<float>(), taps.numel() * sizeof(float), 0,
                                      cudaMemcpyDeviceToDevice));
    auto out = torch::empty_like(x);
    filter2d<<<dim3((cols + 15) / 16, (rows + 7) / 8), dim3(16, 8)>>>(x.data_ptr<float>(), out.data_ptr<float>(), rows, cols, k);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
