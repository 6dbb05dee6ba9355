"""What dispatch modes that listen leave alone: what `torch.jit.trace` makes, and PyTorch's compiler."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import crucible
from crucible.emulator.streams import _Watching
from crucible.judge.worker.operators import Operators
from crucible.judge.worker.poison import Poison


@pytest.mark.parametrize("mode", [Poison, Operators, _Watching])
def test_a_convolution_is_traced_while_somebody_listens(mode: type[TorchDispatchMode]) -> None:
    """A right candidate that traces in its first forward raised, or gave that forward's answer for ever."""
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU()).requires_grad_(False)
    first, then = torch.randn(2, 3, 5, 5), torch.randn(2, 3, 5, 5)
    with mode():
        traced = torch.jit.trace(model, first, check_trace=False)
    assert torch.equal(traced(then), model(then))


def test_no_mode_brings_pytorchs_compiler_along() -> None:
    """PyTorch's wrapper around a mode imports Dynamo with its first operation, and where there is a GPU, or one is
    pretended, what resets Dynamo then imports Inductor: 5 s of a processor for each candidate that was traced. One
    does without Dynamo, and pays."""
    package = Path(crucible.__file__).parent
    files = [f for f in package.rglob("*.py") if "(TorchDispatchMode):" in f.read_text(encoding="utf-8")]
    modules = [".".join(f.relative_to(package.parent).with_suffix("").parts) for f in files]
    ours = [
        one
        for module in modules
        for one in vars(importlib.import_module(module)).values()
        if isinstance(one, type) and issubclass(one, TorchDispatchMode) and one.__module__ == module
    ]
    assert len(modules) > 8 and {one.__module__ for one in ours} == {*modules}
    skips = [one.__name__ for one in ours if one._should_skip_dynamo()]
    assert skips == ["_Refusing"]  # only where a constructor has something on the GPU, and may compile there
