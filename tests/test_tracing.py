"""What `torch.jit.trace` makes under a dispatch mode is what it makes without one."""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

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
