"""The public module: extensions build, run, refuse and name faults."""

from __future__ import annotations

import re
import types
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from crucible import emulator
from crucible.emulator import session
from crucible.judge.worker.profile import profile_call
from support import some

DECLARED = "torch::Tensor run(torch::Tensor x);"
NEGATE = """
__global__ void negate(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = -x[i];
}
torch::Tensor run(torch::Tensor x) {
    TORCH_CHECK(x.is_cuda(), "x must be a CUDA tensor");
    auto out = torch::empty_like(x);
    negate<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), out.data_ptr<float>(), x.numel());
    return out;
}
"""


def in_run(statement: str) -> str:
    """The source with a statement more, on its line 7."""
    return NEGATE.replace("    TORCH_CHECK", f"    {statement}\n    TORCH_CHECK")


@pytest.fixture(autouse=True)
def no_earlier_faults() -> Iterator[None]:
    emulator.forget()
    yield
    emulator.forget()


def test_a_right_kernel_gives_its_answer_and_no_fault() -> None:
    built = emulator.load_inline("negate", DECLARED, NEGATE, ["run"])
    x = torch.randn(1001)
    assert torch.equal(built.run(x), -x)
    assert emulator.faults() == ()


def test_tensors_older_than_the_emulator_are_watched_too() -> None:
    """They lie outside of its arena: NumPy's memory stands for them."""
    built = emulator.load_inline("negate_past", DECLARED, NEGATE.replace("i < n", "i < n + 1"), ["run"])
    with pytest.raises(RuntimeError, match="an illegal memory access was encountered"):
        built.run(torch.from_numpy(torch.ones(500).numpy().copy()))
    assert emulator.faults()[0].words.startswith("out-of-bounds-global: read of 4 bytes: just past the end of `x`")


def test_what_host_and_device_share_is_the_devices() -> None:
    """The host's unit is compiled without checks of values: where both define a function, the linker keeps one."""
    shared = "__attribute__((noinline)) inline int after(int n) { return n + 1; }\n"
    host = f"{shared} {DECLARED} int of_host(int n) {{ return after(n); }}"
    device = shared + NEGATE.replace("-x[i]", "after(2147483647 - i)")
    built = emulator.load_inline("shared_inline", host, device, ["run", "of_host"])
    assert built.run(torch.ones(8))[1] == 2147483647
    assert [fault.kind for fault in emulator.faults()] == ["index-overflow"]
    assert built.of_host(3) == 4


def test_kernels_are_watched_in_the_hosts_unit_too() -> None:
    """Which is compiled without hooks where it can have none."""
    source = """
__global__ void shifted(const float* x, float* out) { out[threadIdx.x + 1] = x[threadIdx.x]; }
torch::Tensor run(torch::Tensor x) {
    auto out = torch::zeros_like(x);
    const float* from = x.data_ptr<float>();
    float* to = out.data_ptr<float>();
    void* arguments[] = {&from, &to};
    cudaLaunchKernel((const void*)shifted, dim3(1), dim3(64), arguments, 0, 0);
    return out;
}"""
    built = emulator.load_inline("launching_host", source, functions=["run"])
    with pytest.raises(RuntimeError, match="an illegal memory access was encountered"):
        built.run(torch.ones(64))
    assert [fault.kind for fault in emulator.faults()][:1] == ["out-of-bounds-global"]


def test_a_function_that_cpp_sources_do_not_declare_is_refused_in_pytorchs_words() -> None:
    with pytest.raises(RuntimeError, match=r"Error building extension 'x'.*‘run’ was not declared in this scope"):
        emulator.load_inline("x", "", NEGATE, ["run"])


def test_a_module_of_its_own_beside_functions_is_refused() -> None:
    bound = NEGATE + 'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("run", &run); }'
    with pytest.raises(RuntimeError, match=r"multiple definition of `PyInit_x'"):
        emulator.load_inline("x", DECLARED, bound, ["run"])
    assert torch.equal(emulator.load_inline("x_bound", "", bound).run(torch.ones(3)), -torch.ones(3))


def test_an_error_of_the_source_is_told_with_its_line() -> None:
    with pytest.raises(RuntimeError, match=r"Error building extension 'x'[\s\S]*cuda.cu:4:\d+: error: ‘y’"):
        emulator.load_inline("x", DECLARED, NEGATE.replace("-x[i]", "-y[i]"), ["run"])


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("torch::nn::functional::relu(x);", "torch::nn, line 7"),
        ("cudaGraphExec_t graph;", "cudaGraphExec_t, line 7"),
        ("cusparseHandle_t handle;", "cusparseHandle_t, line 7"),
    ],
)
def test_a_name_of_pytorchs_or_cudas_that_is_not_known_here_is_not_covered(statement: str, named: str) -> None:
    with pytest.raises(emulator.NotCovered, match=named):
        emulator.load_inline("x", DECLARED, in_run(statement), ["run"])


@pytest.mark.parametrize(
    "statement", some(["torch::no_such_thing(x);", "no_such_thing(x);", "auto f = atomicNothing(x);"], 3)
)
def test_a_name_that_nobody_has_does_not_build(statement: str) -> None:
    with pytest.raises(RuntimeError, match=r"Error building extension 'x'"):
        emulator.load_inline("x", DECLARED, in_run(statement), ["run"])


def test_arguments_of_the_wrong_type_are_a_type_error() -> None:
    built = emulator.load_inline("negate", DECLARED, NEGATE, ["run"])
    for other in (3, None):  # no tensor, though a bridge could make an undefined one of it
        with pytest.raises(TypeError, match="incompatible function arguments"):
            built.run(other)
    with pytest.raises(TypeError, match="1 arguments, not 2"):
        built.run(torch.ones(3), 2)


def test_a_check_that_fails_is_a_runtime_error_of_its_words() -> None:
    refusing = NEGATE.replace("x.is_cuda()", "x.numel() > 5")
    built = emulator.load_inline("negate_check", DECLARED, refusing, ["run"])
    with pytest.raises(RuntimeError, match=r"^x must be a CUDA tensor$"):
        built.run(torch.ones(3))


def test_a_crash_in_a_kernel_is_a_fault_and_the_process_lives_on() -> None:
    recursive = NEGATE.replace(
        "__global__", "__device__ int f(int n) { return n ? f(n + 1) + f(n - 1) : 1; }\n__global__", 1
    )
    recursive = recursive.replace("-x[i]", "-x[i] * f(1 + i)")
    built = emulator.load_inline("negate_deep", DECLARED, recursive, ["run"])
    with pytest.raises(RuntimeError, match="an illegal memory access"):
        built.run(torch.ones(3))
    assert "stack is used up" in emulator.faults()[0].detail
    assert torch.equal(emulator.load_inline("negate", DECLARED, NEGATE, ["run"]).run(torch.ones(3)), -torch.ones(3))


@pytest.mark.parametrize("order", ["forward", "reverse", "random"])
def test_a_race_can_be_seen_to_change_the_output(order: str) -> None:
    last = NEGATE.replace("out[i] = -x[i]", "out[0] = i")
    built = emulator.load_inline("negate_race", DECLARED, last, ["run"])
    with emulator.schedule(order):
        result = built.run(torch.ones(64))[0].item()
    assert {"forward": result == 63, "reverse": result == 0, "random": True}[order]
    assert emulator.faults()[0].kind == "race-global"


def test_extensions_from_files(tmp_path: Path) -> None:
    """Two with kernels, one of which includes device code of its own."""
    header = "#pragma once\n__device__ float negated(float v) { return threadIdx.y - v; }\n"
    (tmp_path / "negated.cuh").write_text(header)
    own = '#include <torch/extension.h>\n#include "negated.cuh"\n'
    (tmp_path / "kernel.cu").write_text(own + NEGATE.replace("-x[i]", "negated(x[i])"))
    other = NEGATE.replace("-x[i]", "2 * x[i]").replace(" run(", " twice(").replace("negate", "doubled")
    (tmp_path / "other.cu").write_text("#include <torch/extension.h>\n" + other)
    declared = f"{DECLARED}\n{DECLARED.replace(' run(', ' twice(')}"
    bound = 'm.def("run", &run); m.def("twice", &twice);'
    binding = f"#include <torch/extension.h>\n{declared}\nPYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{ {bound} }}"
    (tmp_path / "main.cpp").write_text(binding)
    built = emulator.load("from_files", [str(tmp_path / name) for name in ("kernel.cu", "other.cu", "main.cpp")])
    assert torch.equal(built.run(torch.ones(3)), -torch.ones(3))
    assert torch.equal(built.twice(torch.ones(3)), torch.full((3,), 2.0))


def test_the_example_of_the_documentation_says_what_it_prints(capsys: pytest.CaptureFixture[str]) -> None:
    text = (Path(__file__).parents[2] / "docs/emulator.md").read_text()
    example, _ = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(example, {})
    printed = capsys.readouterr().out
    (stated,) = re.findall(r"^# (out-of-bounds.*)$", example, re.MULTILINE)
    assert printed.splitlines()[-1] == stated
    assert printed.startswith("CUDA error: an illegal memory access was encountered")


def test_a_thread_that_runs_for_ever_is_ended() -> None:
    session.start().thread_limit(0.5)
    endless = NEGATE.replace("out[i] = -x[i]", "{ while (x[i] > 0) out[i] += 1; }").replace("empty_like", "zeros_like")
    built = emulator.load_inline("negate_endless", DECLARED, endless, ["run"])
    with pytest.raises(RuntimeError, match="the launch timed out"):
        built.run(torch.ones(3))
    session.start().thread_limit(10.0)
    assert emulator.faults()[0].kind == "runaway-loop"


def test_the_profiler_still_counts_what_pytorch_allocates() -> None:
    """Allocations are a verdict's cost, in a process with the emulator as in any other."""
    built = emulator.load_inline("negate", DECLARED, NEGATE, ["run"])
    x = torch.ones(1 << 18)
    costs = profile_call(lambda: built.run(x), torch.device("cpu"))
    assert (costs["allocations"], costs["peak_bytes"]) == (1, 1 << 20)


def is_lean(built: types.ModuleType) -> bool:
    return str(built.__file__).endswith("_lean.so")


def test_headers_are_pytorchs_tensors_alone_where_that_will_do() -> None:
    lean = not session.start().tools.is_clang
    assert is_lean(emulator.load_inline("lean_negate", DECLARED, NEGATE, ["run"])) is lean
    x = torch.randn(1001)
    more = emulator.load_inline("lean_relu", DECLARED, NEGATE.replace("return out", "return torch::relu(out)"), ["run"])
    assert not is_lean(more)
    assert torch.equal(more.run(x), (-x).relu())


FACTORIES = """
std::vector<torch::Tensor> run(torch::Tensor x) {
    auto given = x.options().dtype(torch::kFloat64).requires_grad(true);
    auto last = at::MemoryFormat::ChannelsLast;
    return {torch::empty({2, 3, 4, 5}, given, last),
            torch::empty_like(x, last),
            torch::empty_strided({2, 3}, {1, 2}, given),
            torch::full({2}, 1.5, given),
            torch::full_like(x, 2.5, torch::kFloat64),
            torch::ones({3}, given),
            torch::ones_like(x),
            torch::zeros({3, 1}, torch::kInt32),
            torch::zeros_like(x, torch::kHalf),
            x * 2 - 1 / x};
}
"""


def test_what_makes_tensors_is_pytorchs_own() -> None:
    built = emulator.load_inline("factories", "std::vector<torch::Tensor> run(torch::Tensor x);", FACTORIES, ["run"])
    assert is_lean(built) is not session.start().tools.is_clang
    x, double = torch.rand(2, 3, 4, 5) + 1, {"dtype": torch.float64, "requires_grad": True}
    last = {"memory_format": torch.channels_last}
    expected = [
        torch.empty((2, 3, 4, 5), **double, **last),  # type: ignore[call-overload]
        torch.empty_like(x, **last),  # type: ignore[call-overload]
        torch.empty_strided((2, 3), (1, 2), **double),  # type: ignore[call-overload]
        torch.full((2,), 1.5, **double),  # type: ignore[call-overload]
        torch.full_like(x, 2.5, dtype=torch.float64),
        torch.ones(3, **double),  # type: ignore[call-overload]
        torch.ones_like(x),
        torch.zeros(3, 1, dtype=torch.int32),
        torch.zeros_like(x, dtype=torch.float16),
        x * 2 - 1 / x,
    ]
    for place, (got, want) in enumerate(zip(built.run(x), expected, strict=True)):
        form = [(each.shape, each.stride(), each.dtype, each.requires_grad) for each in (got, want)]
        assert form[0] == form[1], place
        assert place < 3 or torch.equal(got, want), place
