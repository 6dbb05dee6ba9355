"""A timed step: contents moved as the judge says, memory that rotates, and the last result kept as it was."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from crucible.judge.boundary.bundles import copy_moved, take_apart
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


def step_of(
    function: Callable[..., Any], inputs: Any, cotangents: list[torch.Tensor] | None = None
) -> tuple[TimedStep, Seen]:
    model = Seen(function)
    structure, leaves = take_apart(inputs, "input")
    tensors, names = [leaf.tensor for leaf in leaves], [leaf.name for leaf in leaves]
    return TimedStep(model, structure, tensors, names, cotangents, CPU), model


def moved(content: torch.Tensor, places: int) -> torch.Tensor:
    """As the oracle has it."""
    target = torch.empty_like(content)
    copy_moved(target, content, places)
    return target


def ramp(*shape: int) -> torch.Tensor:
    return torch.arange(float(torch.Size(shape).numel())).reshape(shape)


# --- contents


def test_every_call_has_the_contents_asked_for_of_the_same_values() -> None:
    x = ramp(8, 6)
    step, model = step_of(lambda x: x + 1, [x])
    for shift in range(48):
        step.sample(shift, False)
    seen = [values[0] for values in model.values]
    assert all(contents.shape == x.shape for contents in seen)
    assert all(torch.equal(contents.flatten().sort().values, x.flatten()) for contents in seen)
    assert not any(torch.equal(a, b) for a, b in itertools.combinations(seen, 2))
    assert torch.equal(seen[0], x)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 5), max_size=3), st.lists(st.integers(0, 1 << 31), min_size=1, max_size=4))
def test_contents_are_the_cases_own_moved_as_the_oracle_moves_them(shape: list[int], shifts: list[int]) -> None:
    x = ramp(*shape)
    step, model = step_of(lambda x: x * 3, [x])
    for shift in shifts:
        step.sample(shift, False)
        assert torch.equal(model.values[-1][0], moved(x, shift))
        assert torch.equal(step.kept[0], moved(x, shift) * 3)


def test_inputs_are_moved_each_for_itself_and_integers_too() -> None:
    inputs = [ramp(4, 3), torch.tensor([3, 1, 2, 0, 5]), torch.tensor([True, False, False, True, True, False, False])]
    step, model = step_of(lambda x, i, b: x * 1, inputs)
    for shift in (2, 7, 0):
        step.sample(shift, False)
        for value, given_ in zip(model.values[-1], inputs, strict=True):
            assert value.dtype == given_.dtype
            assert torch.equal(value, moved(given_, shift))


@pytest.mark.parametrize("offsets", [[0, 2, 2, 5], [7], []])
def test_integers_in_order_stay_in_place(offsets: list[int]) -> None:
    """Offsets into another input mean nothing in another order."""
    step, model = step_of(lambda x, offsets: x * 1, [ramp(6), torch.tensor(offsets, dtype=torch.int64)])
    for shift in (1, 2, 3):
        step.sample(shift, False)
        assert model.values[-1][1].tolist() == offsets
        assert not torch.equal(model.values[-1][0], ramp(6))


def test_named_inputs_and_plain_ones_arrive_as_such() -> None:
    seen = []

    def function(x: torch.Tensor, factor: int, mask: dict[str, Any]) -> torch.Tensor:
        seen.append((factor, mask["how"], mask["m"].dtype))
        return x * factor * mask["m"]

    x, m = ramp(6), torch.tensor([1, 0, 1, 1, 0, 1])
    step, _ = step_of(function, {"x": x, "factor": 3, "mask": {"m": m, "how": "keep"}})
    for shift in (2, 1, 0):
        step.sample(shift, False)
    assert seen == [(3, "keep", torch.int64)] * 3
    assert torch.equal(step.kept[0], x * 3 * m)


def test_a_model_that_writes_to_its_input_spoils_no_later_call() -> None:
    step, model = step_of(lambda x: x.mul_(-1), [ramp(10)])
    for shift in (5, 4, 3, 2, 1, 0):
        step.sample(shift, False)
    assert all(torch.equal(values[0].sort().values, ramp(10)) for values in model.values)
    assert torch.equal(step.kept[0], -ramp(10))


def test_contents_that_are_not_contiguous_are_fresh_too() -> None:
    x = ramp(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
    step, model = step_of(lambda x: x + 1, [x])
    for shift in (1, 2, 3, 0):
        step.sample(shift, False)
    seen = [values[0] for values in model.values]
    assert all(torch.equal(contents.flatten().sort().values, ramp(120)) for contents in seen)
    assert not any(torch.equal(a, b) for a, b in itertools.combinations(seen, 2))
    assert torch.equal(step.kept[0], x + 1)


# --- memory


def test_two_storages_take_turns_for_every_input() -> None:
    step, model = step_of(lambda x, y: x, [ramp(5), ramp(3)])
    for shift in range(7):
        step.sample(shift, False)
    assert model.places[0] != model.places[1]
    assert model.places == [model.places[i % 2] for i in range(7)]
    assert len({place for places in model.places for place in places}) == 4


def test_nobody_writes_to_the_contents_that_were_given() -> None:
    x = ramp(10)
    step, model = step_of(lambda x: x.mul_(-1), [x])
    for shift in range(5):
        step.sample(shift, False)
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
    for shift in (3, 0, 5):
        step.sample(shift, False)
        assert [t.tolist() for t in step.kept] == [(moved(ramp(12), shift) * 2).tolist()]


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
    taken = [step.sample(shift, False) for shift in range(5)]
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
    for shift in (2, 1, 0):
        step.sample(shift, False)
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
    for shift in (0, 2, 1):
        step.sample(shift, False)
        assert torch.equal(step.kept_gradients["weight"], moved(ramp(3), shift))
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
