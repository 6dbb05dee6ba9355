"""Pools on the emulator against PyTorch in float64, forward and backward."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch
from pool_harness import DTYPES, Built, Case, Tensors, build, case, dtypes, run_steps, storage

from crucible import emulator
from crucible.algebra.program import Operand
from crucible.kinds.pooling.backward import lower_pool_backward, useful
from crucible.kinds.pooling.forward import lower_pool, saved
from crucible.kinds.pooling.layout import extent
from crucible.kinds.steps import Steps
from crucible.print.written import Lowered

pytestmark = pytest.mark.usefixtures("no_faults")
APART = [
    case("leaky3d", "max", (2, 3, 4, 8, 16), (2, 2, 2), before="leaky"),
    case("mean3d", "avg", (2, 3, 4, 4, 8), (2, 2, 2)),
    case("plain2d", "max", (2, 3, 8, 8), (2, 2)),
    case("ceil2d", "max", (2, 3, 7, 5), (2, 2), ceil_mode=True, before="relu", after="scaled"),
    case("margin2d", "max", (2, 3, 7, 9), (2, 3), stride=(3, 4), before="falling"),
    case("gelu1d", "max", (2, 3, 24), (3,), before="gelu", after="silu"),
    case("residual2d", "max", (2, 3, 4, 8), (2, 2), before="residual", after="scaled"),
    case("tiny", "max", (2, 3, 4), (2,), before="leaky", after="scaled"),
    case("chunks", "max", (1, 2, 64, 66), (2, 2), before="leaky", after="scaled"),
    case("residual_mean", "avg", (2, 3, 4, 8), (2, 4), before="residual", after="silu"),
    case("mean_margin", "avg", (2, 3, 7, 9), (2, 2), stride=(3, 2), ceil_mode=True, before="square", after="scaled"),
    case("last_in", "max", (2, 4, 6, 6), (2, 2), before="leaky", input_last=True, output_last=True),
    case("last_out", "avg", (2, 8, 4, 4, 4), (2, 2, 2), before="relu", output_last=True),
    case("first_out", "max", (2, 8, 4, 8), (2, 1), before="relu", after="scaled", input_last=True),
    case("names", "max", (2, 3, 4, 4), (2, 2), before="names"),
    case("gated_apart", "avg", (2, 3, 4, 6), (2, 2), before="gated"),
    case("ones", "max", (1, 1, 4, 1), (2, 1), before="leaky", after="scaled"),
    case("empty", "max", (0, 3, 4, 4), (2, 2), before="leaky"),
    case("half3d", "max", (2, 3, 4, 4, 16), (2, 2, 2), before="leaky", dtype="float16"),
    case("brain2d", "avg", (2, 3, 4, 8), (2, 2), before="relu", after="scaled", dtype="bfloat16"),
    case("again_mean", "avg", (2, 3, 8), (2,), before="square", after="silu"),
]
OVERLAPPING = [
    case("padded2d", "max", (2, 3, 7, 9), (3, 3), (2, 2), (1, 1), before="leaky"),
    case("plain_padded", "max", (2, 3, 7, 9), (3, 3), (2, 2), (1, 1)),
    case("dilated2d", "max", (2, 3, 9, 9), (3, 2), (2, 1), (1, 1), (2, 3), before="gelu", after="scaled"),
    case("padded1d", "max", (2, 3, 10), (3,), (1,), (1,), before="falling"),
    case("mean_padded", "avg", (2, 3, 7, 9), (3, 3), (2, 2), (1, 1), ceil_mode=True, before="relu", after="silu"),
    case("padded_residual", "max", (2, 3, 5, 6), (3, 2), (2, 1), (1, 1), before="residual", after="scaled"),
    case("halved", "max", (2, 3, 6, 6), (2, 2), (2, 2), (1, 1), before="leaky", input_last=True, output_last=True),
    case("mean_inside", "avg", (2, 3, 7, 9), (3, 3), (2, 2), (1, 1), count_include_pad=False),
    case("divided3d", "avg", (1, 2, 5, 5, 5), (2, 3, 2), (1, 2, 2), (1, 1, 0), ceil_mode=True, divisor=5),
    case("adaptive2d", "avg", (2, 3, 7, 9), (1, 1), adaptive=(3, 4), before="relu"),
    case("adaptive_max", "max", (2, 3, 7, 8), (1, 1), adaptive=(3, 2), before="relu", after="scaled"),
    case("gated2d", "avg", (2, 2, 9, 4), (3, 3), (1, 1), (1, 1), after="gated"),
    case("half_padded", "max", (2, 3, 8, 8), (3, 3), (2, 2), (1, 1), before="relu", dtype="float16"),
]
KEPT = [
    case("kept2d", "max", (2, 3, 7, 9), (3, 3), (2, 2), (1, 1), before="leaky", after="silu"),
    case("kept_mean", "avg", (2, 3, 9), (3,), (2,), (1,), after="silu"),
    case("kept_tiling", "max", (2, 4, 4, 6), (2, 2), (2, 2), (1, 0), before="relu", after="scaled", output_last=True),
]
CASES = {each.pool.name: each for each in [*APART, *OVERLAPPING, *KEPT]}
KEEPING = {each.pool.name for each in KEPT}
CLOSE = {"float32": 2e-5, "float16": 2e-3, "bfloat16": 1.6e-2}


@dataclass(frozen=True)
class Kernels:
    """All kernels of all cases, from one source."""

    built: Built
    forward: dict[str, Lowered]
    backward: dict[str, Steps]


@pytest.fixture(scope="module")
def kernels() -> Kernels:
    forward, backward = {}, {}
    for name, each in CASES.items():
        kept = useful(each.pool, list(each.shapes), "grad_out") if name in KEEPING else ()
        assert bool(kept) == (name in KEEPING)
        forward[name] = lower_pool(each.pool, save=kept)
        backward[name] = lower_pool_backward(each.pool, list(each.shapes), "grad_out", kept)
    lowered = [*forward.values(), *(step for steps in backward.values() for step in steps.steps)]
    kernels = [kernel for one in lowered if isinstance(one, Lowered) for kernel in one.kernels]
    known = {name: dtypes(CASES[name].pool, backward[name]) for name in CASES}
    types = {kernel.name: known[kernel.name.removesuffix("_backward").removesuffix("_again")] for kernel in kernels}
    return Kernels(build("pools", kernels, types), forward, backward)


def filled(of: Case, how: str) -> Tensors:
    """Inputs: any numbers, few numbers (so that many are equal), or some that are none. As stored."""
    generator = torch.Generator().manual_seed(len(of.pool.name))
    found = {}
    for name, shape in of.shapes.items():
        value = torch.randn(shape, generator=generator)
        value = value if how == "any" else value.round()
        if how == "strange" and name == "x":
            odd = torch.tensor([float("nan"), float("-inf"), 2.0])[torch.randint(0, 3, shape, generator=generator)]
            value = torch.where(torch.rand(shape, generator=generator) < 0.4, odd, value)
        found[name] = value.to(DTYPES[of.pool.result.dtype])
    return found


def operands(of: Case) -> tuple[Operand, ...]:
    return (*of.pool.operands, *of.pool.after_operands)


def flat(of: Case, given: Tensors) -> Tensors:
    """As the kernels take them."""
    return {each.name: storage(given[each.name], own(each, given), each.dtype) for each in operands(of)}


def own(operand: Operand, given: Tensors) -> list[int]:
    """The strides of a tensor with dims of one element where it broadcasts."""
    return [s if n > 1 else 0 for s, n in zip(operand.strides, given[operand.name].shape, strict=True)]


def forward(of: Case, given: Tensors, kernels: Kernels) -> Tensors:
    """What the kernel writes, flat: the result, and what it saves."""
    known = flat(of, given)
    for each in (of.pool.result, *saved(of.pool)):
        size = extent(each.strides, of.pool.output_shape) if 0 not in of.pool.output_shape else 0
        known[each.name] = torch.full((size,), 7, dtype=DTYPES[each.dtype])
    kernels.built(kernels.forward[of.pool.name], known)
    return known


@pytest.mark.parametrize("how", ["any", "ties", "strange"])
@pytest.mark.parametrize("name", CASES)
def test_values(name: str, how: str, kernels: Kernels) -> None:
    of = CASES[name]
    given = filled(of, how)
    expected = of.module({key: value.double() for key, value in given.items()})
    out = forward(of, given, kernels)["out"].as_strided(expected.shape, of.pool.result.strides)
    close = CLOSE[of.pool.result.dtype]
    torch.testing.assert_close(out.double(), expected, rtol=close, atol=close, equal_nan=True)


def gradients(of: Case, given: Tensors, upstream: torch.Tensor, kernels: Kernels) -> Tensors:
    """Flat, laid like the operands."""
    steps = kernels.backward[of.pool.name]
    known = forward(of, given, kernels) if of.pool.name in KEEPING else flat(of, given)
    known["grad_out"] = storage(upstream, of.pool.result.strides, of.pool.result.dtype)
    sizes = {f"grad_{key}": value.numel() for key, value in flat(of, given).items()}
    return run_steps(kernels.built, steps, known, sizes, dtypes(of.pool, steps))


def reference(of: Case, given: Tensors, upstream: torch.Tensor) -> Tensors:
    wide = {key: value.double().requires_grad_() for key, value in given.items()}
    found = torch.autograd.grad(of.module(wide), list(wide.values()), upstream.double())
    return dict(zip(wide, found, strict=True))


@pytest.mark.parametrize("how", ["any", "ties"])
@pytest.mark.parametrize("name", CASES)
def test_gradients(name: str, how: str, kernels: Kernels) -> None:
    of = CASES[name]
    given = filled(of, how)
    upstream = torch.randn(of.pool.output_shape, generator=torch.Generator().manual_seed(5))
    upstream = upstream.to(DTYPES[of.pool.result.dtype])
    expected, found = reference(of, given, upstream), gradients(of, given, upstream, kernels)
    assert set(found) == {f"grad_{key}" for key in given}
    close = CLOSE[of.pool.result.dtype]
    for operand in operands(of):
        wanted = storage(expected[operand.name], own(operand, given), "float64")
        value = found[f"grad_{operand.name}"].double()
        torch.testing.assert_close(value, wanted, rtol=close, atol=close, msg=lambda m, n=operand.name: f"{n}: {m}")


@pytest.mark.parametrize("name", ["plain2d", "plain_padded"])
def test_the_gradient_goes_where_pytorch_sends_it(name: str, kernels: Kernels) -> None:
    """To the first of the largest, but to the last NaN."""
    of = CASES[name]
    given = filled(of, "strange")
    upstream = torch.randn(of.pool.output_shape, generator=torch.Generator().manual_seed(5))
    found = gradients(of, given, upstream, kernels)["grad_x"].reshape(of.pool.input_shape)
    torch.testing.assert_close(found.double(), reference(of, given, upstream)["x"])


@pytest.mark.parametrize("order", ["reverse", "random"])
def test_the_same_in_any_order(order: str, kernels: Kernels) -> None:
    of = CASES["chunks"]
    given = filled(of, "any")
    upstream = torch.randn(of.pool.output_shape, generator=torch.Generator().manual_seed(5))
    first = gradients(of, given, upstream, kernels)
    with emulator.schedule(order):
        again = gradients(of, given, upstream, kernels)
    assert all(torch.equal(first[name], again[name]) for name in first)


@pytest.mark.parametrize("name", ["leaky3d", "mean3d", "half3d"])
def test_tiling_windows_are_read_whole_sectors_at_a_time(name: str, kernels: Kernels) -> None:
    of = CASES[name]
    with emulator.trace() as seen:
        forward(of, filled(of, "any"), kernels)
    reading = [line for line in seen.lines if line.operation == "load" and line.width == 16]
    assert reading
    assert all(line.sectors == line.ideal_sectors for line in reading)


def test_nothing_is_wanted_nothing_is_done() -> None:
    pool = CASES["leaky3d"].pool
    assert lower_pool_backward(pool, [], "grad_out") == Steps((), (), ())
    flat_ = replace(pool, result=replace(pool.result, expr=pool.pooled * 0.0 + 1.0))
    assert "grad_x" in lower_pool_backward(flat_, ["x"], "grad_out").results


def test_what_is_not_read_has_no_gradient() -> None:
    pool = CASES["ceil2d"].pool
    bare = replace(pool, before=pool.operands[0].leaf)
    assert lower_pool_backward(bare, ["x", "bias", "skip"], "grad_out").results == ("grad_x", "grad_skip")
