"""Kernels of products mean what they say: run on the CPU, role by role, before there is any text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from kernel_mutants import changed
from test_products import CASES, LAYOUTS, product, right_answer, storages

from crucible.algebra.product import Product
from crucible.gpus import H200
from crucible.kernel import nodes as ir
from crucible.kernel.index import ONE, Compare
from crucible.kernel.meaning import Stuck, run
from crucible.kernel.verify import verify
from crucible.kinds.product.lower import build_product
from crucible.schedule.product import divided
from support import some

NEAR = {False: 2e-7, True: 8e-7}
"""By whether lower words are of bfloat16: 7e-8 and 6.6e-7 where sums are exact."""
FEW = replace(H200, sms=3)
"""Blocks that make several tiles each."""


def drawn(seed: int) -> Product:
    draw = np.random.default_rng(seed)
    rows, columns, depth = (4 * int(n) for n in draw.integers(1, [70, 70, 50]))
    return product(rows, columns, depth, batch=int(draw.integers(1, 3)), deep=LAYOUTS[draw.integers(4)])


ALL = CASES | {f"drawn {seed}": drawn(seed) for seed in range(6)}


def error(of: Product, kernels: tuple[ir.Kernel, ...], held: dict[str, torch.Tensor]) -> float:
    """In relative L2."""
    known: dict[str, Any] = {name: each.double().numpy() for name, each in held.items()}
    for each in kernels:
        assert verify(each) == ()
        known |= run(each, known)
    wanted = right_answer(of, held).numpy()
    return float(np.linalg.norm(known[of.result] - wanted) / np.linalg.norm(wanted))


@pytest.mark.parametrize("name", some(list(ALL), 3, lambda name: "mixed" in name))
def test_kernels_mean_products(name: str) -> None:
    of = ALL[name]
    held = storages(of, 1, torch.float32)
    for each in (of, *(of.gradient(operand.name, "upstream") for operand in (of.left, of.right))):
        assert error(each, build_product(each, FEW).kernels, held) < NEAR[divided(each, FEW).is_mixed]


def without_a_term(node: ir.Mma) -> ir.Node:
    return replace(node, terms=node.terms[1:])


def rows_exchanged(node: ir.Mma) -> ir.Node:
    (low, high), *rest = node.terms
    return replace(node, terms=((rest[0][0], high), (low, rest[0][1]), *rest[1:]))


def never_at_the_end(node: ir.Promote) -> ir.Node:
    return replace(node, is_last=(Compare("<", ONE, ONE),))


def of_another_column(node: Any) -> ir.Node:
    *at, last = node.to.at
    return replace(node, to=replace(node.to, at=(*at[:-1], at[-1] + 1, last))) if at[1:] else node


def the_other_way_round(node: ir.SplitPairs) -> ir.Node:
    return replace(node, values=node.values[::-1])


FEW_STEPS, MIXED = "more_steps_than_slots", "mixed"
WRONG: dict[str, tuple[str, type, Callable[[Any], ir.Node], int]] = {
    "Mma: a term less": (FEW_STEPS, ir.Mma, without_a_term, 0),
    "Mma: rows by the wrong half": (FEW_STEPS, ir.Mma, rows_exchanged, 0),
    "Promote: what is left at the end": (FEW_STEPS, ir.Promote, never_at_the_end, 0),
    "Split: the same half twice": (FEW_STEPS, ir.Split, lambda node: replace(node, part="high"), 1),
    "Store: a column on": (FEW_STEPS, ir.Store, of_another_column, 2),
    "Mma: a term of halves less": (MIXED, ir.Mma, without_a_term, 0),
    "SplitPairs: the same half twice": (MIXED, ir.SplitPairs, lambda node: replace(node, part="high"), 1),
    "SplitPairs: rows the other way round": (MIXED, ir.SplitPairs, the_other_way_round, 0),
    "SplitPairs: columns the other way round": (MIXED, ir.SplitPairs, the_other_way_round, 2),
}


@pytest.mark.parametrize("word", WRONG)
def test_what_is_wrong_makes_other_products(word: str) -> None:
    case, kind, change, which = WRONG[word]
    of = CASES[case]
    first, *rest = build_product(of, FEW).kernels
    wrong = (changed(first, kind, change, which), *rest)
    assert not error(of, wrong, storages(of, 1, torch.float32)) < 1e-5


def test_stages_that_nobody_fills_are_waited_for_forever() -> None:
    of = CASES["more_steps_than_slots"]
    (made,) = build_product(of, FEW).kernels
    known = {name: each.numpy() for name, each in storages(of, 1).items()}
    for kind in (ir.Fill, ir.Drain):
        with pytest.raises(Stuck, match="wait forever"):
            run(changed(made, kind, lambda node: ir.Note("left out")), known)
