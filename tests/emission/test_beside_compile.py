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


class WrongBack(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return cotangent * 1.1


def inexact(module: nn.Module, wrong: float = 0.0, *, back: bool = False) -> Callable[..., Any]:
    def forward(*given: Any) -> Any:
        made = module(*given) * (1 + wrong)
        return WrongBack.apply(made) if back else made

    return forward


TIMES: Mapping[str, float] = {"written": 2.0, "": 3.0, MAX_AUTOTUNE: 1.0}


@pytest.mark.parametrize(
    ("wrong", "back", "ratios", "what"),
    [
        (0.1, False, (1.5, 1.5), "outputs are 1.0e-01 from float64"),
        (0.0, True, (0.5, 1.5), "gradients are 1.0e-01 from float64"),
        (1e-3, False, (0.5, 0.5), ""),  # as TF32 rounds, which is allowed
    ],
)
def test_who_is_less_exact_than_eager_is_no_rival(
    wrong: float, back: bool, ratios: tuple[float, float], what: str
) -> None:
    found = beside_compile(
        lambda self, given: self(given), nn.Linear(3, 3), [torch.randn(5, 3)], lambda _: TIMES,
        {"": lambda plain: plain, MAX_AUTOTUNE: lambda plain: inexact(plain, wrong, back=back)},
    )  # fmt: skip
    assert (found.forward, found.training) == ratios
    assert what in " ".join(found.left_out) and bool(found.left_out) == bool(what)
    assert found.words.count("was left out") == bool(what)


def test_where_nobody_is_as_exact_all_stays_ours() -> None:
    found = beside_compile(
        lambda self, given: self(given), nn.Linear(3, 3), [torch.randn(5, 3)], lambda _: {"written": 2.0, "": 1.0},
        {"": lambda plain: inexact(plain, 0.1)},
    )  # fmt: skip
    assert not found.modes and "no torch.compile is as exact forward" in found.words


def test_rivals_may_round_as_ours_does_and_as_eager_does() -> None:
    """Behind a difference of what is nearly the same eager's own roundings are large."""

    class Cancels(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (super().forward(x) + 1e5) - 1e5

    def beside(module: nn.Module, own: float, wrong: float) -> Beside:
        return beside_compile(
            lambda self, given: self(given) * (1 + own), module, [torch.randn(5, 3)],
            lambda _: {"written": 2.0, "": 1.0}, {"": lambda plain: inexact(plain, wrong)},
        )  # fmt: skip

    assert beside(Cancels(3, 3), 0.0, 4e-3).modes == ("",)
    assert beside(nn.Linear(3, 3), 0.0, 4e-3).modes == () and beside(nn.Linear(3, 3), 5e-3, 4e-3).modes == ("",)


def test_an_output_that_takes_no_gradient_is_a_wrong_one() -> None:
    class Two(nn.Linear):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            made = super().forward(x)
            return made * 2, made.exp()

    def cut(plain: nn.Module) -> Callable[..., Any]:
        return lambda *given: (plain(*given)[0].detach(), plain(*given)[1])

    found = beside_compile(
        lambda self, given: self(given), Two(3, 3), [torch.randn(5, 3)], lambda _: {"written": 2.0, "": 1.0},
        {"": cut},
    )  # fmt: skip
    assert found.modes == ("",) and found.training > 1 and "gradients are" in found.words


def test_random_numbers_are_held_against_nothing() -> None:
    found = beside_compile(
        lambda self, given: self(given), Noisy(), [torch.randn(4, 8)], lambda _: {"written": 2.0, "": 1.0},
        {"": lambda plain: inexact(plain, 0.5)},
    )  # fmt: skip
    assert found.modes == ("",) and not found.left_out


def test_who_cannot_be_held_against_anything_is_no_rival() -> None:
    def fails(*_: Any) -> None:
        raise torch.OutOfMemoryError

    times = iter([{"written": 2.0, "": 1.0}] * 2)
    found = beside_compile(
        lambda self, given: self(given), nn.Linear(3, 3), [torch.randn(5, 3)], lambda _: next(times),
        {"": lambda plain: fails},
    )  # fmt: skip
    assert not found.modes and "memory does not allow" in found.words


def test_autocast_is_held_against_float64() -> None:
    """bfloat16 is 4e-3 from it, which is eager's own error; several times that are not its rounding."""

    def beside(wrong: float) -> Beside:
        with torch.autocast("cpu", torch.bfloat16):
            return beside_compile(
                lambda self, given: self(given), nn.Linear(64, 64), [torch.randn(5, 64)],
                lambda _: {"written": 2.0, "": 1.0}, {"": lambda plain: inexact(plain, wrong)},
            )  # fmt: skip

    assert beside(0.0).modes == ("",) and beside(0.1).modes == ()


def test_what_refuses_float64_is_held_against_float32() -> None:
    class Makes(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) @ torch.ones(3, 3)

    for wrong, modes in ((0.0, ("",)), (0.1, ())):
        found = beside_compile(
            lambda self, given: self(given), Makes(3, 3), [torch.randn(5, 3)], lambda _: {"written": 2.0, "": 1.0},
            {"": lambda plain, wrong=wrong: inexact(plain, wrong)},
        )  # fmt: skip
        assert found.modes == modes


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
