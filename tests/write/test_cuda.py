"""The C++ text: golden for three pipelines, and run on the emulator against PyTorch for every operation."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.cpp_extension import COMMON_NVCC_FLAGS
from vocabulary import BINARY, UNARY, Case, places

from crucible import emulator
from crucible.algebra.evaluate import evaluate
from crucible.algebra.expression import Expr, constant, parameter, tensor, where
from crucible.algebra.gradient import derivative
from crucible.algebra.interval import single
from crucible.algebra.simplify import hoist, simplify
from crucible.print.chains import Emitted, emit, literal

GOLDEN = Path(__file__).parents[1] / "golden" / "chains"
X, Y = tensor("x"), tensor("y")


def pipeline(name: str) -> dict[str, Expr]:
    """Forward and backward of a chain, simplified."""
    chain = {
        "leaky_sum_clamp_gelu": (X.leaky_relu(0.2) + parameter("sum")).clamp(-1, 1).gelu(),
        "leaky_multiply_leaky": (X.leaky_relu(0.2) * parameter("multiplier")).leaky_relu(0.2),
        "clamp_exp_scale": X.clamp(0, 1).exp() * parameter("scale"),
    }[name]
    return dict(zip(("out", "grad_x"), simplify(chain, derivative(chain, X)).exprs, strict=True))


def written(emitted: Emitted) -> str:
    return "\n".join([*emitted.preamble, *emitted.statements, ""])


@pytest.mark.parametrize("name", ["leaky_sum_clamp_gelu", "leaky_multiply_leaky", "clamp_exp_scale"])
def test_golden(name: str, request: pytest.FixtureRequest) -> None:
    """Reviewed as text: delete the file to have it written anew."""
    results = pipeline(name)
    names = {"x": "x[i]", **{p: f"{p}[channel]" for p in ("sum", "multiplier", "scale")}, "grad": "grad_out[i]"}
    rest, shared = hoist(*results.values())
    texts = [emit(shared, names)] if shared else []
    before = texts[0].statements if shared else ()
    texts.append(emit(dict(zip(results, rest, strict=True)), names, reserved=before))
    found = "// for each channel\n".join(["", written(texts[0])]) + "// for each element\n" if shared else ""
    found += written(texts[-1])
    file = GOLDEN / f"{name}.cu"
    if not file.exists():
        file.write_text(found)
    assert found == file.read_text()


def source_of(chains: list[Expr], fast: bool = False) -> str:
    """A device function for each chain, and a kernel that calls the one asked for."""
    emitted = [emit({"result": chain}, fast=fast) for chain in chains]
    functions = [
        f"__device__ float chain_{i}(float x, float y, float grad) {{\n{lines}\n    return result;\n}}"
        for i, each in enumerate(emitted)
        for lines in ["\n".join(f"    {line}" for line in each.statements)]
    ]
    cases = "\n".join(f"        case {i}: out[i] = chain_{i}(x[i], y[i], 1.5f); break;" for i in range(len(chains)))
    preamble = dict.fromkeys(part for each in emitted for part in each.preamble)
    return "\n".join([*preamble, *functions, KERNEL.replace("CASES", cases)])


def gradient_places(case: Case) -> np.ndarray:
    """Without the sizes at which PyTorch's own float32 formulas overflow inside."""
    x = places(case)
    return x[~(np.abs(x) > 1e3)]


CHAINS = {name: case.ours(X) for name, case in UNARY.items()}
PAIRS = {name: case.ours(X, Y) for name, case in BINARY.items()}
SLOPES = {f"d {name}": derivative(chain, X) for name, chain in CHAINS.items()}
MORE = {
    "pipeline": (X.leaky_relu(0.2) + Y).clamp(-1, 1).gelu(),
    "pipeline short": simplify((X.leaky_relu(0.2) + Y).clamp(-1, 1).gelu()).exprs[0],
    "two leaky": simplify((X.leaky_relu(0.2) * Y.tanh()).leaky_relu(0.2)).exprs[0],
    "contracted": 1 - X * X + (X * 3 - Y * 0.5) - (Y - X * Y),
    "power of two": simplify(X.clamp(0, 1).exp()).exprs[0],
    "nested where": where((X > 0) | (Y <= 0.5) & ~(X < -1), where(X > 1, X, 1 - X), -(X + Y)) * -2,
    "brackets": (X - (Y - 1)) / ((X * X + 2) / (1 + Y * Y)) - ((-X).exp() - -Y),
}


@pytest.fixture(scope="module")
def computed() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Every chain on the emulator, from one source: inputs and outputs by name."""
    generator = np.random.default_rng(2)
    chains = {**CHAINS, **PAIRS, **SLOPES, **MORE}
    inputs = {name: places(UNARY[name]) for name in CHAINS}
    inputs |= {f"d {name}": gradient_places(UNARY[name]) for name in CHAINS}
    inputs |= {name: generator.normal(0, 2, 200) for name in [*PAIRS, *MORE]}
    inputs["power of two"] = places(UNARY["clamp"])
    extension = emulator.load_inline(**inline("chains", list(chains.values())), checked=False)
    found = {}
    for i, name in enumerate(chains):
        x = inputs[name].astype(np.float32)
        arguments = (torch.tensor(each) for each in (x, partner(x)))
        found[name] = (x, extension.run(*arguments, i).numpy())
    return found


def partner(x: np.ndarray) -> np.ndarray:
    """The second argument: other signs, ties and NaN."""
    return np.where(np.arange(len(x)) % 3 == 0, x, np.where(np.arange(len(x)) % 3 == 1, -0.5 * x, x[::-1])).astype(
        x.dtype
    )


KERNEL = """
__global__ void kernel(const float* x, const float* y, float* out, int n, int chain) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    switch (chain) {
CASES
    }
}
"""
LAUNCH = """
void launch(const float* x, const float* y, float* out, int n, int chain) {
    kernel<<<(n + 127) / 128, 128>>>(x, y, out, n, chain);
}
"""
RUN = """
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/types.h>

void launch(const float* x, const float* y, float* out, int n, int chain);
torch::Tensor run(torch::Tensor x, torch::Tensor y, int64_t chain) {
    auto out = torch::empty_like(x);
    launch(x.data_ptr<float>(), y.data_ptr<float>(), out.data_ptr<float>(), x.numel(), chain);
    return out;
}
"""


def inline(name: str, chains: list[Expr]) -> dict[str, Any]:
    """Arguments of `load_inline`: a function that runs the chain of a number; nvcc sees nothing of PyTorch's."""
    text = source_of(chains) + LAUNCH
    return {"name": name, "cpp_sources": RUN, "cuda_sources": text, "functions": ["run"], "no_implicit_headers": True}


@pytest.mark.parametrize("name", [*CHAINS, *PAIRS, *SLOPES, *MORE])
def test_the_text_computes_the_chain(name: str, computed: dict[str, tuple[np.ndarray, np.ndarray]]) -> None:
    """NaN and infinity where they are expected, else right to a few units of float32."""
    x, found = computed[name]
    wide = x.astype(np.float64)
    values = {"x": wide, "y": partner(wide), "grad": 1.5}
    if name in CHAINS:
        expected = UNARY[name].torchs(torch.tensor(wide)).numpy()
    elif name in PAIRS:
        expected = BINARY[name].torchs(torch.tensor(wide), torch.tensor(partner(wide))).numpy()
    else:
        expected = evaluate({**SLOPES, **MORE}[name], values)
    expected = np.broadcast_to(expected, x.shape)
    with np.errstate(over="ignore"):
        expected = np.where(np.abs(expected) > 3.4e38, expected.astype(np.float32), expected)
    close = np.isclose(found, expected, rtol=3e-6, atol=1e-6, equal_nan=True)
    assert close.all(), list(zip(x[~close], found[~close], expected[~close], strict=True))[:5]


def test_no_double_slips_in() -> None:
    """Every number that is no part of a name, an index or an exponent ends in f."""
    for chain in [*CHAINS.values(), *SLOPES.values(), *PAIRS.values(), *MORE.values()]:
        for fast in (False, True):
            for line in emit({"result": chain}, fast=fast).statements:
                code = line.partition("//")[0]
                assert not re.search(r"(?<![\w.])\d+\.?\d*(e[-+]?\d+)?(?![\w.])", code), code
                assert not re.search(r"\b(exp|log|tanh|sqrt|erf|pow|fabs|sin|cos)\(", code), code


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
def test_nvcc_takes_it_and_computes_nothing_in_double(tmp_path: Path) -> None:
    """With the fast functions, since nvcc's own sinf reduces large arguments in double."""
    source = tmp_path / "chains.cu"
    source.write_text(source_of([*CHAINS.values(), *PAIRS.values(), *SLOPES.values(), *MORE.values()], fast=True))
    command = ["nvcc", *COMMON_NVCC_FLAGS, "-ptx", "-arch=sm_80", "-o", tmp_path / "chains.ptx", source]
    subprocess.run(command, check=True)
    assert ".f64" not in (tmp_path / "chains.ptx").read_text()


@pytest.mark.parametrize(
    "value", [0.0, 0.1, 0.2, 1.0, -3.0, 20.0, 1e-5, 1e10, 1e-40, 3.4028234663852886e38, 1 / 3, 123456789.0]
)
def test_literals_are_the_shortest_that_round_trip(value: float) -> None:
    words = literal(value)
    assert single(float(words.removesuffix("f"))) == single(value)
    assert len(words) <= len(repr(np.float32(value)).removeprefix("np.float32(").removesuffix(")")) + 1
    assert "." in words or "e" in words


def test_literals_that_are_no_numbers() -> None:
    assert [literal(v) for v in (float("inf"), float("-inf"), float("nan"))] == ["INFINITY", "-INFINITY", "NAN"]


def test_names_do_not_collide() -> None:
    chain = (parameter("gelu") + X).gelu() * X.gelu()
    text = "\n".join(emit({"clamp": chain.clamp(0, 1)}, {"gelu": "gelu[c]", "x": "max_nan"}).statements)
    declared = re.findall(r"(?:float|bool) (\w+) =", text)
    assert len(set(declared)) == len(declared)
    assert not {"gelu", "max_nan"} & set(declared)
    assert declared[-1] == "clamp"


def test_results_share_and_conditions_are_bool() -> None:
    emitted = emit(
        {"value": X.exp() + 1, "slope": X.exp(), "mask": X > 0, "same": X.exp(), "copy": X, "one": constant(1)}
    )
    text = "\n".join(emitted.statements)
    assert text.count("expf(x)") == 1
    products = "\n".join(emit({"sum": X * Y + 1, "product": X * Y}).statements)
    assert products == "const float product = x * y;\nconst float sum = product + 1.0f;"
    assert "const bool mask = x > 0.0f;" in text
    assert "const float same = slope;" in text
    assert "const float copy = x;" in text
    assert "const float one = 1.0f;" in text


def test_in_double_nothing_is_single() -> None:
    """No literal nor function of float, and no variable hides the function that it is computed by."""
    for chain in [*CHAINS.values(), *SLOPES.values()]:
        lines = emit({"result": chain}, precision="float64").statements
        code = "\n".join(line.partition("//")[0].replace("static_cast<float>", "") for line in lines)
        assert not re.search(r"\d\.?\d*(e[-+]?\d+)?f\b|\b(float|expf|tanhf|fabsf|fmaf|erff|logf)\b", code), code
        assert not re.search(r"double (\w+) = [^;]*\b\1\(", code), code
    assert literal(0.1, "float64") == "0.1"
    with pytest.raises(ValueError, match="float64"):
        emit({"result": X}, fast=True, precision="float64")


DIVISIONS = {
    "sigmoid": (X.sigmoid(), True),
    "silu": (X.silu(), True),
    "softsign": (X / (X.relu() + (-X).relu() + 1), True),
    "of a clamped one": (Y / X.clamp(0.25, 9), True),
    "of one that may be subnormal": (Y / (X * X + 1e-38), False),
    "of one that may be 0": (Y / X.exp(), False),
    "of any": (Y / X, False),
    "reciprocal of any": (X.reciprocal(), False),
    "of a constant": (X / 3, False),
    "of one that is always the same": (Y / X.clamp(3, 3), False),
    "of one below 0": (Y / (-1 - X.exp()), False),
}


@pytest.mark.parametrize("what", DIVISIONS)
def test_divisions_branch_only_where_a_divisor_may_be_too_small(what: str) -> None:
    chain, plain = DIVISIONS[what]
    found = emit({"out": chain})
    assert ("reciprocal_approx(" in written(found)) == plain
    assert ("/" in found.statements[-1]) == (not plain)
    assert "reciprocal_approx" not in written(emit({"out": chain}, fast=True))
    assert "reciprocal_approx" not in written(emit({"out": chain}, precision="float64"))


def test_fast_functions_only_where_asked_for() -> None:
    plain, fast = (written(emit({"out": X.silu() + X.log()}, fast=fast)) for fast in (False, True))
    assert "__" not in plain.replace("__device__ __forceinline__", "")
    assert {"__expf", "__fdividef", "__logf"} <= set(re.findall(r"\w+", fast))
    assert emit({"out": X.exp()}).preamble == ()
