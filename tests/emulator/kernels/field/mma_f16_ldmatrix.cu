// inputs: float16[33,45] float16[45,21]
// declare: torch::Tensor run(torch::Tensor a, torch::Tensor b);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>
#include <cuda_fp16.h>
#include <cstdint>

// mma.m16n8k16 with ldmatrix out of padded shared memory; two warps, side by side.
constexpr int PA = 24, PB = 24;

__global__ void mma_f16_kernel(const __half* a, const __half* b, float* c, int m, int n, int k) {
    __shared__ __align__(16) __half as[16 * PA];
    __shared__ __align__(16) __half bs[16 * PB];
    const int tid = threadIdx.x, lane = tid % 32, warp = tid / 32;
    const int row0 = blockIdx.y * 16, col0 = blockIdx.x * 16;
    const __half zero = __float2half(0.0f);
    float d[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    for (int k0 = 0; k0 < k; k0 += 16) {
        for (int e = tid; e < 256; e += 64) {
            int r = e / 16, q = e % 16;
            as[r * PA + q] = row0 + r < m && k0 + q < k ? a[(row0 + r) * k + k0 + q] : zero;
            bs[r * PB + q] = k0 + r < k && col0 + q < n ? b[(k0 + r) * n + col0 + q] : zero;
        }
        __syncthreads();
        uint32_t ra[4], rb[2];
        uint32_t from_a = (uint32_t)__cvta_generic_to_shared(&as[lane % 16 * PA + lane / 16 * 8]);
        uint32_t from_b = (uint32_t)__cvta_generic_to_shared(&bs[lane % 16 * PB + warp * 8]);
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(ra[0]), "=r"(ra[1]), "=r"(ra[2]), "=r"(ra[3])
                     : "r"(from_a));
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
                     : "=r"(rb[0]), "=r"(rb[1])
                     : "r"(from_b));
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(rb[0]), "r"(rb[1]));
        __syncthreads();
    }
    for (int e = 0; e < 4; ++e) {
        int r = row0 + lane / 4 + e / 2 * 8, q = col0 + warp * 8 + lane % 4 * 2 + e % 2;
        if (r < m && q < n) {
            c[r * n + q] = d[e];
        }
    }
}

torch::Tensor run(torch::Tensor a, torch::Tensor b) {
    int m = a.size(0), k = a.size(1), n = b.size(1);
    auto c = torch::empty({m, n}, a.options().dtype(torch::kFloat32));
    mma_f16_kernel<<<dim3((n + 15) / 16, (m + 15) / 16), 64>>>(reinterpret_cast<const __half*>(a.data_ptr<at::Half>()),
                                                              reinterpret_cast<const __half*>(b.data_ptr<at::Half>()),
                                                              c.data_ptr<float>(), m, n, k);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return c;
}
