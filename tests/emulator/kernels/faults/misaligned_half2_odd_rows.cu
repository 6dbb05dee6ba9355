// kind: misaligned
// inputs: float16[9,33]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>
#include <cuda_fp16.h>

// Rows of 33 halves: every second row starts at an odd element.
__global__ void row_sum_half2(const __half* x, float* out, int rows, int cols) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    const __half* row = x + r * cols;
    float sum = 0.0f;
    for (int c = 0; c + 1 < cols; c += 2) {
#ifdef REPAIRED
        __half2 pair = __halves2half2(row[c], row[c + 1]);
#else
        __half2 pair = *reinterpret_cast<const __half2*>(row + c); // FAULT
#endif
        float2 f = __half22float2(pair);
        sum += f.x + f.y;
    }
    if (cols % 2) sum += __half2float(row[cols - 1]);
    out[r] = sum;
}

torch::Tensor run(torch::Tensor x) {
    int rows = x.size(0), cols = x.size(1);
    auto out = torch::empty({rows}, x.options().dtype(torch::kFloat32));
    row_sum_half2<<<1, 32>>>(reinterpret_cast<const __half*>(x.data_ptr<at::Half>()), out.data_ptr<float>(), rows, cols);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
