"""Kernels of pools mean what PyTorch computes: run on the CPU before there is any text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from kernel_mutants import changed
from pool_harness import Case, case, evaluated, storage
from test_pools import CASES, flat, own, reference

import support
from crucible.kernel import nodes as ir
from crucible.kernel.meaning import OutOfBounds, run
from crucible.kernel.verify import verify
from crucible.kinds.built import Built
from crucible.kinds.pooling.backward import build_pool_backward, useful
from crucible.kinds.pooling.forward import build_pool

NEAR = 1e-6
Arrays = dict[str, np.ndarray[Any, Any]]
Change = Callable[[Any], ir.Node]


def drawn(seed: int) -> Case:
    """Windows that nobody would take: over both ends, far apart, dilated, in any layout."""
    draw = np.random.default_rng(seed)

    def some(low: int, high: int) -> list[int]:
        return [int(each) for each in draw.integers(low, high, rank)]

    rank, kind, last_in, last_out = int(draw.integers(1, 4)), *(draw.integers(2, size=3))
    size = some(1, 4)
    dilation = some(1, 3) if kind else [1] * rank
    padding = [int(draw.integers(0, each // 2 + 1)) for each in size]
    extents = [int(draw.integers(d * (s - 1) + 1, 11)) for s, d in zip(size, dilation, strict=True)]
    kind_, chains = ("avg", "max")[kind], ("none", "leaky", "residual", "square")
    before, after = str(draw.choice(chains)), str(draw.choice(["none", "scaled"]))
    shape = (int(draw.integers(1, 3)), int(draw.choice([3, 8])), *extents)
    return case(
        "drawn", kind_, shape, size, some(1, 5), padding, dilation, bool(draw.integers(2)), before, after,
        bool(last_in), bool(last_out), bool(draw.integers(2)),
    )  # fmt: skip


ALL = {**{name: of for name, of in CASES.items() if name != "empty"}, **{f"drawn {k}": drawn(k) for k in range(24)}}


def wide(of: Case, seed: int = 3) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(shape, generator=generator, dtype=torch.float64) for name, shape in of.shapes.items()}


def ran(kernels: tuple[ir.Kernel, ...], known: Arrays) -> Arrays:
    for each in kernels:
        assert verify(each) == ()
        known = known | run(each, known)
    return known


def arrays(of: Case, given: dict[str, torch.Tensor]) -> Arrays:
    doubled = replace(of, pool=replace(of.pool, operands=_doubles(of.pool.operands),
                                       after_operands=_doubles(of.pool.after_operands)))  # fmt: skip
    return {name: value.numpy() for name, value in flat(doubled, given).items()}


def _doubles(operands: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(replace(each, dtype="float64") for each in operands)


def assert_forward(of: Case, kernels: tuple[ir.Kernel, ...]) -> None:
    given = wide(of)
    wanted = of.module(given)
    found = torch.from_numpy(ran(kernels, arrays(of, given))["out"])
    torch.testing.assert_close(found.as_strided(wanted.shape, of.pool.result.strides), wanted, rtol=NEAR, atol=NEAR)


@pytest.mark.parametrize("name", ALL)
def test_values(name: str) -> None:
    assert_forward(ALL[name], build_pool(ALL[name].pool).kernels)


def assert_backward(of: Case, change: Callable[[ir.Kernel], ir.Kernel] = lambda kernel: kernel) -> None:
    """With what forward saves, and without."""
    given, pool = wide(of), of.pool
    upstream = torch.randn(pool.output_shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    expected, kept = reference(of, given, upstream), useful(pool, list(of.shapes), "grad_out")
    for saves in {kept, ()}:
        known = ran(build_pool(pool, save=saves).kernels, arrays(of, given))
        known |= {"grad_out": storage(upstream, pool.result.strides, "float64").numpy()}
        for step in build_pool_backward(pool, list(of.shapes), "grad_out", saves).steps:
            if isinstance(step, Built):
                known = ran(tuple(map(change, step.kernels)), known)
            else:
                known |= evaluated(step, {each.name: known[each.name] for each in step.operands})
        for each in (*pool.operands, *pool.after_operands):
            wanted = storage(expected[each.name], own(each, given), "float64")
            found = torch.from_numpy(known[f"grad_{each.name}"])
            torch.testing.assert_close(found, wanted, rtol=NEAR, atol=NEAR, msg=lambda m, n=each.name: f"{n}: {m}")


@pytest.mark.parametrize("name", support.some(list(ALL), 3))
def test_gradients(name: str) -> None:
    assert_backward(ALL[name])


def test_two_channels_choices_are_written_as_two_bytes() -> None:
    """Packs are as large as what they hold: of four bytes, the next windows' choices would be among them."""
    of = case("pair", "max", (1, 2, 5, 5), (3, 3), (2, 2), (1, 1), before="square", output_last=True)
    (kernel,) = build_pool(of.pool, save=("pair_choice",)).kernels
    stores = [each for each in ir.every(kernel.body) if isinstance(each, ir.Store) and each.value.is_pack]
    assert {each.value.vector for each in stores} == {2}
    assert_backward(of)


# what it sees

FORWARD: dict[str, tuple[str, type, Change]] = {
    "Value": ("mean_inside", ir.Value, lambda node: replace(node, index=node.index * 0 + 1)),
    "Accumulate": ("margin2d", ir.Accumulate, lambda node: replace(node, kind="max")),
}
BACKWARD: dict[str, tuple[str, type, Change]] = {
    "Choose": ("leaky3d", ir.Choose, lambda node: replace(node, number=node.number * 0)),
    "Choose, what goes along": ("leaky3d", ir.Choose, lambda node: replace(node, along=())),
    "Convert, who was not chosen": ("leaky3d", ir.Convert, lambda node: replace(node, guard=())),
    "Reduce": ("chunks", ir.Reduce, lambda node: ir.Note("left out")),
}


@pytest.mark.parametrize("word", FORWARD)
def test_a_wrong_node_gives_wrong_values(word: str) -> None:
    name, kind, change = FORWARD[word]
    of = CASES[name]
    (kernel,) = build_pool(of.pool).kernels
    with pytest.raises(AssertionError):
        assert_forward(of, (changed(kernel, kind, change, -1),))


@pytest.mark.parametrize("word", BACKWARD)
def test_a_wrong_node_gives_wrong_gradients(word: str) -> None:
    name, kind, change = BACKWARD[word]
    with pytest.raises(AssertionError):
        assert_backward(CASES[name], lambda kernel: changed(kernel, kind, change, -1))


def test_windows_over_the_end_need_their_guards() -> None:
    of = CASES["padded2d"]
    (kernel,) = build_pool(of.pool).kernels
    unguarded = changed(kernel, ir.If, lambda node: ir.Scope(node.body), -1)
    with pytest.raises(OutOfBounds, match="x: block 0, thread 0 is at -"):
        run(unguarded, arrays(of, wide(of)))
