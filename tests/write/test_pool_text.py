"""Pools without running them: which chains sink, the text of typical kernels, and what nvcc makes of it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pool_harness import Case, case
from random_chains import Tree, ours, trees
from torch.utils.cpp_extension import COMMON_NVCC_FLAGS

from crucible.algebra.evaluate import Array, evaluate
from crucible.algebra.expression import inputs, name_of, parameter, substitute, tensor
from crucible.algebra.pool import Pool, Window, adaptive, collapsed_pool
from crucible.algebra.program import Operand, Result
from crucible.algebra.sinking import LARGEST, SMALLEST, sink
from crucible.errors import MisuseError
from crucible.kinds.pooling.backward import lower_pool_backward, useful
from crucible.kinds.pooling.forward import lower_pool
from crucible.print.written import Kernel, Lowered
from support import NIGHTLY

GOLDEN = Path(__file__).parents[1] / "golden" / "families"
X, M = tensor("x"), parameter("m")
TYPICAL = {
    "leaky_multiply_leaky_max_pool": case(
        "max_pool", "max", (16, 32, 32, 64, 64), (2, 2, 2), before="leaky"
    ),
    "avg_pool_to_channels_last": case(
        "avg_pool", "avg", (32, 32, 32, 64, 64), (2, 2, 2), output_last=True
    ),
    "half_relu_overlapping_max_pool": case(
        "max_pool", "max", (8, 64, 112, 112), (3, 3), (2, 2), (1, 1), before="relu", dtype="float16"
    ),
    "padded_avg_pool_silu": case(
        "avg_pool", "avg", (4, 16, 33, 33), (3, 3), (2, 2), (1, 1), ceil_mode=True, count_include_pad=False,
        before="gelu", after="silu",
    ),
}  # fmt: skip


def kernels(of: Case) -> list[Kernel]:
    """Forward and backward, with what the backward needs saved."""
    names = list(of.shapes)
    kept = useful(of.pool, names, "grad_out")
    steps = [lower_pool(of.pool, save=kept), *lower_pool_backward(of.pool, names, "grad_out", kept).steps]
    return [kernel for step in steps if isinstance(step, Lowered) for kernel in step.kernels]


def source(found: list[Kernel]) -> str:
    preamble = dict.fromkeys(part for kernel in found for part in kernel.preamble)
    return "\n\n".join([*preamble, *(kernel.text for kernel in found), ""])


@pytest.mark.parametrize("name", TYPICAL)
def test_golden(name: str) -> None:
    """To renew: UPDATE_GOLDEN=1, and read the difference."""
    found = kernels(TYPICAL[name])
    grids = [f"// {kernel.name}: {kernel.grid[0]} blocks of {kernel.threads}" for kernel in found]
    text = "\n".join([*grids, "", source(found)])
    file = GOLDEN / f"{name}.cu"
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")
    assert max(map(len, text.splitlines())) <= 130


def beyond_32_bits() -> list[Kernel]:
    of = case("large", "max", (3, 3, 2, 2), (2, 2), before="leaky")
    windows = tuple(Window(2, 2, 16384, 8192) for _ in range(2))
    strides = tuple(16384**2 * s for s in (3, 1))
    x = replace(of.pool.operands[0], strides=(*strides, 16384, 1))
    result = replace(of.pool.result, strides=(3 * 8192**2, 8192**2, 8192, 1))
    large = replace(of.pool, windows=windows, operands=(x, of.pool.operands[1]), result=result)
    return kernels(replace(of, pool=large))


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90a"])
def test_nvcc_takes_them_without_spilling(architecture: str, tmp_path: Path) -> None:
    named = [(i, kernel) for i, of in enumerate(TYPICAL.values()) for kernel in kernels(of)]
    renamed = [replace(k, text=k.text.replace(f" {k.name}", f" {k.name}_{i}")) for i, k in named]
    (tmp_path / "pools.cu").write_text(source([*renamed, *beyond_32_bits()]))
    command = [
        "nvcc",
        *COMMON_NVCC_FLAGS,
        "-cubin",
        f"-arch={architecture}",
        "-Xptxas",
        "-v",
        "-Werror",
        "all-warnings",
    ]
    done = subprocess.run([*command, "-o", "pools.cubin", "pools.cu"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count(" 0 bytes spill stores") == len(renamed) + 2, done.stderr


def test_large_tensors_have_64_bit_places() -> None:
    for kernel in beyond_32_bits():
        assert "const long long x_at = " in kernel.text
        assert re.search(r"constexpr long long x_stride_(plane|c) = 268435456;", kernel.text)


def rows_of_16(before: object, shared: bool = True) -> Pool:
    """One row after another of four windows of 4."""
    operands = (Operand("x", "float32", (16, 1)), Operand("y", "float32", (1, 0), shared))
    result = Result("out", "float32", (4, 1), tensor("pooled"))
    return Pool("p", "max", (64,), (Window(4, 4, 16, 4),), operands, before, (), result)  # type: ignore[arg-type]


@given(trees(), st.integers(0, 2**31))
@example(("div", "x", "y"), 0)
@example(("rsqrt", "x"), 0)
@settings(max_examples=300 if NIGHTLY else 100, deadline=None)
def test_what_sinks_gives_the_same_values(tree: Tree, seed: int) -> None:
    chain = substitute(ours(tree), {tensor("y"): parameter("y")})
    pool = rows_of_16(chain)
    generator = np.random.default_rng(seed)
    x = generator.normal(0, 3, (64, 4, 4)).round(1)
    x[generator.random(x.shape) < 0.05] = np.nan
    x[generator.random(x.shape) < 0.05] = np.inf
    x[generator.random(x.shape) < 0.05] = -np.inf
    y = generator.normal(0, 1, (64, 1, 1)).round(0)
    expected = largest(np.broadcast_to(evaluate(chain, {"x": x, "y": y}), x.shape))
    sunk = sink(pool)
    inner = np.broadcast_to(evaluate(sunk.inner, {"x": x, "y": y}), x.shape).astype(np.float64)
    ends = {name_of(LARGEST): largest(inner), name_of(SMALLEST): -largest(-inner), "y": y[:, 0]}
    found = np.broadcast_to(evaluate(sunk.pooled, ends), expected.shape)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)


def largest(values: Array) -> Array:
    return np.max(values, axis=-1)


@pytest.mark.parametrize(
    ("chain", "inner", "ends"),
    [
        ((X * 2 + M).relu(), X, {LARGEST}),
        ((1 - X).tanh(), X, {SMALLEST}),
        ((X.leaky_relu(0.2) * M).leaky_relu(0.2), X, {LARGEST, SMALLEST}),
        (X.gelu() * 2 + M, X.gelu(), {LARGEST}),
        (X * parameter("y", "float32") * X, None, {LARGEST}),
        ((X + tensor("z")).sigmoid(), X + tensor("z"), {LARGEST}),
        (X.log(), X, {LARGEST, SMALLEST}),
        (X / M, None, {LARGEST}),
        (X / (M.square() + 1), X, {LARGEST}),
        (X * (M + 1e-5).rsqrt(), None, {LARGEST}),
        (X.rsqrt(), None, {LARGEST}),
        ((X.exp() + 1).rsqrt(), X, {SMALLEST}),
    ],
)
def test_how_much_sinks(chain: object, inner: object, ends: object) -> None:
    pool = rows_of_16(chain)
    shared = Operand("m", "float32", (1, 0), shared=True)
    sunk = sink(replace(pool, operands=(*pool.operands, shared, Operand("z", "float32", (16, 1)))))
    assert sunk.inner is (chain if inner is None else inner)
    assert set(sunk.ends) == ends
    assert len(sunk.note) > 20


def test_a_parameter_that_differs_within_windows_does_not_sink() -> None:
    pool = rows_of_16(X * parameter("place") + 1)
    placed = replace(pool, operands=(pool.operands[0], Operand("place", "float32", (0, 1), shared=True)))
    assert sink(placed).inner is X * parameter("place")


windows = st.builds(
    Window,
    size=st.integers(1, 4),
    stride=st.integers(1, 5),
    extent=st.integers(1, 9),
    outputs=st.integers(1, 4),
    padding=st.integers(0, 2),
    dilation=st.integers(1, 3),
) | st.builds(adaptive, st.integers(1, 9), st.integers(1, 9))


@given(windows)
def test_what_windows_say_of_themselves(window: Window) -> None:
    every = [list(window.elements(output)) for output in range(window.outputs)]
    places = [place for each in every for place in each]
    assert all(0 <= place < window.extent for place in places)
    assert max(map(len, every)) <= window.size
    if window.apart:
        assert len(set(places)) == len(places)
    if window.tiles:
        assert sorted(places) == list(range(window.extent))
        assert {len(each) for each in every} == {window.size}
    if not window.adaptive and not window.before_start and not window.over_end:
        assert {len(each) for each in every} == {window.size}


def test_outer_dims_merge_where_every_tensor_allows() -> None:
    assert collapsed_pool(case("a", "max", (4, 3, 8), (2,)).pool).outer == (12,)
    assert collapsed_pool(case("b", "max", (4, 3, 8), (2,), before="relu").pool).outer == (4, 3)
    assert collapsed_pool(case("c", "max", (4, 1, 8), (2,), before="relu").pool).outer == (4,)


def test_what_no_pool_is_gets_refused() -> None:
    pool = rows_of_16(X)
    with pytest.raises(MisuseError, match="windows without an element: pad less"):
        replace(pool, windows=(Window(1, 4, 16, 4, padding=3),))
    with pytest.raises(MisuseError, match="has no dilation, not 2"):
        replace(pool, kind="avg", windows=(Window(2, 4, 16, 4, dilation=2),))
    with pytest.raises(MisuseError, match="over 1 to 3 dims, not 'min' over 1"):
        replace(pool, kind="min")


def test_every_read_of_a_kernel_is_a_tensor_of_the_pool() -> None:
    for of in TYPICAL.values():
        known = {*(leaf for leaf in of.shapes), "grad_out"}
        known |= {"max_pool_choice", "avg_pool_pooled", "grad_avg_pool_pooled"}
        assert inputs(of.pool.before)
        assert all(set(kernel.reads) <= known for kernel in kernels(of))
