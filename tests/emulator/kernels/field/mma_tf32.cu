// inputs: float32[30,20] float32[20,13]
// declare: torch::Tensor run(torch::Tensor a, torch::Tensor b);
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAException.h>

__device__ __forceinline__ unsigned to_tf32(float v) {
    unsigned r;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(v));
    return r;
}

// A warp computes 16 x 8 by mma.m16n8k8; the fragments are read straight from global memory, zero outside.
__global__ void mma_tf32_kernel(const float* a, const float* b, float* c, int m, int n, int k) {
    const int lane = threadIdx.x;
    const int group = lane >> 2, pos = lane & 3;
    const int row0 = blockIdx.y * 16, col0 = blockIdx.x * 8;
    float d[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    auto at = [&](int r, int q) { return r < m && q < k ? a[r * k + q] : 0.0f; };
    auto bt = [&](int r, int q) { return r < k && q < n ? b[r * n + q] : 0.0f; };
    for (int k0 = 0; k0 < k; k0 += 8) {
        unsigned a0 = to_tf32(at(row0 + group, k0 + pos));
        unsigned a1 = to_tf32(at(row0 + group + 8, k0 + pos));
        unsigned a2 = to_tf32(at(row0 + group, k0 + pos + 4));
        unsigned a3 = to_tf32(at(row0 + group + 8, k0 + pos + 4));
        unsigned b0 = to_tf32(bt(k0 + pos, col0 + group));
        unsigned b1 = to_tf32(bt(k0 + pos + 4, col0 + group));
        asm volatile(
            "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
    }
    for (int e = 0; e < 4; ++e) {
        int r = row0 + group + 8 * (e / 2), q = col0 + 2 * pos + e % 2;
        if (r < m && q < n) {
            c[r * n + q] = d[e];
        }
    }
}

torch::Tensor run(torch::Tensor a, torch::Tensor b) {
    int m = a.size(0), k = a.size(1), n = b.size(1);
    auto c = torch::empty({m, n}, a.options());
    mma_tf32_kernel<<<dim3((n + 7) / 8, (m + 15) / 16), 32>>>(a.data_ptr<float>(), b.data_ptr<float>(), c.data_ptr<float>(),
                                                             m, n, k);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return c;
}
