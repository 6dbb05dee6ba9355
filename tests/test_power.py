"""A check with power refuses every plainly wrong answer; one without it says which would pass."""

from __future__ import annotations

import pytest
import torch

from crucible.judge.oracle import power
from crucible.judge.oracle.compare import Expected, benchmark_rule
from crucible.judge.oracle.power import unrefused

CPU = torch.device("cpu")
MUTANTS = {
    "zeros everywhere",
    "its mean everywhere",
    "half of it computed",
    "channels shuffled",
    "another input's output",
}


def expect(values: torch.Tensor, allowed: float = 1e-3) -> Expected:
    floating = values.is_floating_point()
    scale = float(values.double().pow(2).mean().sqrt()) or 1.0 if floating else 1.0
    kept = values.double().flatten() if floating else values.flatten()
    allowed = allowed if floating else 0.5 / values.numel()
    return Expected("output", kept, values.dtype, tuple(values.shape), scale, allowed, allowed if floating else 1.0)


def by_benchmark(values: torch.Tensor) -> Expected:
    expected = expect(values)
    return benchmark_rule(expected, expected.values)


def normal(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_every_wrong_answer_to_ordinary_data_is_refused() -> None:
    cases = [[expect(normal(seed, 4, 3, 8))] for seed in range(2)]
    assert unrefused(cases, CPU) == []


def test_all_wrong_answers_are_asked_about() -> None:
    """Under a tolerance that lets everything through, every one of them is named."""
    cases = [[expect(normal(seed, 4, 3, 8), allowed=1e9)] for seed in range(2)]
    assert set(unrefused(cases, CPU)) == MUTANTS


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool])
def test_wrong_integers_and_truths_are_refused(dtype: torch.dtype) -> None:
    cases = [[expect((normal(seed, 4, 3, 8) > 0).to(dtype))] for seed in range(2)]
    assert unrefused(cases, CPU) == []


def test_one_right_tensor_does_not_excuse_another() -> None:
    cases = [[expect(normal(seed, 4, 3, 8)), expect(torch.zeros(4, 3))] for seed in range(2)]
    assert unrefused(cases, CPU) == []


def test_a_constant_output_is_told_by_no_shuffle_and_no_other_input() -> None:
    cases = [[expect(torch.full((4, 3, 8), 0.7))] for _ in range(2)]
    assert set(unrefused(cases, CPU)) == {"its mean everywhere", "channels shuffled", "another input's output"}


def test_an_output_of_zeros_is_told_from_nothing() -> None:
    assert set(unrefused([[expect(torch.zeros(4, 3, 8))] for _ in range(2)], CPU)) == MUTANTS


def test_tiny_outputs_pass_anything_under_an_absolute_tolerance() -> None:
    cases = [[by_benchmark(1e-6 * normal(seed, 4, 3, 8))] for seed in range(2)]
    assert set(unrefused(cases, CPU)) == MUTANTS


def test_one_case_that_refuses_is_enough() -> None:
    constant, ordinary = expect(torch.full((4, 3, 8), 0.7)), expect(normal(0, 4, 3, 8))
    assert unrefused([[constant], [ordinary]], CPU) == []


def test_a_single_case_is_asked_about_all_but_another_input() -> None:
    assert set(unrefused([[expect(normal(0, 4, 3, 8), allowed=1e9)]], CPU)) == MUTANTS - {"another input's output"}


@pytest.mark.parametrize("shape", [(), (1,), (6,), (0, 3)])
def test_odd_shapes_are_looked_at_too(shape: tuple[int, ...]) -> None:
    unrefused([[expect(torch.ones(shape))], [expect(torch.ones(shape) * 2)]], CPU)


def test_large_tensors_are_sampled_in_whole_items(monkeypatch: pytest.MonkeyPatch) -> None:
    """What lies beyond the sample is not looked at: zeros there count as constant."""
    monkeypatch.setattr(power, "SAMPLE_ELEMENTS", 30)
    values = torch.cat([torch.full((2, 3, 8), 0.7), normal(0, 6, 3, 8)])
    assert "channels shuffled" in unrefused([[expect(values)]], CPU)
    monkeypatch.setattr(power, "SAMPLE_ELEMENTS", 3 * 24)
    assert unrefused([[expect(values)]], CPU) == []
