"""A timed step: contents moved as the judge says, memory that rotates, and the last result kept as it was."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from crucible.judge.boundary.bundles import take_apart
from crucible.judge.worker.clock import Sample
from crucible.judge.worker.timed import TimedStep

CPU = torch.device("cpu")


class Seen(nn.Module):
    """Notes what each call is given, and where it lies."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        self.weight = nn.Parameter(torch.tensor([2.0, -3.0, 0.5]))
        self.values: list[list[torch.Tensor]] = []
        self.places: list[tuple[int, ...]] = []

    def forward(self, *inputs: Any, **named: Any) -> Any:
        tensors = [t for t in (*inputs, *named.values()) if isinstance(t, torch.Tensor)]
        self.values.append([t.detach().clone() for t in tensors])
        self.places.append(tuple(t.data_ptr() for t in tensors))
        return self.function(*inputs, **named)


@dataclass
class Step:
    """A timed step whose contents go by numbers."""

    step: TimedStep
    inputs: list[torch.Tensor]

    def sample(self, number: int, replay: bool) -> Sample:
        return self.step.sample(fill(self.inputs, number), replay)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.step, name)


def step_of(
    function: Callable[..., Any], inputs: Any, cotangents: list[torch.Tensor] | None = None
) -> tuple[Step, Seen]:
    model = Seen(function)
    structure, leaves = take_apart(inputs, "input")
    tensors, names = [leaf.tensor for leaf in leaves], [leaf.name for leaf in leaves]
    return Step(TimedStep(model, structure, tensors, names, cotangents, CPU), tensors), model


def other(content: torch.Tensor, number: int) -> torch.Tensor:
    """Contents by number; 0 are the step's own."""
    if not number:
        return content
    generator = torch.Generator().manual_seed(number)
    drawn = torch.rand(content.shape, generator=generator) * 100
    return drawn.to(content.dtype)


def fill(inputs: list[torch.Tensor], number: int) -> Callable[[list[torch.Tensor]], None]:
    def put(tensors: list[torch.Tensor]) -> None:
        for tensor, content in zip(tensors, inputs, strict=True):
            tensor.copy_(other(content, number))

    return put


def ramp(*shape: int) -> torch.Tensor:
    return torch.arange(float(torch.Size(shape).numel())).reshape(shape)


def test_a_hurried_call_has_contents_and_memory_of_its_own_and_no_clock() -> None:
    step, seen = step_of(lambda x: x * 2, [ramp(3)])
    step.sample(1, replay=False)
    step.step._sample = None  # type: ignore[assignment] # it would write a cache over: milliseconds
    step.hurry(fill(step.inputs, 2), False)
    assert torch.equal(step.kept[0], other(ramp(3), 2) * 2)
    assert torch.equal(step.given[0], other(ramp(3), 2))
    assert len(seen.places) == 2 and seen.places[0] != seen.places[1]


# --- contents


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 5), max_size=3), st.lists(st.integers(0, 99), min_size=1, max_size=4))
def test_every_call_has_the_contents_asked_for(shape: list[int], numbers: list[int]) -> None:
    x = ramp(*shape)
    step, model = step_of(lambda x: x * 3, [x])
    for number in numbers:
        step.sample(number, False)
        assert torch.equal(model.values[-1][0], other(x, number))
        assert torch.equal(step.kept[0], other(x, number) * 3)


def test_all_inputs_are_filled_integers_too() -> None:
    inputs = [ramp(4, 3), torch.tensor([3, 1, 2, 0, 5]), torch.tensor([True, False, False, True, True, False, False])]
    step, model = step_of(lambda x, i, b: x * 1, inputs)
    for number in (2, 7, 0):
        step.sample(number, False)
        for value, given_ in zip(model.values[-1], inputs, strict=True):
            assert value.dtype == given_.dtype
            assert torch.equal(value, other(given_, number))


def test_named_inputs_and_plain_ones_arrive_as_such() -> None:
    seen = []

    def function(x: torch.Tensor, factor: int, mask: dict[str, Any]) -> torch.Tensor:
        seen.append((factor, mask["how"], mask["m"].dtype))
        return x * factor * mask["m"]

    x, m = ramp(6), torch.tensor([1, 0, 1, 1, 0, 1])
    step, _ = step_of(function, {"x": x, "factor": 3, "mask": {"m": m, "how": "keep"}})
    for number in (2, 1, 0):
        step.sample(number, False)
    assert seen == [(3, "keep", torch.int64)] * 3
    assert torch.equal(step.kept[0], x * 3 * m)


def test_a_model_that_writes_to_its_input_spoils_no_later_call() -> None:
    step, model = step_of(lambda x: x.mul_(-1), [ramp(10)])
    for number in (5, 4, 3, 2, 1, 0):
        step.sample(number, False)
        assert torch.equal(model.values[-1][0], other(ramp(10), number))
    assert torch.equal(step.kept[0], -ramp(10))


def test_contents_that_are_not_contiguous_are_fresh_too() -> None:
    x = ramp(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
    step, model = step_of(lambda x: x + 1, [x])
    for number in (1, 2, 3, 0):
        step.sample(number, False)
    seen = [values[0] for values in model.values]
    assert not any(torch.equal(a, b) for a, b in itertools.combinations(seen, 2))
    assert torch.equal(step.kept[0], x + 1)


# --- memory


def test_two_storages_take_turns_for_every_input() -> None:
    step, model = step_of(lambda x, y: x, [ramp(5), ramp(3)])
    for number in range(7):
        step.sample(number, False)
    assert model.places[0] != model.places[1]
    assert model.places == [model.places[i % 2] for i in range(7)]
    assert len({place for places in model.places for place in places}) == 4


def test_nobody_writes_to_the_contents_that_were_given() -> None:
    x = ramp(10)
    step, model = step_of(lambda x: x.mul_(-1), [x])
    for number in range(5):
        step.sample(number, False)
    assert torch.equal(x, ramp(10))
    assert x.data_ptr() not in {place for places in model.places for place in places}


# --- what is kept


def test_what_is_kept_is_a_copy() -> None:
    """Of a model that fills one buffer in every call, as many a fast one does."""
    buffer = torch.empty(12)

    def reuse(x: torch.Tensor) -> torch.Tensor:
        buffer.copy_(x * 2)
        return buffer

    step, _ = step_of(reuse, [ramp(12)])
    step.sample(0, False)
    buffer.fill_(-1)
    assert torch.equal(step.kept[0], ramp(12) * 2)
    kept = step.kept[0]
    step.sample(3, False)
    assert torch.equal(kept, ramp(12) * 2)


def test_only_the_last_samples_result_is_kept() -> None:
    step, _ = step_of(lambda x: x * 2, [ramp(12)])
    assert (step.kept, step.kept_gradients) == ([], {})
    for number in (3, 0, 5):
        step.sample(number, False)
        assert [t.tolist() for t in step.kept] == [(other(ramp(12), number) * 2).tolist()]


def test_a_sample_that_raises_leaves_nothing_kept() -> None:
    calls: list[int] = []

    def breaks(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        if len(calls) > 1:
            raise ValueError("no")
        return x * 2

    step, _ = step_of(breaks, [ramp(3)])
    step.sample(0, False)
    with pytest.raises(ValueError, match="no"):
        step.sample(0, False)
    assert (step.kept, step.kept_gradients) == ([], {})


def test_all_outputs_are_kept_in_order_numbers_too() -> None:
    step, _ = step_of(lambda x: {"b": (x, 3), "a": x.sum(), "c": [x > 2]}, [ramp(4)])
    step.sample(0, False)
    assert [t.tolist() for t in step.kept] == [6.0, [0.0, 1.0, 2.0, 3.0], 3, [False, False, False, True]]


def test_a_sample_is_one_call_and_holds_times_and_nothing_of_the_result() -> None:
    step, model = step_of(lambda x: x * 2, [ramp(12)])
    taken = [step.sample(number, False) for number in range(5)]
    assert len(model.values) == 5
    assert all(sample.result is None and sample.device_ms >= 0 and sample.wall_ms > 0 for sample in taken)


def test_the_first_call_ever_is_told_and_stays() -> None:
    step, _ = step_of(lambda x: x * 2, [ramp(12)])
    assert step.first_call_s == 0
    first = step.sample(1, False)
    assert step.first_call_s == first.wall_ms / 1e3
    step.sample(2, False)
    assert step.first_call_s == first.wall_ms / 1e3


# --- gradients


def linear(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return (x * weight).sum(1)


def test_gradients_are_kept_with_the_output() -> None:
    cotangent = torch.tensor([1.0, -2.0])
    step, model = step_of(lambda x: linear(x, model.weight), [ramp(2, 3)], [cotangent])
    step.sample(2, False)
    step.sample(0, False)
    assert torch.equal(step.kept[0], linear(ramp(2, 3), model.weight))
    assert not step.kept[0].requires_grad
    assert set(step.kept_gradients) == {"input[0]", "weight"}
    assert torch.equal(step.kept_gradients["input[0]"], cotangent[:, None] * model.weight)
    assert torch.equal(step.kept_gradients["weight"], cotangent @ ramp(2, 3))


def test_every_floating_input_requires_gradients_and_no_other() -> None:
    seen = []

    def function(x: torch.Tensor, i: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        seen.append((x.requires_grad, i.requires_grad, y.requires_grad, torch.is_grad_enabled()))
        return x * i * y

    inputs = [ramp(3), torch.tensor([1, 2, 3]), ramp(3) + 1]
    step, _ = step_of(function, inputs, [torch.ones(3)])
    for number in (2, 1, 0):
        step.sample(number, False)
    assert set(seen) == {(True, False, True, True)}
    assert set(step.kept_gradients) == {"input[0]", "input[2]"}
    assert torch.equal(step.kept_gradients["input[2]"], inputs[0] * inputs[1])
    forward, _ = step_of(function, inputs)
    seen.clear()
    with torch.no_grad():
        forward.sample(0, False)
    assert set(seen) == {(False, False, False, False)}
    assert forward.kept_gradients == {}


def test_gradients_are_those_of_the_kept_call_alone() -> None:
    """Nothing is summed over calls, as `backward()` into `.grad` would."""
    step, model = step_of(lambda x: (x * model.weight).sum(), [ramp(3)], [torch.tensor(1.0)])
    for number in (0, 2, 1):
        step.sample(number, False)
        assert torch.equal(step.kept_gradients["weight"], other(ramp(3), number))
    assert model.weight.grad is None


def test_kept_gradients_are_copies() -> None:
    buffer = torch.empty(3)

    class Reuse(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            return torch.mul(gradient, 2 * ctx.saved_tensors[0], out=buffer)

    step, _ = step_of(Reuse.apply, [ramp(3)], [torch.ones(3)])
    step.sample(0, False)
    buffer.fill_(-1)
    assert torch.equal(step.kept_gradients["input[0]"], 2 * ramp(3))


def test_a_gradient_that_is_not_there_is_not_kept() -> None:
    step, model = step_of(lambda x: x.detach() * model.weight, [ramp(3)], [torch.ones(3)])
    step.sample(0, False)
    assert set(step.kept_gradients) == {"weight"}


def test_inputs_may_be_written_to_where_gradients_are_asked_for() -> None:
    """A reference that does so is judged on copies of its inputs, and must be timed on some too."""
    step, _ = step_of(lambda x: x.mul_(2) * 3, [ramp(3)], [torch.ones(3)])
    step.sample(1, False)
    step.sample(0, False)
    assert torch.equal(step.kept[0], ramp(3) * 6)
    assert torch.equal(step.kept_gradients["input[0]"], torch.full((3,), 6.0))


def test_what_the_model_raises_comes_out() -> None:
    def broken(x: torch.Tensor) -> torch.Tensor:
        raise ValueError("no")

    step, _ = step_of(broken, [ramp(3)])
    with pytest.raises(ValueError, match="no"):
        step.sample(0, False)


# --- what becomes of it


def test_the_outputs_of_the_call_before_are_alive_and_what_they_have_become() -> None:
    buffer = torch.empty(12)
    for function, becomes in ((lambda x: x * 2, 1), (lambda x: torch.mul(x, 2, out=buffer), 2)):
        step, _ = step_of(function, [ramp(12)])
        for number in (1, 2):
            step.sample(number, False)
        assert torch.equal(step.earlier[0], other(ramp(12), becomes) * 2)


def test_the_inputs_of_the_last_call_are_as_it_left_them() -> None:
    step, _ = step_of(lambda x: x.mul_(-1) * 1, [ramp(10)])
    step.sample(3, False)
    assert torch.equal(step.given[0], -other(ramp(10), 3))
