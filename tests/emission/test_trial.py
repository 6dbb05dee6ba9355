"""A written file is run once, without elements, before it is handed over."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import crucible
from crucible import fusing
from crucible.capture import trace
from crucible.emission.file import emit
from crucible.errors import KernelError
from crucible.plan.planner import fuse
from crucible.task import Task
from crucible.trial import check_runs

NETWORKS = Path(__file__).parents[1] / "networks"


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.fc(x).view(2, 3, 4, 2).transpose(1, 2)).reshape(2, 24).cumsum(1)


@pytest.fixture(scope="module")
def written() -> str:
    return emit(fuse(trace(Net(), [torch.randn(2, 3, 8)])), "net")


def raising(text: str) -> str:
    with pytest.raises(KernelError) as caught:
        check_runs(text, Net(), [torch.randn(2, 3, 8)])
    return str(caught.value)


def test_what_raises_is_told_with_its_line(written: str) -> None:
    check_runs(written, Net(), [torch.randn(2, 3, 8)])
    flat = r"(?<=torch.cumsum\(reshape, )1"
    assert re.search(flat, written)
    turned = re.sub(flat, "3", written)
    assert "IndexError: Dimension out of range" in raising(turned) and "torch.cumsum" in raising(turned)
    assert "NameError: name 'missing'" in raising(written.replace("import torch\n", "import torch\nmissing\n", 1))
    lost = written.replace("def forward(self, x):\n", "def forward(self, x):\n    x = x.transpose(0, 1)\n")
    assert "written for inputs of other shapes" in raising(lost)


def test_tensors_that_a_module_holds_beside_its_state_are_its_own() -> None:
    """A list of them, as MONAI's networks have: the file was called a fault of ours."""

    class Holds(Net):
        def __init__(self) -> None:
            super().__init__()
            self.made = [torch.rand(1), {"more": torch.rand(2, 2)}]

    module = Holds()
    text = emit(fuse(trace(module, [torch.randn(2, 3, 8)])), "net")
    check_runs(text, module, [torch.randn(2, 3, 8)])


def test_backward_is_run_too(written: str) -> None:
    before, shapes, after = written.partition("_backward_shapes(")
    wrong = before + shapes + after.replace("new_empty_strided((", "new_empty_strided((7, ", 1)
    assert "new_empty_strided((7, " in raising(wrong)


def test_nothing_is_handed_over_that_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*given: object, **named: object) -> str:
        return str(emit(*given, **named)) + "\nraise ValueError('broken')\n"  # type: ignore[arg-type]

    monkeypatch.setattr(fusing, "emit", broken)
    task = Task.load(NETWORKS / "21_lstm.py").at(scale="small", training=True, mode="train", small_by_default=False)
    for call in (lambda: fusing.write(task), lambda: crucible.fuse(Net(), torch.randn(2, 3, 8), emulate=True)):
        with pytest.raises(KernelError, match="what was written raises ValueError: broken"):
            call()
    assert fusing.write(task, check=False).endswith("raise ValueError('broken')\n")


class Heads(nn.Module):
    """Attention, seen in three ways, and a convolution's output as complex numbers."""

    def forward(self, x: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, ...]:
        made = F.scaled_dot_product_attention(*x.view(2, 5, 3, 4, 8).permute(2, 0, 3, 1, 4))
        joined = made.transpose(1, 2).contiguous()
        turned = (x @ weight).view(2, 5, 12, 2)
        return joined.view(10, 32), joined, made.transpose(1, 2).view(2, 5, 32), torch.view_as_complex(turned).real


def attended(lies: Sequence[int]) -> Callable[..., torch.Tensor]:
    """Attention whose result lies with its dims in this order."""
    known = F.scaled_dot_product_attention

    def call(*given: torch.Tensor) -> torch.Tensor:
        back = [lies.index(dim) for dim in range(4)]
        return known(*given).permute(*lies).contiguous().permute(*back)

    return call


def test_attention_may_lie_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU's lies otherwise than the one that the file was traced on: a view behind it raised there."""
    module, inputs = Heads(), [torch.randn(2, 5, 96), torch.randn(96, 24)]
    text = emit(fuse(trace(module, inputs)), "heads")
    check_runs(text, module, inputs)
    eager = module(*inputs)
    names: dict[str, Any] = {}
    exec(text, names)
    for order in itertools.permutations(range(4)):
        with monkeypatch.context() as patch:
            patch.setattr(F, "scaled_dot_product_attention", attended(order))
            found = names["forward"](module, *inputs)
        for one, other in zip(found, eager, strict=True):
            torch.testing.assert_close(one, other)
        assert [each.stride() for each in found[:2]] == [(32, 1), (160, 32, 8, 1)]  # made contiguous


def test_a_view_that_one_layout_allows_is_seen() -> None:
    module, inputs = Heads(), [torch.randn(2, 5, 96), torch.randn(96, 24)]
    text = emit(fuse(trace(module, inputs)), "heads")
    for right, wrong in ((".reshape(2, 5, 32)", ".view(2, 5, 32)"), ("_lying(view_2, ", "(lambda x, _: x)(view_2, ")):
        assert right in text
        with pytest.raises(KernelError, match="what was written raises"):
            check_runs(text.replace(right, wrong), module, inputs)
