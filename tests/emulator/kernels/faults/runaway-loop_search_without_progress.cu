// kind: runaway-loop
// inputs: float32[100]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

// Binary search for the first grid point above a value; the faulty one keeps lo where it is when hi = lo + 1.
__global__ void locate(const float* grid, const float* x, int* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int lo = 0, hi = n;
    while (lo < hi) { // FAULT
        int mid = (lo + hi) / 2;
        if (grid[mid] <= x[i]) { // FAULT
#ifdef REPAIRED
            lo = mid + 1;
#else
            lo = mid;
#endif
        } else {
            hi = mid;
        }
    }
    out[i] = lo;
}

torch::Tensor run(torch::Tensor x) {
    int n = x.numel();
    auto grid = torch::linspace(-3, 3, n, x.options());
    auto out = torch::empty({n}, x.options().dtype(torch::kInt32));
    locate<<<(n + 63) / 64, 64>>>(grid.data_ptr<float>(), x.data_ptr<float>(), out.data_ptr<int>(), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
