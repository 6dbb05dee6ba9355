// kind: out-of-bounds-global
// inputs: float32[8,5] int64[200]
// declare: torch::Tensor run(torch::Tensor table, torch::Tensor index);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

// The indices go up to 9, the table has 8 rows.
__global__ void gather_rows(const float* table, const int64_t* index, float* out, int count, int rows, int width) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count * width) return;
    int64_t row = index[i / width];
#ifdef REPAIRED
    if (row < 0 || row >= rows) {
        out[i] = 0.0f;
        return;
    }
#endif
    out[i] = table[row * width + i % width]; // FAULT
}

torch::Tensor run(torch::Tensor table, torch::Tensor index) {
    int count = index.numel(), rows = table.size(0), width = table.size(1);
    auto out = torch::empty({count, width}, table.options());
    gather_rows<<<(count * width + 255) / 256, 256>>>(table.data_ptr<float>(), index.data_ptr<int64_t>(),
                                                      out.data_ptr<float>(), count, rows, width);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
