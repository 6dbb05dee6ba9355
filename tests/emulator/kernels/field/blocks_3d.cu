// inputs: float32[9,10,11]
// declare: torch::Tensor run(torch::Tensor x);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

__global__ void laplacian3d(const float* x, float* out, int nz, int ny, int nx) {
    const int ix = blockIdx.x * blockDim.x + threadIdx.x;
    const int iy = blockIdx.y * blockDim.y + threadIdx.y;
    const int iz = blockIdx.z * blockDim.z + threadIdx.z;
    if (ix >= nx || iy >= ny || iz >= nz) {
        return;
    }
    const int i = (iz * ny + iy) * nx + ix;
    float v = -6.0f * x[i];
    if (ix > 0) v += x[i - 1];
    if (ix < nx - 1) v += x[i + 1];
    if (iy > 0) v += x[i - nx];
    if (iy < ny - 1) v += x[i + nx];
    if (iz > 0) v += x[i - nx * ny];
    if (iz < nz - 1) v += x[i + nx * ny];
    out[i] = v;
}

torch::Tensor run(torch::Tensor x) {
    int nz = x.size(0), ny = x.size(1), nx = x.size(2);
    auto out = torch::empty_like(x);
    dim3 block(8, 4, 2);
    dim3 grid((nx + block.x - 1) / block.x, (ny + block.y - 1) / block.y, (nz + block.z - 1) / block.z);
    laplacian3d<<<grid, block>>>(x.data_ptr<float>(), out.data_ptr<float>(), nz, ny, nx);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
