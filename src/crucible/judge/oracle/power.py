"""Power: would the check refuse an answer that is plainly no answer?

A tolerance says nothing until something is seen to fail it. For each task the judge builds wrong answers out
of the right one and asks its own rule about them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from crucible.judge.oracle.compare import Difference, Expected

SAMPLE_ELEMENTS = 8 << 20
"""Elements looked at: whole batch items up to this many, so that channels can be shuffled."""

Outputs = list[Expected]


def unrefused(cases: list[Outputs], device: torch.device) -> list[str]:
    """The wrong answers that every case would let through. Empty: the check has power."""
    passing: set[str] | None = None
    order: list[str] = []
    for case in cases:
        others = [other for other in cases if other is not case]
        samples = [_sample(expected) for expected in case]
        here = set()
        for name, wrong in _mutants(samples, [[_sample(e) for e in other] for other in others]):
            if name not in order:
                order.append(name)
            if not any(_refused(e, w, device) for e, w in zip(samples, wrong, strict=True)):
                here.add(name)
        passing = here if passing is None else passing & here
    return [name for name in order if name in (passing or set())]


def is_vacuous(cases: list[Outputs]) -> bool:
    """Whether all cases of one shape, two at least, have the same outputs: nothing depends on inputs or weights."""
    by_shape: dict[tuple[tuple[int, ...], ...], list[Outputs]] = {}
    for case in cases:
        by_shape.setdefault(tuple(expected.shape for expected in case), []).append(case)
    groups = [group for group in by_shape.values() if len(group) > 1]
    return bool(groups) and all(_same(group[0], other) for group in groups for other in group[1:])


def _same(one: Outputs, other: Outputs) -> bool:
    return all(torch.equal(a.values, b.values) for a, b in zip(one, other, strict=True))


def _mutants(right: Outputs, others: list[Outputs]) -> Iterator[tuple[str, list[torch.Tensor]]]:
    yield "zeros everywhere", [torch.zeros_like(e.values) for e in right]
    yield "its mean everywhere", [_constant(e) for e in right]
    if any(e.values.numel() > 1 for e in right):
        yield "half of it computed", [_half(e.values) for e in right]
    if any(len(e.shape) > 1 and e.shape[1] > 1 for e in right):
        yield "channels shuffled", [_shuffled(e) for e in right]
    for other in others:
        if all(a.shape == b.shape for a, b in zip(right, other, strict=True)):
            yield "another input's output", [e.values for e in other]
            return


def _refused(expected: Expected, wrong: torch.Tensor, device: torch.device) -> bool:
    difference = Difference(expected)
    difference.add(wrong.to(device))
    return not difference.result(case=0).ok


def _sample(expected: Expected) -> Expected:
    """Whole leading items of the tensor, at least one."""
    if not expected.shape:
        return expected
    item = max(1, expected.values.numel() // max(1, expected.shape[0]))
    items = min(expected.shape[0], max(1, SAMPLE_ELEMENTS // item))
    return replace(expected, values=expected.values[: items * item], shape=(items, *expected.shape[1:]))


def _constant(e: Expected) -> torch.Tensor:
    if not e.values.is_floating_point():
        return e.values[:1].expand_as(e.values)
    return torch.full_like(e.values, float(e.values.to(torch.float64).mean()))


def _half(values: torch.Tensor) -> torch.Tensor:
    cut = values.clone()
    cut[cut.numel() // 2 :] = 0
    return cut


def _shuffled(e: Expected) -> torch.Tensor:
    return e.values.view(e.shape).roll(1, 1).flatten() if len(e.shape) > 1 else e.values
