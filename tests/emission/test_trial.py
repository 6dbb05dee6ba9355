"""A written file is run once, without elements, before it is handed over."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
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
    flat = r"dim=1, dtype=None\)"
    assert re.search(flat, written)
    turned = re.sub(flat, "dim=3, dtype=None)", written)
    assert "IndexError: Dimension out of range" in raising(turned) and "aten.cumsum" in raising(turned)
    assert "NameError: name 'missing'" in raising(written.replace("import torch\n", "import torch\nmissing\n", 1))
    lost = written.replace("def forward(self, x):\n", "def forward(self, x):\n    x = x.transpose(0, 1)\n")
    assert "written for inputs of other shapes" in raising(lost)


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
