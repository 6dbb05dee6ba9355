// inputs: float32[6,230]
// inputs: float32[4,128]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

// Values and their places in one dynamic piece of shared memory.
__global__ void row_argmin(const float* x, float* least, int64_t* place, int cols) {
    extern __shared__ unsigned char raw[];
    float* values = reinterpret_cast<float*>(raw);
    int* places = reinterpret_cast<int*>(values + blockDim.x);
    int t = threadIdx.x;
    float best = INFINITY;
    int at = 0;
    for (int c = t; c < cols; c += blockDim.x) {
        float v = x[blockIdx.x * cols + c];
        if (v < best) {
            best = v;
            at = c;
        }
    }
    values[t] = best;
    places[t] = at;
    __syncthreads();
    for (int d = blockDim.x / 2; d > 0; d >>= 1) {
        if (t < d && values[t + d] < values[t]) {
            values[t] = values[t + d];
            places[t] = places[t + d];
        }
        __syncthreads();
    }
    if (t == 0) {
        least[blockIdx.x] = values[0];
        place[blockIdx.x] = places[0];
    }
}

torch::Tensor run(torch::Tensor x) {
    int rows = x.size(0), cols = x.size(1), threads = 64;
    auto least = torch::empty({rows}, x.options());
    auto place = torch::empty({rows}, x.options().dtype(torch::kInt64));
    size_t bytes = threads * (sizeof(float) + sizeof(int));
    row_argmin<<<rows, threads, bytes>>>(x.data_ptr<float>(), least.data_ptr<float>(), place.data_ptr<int64_t>(), cols);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return torch::stack({least, place.to(torch::kFloat32)});
}
