// kind: unchecked-launch
// inputs: float32[70]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>

// The error is fetched, and dropped.
__global__ void cube(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i] * x[i] * x[i];
}

torch::Tensor run(torch::Tensor x) {
    int n = x.numel();
    auto out = torch::zeros_like(x);
#ifdef REPAIRED
    cube<<<(n + 127) / 128, 128>>>(x.data_ptr<float>(), out.data_ptr<float>(), n);
    cudaError_t err = cudaGetLastError();
    TORCH_CHECK(err == cudaSuccess, cudaGetErrorString(err));
#else
    cube<<<n / 128, 128>>>(x.data_ptr<float>(), out.data_ptr<float>(), n); // FAULT
    (void)cudaGetLastError();
#endif
    return out;
}
