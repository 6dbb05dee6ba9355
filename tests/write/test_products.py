"""Products of float32 matrices: their gradients are products again, their kernels compute them on the emulator."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from launcher import loaded

from crucible import emulator
from crucible.algebra.product import Product
from crucible.algebra.program import Operand
from crucible.gpus import H200, known_gpu
from crucible.kinds.product.lower import lower_product
from crucible.print.written import Lowered
from crucible.schedule.product import MIXED_DEPTH, STAGES, STEP, TILE, divided, is_faster, serves
from support import some

RELATIVE = 1e-6
"""Error in relative L2 that is allowed: 3 to 5e-7 was measured on the H200, of which 2^-22 is what factors lose, and
7.4e-7 where lower words are of bfloat16 (H100)."""


def product(
    rows: int, columns: int, depth: int, *, batch: int = 1, deep: tuple[bool, bool] = (True, True), name: str = "p"
) -> Product:
    """Of contiguous factors; `deep` says of each whether its last dim is the depth."""

    def strides(lines: int, is_deep: bool) -> tuple[int, int, int]:
        near = (depth, 1) if is_deep else (1, lines)
        return (lines * depth if batch > 1 else 0, *near)

    left = Operand(f"{name}_left", "float32", strides(rows, deep[0]))
    right = Operand(f"{name}_right", "float32", strides(columns, deep[1]))
    return Product(name, batch, rows, columns, depth, left, right, f"{name}_out", (rows * columns, columns))


def storages(of: Product, seed: int, dtype: torch.dtype = torch.float64) -> dict[str, torch.Tensor]:
    """Flat contents of both factors, and of what lies as the result does."""
    generator = torch.Generator().manual_seed(seed)
    sizes = {
        of.left.name: of.batch * of.rows * of.depth,
        of.right.name: of.batch * of.columns * of.depth,
        "upstream": of.batch * of.rows * of.columns,
    }
    return {name: torch.randn(size, generator=generator, dtype=dtype) for name, size in sizes.items()}


def right_answer(of: Product, held: dict[str, torch.Tensor]) -> torch.Tensor:
    """Flat, in float64, as the result lies."""
    left = held[of.left.name].double().as_strided(of.left_shape, of.left.strides)
    right = held[of.right.name].double().as_strided(of.right_shape, of.right.strides)
    made = torch.einsum("bik,bjk->bij", left, right)
    flat = torch.empty(made.numel(), dtype=torch.float64)
    flat.as_strided(made.shape, (*of.result_strides, 1)).copy_(made)
    return flat


LAYOUTS = list(itertools.product((True, False), repeat=2))
sizes = st.integers(1, 6).map(lambda n: 4 * n)


@given(sizes, sizes, sizes, st.integers(1, 3), st.sampled_from(LAYOUTS), st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_gradients_are_products_that_lie_as_the_factors_do(
    rows: int, columns: int, depth: int, batch: int, deep: tuple[bool, bool], seed: int
) -> None:
    of = product(rows, columns, depth, batch=batch, deep=deep)
    held = storages(of, seed)
    factors = [held[each.name].requires_grad_() for each in (of.left, of.right)]
    wanted = torch.autograd.grad(right_answer(of, held), factors, held["upstream"])
    for operand, gradient in zip((of.left, of.right), wanted, strict=True):
        back = of.gradient(operand.name, "upstream")
        assert back.fits
        torch.testing.assert_close(right_answer(back, {n: t.detach() for n, t in held.items()}), gradient)


CASES = {
    "within_one_tile": product(20, 12, 8),
    "beyond_a_tile": product(TILE + 4, TILE + 12, 3 * STEP + 4),
    "more_steps_than_slots": product(8, 8, (2 * STAGES + 1) * STEP),
    "rows_are_neighbours": product(TILE + 8, 36, STEP + 12, deep=(False, True)),
    "columns_are_neighbours": product(36, TILE + 8, STEP + 12, deep=(True, False)),
    "both_are": product(44, 52, STEP + 20, deep=(False, False)),
    "several": product(12, 20, 40, batch=3, deep=(True, False)),
    "depth_in_parts": product(16, 24, 20 * STEP),
    "several_in_parts": product(8, 12, 16 * STEP, batch=2, deep=(False, True)),
    "mixed": product(20, 36, MIXED_DEPTH + 12),
    "mixed_columns_are_neighbours": product(20, TILE + 8, MIXED_DEPTH + STEP, deep=(True, False)),
    "mixed_asks_ahead": product(12, TILE, MIXED_DEPTH, deep=(False, True)),
    "mixed_asks_ahead_for_neighbours": product(12, TILE, MIXED_DEPTH, batch=2, deep=(False, False)),
}


TRIED = some(
    list(CASES),
    3,
    lambda name: "parts" in name or name in ("mixed", "mixed_asks_ahead_for_neighbours", "more_steps_than_slots"),
)


@pytest.fixture(scope="module")
def lowered() -> dict[str, Lowered]:
    return {name: lower_product(replace(each, name=name), H200) for name, each in CASES.items() if name in TRIED}


def test_cases_have_what_their_names_say(lowered: dict[str, Lowered]) -> None:
    parts = {name: divided(each, H200).parts for name, each in CASES.items()}
    assert {name for name, count in parts.items() if count > 1} >= {"depth_in_parts", "several_in_parts"}
    assert {name for name, count in parts.items() if count == 1} >= {"within_one_tile", "more_steps_than_slots"}
    assert {name for name, each in CASES.items() if divided(each, H200).is_mixed} == {n for n in CASES if "mixed" in n}
    assert {n for n, each in CASES.items() if divided(each, H200).asks_ahead} == {n for n in CASES if "asks_ahead" in n}


@pytest.mark.usefixtures("no_faults")
def test_kernels_compute_products(lowered: dict[str, Lowered]) -> None:
    types = [
        dict.fromkeys([n for kernel in each.kernels for n in (*kernel.reads, *kernel.writes)], "float32")
        for each in lowered.values()
    ]
    run, number = loaded("products", list(lowered.values()), types), 0
    for place, name in enumerate(TRIED):
        of = CASES[name]
        held = storages(of, place, torch.float32)
        made = {of.result: torch.full((of.batch * of.rows * of.columns,), float("nan"))}
        made |= {each.name: torch.full((each.elements,), float("nan")) for each in lowered[name].buffers}
        for kernel in lowered[name].kernels:
            run(number, [{**held, **made}[each] for each in (*kernel.reads, *kernel.writes)])
            number += 1
        wanted = right_answer(of, held)
        error = float((made[of.result].double() - wanted).norm() / wanted.norm())
        assert error < RELATIVE, name
    assert not emulator.faults()


@pytest.mark.parametrize("of", [
    product(30, 12, 10), product(30, 12, 8, deep=(False, True)), product(32, 13, 8),
    product(32, 14, 8, deep=(True, False)),
], ids=["depth 10", "30 rows", "13 columns", "14 columns"])  # fmt: skip
def test_what_does_not_come_in_sixteen_bytes_is_not_served(of: Product) -> None:
    assert not serves(of, H200)


def test_other_gpus_are_not_served() -> None:
    assert serves(product(128, 128, 128), H200)
    assert not serves(product(128, 128, 128), known_gpu("a100"))


def test_large_products_are_estimated_faster_than_the_librarys() -> None:
    assert is_faster(product(1024, 8192, 8192), H200)
    assert not is_faster(product(16, 64, 64), H200)


def test_depth_is_divided_where_tiles_leave_multiprocessors_idle() -> None:
    assert divided(product(1024, 8192, 8192), H200).parts == 1
    assert divided(product(128, 128, 65536), H200).parts > 8
