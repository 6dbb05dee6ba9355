// kind: launch-limits
// inputs: float32[3,40,50]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

__global__ void twice(const float* x, float* out, int depth, int rows, int cols) {
    int c = blockIdx.x * blockDim.x + threadIdx.x;
    int r = blockIdx.y * blockDim.y + threadIdx.y;
    int d = blockIdx.z * blockDim.z + threadIdx.z;
    if (d < depth && r < rows && c < cols) {
        int i = (d * rows + r) * cols + c;
        out[i] = 2.0f * x[i];
    }
}

torch::Tensor run(torch::Tensor x) {
    int depth = x.size(0), rows = x.size(1), cols = x.size(2);
    auto out = torch::empty_like(x);
#ifdef REPAIRED
    dim3 block(16, 16, 2);
#else
    dim3 block(32, 32, 2);
#endif
    dim3 grid((cols + block.x - 1) / block.x, (rows + block.y - 1) / block.y, (depth + block.z - 1) / block.z);
    twice<<<grid, block>>>(x.data_ptr<float>(), out.data_ptr<float>(), depth, rows, cols); // FAULT
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
