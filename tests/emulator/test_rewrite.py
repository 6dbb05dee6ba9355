"""CUDA text becomes C++ token by token, and its lines stay where they are."""

from __future__ import annotations

import pytest

from crucible.emulator import NotCovered
from crucible.emulator.rewrite import rewrite
from crucible.emulator.sources import loop_head
from crucible.emulator.tokens import tokenize

SOURCE = r"""
// a comment with <<< and __shared__ float x[3];
template <typename T, int N = 4>
__global__ void __launch_bounds__(256) kernel(const T* __restrict__ in, T* out, int n) {
    __shared__ float tile[32][33], extra;
    extern __shared__ __align__(16) float dynamic[];
    const char* text = "threadIdx.x <<< >>>";
    out[threadIdx.x] = in[blockIdx.x * blockDim.x];
}
void launch(float* p, int n) {
    dim3 blockDim(32, 8);
    kernel<float>
        <<<dim3(n, 2), blockDim, sizeof(float) * 3>>>(
            p, p, blockDim.x);
}
"""


def test_tokens_put_together_are_the_text() -> None:
    assert "".join(token.text for token in tokenize(SOURCE)) == SOURCE


def test_lines_stay_where_they_are() -> None:
    assert rewrite(SOURCE).text.count("\n") == SOURCE.count("\n")


def test_comments_and_strings_are_left_alone() -> None:
    text = rewrite(SOURCE).text
    assert "// a comment with <<< and __shared__ float x[3];" in text
    assert '"threadIdx.x <<< >>>"' in text


def test_a_kernel_is_known_by_name_line_parameters_and_bounds() -> None:
    (kernel,) = rewrite(SOURCE).kernels
    assert (kernel.name, kernel.line, kernel.parameters) == ("kernel", 4, ("in", "out", "n"))
    assert (kernel.bounds, kernel.template, kernel.defined) == ("256", 1, True)


def test_a_launch_carries_the_kernels_address_where_all_of_its_template_is_given() -> None:
    assert "(const void*)(kernel<float>)" in rewrite(SOURCE).text
    assert "nullptr" in rewrite(SOURCE.replace("kernel<float>", "kernel")).text


def test_a_local_variable_named_like_a_builtin_stays_a_variable() -> None:
    text = rewrite(SOURCE).text
    assert "p, p, blockDim.x" in text
    assert "CRUCIBLE_ID(blockDim, x)" in text


def test_cuda_tensors_are_cpu_tensors() -> None:
    text = rewrite('TORCH_CHECK(x.is_cuda()); y.to(torch::kCUDA); c10::DeviceType::CUDA; torch::Device("cuda:0");').text
    assert text == 'TORCH_CHECK(x.is_cpu()); y.to(torch::kCPU); c10::DeviceType::CPU; torch::Device("cpu");'


@pytest.mark.parametrize(
    ("source", "named"),
    [
        ('\nasm volatile("wgmma.mma_async.sync.aligned.m64n8k16 {%0}, %1;" : "=f"(a) : "l"(b));', "wgmma.mma_async"),
        ("\n#include <cublasLt.h>", "cublasLt.h"),
        ("\ncudaTextureObject_t texture;", "cudaTextureObject_t"),
    ],
)
def test_what_is_not_covered_is_named_with_its_line(source: str, named: str) -> None:
    with pytest.raises(NotCovered, match=f"{named}.*, line 2"):
        rewrite(source)


def test_a_loop_is_known_by_its_innermost_head() -> None:
    text = "for (;;) {\n  while (x)\n    y();\n  z();\n}\n"
    assert [loop_head(text, line) for line in (1, 3, 4, 6)] == [1, 2, 1, 6]
