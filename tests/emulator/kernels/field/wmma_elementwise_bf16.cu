// inputs: bfloat16[32,48] bfloat16[48,64] 0.5
// declare: torch::Tensor run(torch::Tensor a, torch::Tensor b, double scale);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>
#include <cuda_bf16.h>
#include <mma.h>

using namespace nvcuda::wmma;

// Two warps to a block, straight from global memory; the fragment's own elements are scaled and clipped.
__global__ void bf16_gemm_clipped(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c, int n, int k, float scale) {
    int warp = threadIdx.x / 32;
    int row0 = blockIdx.y * 16, col0 = (blockIdx.x * 2 + warp) * 16;
    fragment<matrix_a, 16, 16, 16, __nv_bfloat16, row_major> fa;
    fragment<matrix_b, 16, 16, 16, __nv_bfloat16, row_major> fb;
    fragment<accumulator, 16, 16, 16, float> acc;
    fill_fragment(acc, 0.0f);
    for (int k0 = 0; k0 < k; k0 += 16) {
        load_matrix_sync(fa, a + row0 * k + k0, k);
        load_matrix_sync(fb, b + k0 * n + col0, n);
        mma_sync(acc, fa, fb, acc);
    }
    for (int e = 0; e < acc.num_elements; ++e) {
        acc.x[e] = fminf(fmaxf(acc.x[e] * scale, -3.0f), 3.0f);
    }
    store_matrix_sync(c + row0 * n + col0, acc, n, mem_row_major);
}

torch::Tensor run(torch::Tensor a, torch::Tensor b, double scale) {
    int m = a.size(0), k = a.size(1), n = b.size(1);
    TORCH_CHECK(m % 16 == 0 && n % 32 == 0 && k % 16 == 0);
    auto c = torch::empty({m, n}, a.options().dtype(torch::kFloat32));
    bf16_gemm_clipped<<<dim3(n / 32, m / 16), 64>>>(reinterpret_cast<const __nv_bfloat16*>(a.data_ptr<at::BFloat16>()),
                                                    reinterpret_cast<const __nv_bfloat16*>(b.data_ptr<at::BFloat16>()),
                                                    c.data_ptr<float>(), n, k, (float)scale);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return c;
}
