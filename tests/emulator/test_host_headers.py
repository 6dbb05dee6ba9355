"""What the runtime has in place of PyTorch's headers: messages, scalars. What shared memory's alignment lets pass."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from crucible import emulator

CHECKS = r"""
enum class Plain : short { kSeven = 7 };
void run(torch::Tensor x, int64_t part) {
    const char* words = "words";
    const std::string text = "text";
    const std::optional<int> none, some = 4;
    TORCH_CHECK(part != 0, "sizes ", x.sizes(), ", ", x.scalar_type(), " on ", x.device(), ": ", words, ' ', text);
    TORCH_CHECK(part != 1, 1, ' ', -2L, ' ', 3u, ' ', 0.25f, ' ', 1e-9, ' ', true, ' ', none, ' ', some);
    TORCH_CHECK(part != 2, Plain::kSeven, L" wide", std::string());
    TORCH_CHECK(part != 3, "alone");
    TORCH_CHECK(part != 4);
    AT_ERROR("error ", part);
}
int64_t narrow(double value) { return at::Scalar(value).toInt(); }
"""
DECLARED = "void run(torch::Tensor x, int64_t part); int64_t narrow(double value);"
MESSAGES = [
    "sizes [2, 3], Float on cpu: words text",
    "1 -2 3 0.25 1e-09 1 std::nullopt 4",
    "7 wide",
    "alone",
    "Expected part != 4 to be true, but got false.",
    "error 5",
]


@pytest.fixture(autouse=True)
def no_earlier_faults() -> Iterator[None]:
    emulator.forget()
    yield
    emulator.forget()


def test_messages_are_worded_as_pytorchs() -> None:
    built = emulator.load_inline("messages", DECLARED, CHECKS, ["run", "narrow"])
    for part, message in enumerate(MESSAGES):
        with pytest.raises(RuntimeError) as error:
            built.run(torch.ones(2, 3), part)
        assert str(error.value).startswith(message)


def test_scalars_convert_and_refuse_as_pytorchs() -> None:
    built = emulator.load_inline("messages", DECLARED, CHECKS, ["run", "narrow"])
    assert built.narrow(-7.9) == -7
    with pytest.raises(RuntimeError, match="value cannot be converted to type int without overflow"):
        built.narrow(1e10)


SHARED = {
    "still": "extern __shared__ float4 more[]; own[t] = x[t]; more[t].y = own[t]; out[t] = more[t].y;",
    "static_": "own[t] = x[t]; out[t] = *reinterpret_cast<double*>(own + 1);",
    "dynamic": "extern __shared__ float more[]; more[t] = x[t]; out[t] = *reinterpret_cast<double*>(more + 1);",
    "wide": "extern __shared__ float more[]; more[t] = x[t]; out[t] = reinterpret_cast<Wide*>(more + 4)->at[0];",
}
"""Kernels by what is off its alignment: `still` has nothing."""


@pytest.mark.parametrize("name", SHARED)
def test_shared_memory_is_looked_at_by_its_own_alignment(name: str) -> None:
    head = "struct __align__(32) Wide { float at[8]; };\n"
    kernels = [
        f"__global__ void {each}(const float* x, float* out) {{\n"
        f"__shared__ float own[32]; const int t = threadIdx.x;\n{text}\n}}\n"
        for each, text in SHARED.items()
    ]
    calls = [
        f'if (which == "{each}") {each}<<<1, 16, 512>>>(x.data_ptr<float>(), out.data_ptr<float>());\n'
        for each in SHARED
    ]
    signature = "void run(torch::Tensor x, torch::Tensor out, std::string which)"
    built = emulator.load_inline(
        "aligned", f"{signature};", "".join([head, *kernels, signature, "{\n", *calls, "}\n"]), ["run"]
    )
    if name == "still":
        built.run(torch.ones(16), torch.zeros(16), name)
    else:
        with pytest.raises(RuntimeError, match="misaligned address"):
            built.run(torch.ones(16), torch.zeros(16), name)
    found = [(fault.kind, fault.line) for fault in emulator.faults() if fault.kind != "never-ran"]
    assert found == ([] if name == "still" else [("misaligned", 4 * list(SHARED).index(name) + 4)])
