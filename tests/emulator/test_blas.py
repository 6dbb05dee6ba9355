"""cuBLAS as candidates call it: layouts, scales, batches, math modes, and what it may not touch."""

from __future__ import annotations

import types

import pytest
import torch

from crucible import emulator

SOURCE = r"""
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/Exceptions.h>
#include <cublas_v2.h>

static cublasHandle_t made() { cublasHandle_t handle; cublasCreate(&handle); return handle; }
static const float one = 1.0f, zero = 0.0f;

torch::Tensor product(torch::Tensor a, torch::Tensor b) {  // row-major a b as column-major b' a'
    const int m = a.size(0), k = a.size(1), n = b.size(1);
    auto out = torch::empty({m, n}, a.options());
    TORCH_CUDABLAS_CHECK(cublasSgemm(at::cuda::getCurrentCUDABlasHandle(), CUBLAS_OP_N, CUBLAS_OP_N, n, m, k, &one,
        b.data_ptr<float>(), n, a.data_ptr<float>(), k, &zero, out.data_ptr<float>(), n));
    return out;
}
// a' b' of row-major a, b
torch::Tensor scaled(torch::Tensor a, torch::Tensor b, torch::Tensor c, double alpha, double beta) {
    const int k = a.size(0), m = a.size(1), n = b.size(0);
    auto out = c.clone();
    double al = alpha, be = beta;
    cublasDgemm(made(), CUBLAS_OP_T, CUBLAS_OP_T, n, m, k, &al, b.data_ptr<double>(), k, a.data_ptr<double>(), m,
        &be, out.data_ptr<double>(), n);
    return out;
}
torch::Tensor batched(torch::Tensor a, torch::Tensor b) {
    const int count = a.size(0), m = a.size(1), k = a.size(2), n = b.size(2);
    auto out = torch::empty({count, m, n}, a.options());
    cublasSgemmStridedBatched(made(), CUBLAS_OP_N, CUBLAS_OP_N, n, m, k, &one, b.data_ptr<float>(), n,
        (long long)k * n, a.data_ptr<float>(), k, (long long)m * k, &zero, out.data_ptr<float>(), n,
        (long long)m * n, count);
    return out;
}
torch::Tensor halves(torch::Tensor a, torch::Tensor b) {  // half operands, float sums, half out
    const int m = a.size(0), k = a.size(1), n = b.size(1);
    auto out = torch::empty({m, n}, a.options());
    cublasGemmEx(made(), CUBLAS_OP_N, CUBLAS_OP_N, n, m, k, &one, b.data_ptr(), CUDA_R_16F, n, a.data_ptr(),
        CUDA_R_16F, k, &zero, out.data_ptr(), CUDA_R_16F, n, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
    return out;
}
torch::Tensor tf32(torch::Tensor a, torch::Tensor b) {
    const int m = a.size(0), k = a.size(1), n = b.size(1);
    auto out = torch::empty({m, n}, a.options());
    cublasHandle_t handle = made();
    cublasSetMathMode(handle, CUBLAS_TF32_TENSOR_OP_MATH);
    cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, n, m, k, &one, b.data_ptr<float>(), n, a.data_ptr<float>(), k,
        &zero, out.data_ptr<float>(), n);
    return out;
}
torch::Tensor vector(torch::Tensor a, torch::Tensor x) {
    auto out = torch::empty({a.size(0)}, a.options());
    cublasSgemv(made(), CUBLAS_OP_T, a.size(1), a.size(0), &one, a.data_ptr<float>(), a.size(1),
        x.data_ptr<float>(), 2, &zero, out.data_ptr<float>(), 1);
    return out;
}
torch::Tensor symmetric(torch::Tensor a, torch::Tensor b) {  // only a's column-major upper triangle is looked at
    auto out = torch::empty_like(b);
    cublasSsymm(made(), CUBLAS_SIDE_RIGHT, CUBLAS_FILL_MODE_UPPER, b.size(1), b.size(0), &one, a.data_ptr<float>(),
        a.size(0), b.data_ptr<float>(), b.size(1), &zero, out.data_ptr<float>(), b.size(1));
    return out;
}
torch::Tensor triangular(torch::Tensor a, torch::Tensor b) {  // tril(a) b
    auto out = torch::empty_like(b);
    cublasStrmm(made(), CUBLAS_SIDE_RIGHT, CUBLAS_FILL_MODE_UPPER, CUBLAS_OP_N, CUBLAS_DIAG_NON_UNIT, b.size(1),
        b.size(0), &one, a.data_ptr<float>(), a.size(0), b.data_ptr<float>(), b.size(1), out.data_ptr<float>(),
        b.size(1));
    return out;
}
std::vector<torch::Tensor> outer(torch::Tensor x, torch::Tensor y, double by) {
    auto out = torch::ones({x.size(0), y.size(0)}, x.options()), sum = torch::empty({2}, x.options());
    const float alpha = by;
    cublasHandle_t handle = made();
    cublasSger(handle, y.size(0), x.size(0), &alpha, y.data_ptr<float>(), 1, x.data_ptr<float>(), 1,
        out.data_ptr<float>(), y.size(0));
    cublasSdot(handle, x.size(0), x.data_ptr<float>(), 1, x.data_ptr<float>(), 1, sum.data_ptr<float>());
    cublasSnrm2(handle, x.size(0), x.data_ptr<float>(), 1, sum.data_ptr<float>() + 1);
    return {out, sum};
}
int64_t refused(torch::Tensor a) {  // a leading dimension below the rows
    float* p = a.data_ptr<float>();
    return cublasSgemm(made(), CUBLAS_OP_N, CUBLAS_OP_N, 8, 8, 8, &one, p, 4, p, 8, &zero, p, 8);
}
torch::Tensor beyond(torch::Tensor a) {
    float* p = a.data_ptr<float>();
    auto out = torch::empty({8, 8}, a.options());
    cublasSgemm(made(), CUBLAS_OP_N, CUBLAS_OP_N, 8, 8, 9, &one, p, 8, p, 9, &zero, out.data_ptr<float>(), 8);
    return out;
}
torch::Tensor unwritten(torch::Tensor a) {
    float* p = a.data_ptr<float>();
    auto out = torch::empty({8, 8}, a.options());
    cublasSgemm(made(), CUBLAS_OP_N, CUBLAS_OP_N, 8, 8, 8, &one, p, 8, p, 8, &one, out.data_ptr<float>(), 8);
    return out;
}
"""
FUNCTIONS = {
    "product": "torch::Tensor product(torch::Tensor a, torch::Tensor b);",
    "scaled": "torch::Tensor scaled(torch::Tensor a, torch::Tensor b, torch::Tensor c, double alpha, double beta);",
    "batched": "torch::Tensor batched(torch::Tensor a, torch::Tensor b);",
    "halves": "torch::Tensor halves(torch::Tensor a, torch::Tensor b);",
    "tf32": "torch::Tensor tf32(torch::Tensor a, torch::Tensor b);",
    "vector": "torch::Tensor vector(torch::Tensor a, torch::Tensor x);",
    "symmetric": "torch::Tensor symmetric(torch::Tensor a, torch::Tensor b);",
    "triangular": "torch::Tensor triangular(torch::Tensor a, torch::Tensor b);",
    "outer": "std::vector<torch::Tensor> outer(torch::Tensor x, torch::Tensor y, double by);",
    "refused": "int64_t refused(torch::Tensor a);",
    "beyond": "torch::Tensor beyond(torch::Tensor a);",
    "unwritten": "torch::Tensor unwritten(torch::Tensor a);",
}


@pytest.fixture(scope="module")
def blas() -> types.ModuleType:
    return emulator.load_inline("blas", "\n".join(FUNCTIONS.values()), SOURCE, list(FUNCTIONS))


def integers(*size: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Whose products and sums are exact in any order."""
    return torch.randint(-4, 5, size).to(dtype)


def test_products_are_exact(blas: types.ModuleType) -> None:
    torch.manual_seed(1)
    emulator.forget()
    a, b = integers(5, 7), integers(7, 3)
    assert torch.equal(blas.product(a, b), a @ b)
    a2, b2, c = (
        integers(7, 5, dtype=torch.float64),
        integers(3, 7, dtype=torch.float64),
        integers(5, 3, dtype=torch.float64),
    )
    assert torch.equal(blas.scaled(a2, b2, c, 0.5, -2.0), 0.5 * (a2.T @ b2.T) - 2.0 * c)
    a3, b3 = integers(4, 5, 6), integers(4, 6, 2)
    assert torch.equal(blas.batched(a3, b3), a3 @ b3)
    x = integers(14)
    assert torch.equal(blas.vector(a, x), a @ x[::2])
    square, other = integers(6, 6), integers(6, 4)
    mirrored = square.tril() + square.tril(-1).T
    assert torch.equal(blas.symmetric(square, other), mirrored @ other)
    assert torch.equal(blas.triangular(square, other), square.tril() @ other)
    u, v = integers(6), integers(4)
    product, sums = blas.outer(u, v, 0.5)
    assert torch.equal(product, 1 + 0.5 * torch.outer(u, v))
    assert torch.equal(sums, torch.stack([u @ u, (u @ u).sqrt()]))
    assert emulator.faults() == ()


def test_operands_are_rounded_as_the_mode_says(blas: types.ModuleType) -> None:
    a, b = torch.tensor([[1 + 2.0**-11, 1 + 2.0**-12]]), torch.eye(2)
    assert torch.equal(blas.product(a, b), a)
    assert torch.equal(blas.tf32(a, b), torch.tensor([[1 + 2.0**-10, 1.0]]))  # a tie goes away from zero
    long = torch.full((1, 4096), 1.0, dtype=torch.float16)
    assert blas.halves(long, long.T.contiguous()).item() == 4096  # half sums would stop at 2048
    assert blas.halves(torch.tensor([[1.0, 2.0**-11]]).half(), torch.ones(2, 1).half()).item() == 1.0


def test_what_it_may_not_touch_is_a_fault(blas: types.ModuleType) -> None:
    a = integers(8, 8)
    assert blas.refused(a) == 7  # CUBLAS_STATUS_INVALID_VALUE
    emulator.forget()
    with pytest.raises(RuntimeError, match="illegal memory access"):
        blas.beyond(a)
    (fault,) = emulator.faults()
    line = 1 + SOURCE[: SOURCE.index("8, 8, 9, &one")].count("\n")
    assert (fault.kind, fault.kernel, fault.line) == ("out-of-bounds-global", "cublasSgemm", line)
    emulator.forget()
    blas.unwritten(a)
    first = emulator.faults()[0]
    line = 1 + SOURCE[: SOURCE.index("&one, out.data_ptr<float>(), 8);")].count("\n")
    assert (first.kind, first.kernel, first.line) == ("uninitialised-global", "cublasSgemm", line)
