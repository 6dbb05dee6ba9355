// inputs: float32[70,27] float32[27,90]
// inputs: float32[64,16] float32[16,64]
// declare: torch::Tensor run(torch::Tensor a, torch::Tensor b);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

// A tile of 64 x 64 by 256 threads, four by four results in the registers of each.
constexpr int BM = 64, BN = 64, BK = 8, TM = 4, TN = 4;

__global__ void __launch_bounds__(256) sgemm_blocked(const float* __restrict__ a, const float* __restrict__ b,
                                                     float* __restrict__ c, int m, int n, int k) {
    __shared__ float as[BK][BM];
    __shared__ float bs[BK][BN];
    const int tid = threadIdx.x;
    const int tr = tid / (BN / TN), tc = tid % (BN / TN);
    const int row0 = blockIdx.y * BM, col0 = blockIdx.x * BN;
    float acc[TM][TN] = {};
    for (int k0 = 0; k0 < k; k0 += BK) {
        for (int e = tid; e < BM * BK; e += 256) {
            int r = e / BK, kk = e % BK;
            bool inside = row0 + r < m && k0 + kk < k;
            as[kk][r] = inside ? a[(row0 + r) * k + k0 + kk] : 0.0f;
        }
        for (int e = tid; e < BK * BN; e += 256) {
            int kk = e / BN, q = e % BN;
            bool inside = k0 + kk < k && col0 + q < n;
            bs[kk][q] = inside ? b[(k0 + kk) * n + col0 + q] : 0.0f;
        }
        __syncthreads();
        #pragma unroll
        for (int kk = 0; kk < BK; ++kk) {
            float ra[TM], rb[TN];
            #pragma unroll
            for (int i = 0; i < TM; ++i) ra[i] = as[kk][tr * TM + i];
            #pragma unroll
            for (int j = 0; j < TN; ++j) rb[j] = bs[kk][tc * TN + j];
            #pragma unroll
            for (int i = 0; i < TM; ++i)
                #pragma unroll
                for (int j = 0; j < TN; ++j) acc[i][j] = fmaf(ra[i], rb[j], acc[i][j]);
        }
        __syncthreads();
    }
    for (int i = 0; i < TM; ++i) {
        for (int j = 0; j < TN; ++j) {
            int r = row0 + tr * TM + i, q = col0 + tc * TN + j;
            if (r < m && q < n) {
                c[r * n + q] = acc[i][j];
            }
        }
    }
}

torch::Tensor run(torch::Tensor a, torch::Tensor b) {
    TORCH_CHECK(a.dim() == 2 && b.dim() == 2 && a.size(1) == b.size(0));
    const int m = a.size(0), k = a.size(1), n = b.size(1);
    auto c = torch::empty({m, n}, a.options());
    const dim3 grid((n + BN - 1) / BN, (m + BM - 1) / BM);
    sgemm_blocked<<<grid, 256>>>(a.data_ptr<float>(), b.data_ptr<float>(), c.data_ptr<float>(), m, n, k);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return c;
}
