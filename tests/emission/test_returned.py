"""What forward returns beside tuples, lists and dicts: objects of classes that can be imported."""

from __future__ import annotations

import dataclasses
import sys
import types
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

import crucible
from crucible.capture import trace
from crucible.errors import CaptureError


class Pair(NamedTuple):
    first: torch.Tensor
    rest: list[torch.Tensor]


@dataclasses.dataclass
class Output(OrderedDict):  # type: ignore[type-arg]
    """A dict with its keys for fields, as transformers' models return it: of those that are None it has none."""

    loss: Any = None
    logits: Any = None
    pair: Any = None

    def __post_init__(self) -> None:
        self.update(
            {each.name: made for each in dataclasses.fields(self) if (made := getattr(self, each.name)) is not None}
        )


@dataclasses.dataclass
class Plain:
    y: torch.Tensor


def another_pair() -> Any:
    """A class of the same name, in a module of its own."""
    module = types.ModuleType("others_of_test_returned")
    exec("from typing import Any, NamedTuple\nclass Pair(NamedTuple):\n    only: Any", module.__dict__)
    sys.modules[module.__name__] = module
    return module.Pair


OTHER_PAIR = another_pair()


pytree.register_pytree_node(
    Output,
    lambda made: (list(made.values()), list(made)),
    lambda values, keys: Output(**dict(zip(keys, values, strict=True))),
)
torch.export.register_dataclass(Plain)


class Net(nn.Module):
    """A layer, whose result is PyTorch's, bears the name that a class would."""

    def __init__(self, of: Callable[..., Any]) -> None:
        super().__init__()
        self.of, self.linear, self.ReturnedPair = of, nn.Linear(4, 4), nn.Linear(4, 4, bias=False)

    def forward(self, x: torch.Tensor) -> Any:
        y = self.ReturnedPair(torch.tanh(self.linear(x)) * 2).cumsum(-1)
        return self.of(y, x.relu() * y)


RETURNED: dict[str, Callable[..., Any]] = {
    "a named tuple": lambda y, z: Pair(y, [z, y]),
    "a dataclass": lambda y, z: Plain(z),
    "some fields of a dict": lambda y, z: Output(logits=y, pair=Pair(z, [y])),
    "a dict in order": lambda y, z: OrderedDict({"out of all": z, "aux": Pair(y, [])}),
    "two of a name": lambda y, z: (Pair(y, [z]), OTHER_PAIR(z)),
    "None and numbers": lambda y, z: (None, {"loss": None, "n": len(y), "scale": float("inf"), "y": y}, True, "word"),
    "inside of a tuple": lambda y, z: (y, {"one": Pair(z, []), "other": Plain(y)}),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", RETURNED)
def test_objects_are_made_anew(what: str) -> None:
    torch.manual_seed(0)
    module, x = Net(RETURNED[what]), torch.randn(3, 4)
    found, expected = crucible.fuse(module, x, emulate=True)(x), module(x)
    assert type(found) is type(expected)
    (ours, form), (theirs, other) = pytree.tree_flatten(found), pytree.tree_flatten(expected)
    assert form == other
    for one, two in zip(ours, theirs, strict=True):
        assert type(one) is type(two)
        if isinstance(one, torch.Tensor):
            torch.testing.assert_close(one, two)
        else:
            assert one == two
    ours, theirs = ([each for each in made if isinstance(each, torch.Tensor)] for made in (ours, theirs))
    wanted = list(module.parameters())
    pairs = (torch.autograd.grad(sum(each.square().sum() for each in made), wanted) for made in (ours, theirs))
    torch.testing.assert_close(*pairs)


def test_classes_that_nobody_can_import_are_refused() -> None:
    class Hidden(NamedTuple):
        y: torch.Tensor

    with pytest.raises(CaptureError, match=r"it returns a Hidden\. Return a tensor, .*of a class that can be imported"):
        trace(Net(lambda y, z: Hidden(y)), [torch.randn(3, 4)])


def test_what_holds_tensors_out_of_sight_is_refused_by_its_class() -> None:
    class Cache:
        def __init__(self, y: torch.Tensor) -> None:
            self.y = y

    with pytest.raises(CaptureError, match=r"it returns a Cache.*config.use_cache = False"):
        trace(Net(lambda y, z: (y, Cache(z))), [torch.randn(3, 4)])
