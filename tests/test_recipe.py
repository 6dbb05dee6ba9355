"""Recipes draw what `get_inputs` draws, to the bit, under every seed; what they cannot is told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from crucible.judge.boundary.recipe import NoRecipe, read_recipe, recorded

CPU = torch.device("cpu")
KINDS: dict[str, Callable[[], list[torch.Tensor]]] = {
    "uniform": lambda: [torch.rand(3, 4)],
    "normal and integers": lambda: [torch.randn(5), torch.randint(0, 7, (4, 2)), torch.randint(0, 2, (6,)) * 2 - 1],
    "symmetric": lambda: [(lambda m: (m + m.T) / 2)(torch.rand(4, 4))],
    "triangular": lambda: [torch.triu(torch.rand(4, 4)), torch.tril(torch.randn(4, 4))],
    "probabilities": lambda: [torch.rand(2, 9).softmax(-1), torch.rand(3) < 0.5],
    "in place": lambda: [torch.empty(4).normal_().mul_(3).clamp_(min=-1)],
    "a permutation, offsets": lambda: [torch.randperm(9), torch.randint(1, 5, (6,)).cumsum(0)],
    "half, strided": lambda: [torch.rand(3, 4).half().T, torch.rand(2, 3, 4, 4).to(memory_format=torch.channels_last)],
    "the same twice": lambda: [torch.rand(3)] * 2,
    "complex": lambda: [torch.complex(torch.rand(3), torch.rand(3))],
}


def under(seed: int, draw: Callable[[], list[torch.Tensor]]) -> list[torch.Tensor]:
    torch.manual_seed(seed)
    return draw()


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, (1 << 63) - 1))
def test_a_recipe_draws_what_was_recorded_under_every_seed(kind: str, seed: int) -> None:
    recipe = recorded(KINDS[kind])
    found, wanted = recipe.drawn(seed, CPU), under(seed, KINDS[kind])
    assert [(t.dtype, t.shape) for t in found] == [(t.dtype, t.shape) for t in wanted]
    assert all(torch.equal(one, other) for one, other in zip(found, wanted, strict=True))


def test_a_recipe_is_text_and_leaves_the_generators_alone(tmp_path: Path) -> None:
    recipe = recorded(KINDS["probabilities"])
    recipe.write(tmp_path / "recipe")
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    one, two = read_recipe(tmp_path / "recipe").drawn(9, CPU), recipe.drawn(9, CPU)
    assert torch.equal(torch.rand(3), expected)
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


@pytest.mark.parametrize(
    "draw",
    [
        lambda: [torch.from_numpy(numpy.random.rand(3)) * 1],
        lambda: [torch.rand(3) * float(torch.rand(()))],
        lambda: [torch.from_numpy(numpy.zeros(3))],
    ],
    ids=["numpy", "a number that was drawn", "no operation at all"],
)
def test_what_is_not_pytorchs_alone_has_no_recipe(draw: Callable[[], list[torch.Tensor]]) -> None:
    with pytest.raises(NoRecipe):
        recorded(draw)
