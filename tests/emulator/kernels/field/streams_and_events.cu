// inputs: float32[1100] float32[700]
// declare: torch::Tensor run(torch::Tensor a, torch::Tensor b);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

// Two kernels on two streams, and a third that waits for both through events.
__global__ void square(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        out[i] = x[i] * x[i];
    }
}

__global__ void join(const float* a, const float* b, float* out, int na, int nb) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < na) {
        out[i] = a[i] + b[i % nb];
    }
}

torch::Tensor run(torch::Tensor a, torch::Tensor b) {
    int na = a.numel(), nb = b.numel();
    auto a2 = torch::empty_like(a);
    auto b2 = torch::empty_like(b);
    auto out = torch::empty_like(a);
    C10_CUDA_CHECK(cudaDeviceSynchronize());
    cudaStream_t first, second;
    C10_CUDA_CHECK(cudaStreamCreate(&first));
    C10_CUDA_CHECK(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
    cudaEvent_t begin, done;
    C10_CUDA_CHECK(cudaEventCreate(&begin));
    C10_CUDA_CHECK(cudaEventCreate(&done));
    C10_CUDA_CHECK(cudaEventRecord(begin, second));
    square<<<(na + 127) / 128, 128, 0, first>>>(a.data_ptr<float>(), a2.data_ptr<float>(), na);
    square<<<(nb + 127) / 128, 128, 0, second>>>(b.data_ptr<float>(), b2.data_ptr<float>(), nb);
    C10_CUDA_CHECK(cudaEventRecord(done, second));
    C10_CUDA_CHECK(cudaStreamWaitEvent(first, done, 0));
    join<<<(na + 127) / 128, 128, 0, first>>>(a2.data_ptr<float>(), b2.data_ptr<float>(), out.data_ptr<float>(), na, nb);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    C10_CUDA_CHECK(cudaEventSynchronize(done));
    float ms = -1.0f;
    C10_CUDA_CHECK(cudaEventElapsedTime(&ms, begin, done));
    TORCH_CHECK(ms >= 0.0f);
    C10_CUDA_CHECK(cudaStreamSynchronize(first));
    C10_CUDA_CHECK(cudaEventDestroy(begin));
    C10_CUDA_CHECK(cudaEventDestroy(done));
    C10_CUDA_CHECK(cudaStreamDestroy(first));
    C10_CUDA_CHECK(cudaStreamDestroy(second));
    return out;
}
