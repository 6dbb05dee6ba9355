"""Pairing of weights: by name, by the values both are constructed with, by shape and order."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from crucible.judge.oracle.reference import Reference
from crucible.judge.worker.pairing import Place, Weight, pair
from crucible.judge.worker.weights import Weights, added_up, apart

SIZES = st.lists(st.integers(1, 4), min_size=1, max_size=4)


def weight(name: str, *shape: int, learned: bool = True) -> Weight:
    return Weight(name, torch.randn(shape), learned)


@given(SIZES, st.randoms(use_true_random=False), st.integers(0, 2**31))
@settings(deadline=None, max_examples=60)
def test_a_weight_is_found_in_any_order_of_its_dimensions_and_taken_back(sizes: list[int], chance, seed: int) -> None:
    torch.manual_seed(seed)
    theirs = weight("weight", *sizes)
    dims = list(range(len(sizes)))
    chance.shuffle(dims)
    own = Weight("other", theirs.value.permute(dims).contiguous())
    found = pair([theirs], [own])[0].places["weight"]
    new, held = torch.randn(sizes), own.value.clone()
    found.put(held, new)
    assert torch.equal(found.taken(held, sizes), new)
    if theirs.value.numel() > 1:
        assert torch.equal(held, new.permute(dims))


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
@pytest.mark.parametrize("dim", [0, 1])
def test_several_in_one_are_found_by_their_values(order: tuple[int, ...], dim: int) -> None:
    theirs = [weight(name, 4, 4) for name in "abc"]
    own = Weight("all", torch.cat([theirs[i].value for i in order], dim))
    (found,) = pair(theirs, [own])
    assert not found.lost and not found.left
    for i, one in enumerate(theirs):
        assert torch.equal(found.places[one.name].part(own.value), one.value)
        assert found.places[one.name].at == (dim, 4 * order.index(i), 4)


def test_layers_that_start_alike_are_paired_one_by_one() -> None:
    """As `copy.deepcopy` makes them."""
    value = torch.randn(4, 4)
    theirs, own = ([Weight(f"{side}.{i}", value.clone()) for i in range(3)] for side in ("theirs", "own"))
    (found,) = pair(theirs, own)
    assert {name: place.own for name, place in found.places.items()} == {f"theirs.{i}": f"own.{i}" for i in range(3)}


def test_what_only_order_tells_is_tried_in_other_ways_and_at_last_not_at_all() -> None:
    theirs, own = [Weight(n, torch.zeros(4)) for n in "ab"], [Weight(n, torch.zeros(4)) for n in "pq"]
    ways = [{name: place.own for name, place in way.places.items()} for way in pair(theirs, own)]
    assert ways == [{"a": "p", "b": "q"}, {"a": "q", "b": "p"}, {}]


def test_ones_are_paired_with_ones() -> None:
    theirs = [Weight("scale", torch.ones(4)), Weight("shift", torch.zeros(4))]
    own = [Weight("b", torch.zeros(4), False), Weight("a", torch.ones(4), False)]
    assert {name: place.own for name, place in pair(theirs, own)[0].places.items()} == {"scale": "a", "shift": "b"}


def test_a_name_counts_more_than_values_and_values_tell_its_layout() -> None:
    value = torch.randn(4, 4)
    (found,) = pair([Weight("w", value)], [Weight("w", value.t().contiguous()), Weight("copy", value.clone())])
    assert found.places == {"w": Place("w", "name", (1, 0))}
    assert [one.name for one in found.left] == ["copy"]


TIED = """
import torch
from torch import nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Linear(4, 4, bias=False)
        self.decode = nn.Linear(4, 4, bias=False)
        self.decode.weight = self.encode.weight
    def forward(self, x):
        return self.decode(torch.tanh(self.encode(x)))
def get_inputs():
    return [torch.rand(3, 4)]
def get_init_inputs():
    return []
"""


class Tied(nn.Module):
    """The same weight under its second name first, or as two parameters."""

    def __init__(self, value: torch.Tensor, once: bool) -> None:
        super().__init__()
        self.decode, self.encode = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
        self.decode.weight, self.encode.weight = nn.Parameter(value.clone()), nn.Parameter(value.clone())
        if once:
            self.encode.weight = self.decode.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.decode(torch.tanh(self.encode(x)))


@pytest.mark.parametrize("once", [True, False])
def test_a_tied_weight_has_one_gradient_however_a_candidate_ties_it(once: bool) -> None:
    reference = Reference(TIED, "tied.py", {}, mode="train", seed=3, device=torch.device("cpu"))
    state, told = reference.state(), reference.weights()
    assert told == [["encode.weight", True, "encode.weight"], ["decode.weight", True, "encode.weight"]]
    model = Tied(state["encode.weight"], once)
    weights = Weights(model, state, told)
    new = torch.randn(4, 4)
    said = weights.load({"encode.weight": new, "decode.weight": new})
    assert said["only_in_reference"] == said["only_in_candidate"] == said["paired"] == []
    assert torch.equal(model.encode.weight, new) and torch.equal(model.decode.weight, new)
    x = torch.rand(3, 4)
    cotangent = torch.randn(3, 4)
    expected = reference.evaluate(dict.fromkeys(state, new), [x], [cotangent]).gradients["encode.weight"]
    names = [name for name, _ in model.named_parameters()]
    found = torch.autograd.grad(model(x), list(model.parameters()), cotangent)
    assert set(weights.gradients(dict(zip(names, found, strict=True)))) == {"encode.weight"}
    torch.testing.assert_close(weights.gradients(dict(zip(names, found, strict=True)))["encode.weight"], expected)


LINEAR = """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)
    def forward(self, x):
        return self.layer(torch.tanh(self.layer(x)))
def get_inputs():
    return [torch.rand(3, 4)]
def get_init_inputs():
    return []
"""


class Computing(torch.nn.Module):
    """The same, with a weight that is computed from others, twice in a forward; `blind` to half of it in backward."""

    def __init__(self, how: Callable[[torch.nn.Module], object], blind: bool = False) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)
        self.blind = blind
        how(self.layer)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layer(torch.tanh(self.layer(x)))
        return (out + out.detach()) / 2 if self.blind else out


@pytest.mark.parametrize(
    "how",
    [
        torch.nn.utils.parametrizations.weight_norm,
        torch.nn.utils.weight_norm,
        lambda layer: torch.nn.utils.parametrize.register_parametrization(layer, "weight", torch.nn.Identity()),
    ],
    ids=["weight_norm", "old_weight_norm", "identity"],
)
@pytest.mark.parametrize("blind", [False, True])
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_the_gradient_of_a_weight_that_is_computed_is_told(
    how: Callable[[torch.nn.Module], object], blind: bool
) -> None:
    reference = Reference(LINEAR, "linear.py", {}, mode="train", seed=3, device=torch.device("cpu"))
    state, told = reference.state(), reference.weights()
    model = Computing(how, blind)
    weights = Weights(model, state, told)
    weights.load({name: value + 0.1 for name, value in state.items()})
    x, cotangent = torch.rand(3, 4), torch.randn(3, 4)
    expected = reference.evaluate({n: v + 0.1 for n, v in state.items()}, [x], [cotangent]).gradients["layer.weight"]
    with weights.noting() as made:
        out = model(x)
    wanted = {**dict(model.named_parameters()), **apart(made)}
    found = dict(zip(wanted, torch.autograd.grad(out, list(wanted.values()), cotangent), strict=True))
    gradients = weights.gradients(added_up(found))
    assert set(gradients) == {"layer.weight", "layer.bias"}
    assert weights.computed() == ["layer.weight"] and weights.not_comparable(gradients) == []
    assert torch.allclose(gradients["layer.weight"], expected, rtol=1e-4, atol=1e-6) != blind
    with weights.noting() as again:
        pass
    assert not again["layer.weight"] and weights.not_comparable({}) == ["layer.weight"]
    model(x)
    assert not again["layer.weight"], "nothing is noted outside of the block"
