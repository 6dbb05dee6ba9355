// inputs: int32[3,230]
// inputs: int32[2,255]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

// Exclusive scan, up-sweep and down-sweep, two elements per thread.
__global__ void exclusive_scan(const int* x, int* out, int cols, int width) {
    extern __shared__ int s[];
    const int t = threadIdx.x;
    const int* in = x + blockIdx.x * cols;
    s[2 * t] = 2 * t < cols ? in[2 * t] : 0;
    s[2 * t + 1] = 2 * t + 1 < cols ? in[2 * t + 1] : 0;
    int offset = 1;
    for (int d = width / 2; d > 0; d /= 2) {
        __syncthreads();
        if (t < d) {
            s[offset * (2 * t + 2) - 1] += s[offset * (2 * t + 1) - 1];
        }
        offset *= 2;
    }
    __syncthreads();
    if (t == 0) {
        s[width - 1] = 0;
    }
    for (int d = 1; d < width; d *= 2) {
        offset /= 2;
        __syncthreads();
        if (t < d) {
            int low = offset * (2 * t + 1) - 1, high = offset * (2 * t + 2) - 1;
            int v = s[low];
            s[low] = s[high];
            s[high] += v;
        }
    }
    __syncthreads();
    if (2 * t < cols) {
        out[blockIdx.x * cols + 2 * t] = s[2 * t];
    }
    if (2 * t + 1 < cols) {
        out[blockIdx.x * cols + 2 * t + 1] = s[2 * t + 1];
    }
}

torch::Tensor run(torch::Tensor x) {
    int rows = x.size(0), cols = x.size(1);
    int width = 1;
    while (width < cols) width *= 2;
    auto out = torch::empty_like(x);
    exclusive_scan<<<rows, width / 2, width * sizeof(int)>>>(x.data_ptr<int>(), out.data_ptr<int>(), cols, width);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
