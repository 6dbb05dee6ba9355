"""What `torch.compile` made runs uncompiled while poison is about, and is compiled as if for the first time after."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from crucible.judge.worker.poison import Poison, uncompiled


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class Backend:
    """Compiles nothing, and counts how often it is asked to and how often what it gave is run."""

    def __init__(self) -> None:
        self.compiled = self.runs = 0

    def __call__(self, module: torch.fx.GraphModule, example: list[torch.Tensor]) -> Callable[..., Any]:
        self.compiled += 1

        def run(*inputs: torch.Tensor) -> Any:
            self.runs += 1
            return module.forward(*inputs)

        return run


def compiled() -> tuple[Callable[..., torch.Tensor], Backend]:
    backend = Backend()

    def step(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x).copy_(x) * 2 + 1

    return torch.compile(step, backend=backend, dynamic=False), backend


X = torch.arange(4.0)


def test_inside_it_runs_as_plain_pytorch() -> None:
    step, backend = compiled()
    poison = Poison()
    with uncompiled(), poison:
        assert torch.equal(step(X), X * 2 + 1)
    assert (backend.compiled, backend.runs) == (0, 0)
    assert {"empty_like", "mul", "add"} <= poison.operations


def test_after_it_is_compiled_as_if_nothing_had_been() -> None:
    step, backend = compiled()
    with uncompiled(), Poison():
        step(X)
    for _ in range(3):
        assert torch.equal(step(X), X * 2 + 1)
    assert (backend.compiled, backend.runs) == (1, 3)


def test_what_was_compiled_before_is_compiled_again_and_runs() -> None:
    step, backend = compiled()
    step(X)
    with uncompiled(), Poison():
        step(X)
    assert backend.runs == 1
    step(X)
    step(X)
    assert backend.runs == 3


def test_what_raises_inside_leaves_compilation_as_it_was() -> None:
    step, backend = compiled()
    with pytest.raises(ValueError, match="no"), uncompiled(), Poison():
        raise ValueError("no")
    step(X)
    assert backend.runs == 1


LATE = """
import sys, torch
from crucible.judge.worker.poison import Poison, uncompiled

runs, steps = [], []

def backend(module, example):
    return lambda *inputs: runs.append(1) or module.forward(*inputs)

def step(x):
    if not steps:
        steps.append(torch.compile(lambda x: x * 2, backend=backend, dynamic=False))
    return steps[0](x)

x = torch.arange(4.0)
assert "torch._dynamo" not in sys.modules
with uncompiled(), Poison():
    assert torch.equal(step(x), x * 2)
runs.clear()
for _ in range(3):
    assert torch.equal(step(x), x * 2)
print(len(runs))
"""


def test_what_asks_for_compilation_in_its_first_call_is_compiled_after_it() -> None:
    """Nothing of PyTorch's compiler is loaded before that call."""
    done = subprocess.run([sys.executable, "-c", LATE], capture_output=True, text=True, check=False, timeout=120)
    assert done.stdout.strip() == "3", done.stderr[-2000:]
