// inputs: float32[15,40] float32[15,40]
// declare: torch::Tensor run(torch::Tensor a, torch::Tensor b);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>
#include <ATen/cuda/CUDAContext.h>

__global__ void cosine_rows(const float* a, const float* b, float* out, int cols) {
    extern __shared__ float s[];
    float* dot = s;
    float* aa = s + blockDim.x;
    float* bb = s + 2 * blockDim.x;
    int t = threadIdx.x;
    float d = 0.0f, p = 0.0f, q = 0.0f;
    for (int c = t; c < cols; c += blockDim.x) {
        float u = a[blockIdx.x * cols + c], v = b[blockIdx.x * cols + c];
        d += u * v;
        p += u * u;
        q += v * v;
    }
    dot[t] = d;
    aa[t] = p;
    bb[t] = q;
    __syncthreads();
    for (int k = blockDim.x >> 1; k > 0; k >>= 1) {
        if (t < k) {
            dot[t] += dot[t + k];
            aa[t] += aa[t + k];
            bb[t] += bb[t + k];
        }
        __syncthreads();
    }
    if (t == 0) {
        out[blockIdx.x] = dot[0] / fmaxf(sqrtf(aa[0]) * sqrtf(bb[0]), 1e-8f);
    }
}

torch::Tensor run(torch::Tensor a, torch::Tensor b) {
    TORCH_CHECK(a.is_cuda(), "a must be a CUDA tensor");
    TORCH_CHECK(b.device() == a.device() && a.is_contiguous() && b.is_contiguous());
    auto out = torch::empty({a.size(0)}, torch::TensorOptions().dtype(torch::kFloat32).device(torch::kCUDA));
    cudaStream_t stream = at::cuda::getCurrentCUDAStream();
    const int threads = 16;
    cosine_rows<<<a.size(0), threads, 3 * threads * sizeof(float), stream>>>(
        a.data_ptr<float>(), b.data_ptr<float>(), out.data_ptr<float>(), (int)a.size(1));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
