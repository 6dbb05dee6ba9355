"""Copies of modules whose functions see the copy, and what becomes of a task that keeps such functions."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import crucible
from crucible.copies import duplicate
from support import write

Kept = Callable[[nn.ModuleDict], Any]


class Keeping(nn.Module):
    """A module that has a function, wherever it keeps it."""

    def __init__(self, kept: Kept) -> None:
        super().__init__()
        self.parts = nn.ModuleDict({"layer": nn.Linear(3, 3), "out": nn.Linear(3, 1)})
        self.kept = kept(self.parts)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = self.kept
        while not callable(kept):
            kept = next(iter(kept.values() if isinstance(kept, dict) else kept))
        found: torch.Tensor = kept(x)
        return found


def by_name(parts: nn.ModuleDict) -> Any:
    return lambda x: parts["out"](parts["layer"](x))


def by_weight(parts: nn.ModuleDict) -> Any:
    weight = parts["layer"].weight
    return lambda x: x @ weight


def by_default(parts: nn.ModuleDict) -> Any:
    return lambda x, layer=parts["layer"]: layer(x)


def by_keyword(parts: nn.ModuleDict) -> Any:
    def found(x: torch.Tensor, *, layer: nn.Module = parts["layer"]) -> torch.Tensor:
        return layer(x)  # type: ignore[no-any-return]

    return found


def inside_of_another(parts: nn.ModuleDict) -> Any:
    inner = by_name(parts)
    return lambda x: inner(x) + 1


def in_a_list(parts: nn.ModuleDict) -> Any:
    return [{"first": by_name(parts)}]


def of_a_list(parts: nn.ModuleDict) -> Any:
    layers = [parts["layer"], parts["out"]]
    return lambda x: layers[1](layers[0](x))


def in_part(parts: nn.ModuleDict) -> Any:
    return functools.partial(lambda layer, x: by_name(parts)(x) + layer(x), parts["layer"])


def of_itself(parts: nn.ModuleDict) -> Any:
    def found(x: torch.Tensor, left: int = 1) -> torch.Tensor:
        return found(x, left - 1) if left else parts["layer"](x)  # type: ignore[no-any-return]

    return found


EVERY = (by_name, by_weight, by_default, by_keyword, inside_of_another, in_a_list, of_a_list, in_part, of_itself)


@pytest.mark.parametrize("kept", EVERY, ids=lambda kept: kept.__name__)
def test_a_copys_functions_have_its_weights(kept: Kept) -> None:
    torch.manual_seed(0)
    first, x = Keeping(kept), torch.randn(2, 3)
    copied, before = duplicate(first), first(x)
    assert torch.equal(copied(x), before)
    with torch.no_grad():
        for parameter in copied.parameters():
            parameter.zero_()
    assert not torch.equal(copied(x), before)
    assert torch.equal(first(x), before)
    assert not torch.equal(copy.deepcopy(first)(x), copied(x))  # what it is there for


def test_what_is_not_the_modules_is_the_same_for_both() -> None:
    """A tensor and a list; and a name may be without a value yet."""
    table, calls = torch.randn(3), list[torch.Size]()

    def kept(parts: nn.ModuleDict) -> Any:
        def found(x: torch.Tensor) -> torch.Tensor:
            calls.append(x.shape)
            return parts["layer"](x) + (table if len(calls) < 9 else later)  # type: ignore[no-any-return]

        if calls:
            later = table
        return found

    first, x = Keeping(kept), torch.randn(2, 3)
    copied = duplicate(first)
    found = copied(x)
    table += 1
    torch.testing.assert_close(copied(x), found + 1)
    assert len(calls) == 2
    assert copied.kept.__name__ == "found" and copied.kept is not first.kept


TASK = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleDict({"layer": nn.Linear(8, 8), "out": nn.Linear(8, 4)})
        parts = self.parts
        self.run = lambda x: parts.out(torch.relu(parts.layer(x)))

    def forward(self, x):
        return self.run(x)

def get_inputs():
    return [torch.randn(4, 8)]

def get_init_inputs():
    return []
"""


def test_an_honest_copy_of_a_task_that_keeps_functions_is_right(
    judge_batch: Callable[..., crucible.Run], tmp_path: Path
) -> None:
    """KernelBench level 3 task 44: off by 0.98 at new weights, which the oracle's copies did not see."""
    task = write(tmp_path / "keeps.py", TASK)
    source = TASK.partition("def get_inputs")[0].replace("Model(", "ModelNew(")
    wrong = source.replace("torch.relu", "torch.tanh")
    run = judge_batch(
        task, [write(tmp_path / "c/same.py", source), write(tmp_path / "c/wrong.py", wrong)], training=True
    )
    assert {v.candidate: v.evaluation for v in run.verdicts} == {"same": True, "wrong": False}
    assert not [f for f in run.findings if "float64" in f.claim]
