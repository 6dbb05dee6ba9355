"""Written files of modules that take numbers and None beside tensors, on which their operations depend."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import crucible
from crucible import fusing
from crucible.task import Task
from support import some

pytestmark = pytest.mark.usefixtures("no_faults")
REFERENCE = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(6))

    def forward(self, x, factor, shift=None, power=1, is_bent=True, low=0.0):
        y = (x * self.weight).tanh() if is_bent else x * self.weight
        y = y * factor if shift is None else y * factor + shift
        return (y ** power).clamp(low)


def get_inputs():
    return GIVEN


def get_init_inputs():
    return []
"""
GIVEN = {
    "in the middle": "[torch.rand(4, 6), 2.0, torch.rand(6), 2, True]",
    "at the end": "[torch.rand(4, 6), 3, None, 2]",
    "not finite": "[torch.rand(4, 6), 0.5, torch.rand(6), 1, False, -float('inf')]",
}


def written(tmp_path: Path, given: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The written file's names."""
    file = tmp_path / "reference.py"
    file.write_text(REFERENCE.replace("GIVEN", given))
    monkeypatch.setattr("torch.utils.cpp_extension.load_inline", crucible.emulator.load_inline)
    names: dict[str, Any] = {"__name__": f"written_{abs(hash(given))}"}
    exec(file.read_text(), names)
    exec(fusing.write(Task.load(file)), names)
    return names


@pytest.mark.parametrize("name", some(list(GIVEN), 3, lambda name: name == "not finite"))
def test_a_written_file_takes_them_where_the_module_does(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = written(tmp_path, GIVEN[name], monkeypatch)
    model, new, given = names["Model"](), names["ModelNew"](), names["get_inputs"]()
    launched = []
    for key in [key for key in names if key.startswith("fused_")]:
        monkeypatch.setitem(names, key, lambda *args, own=names[key]: launched.append(1) or own(*args))
    torch.testing.assert_close(new(*given), model(*given))
    assert launched
    launched.clear()
    for place, other in [(1, 4.0), (1, True), (3, 3), *((4, not bent) for bent in given[4:5])]:
        changed = [*given[:place], other, *given[place + 1 :]]
        torch.testing.assert_close(new(*changed), model(*changed))
    assert not launched  # other numbers are another graph: the module does what it did


def test_a_fused_module_is_written_for_numbers_between_tensors() -> None:
    class Scaled(nn.Module):
        def forward(self, x: torch.Tensor, factor: float, shift: torch.Tensor, limit: float) -> torch.Tensor:
            return (x.tanh() * factor + shift).clamp(-1 if math.isnan(limit) else limit)

    x, shift = torch.rand(3, 5), torch.rand(5)
    fused = crucible.fuse(Scaled(), x, 2.0, shift, math.nan, emulate=True)
    for factor, limit in ((2.0, math.nan), (3.0, 0.5)):
        torch.testing.assert_close(fused(x, factor, shift, limit), Scaled()(x, factor, shift, limit))
