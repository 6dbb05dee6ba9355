"""The benchmark of public architectures, on modules of one layer: none of its libraries is needed."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import zoo


class Branching(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x if x.sum() > 0 else -x


class Sleeping(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        time.sleep(20)
        return x


def made(module: nn.Module) -> zoo.Made:
    return module, [torch.randn(2, 4)]


@pytest.fixture
def _late() -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, zoo._late)  # pytest's own, which ends what hangs
    yield
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("_late")
def test_what_becomes_of_a_network_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zoo, "SECONDS_A_CALL", 60.0)
    right = zoo.tried(lambda: made(nn.Sequential(nn.Linear(4, 4), nn.GELU())), "train", 60)
    assert right["taken"] and right["right"] and right["steps"] == 1
    refused = zoo.tried(lambda: made(Branching()), "eval", 60)
    assert "depends on the values in a tensor" in refused["refused"]
    assert zoo.tried(lambda: made(Sleeping()), "eval", 1) == {"ended": "after 1 s"}
    monkeypatch.setattr(zoo, "compare", lambda *_: 1 / 0)
    failed = zoo.tried(lambda: made(nn.Linear(4, 4)), "train", 60)
    assert failed["failed"].startswith("ZeroDivisionError") and "right" not in failed
    modes = {"small": {"train": right, "eval": refused}, "other": {"train": failed, "eval": failed}}
    table = zoo.markdown({"libraries": {"timm": {"version": "1", "networks": modes}}})
    assert "| timm 1 | 2 | 4 | 3 | 3 | 1 |" in table
    assert "- timm's small in eval: " in table and "- timm's other in train: ZeroDivisionError" in table


def test_a_run_goes_on_with_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file, asked = tmp_path / "record.json", list[str]()

    def of(library: object) -> zoo.Zoo:
        for name in ("first", "second"):
            yield name, lambda name=name: asked.append(name) or made(nn.ReLU())  # type: ignore[func-returns-value]

    monkeypatch.setattr(zoo.signal, "signal", lambda *_: None)
    monkeypatch.setattr(zoo, "ZOOS", {"torch": of, "no_such_library": of})
    for only in ("first", ""):
        monkeypatch.setattr(sys, "argv", ["zoo.py", str(file), "--of", "torch,no_such_library", "--only", only])
        zoo.main()
    assert asked == ["first", "first", "second", "second"]  # in two modes each
    assert [*json.loads(file.read_text())["libraries"]["torch"]["networks"]] == ["first", "second"]
    assert "no_such_library is left out" in capsys.readouterr().out
