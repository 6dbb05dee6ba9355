// inputs: float16[40,50] float16[50,24]
// inputs: float16[32,32] float16[32,32]
// declare: torch::Tensor run(torch::Tensor a, torch::Tensor b);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>
#include <cuda_fp16.h>
#include <mma.h>

using namespace nvcuda;

// One warp per tile of 16 x 16; ragged edges are filled up with zeros in shared memory.
__global__ void wmma_kernel(const __half* a, const __half* b, float* c, int m, int n, int k) {
    __shared__ __align__(32) __half as[16 * 16];
    __shared__ __align__(32) __half bs[16 * 16];
    __shared__ __align__(32) float cs[16 * 16];
    const int row0 = blockIdx.y * 16, col0 = blockIdx.x * 16;
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> fa;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> fb;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> fc;
    wmma::fill_fragment(fc, 0.0f);
    for (int k0 = 0; k0 < k; k0 += 16) {
        for (int e = threadIdx.x; e < 256; e += 32) {
            int r = e / 16, q = e % 16;
            as[e] = row0 + r < m && k0 + q < k ? a[(row0 + r) * k + k0 + q] : __float2half(0.0f);
            bs[e] = k0 + r < k && col0 + q < n ? b[(k0 + r) * n + col0 + q] : __float2half(0.0f);
        }
        __syncthreads();
        wmma::load_matrix_sync(fa, as, 16);
        wmma::load_matrix_sync(fb, bs, 16);
        wmma::mma_sync(fc, fa, fb, fc);
        __syncthreads();
    }
    wmma::store_matrix_sync(cs, fc, 16, wmma::mem_row_major);
    __syncthreads();
    for (int e = threadIdx.x; e < 256; e += 32) {
        int r = row0 + e / 16, q = col0 + e % 16;
        if (r < m && q < n) {
            c[r * n + q] = cs[e];
        }
    }
}

torch::Tensor run(torch::Tensor a, torch::Tensor b) {
    int m = a.size(0), k = a.size(1), n = b.size(1);
    auto c = torch::empty({m, n}, a.options().dtype(torch::kFloat32));
    wmma_kernel<<<dim3((n + 15) / 16, (m + 15) / 16), 32>>>(reinterpret_cast<const __half*>(a.data_ptr<at::Half>()),
                                                           reinterpret_cast<const __half*>(b.data_ptr<at::Half>()),
                                                           c.data_ptr<float>(), m, n, k);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return c;
}
