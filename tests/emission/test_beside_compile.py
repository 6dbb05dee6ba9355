"""What a written file hands to torch.compile, and how that is found out."""

from __future__ import annotations

import copy
import types
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import nn

from crucible.capture import trace
from crucible.emission.file import emit
from crucible.emission.handing import MAX_AUTOTUNE, Beside
from crucible.errors import MisuseError
from crucible.graphed import Graphed
from crucible.plan.planner import fuse
from crucible.tuning.rival import beside_compile, check_can_race, rivals_of

SOURCE = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(32, 32)

    def forward(self, x):
        return self.linear(x)
"""
"""PyTorch computes it: no kernel has to be built."""


def written(beside: Beside | None, monkeypatch: pytest.MonkeyPatch) -> tuple[types.ModuleType, str, list[str]]:
    """The file as a module, its text, and a list of the modes in which torch.compile's forward was called."""
    called: list[str] = []

    def compile(forward: Callable[..., Any], mode: str = "") -> Callable[..., Any]:
        def compiled(self: nn.Module, *given: Any) -> Any:
            called.append(mode)
            return forward(self, *given)

        return compiled

    monkeypatch.setattr(torch, "compile", compile)
    names = types.ModuleType("written")
    exec(SOURCE, names.__dict__)
    graph = trace(names.Model(), [torch.randn(4, 32)])
    text = emit(fuse(graph), "linear", SOURCE, beside=beside)
    exec(text, names.__dict__)
    return names, text, called


@pytest.mark.parametrize(
    ("forward", "training", "without", "with_gradients"),
    [(1.5, 2.0, 0, 0), (0.5, 2.0, 1, 0), (1.5, 0.9, 0, 1), (0.5, 0.9, 1, 1), (0.5, None, 1, 1), (1.0, None, 0, 0)],
)
def test_calls_go_to_whoever_is_faster(
    forward: float, training: float | None, without: int, with_gradients: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    names, text, called = written(Beside("a GPU", forward, training), monkeypatch)
    module, x = names.ModelNew(), torch.randn(4, 32)
    with torch.no_grad():
        torch.testing.assert_close(module(x), module.linear(x))
    assert len(called) == without
    torch.testing.assert_close(module(x), module.linear(x))
    assert len(called) == without + with_gradients
    assert module(torch.randn(5, 32)).shape == (5, 32) and len(called) == without + with_gradients  # another shape
    words = " ".join(text.split())
    assert f"measured on a GPU: {forward:.2f} times as fast as torch.compile" in words
    assert ("torch.compile computes" in words) == (without + with_gradients > 0)


@pytest.mark.parametrize(
    ("modes", "ratios", "expected"),
    [
        ((MAX_AUTOTUNE, MAX_AUTOTUNE), (0.9, 0.9), [MAX_AUTOTUNE, MAX_AUTOTUNE]),
        (("", MAX_AUTOTUNE), (0.9, 0.8), ["", MAX_AUTOTUNE]),
        ((MAX_AUTOTUNE, ""), (0.9, 1.1), [MAX_AUTOTUNE]),
        ((MAX_AUTOTUNE, ""), (1.2, 0.9), [""]),
    ],
)
def test_each_call_goes_to_the_fastest_mode(
    modes: tuple[str, str], ratios: tuple[float, float], expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    names, text, called = written(Beside("a GPU", *ratios, *modes), monkeypatch)
    module, x = names.ModelNew(), torch.randn(4, 32)
    with torch.no_grad():
        module(x)
    module(x)
    assert called == expected
    words = " ".join(text.split())
    assert f"{ratios[0]:.2f} times as fast as torch.compile{f' ({MAX_AUTOTUNE})' if modes[0] else ''} forward" in words
    assert ("by_max_autotune = " in text) == (MAX_AUTOTUNE in expected)


def test_the_fastest_of_the_modes_is_found() -> None:
    times = iter([{"written": 2.0, "": 3.0, MAX_AUTOTUNE: 1.0}, {"written": 2.0, "": 1.0, MAX_AUTOTUNE: 4.0}])
    found = beside_compile(
        lambda self, given: self(given), nn.Linear(3, 3), [torch.randn(3)], lambda _: next(times),
        {"": lambda plain: plain, MAX_AUTOTUNE: lambda plain: plain},
    )  # fmt: skip
    assert found == Beside("this machine", 0.5, 0.5, MAX_AUTOTUNE, "")


def test_a_race_that_there_is_not_is_refused_before_a_gpu_is_asked_for() -> None:
    assert [*rivals_of(True)] == [""] and [*rivals_of("max-autotune")] == ["", MAX_AUTOTUNE]
    with pytest.raises(MisuseError, match="race is True or one of compile, max-autotune, not 'triton'"):
        check_can_race("triton")


def test_what_was_not_measured_is_not_handed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    names, text, called = written(None, monkeypatch)
    names.ModelNew()(torch.randn(4, 32))
    assert not called and "torch.compile" not in text


def test_no_kernel_stands_in_a_file_that_hands_all_over() -> None:
    source = SOURCE.replace("self.linear(x)", "torch.relu(self.linear(x)) * 2")
    names = types.ModuleType("reference")
    exec(source, names.__dict__)
    planned = fuse(trace(names.Model(), [torch.randn(4, 32)]))
    assert "load_inline" in emit(planned, "linear", source, beside=Beside("a GPU", 0.9, 1.1))
    assert "load_inline" not in emit(planned, "linear", source, beside=Beside("a GPU", 0.9, 0.8))


class Noisy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.dropout(self.norm(x), 0.5)


def test_both_are_timed_forward_and_with_gradients_and_nothing_changes() -> None:
    module, x = Noisy(), torch.randn(4, 8)
    asked: list[Mapping[str, Any]] = []

    def time(calls: Mapping[str, Callable[[], Any]]) -> dict[str, float]:
        asked.append({name: call() for name, call in calls.items()})
        return {"written": 2.0, "": 3.0 if len(asked) == 1 else 1.0}

    state, seed = {name: each.clone() for name, each in module.state_dict().items()}, torch.random.get_rng_state()
    found = beside_compile(lambda self, given: self(given), module, [x], time, {"": lambda plain: plain})
    assert (found.forward, found.training) == (1.5, 0.5)
    forward, both = asked
    assert all(not each.requires_grad for each in forward.values())
    assert all(len(gradients) == 2 for gradients in both.values())  # of the norm's weight and bias
    assert all(torch.equal(state[name], each) for name, each in module.state_dict().items())
    assert torch.equal(seed, torch.random.get_rng_state())


def test_without_parameters_only_forward_is_timed() -> None:
    times = iter([{"written": 1.0, "": 2.0}])
    found = beside_compile(
        lambda self, given: self(given), nn.ReLU(), [torch.randn(3)], lambda _: next(times), {"": lambda m: m}
    )
    assert (found.forward, found.training) == (2.0, None)


def test_copies_of_a_graphed_module_record_their_own() -> None:
    """Graphs cannot be copied, and a race works with copies."""
    graphed = Graphed(lambda module, x: x)
    graphed._recorded[()] = open  # what deepcopy would share, or fail on
    copied = copy.deepcopy(graphed)
    assert copied is not graphed and not copied._recorded and copied._forward is graphed._forward


def test_a_module_whose_outputs_take_no_gradient_is_timed_all_the_same() -> None:
    def time(calls: Mapping[str, Callable[[], Any]]) -> dict[str, float]:
        return {name: 1.0 + (call() is None) for name, call in calls.items()}

    found = beside_compile(lambda self, x: self(x).detach(), Noisy(), [torch.randn(4, 8)], time, {"": lambda m: m})
    assert found.training == 1.0
