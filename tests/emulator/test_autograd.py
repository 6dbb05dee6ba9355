"""Autograd functions that an extension has in C++: PyTorch's own, backward watched as a call from Python is."""

from __future__ import annotations

import types
from collections.abc import Iterator

import pytest
import torch

from crucible import emulator

KERNELS = """
#include <torch/types.h>

__global__ void times(const float* a, const float* b, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = a[i] * b[i];
}
torch::Tensor run(const torch::Tensor& a, const torch::Tensor& b, int64_t n) {
    auto out = torch::empty_like(a);
    times<<<1, 256>>>(a.data_ptr<float>(), b.data_ptr<float>(), out.data_ptr<float>(), n);
    return out;
}
"""
LEARNING = """
#include <torch/csrc/autograd/custom_function.h>
#include <torch/extension.h>

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

torch::Tensor run(const torch::Tensor& a, const torch::Tensor& b, int64_t n);

struct Times : torch::autograd::Function<Times> {
    static torch::Tensor forward(AutogradContext* ctx, const torch::Tensor& a, const torch::Tensor& b,
                                 const std::string& note) {
        ctx->saved_data["note"] = note;
        ctx->save_for_backward({a, b});
        return run(a, b, a.numel());
    }
    static variable_list backward(AutogradContext* ctx, const variable_list& given) {
        const variable_list kept = ctx->get_saved_variables();
        TORCH_CHECK(ctx->saved_data["note"].toStringRef() == "kept", "the note is lost");
        return {run(given[0], kept[1], SIZE), run(given[0], kept[0], SIZE), torch::Tensor()};
    }
};
torch::Tensor times_learned(const torch::Tensor& a, const torch::Tensor& b) { return Times::apply(a, b, "kept"); }
"""


@pytest.fixture(autouse=True)
def no_earlier_faults() -> Iterator[None]:
    emulator.forget()
    yield
    emulator.forget()


def built(backward_size: str = "kept[0].numel()", source: str = LEARNING) -> types.ModuleType:
    return emulator.load_inline("learned", source.replace("SIZE", backward_size), KERNELS, ["times_learned"])


def older_than_the_emulator() -> torch.Tensor:
    """Memory that is not in its arena."""
    return torch.from_numpy(torch.rand(200).numpy().copy()).requires_grad_()


def test_gradients_are_those_of_the_function() -> None:
    a, b = older_than_the_emulator(), torch.rand(200, requires_grad=True)
    out = built().times_learned(a, b)
    torch.testing.assert_close(out, a * b)
    assert "Learned" in out.grad_fn.name()
    gradient = torch.rand(200)
    found = torch.autograd.grad(out, (a, b), gradient)
    torch.testing.assert_close(found, (gradient * b, gradient * a))
    assert emulator.faults() == ()


def test_a_fault_in_backward_is_named_and_raised() -> None:
    a, b = (torch.rand(200, requires_grad=True) for _ in range(2))
    out = built("kept[0].numel() + 1").times_learned(a, b)
    with pytest.raises(RuntimeError, match="an illegal memory access was encountered"):
        out.backward(torch.rand(200))
    assert emulator.faults()[0].words.startswith("out-of-bounds-global: read of 4 bytes: just past the end of `a`")


def test_what_backward_leaves_unwritten_is_named() -> None:
    a, b = (torch.rand(200, requires_grad=True) for _ in range(2))
    built("kept[0].numel() - 1").times_learned(a, b).backward(torch.rand(200))
    assert "uninitialised-global" in {fault.kind for fault in emulator.faults()}


def test_a_gradient_too_few_is_told_in_pytorchs_words() -> None:
    source = LEARNING.replace(", torch::Tensor()}", "}")
    out = built(source=source).times_learned(*(torch.rand(200, requires_grad=True) for _ in range(2)))
    with pytest.raises(RuntimeError, match=r"incorrect number of gradients \(expected 3, got 2\)"):
        out.sum().backward()


def test_an_optional_tensor_gets_its_gradient_by_pytorchs_own_headers() -> None:
    source = LEARNING.replace("& a, const torch::Tensor& b,\n", "& a, const std::optional<torch::Tensor>& b_,\n", 1)
    source = source.replace(
        'ctx->saved_data["note"]', 'const torch::Tensor b = *b_;\n        ctx->saved_data["note"]', 1
    )
    source = source.replace('apply(a, b, "kept")', 'apply(a, std::optional<torch::Tensor>(b), std::string("kept"))')
    a, b = (torch.rand(200, requires_grad=True) for _ in range(2))
    gradient = torch.rand(200)
    found = torch.autograd.grad(built(source=source).times_learned(a, b), (a, b), gradient)
    torch.testing.assert_close(found, (gradient * b, gradient * a))
