// kind: divergent-barrier
// inputs: float32[128,20] 0.5
// declare: torch::Tensor run(torch::Tensor x, double limit);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

// A thread leaves the loop as soon as its own value passes the limit.
__global__ void walk_until(const float* x, float* out, int cols, float limit) {
    __shared__ float sums[1024];
    int t = threadIdx.x;
    float sum = 0.0f;
    bool going = true;
    for (int c = 0; c < cols; ++c) {
        float v = x[t * cols + c];
#ifdef REPAIRED
        if (v > limit) going = false;
#else
        if (v > limit) break;
#endif
        if (going) sum += v;
        __syncthreads(); // FAULT
    }
    sums[t] = sum;
    __syncthreads(); // FAULT
    out[t] = sum - sums[0];
}

torch::Tensor run(torch::Tensor x, double limit) {
    auto out = torch::empty({x.size(0)}, x.options());
    walk_until<<<1, x.size(0)>>>(x.data_ptr<float>(), out.data_ptr<float>(), (int)x.size(1), (float)limit);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
