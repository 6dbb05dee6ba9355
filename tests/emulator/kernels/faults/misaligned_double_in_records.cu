// kind: misaligned
// inputs: int32[300]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

// Records of three words, a double in the last two of them: every second double lies on a multiple of four only.
__global__ void stamp_records(const int* x, int* out, int records) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= records) return;
    double value = 0.5 * x[3 * i] + x[3 * i + 1] - x[3 * i + 2];
    out[3 * i] = i;
#ifdef REPAIRED
    out[3 * i + 1] = __double2loint(value);
    out[3 * i + 2] = __double2hiint(value);
#else
    *reinterpret_cast<double*>(out + 3 * i + 1) = value; // FAULT
#endif
}

torch::Tensor run(torch::Tensor x) {
    int records = x.numel() / 3;
    auto out = torch::empty_like(x);
    stamp_records<<<(records + 63) / 64, 64>>>(x.data_ptr<int>(), out.data_ptr<int>(), records);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
