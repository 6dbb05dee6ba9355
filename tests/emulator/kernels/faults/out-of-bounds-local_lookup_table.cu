// kind: out-of-bounds-local
// inputs: int32[333]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

// The values go up to 9, the faulty table has eight entries.
__global__ void lookup(const int* x, int* out, int n) {
#ifdef REPAIRED
    int table[10];
    const int entries = 10;
#else
    int table[8];
    const int entries = 8;
#endif
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int k = 0; k < entries; ++k) table[k] = (k + 1) * (i + 3);
    if (i < n) {
        out[i] = table[x[i]]; // FAULT
    }
}

torch::Tensor run(torch::Tensor x) {
    int n = x.numel();
    auto out = torch::empty_like(x);
    lookup<<<(n + 127) / 128, 128>>>(x.data_ptr<int>(), out.data_ptr<int>(), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
