"""Pools on the emulator against PyTorch in float64, forward and backward; their text; nvcc."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import torch
from pool_harness import Built, Case, Tensors, build, case, dtypes, run_steps, storage

from crucible import emulator
from crucible.write.kernel import Lowered
from crucible.write.pooling.backward import lower_pool_backward
from crucible.write.pooling.forward import lower_pool
from crucible.write.pooling.frame import extent
from crucible.write.pooling.targets import Steps
from crucible.write.program import Operand

APART = [
    case("leaky3d", "max", (2, 3, 4, 6, 8), (2, 2, 2), before="leaky"),
    case("mean3d", "avg", (2, 3, 4, 4, 8), (2, 2, 2)),
    case("ceil2d", "max", (2, 3, 7, 5), (2, 2), ceil_mode=True, before="relu", after="scaled"),
    case("margin2d", "max", (2, 3, 7, 9), (2, 3), stride=(3, 4), before="falling"),
    case("gelu1d", "max", (2, 3, 24), (3,), before="gelu", after="silu"),
    case("residual2d", "max", (2, 3, 4, 8), (2, 2), before="residual", after="scaled"),
    case("tiny", "max", (2, 3, 4), (2,), before="leaky", after="scaled"),
    case("residual_mean", "avg", (2, 3, 4, 8), (2, 4), before="residual", after="silu"),
    case("mean_margin", "avg", (2, 3, 7, 9), (2, 2), stride=(3, 2), ceil_mode=True, before="square", after="scaled"),
    case("last_in", "max", (2, 4, 6, 6), (2, 2), before="leaky", input_last=True, output_last=True),
    case("last_out", "avg", (2, 8, 4, 4, 4), (2, 2, 2), before="relu", output_last=True),
    case("empty", "max", (0, 3, 4, 4), (2, 2), before="leaky"),
]
OVERLAPPING = [
    case("padded2d", "max", (2, 3, 7, 9), (3, 3), (2, 2), (1, 1), before="leaky"),
    case("dilated2d", "max", (2, 3, 9, 9), (3, 2), (2, 1), (1, 1), (2, 3), before="gelu", after="scaled"),
    case("padded1d", "max", (2, 3, 10), (3,), (1,), (1,), before="falling"),
    case("mean_padded", "avg", (2, 3, 7, 9), (3, 3), (2, 2), (1, 1), ceil_mode=True, before="relu", after="silu"),
    case("padded_residual", "max", (2, 3, 5, 6), (3, 2), (2, 1), (1, 1), before="residual", after="scaled"),
    case("halved", "max", (2, 3, 6, 6), (2, 2), (2, 2), (1, 1), before="leaky", input_last=True, output_last=True),
    case("mean_inside", "avg", (2, 3, 7, 9), (3, 3), (2, 2), (1, 1), count_include_pad=False),
    case("divided3d", "avg", (1, 2, 5, 5, 5), (2, 3, 2), (1, 2, 2), (1, 1, 0), ceil_mode=True, divisor=5),
    case("adaptive2d", "avg", (2, 3, 7, 9), (1, 1), adaptive=(3, 4), before="relu"),
    case("adaptive_max", "max", (2, 3, 7, 8), (1, 1), adaptive=(3, 2), before="relu", after="scaled"),
]
CASES = {each.pool.name: each for each in [*APART, *OVERLAPPING]}


@dataclass(frozen=True)
class Kernels:
    """All kernels of all cases, from one source."""

    built: Built
    forward: dict[str, Lowered]
    backward: dict[str, Steps]


@pytest.fixture(scope="module")
def kernels() -> Kernels:
    forward = {name: lower_pool(each.pool) for name, each in CASES.items()}
    backward = {name: lower_pool_backward(CASES[name].pool, list(CASES[name].shapes), "grad_out") for name in CASES}
    lowered = [*forward.values(), *(step for steps in backward.values() for step in steps.steps)]
    each = [kernel for one in lowered if isinstance(one, Lowered) for kernel in one.kernels]
    known = {name: dtypes(CASES[name].pool, backward[name]) for name in CASES}
    types = {kernel.name: known[kernel.name.removesuffix("_backward").removesuffix("_again")] for kernel in each}
    return Kernels(build("pools", each, types), forward, backward)


@pytest.fixture(autouse=True)
def no_faults() -> Iterator[None]:
    emulator.forget()
    yield
    assert [fault.words for fault in emulator.faults() if fault.kind != "never-ran"] == []


def filled(of: Case, how: str) -> Tensors:
    """Inputs: any numbers, few numbers (so that many are equal), or some that are none."""
    generator = torch.Generator().manual_seed(len(of.pool.name))
    found = {}
    for name, shape in of.shapes.items():
        value = torch.randn(shape, generator=generator)
        value = value if how == "any" else value.round()
        if how == "strange" and name == "x":
            odd = torch.tensor([float("nan"), float("-inf"), 2.0])[torch.randint(0, 3, shape, generator=generator)]
            value = torch.where(torch.rand(shape, generator=generator) < 0.4, odd, value)
        found[name] = value
    return found


def flat(of: Case, given: Tensors) -> Tensors:
    """As the kernels take them."""
    return {each.name: storage(given[each.name], own(each, given), each.dtype) for each in operands(of)}


def operands(of: Case) -> tuple[Operand, ...]:
    return (*of.pool.operands, *of.pool.after_operands)


def own(operand: Operand, given: Tensors) -> list[int]:
    """The strides of a tensor with dims of one element where it broadcasts."""
    return [s if n > 1 else 0 for s, n in zip(operand.strides, given[operand.name].shape, strict=True)]


@pytest.mark.parametrize("how", ["any", "ties", "strange"])
@pytest.mark.parametrize("name", CASES)
def test_values(name: str, how: str, kernels: Kernels) -> None:
    of = CASES[name]
    given = filled(of, how)
    expected = of.module({key: value.double() for key, value in given.items()})
    result = of.pool.result
    out = torch.full((extent(result.strides, expected.shape) if expected.numel() else 0,), 7.0)
    kernels.built(kernels.forward[name], {**flat(of, given), "out": out})
    found = out.as_strided(expected.shape, result.strides)
    torch.testing.assert_close(found.double(), expected, rtol=3e-6, atol=3e-6, equal_nan=True)


@pytest.mark.parametrize("how", ["any", "ties"])
@pytest.mark.parametrize("name", CASES)
def test_gradients(name: str, how: str, kernels: Kernels) -> None:
    of = CASES[name]
    given = filled(of, how)
    wide = {key: value.double().requires_grad_() for key, value in given.items()}
    out = of.module(wide)
    upstream = torch.randn(out.shape, generator=torch.Generator().manual_seed(5))
    expected = dict(zip(wide, torch.autograd.grad(out, list(wide.values()), upstream.double()), strict=True))
    steps = kernels.backward[name]
    known = {**flat(of, given), "grad_out": storage(upstream, of.pool.result.strides, "float32")}
    targets = {f"grad_{key}": value.numel() for key, value in flat(of, given).items()}
    found = run_steps(kernels.built, steps, known, targets, dtypes(of.pool, steps))
    assert set(found) == {f"grad_{key}" for key in given}
    for operand in operands(of):
        wanted = storage(expected[operand.name], own(operand, given), "float64")
        value = found[f"grad_{operand.name}"].double()
        torch.testing.assert_close(value, wanted, rtol=2e-5, atol=2e-5, msg=lambda m, n=operand.name: f"{n}: {m}")
