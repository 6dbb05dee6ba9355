// kind: launch-limits
// inputs: float32[4,1024]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

// 40960 bytes static and 16384 dynamic: each is small enough, together they pass 48 KiB.
#ifdef REPAIRED
constexpr int TABLE = 4096;
#else
constexpr int TABLE = 10240;
#endif

__global__ void table_sum(const float* x, float* out, int cols) {
    __shared__ float table[TABLE];
    extern __shared__ float line[];
    for (int k = threadIdx.x; k < TABLE; k += blockDim.x) table[k] = 1.0f / (k + 1);
    for (int c = threadIdx.x; c < 4 * cols; c += blockDim.x) line[c] = x[blockIdx.x * cols + c % cols];
    __syncthreads();
    for (int c = threadIdx.x; c < cols; c += blockDim.x) {
        out[blockIdx.x * cols + c] = line[4 * cols - 1 - c] * table[(c * 7) % TABLE];
    }
}

torch::Tensor run(torch::Tensor x) {
    int rows = x.size(0), cols = x.size(1);
    auto out = torch::empty_like(x);
    size_t bytes = 4 * cols * sizeof(float);
    table_sum<<<rows, 256, bytes>>>(x.data_ptr<float>(), out.data_ptr<float>(), cols); // FAULT
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
