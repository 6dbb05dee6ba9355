// kind: race-global
// inputs: int64[900] float32[900]
// declare: torch::Tensor run(torch::Tensor index, torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

__global__ void scatter_add(const int64_t* index, const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
#ifdef REPAIRED
        atomicAdd(&out[index[i]], x[i]);
#else
        out[index[i]] = out[index[i]] + x[i]; // FAULT
#endif
    }
}

torch::Tensor run(torch::Tensor index, torch::Tensor x) {
    int n = x.numel();
    auto out = torch::zeros({10}, x.options());
    scatter_add<<<(n + 127) / 128, 128>>>(index.data_ptr<int64_t>(), x.data_ptr<float>(), out.data_ptr<float>(), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
