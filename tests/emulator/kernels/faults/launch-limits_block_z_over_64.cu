// kind: launch-limits
// inputs: float32[100,6]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>

// At most 64 threads in the third dimension.
__global__ void plus_one(const float* x, float* out, int rows, int cols) {
    int c = threadIdx.x;
    int r = blockIdx.z * blockDim.z + threadIdx.z;
    if (r < rows && c < cols) out[r * cols + c] = x[r * cols + c] + 1.0f;
}

torch::Tensor run(torch::Tensor x) {
    int rows = x.size(0), cols = x.size(1);
    auto out = torch::empty_like(x);
#ifdef REPAIRED
    int deep = 32;
#else
    int deep = 128;
#endif
    dim3 block(8, 1, deep), grid(1, 1, (rows + deep - 1) / deep);
    plus_one<<<grid, block>>>(x.data_ptr<float>(), out.data_ptr<float>(), rows, cols); // FAULT
    cudaError_t err = cudaGetLastError();
    TORCH_CHECK(err == cudaSuccess, "plus_one: ", cudaGetErrorString(err));
    return out;
}
