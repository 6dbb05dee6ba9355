"""The search: what lowering asks, the ways of each question, the fastest of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from crucible.emission.operator import operator
from crucible.errors import DeviceError
from crucible.gpus import Gpu, closest_gpu
from crucible.kinds.convolution import ways
from crucible.plan.steps import Fused, Plan
from crucible.schedule import cost
from crucible.schedule.convolution.questions import Question, Way, tuned
from crucible.schedule.machine import machine_of
from crucible.tuning.bench import Bench
from crucible.tuning.cache import Cache, Measured, Tried

COUNT = 4
"""Ways of each kind, of warps and of warpgroups, that are tried for a question."""
Say = Callable[[str], None]


@dataclass(frozen=True)
class Search:
    """Where and how much is tried."""

    bench: Bench
    cache: Cache
    say: Say
    count: int = COUNT

    def plan(self, plan: Plan) -> Plan:
        """The plan for a GPU that knows the fastest division of each of its convolutions' kernels. Raises TuningError
        for a division that is wrong, whether it would have been chosen or not."""
        gpu = plan.gpu
        asked = {each.text: (each, ways.ways(each, gpu, self.count)) for each in questions(plan)}
        found = {key: kept for key, each in asked.items() if (kept := self._kept(*each)) is not None}
        found |= self._measured({key: each for key, each in asked.items() if key not in found}, gpu)
        chosen = {key: _named(of_key, found[key].fastest.way) for key, (_, of_key) in asked.items()}
        notes = tuple(_told(question, found[key]) for key, (question, _) in asked.items())
        return replace(plan, gpu=tuned(gpu, lambda question: chosen.get(question.text), notes))

    def _kept(self, question: Question, found: Sequence[Way]) -> Measured | None:
        """What is known of exactly these ways."""
        kept = self.cache.get(question)
        if kept is None:
            return None
        if [each.way for each in kept.tried] != [ways.described(way) for way in found]:
            self.say(f"{question.name} is measured again: other divisions were tried before")
            return None
        return kept

    def _measured(self, missing: Mapping[str, tuple[Question, Sequence[Way]]], gpu: Gpu) -> dict[str, Measured]:
        if not missing:
            return {}
        count = sum(len(tried) for _, tried in missing.values())
        self.say(f"building {count} divisions of {len(missing)} convolutions")
        built = self.bench.built(gpu, missing)
        found = {}
        for key, (question, tried) in missing.items():
            took = self.bench.measured(question, tried, built[key], gpu)
            found[key] = Measured(tuple(_tried(question, *each, gpu) for each in zip(tried, took, strict=True)))
            self.cache.put(question, found[key])
            self.say(_told(question, found[key]))
        return found


def questions(plan: Plan) -> list[Question]:
    """What lowering a plan asks, each once."""
    found: dict[str, Question] = {}

    def heard(question: Question) -> None:
        found.setdefault(question.text, question)

    listening = tuned(plan.gpu, heard)
    for step in plan.steps:
        if isinstance(step, Fused):
            operator(step, plan.types, listening)
    return list(found.values())


def check_gpu(gpu: Gpu, here: str) -> None:
    """Raises DeviceError where kernels are laid out for another GPU than the one that times them; `here` is empty
    without one."""
    if not here:
        raise DeviceError(
            "tuning times kernels, and this machine has no NVIDIA GPU: run it where there is one, or leave --tune out;"
            " divisions are then those of least estimated time"
        )
    if gpu != closest_gpu(here):
        raise DeviceError(f"tuning on {here} says nothing of {gpu.name}: leave --gpu out, or run it on that GPU")


def _tried(question: Question, way: Way, ms: float, gpu: Gpu) -> Tried:
    estimated = cost.milliseconds(machine_of(gpu), ways.clocks(question, way), gpu.sms)
    return Tried(ways.described(way), estimated, ms)


def _named(found: Sequence[Way], name: str) -> Way:
    return next(way for way in found if ways.described(way) == name)


def _told(question: Question, measured: Measured) -> str:
    """What was found for one question."""
    fastest, first = measured.fastest, measured.tried[0]
    more = (
        "that of least estimated time is the fastest"
        if fastest is first
        else f"that of least estimated time takes {first.ms:.4g} ms, {first.ms / fastest.ms:.2f} times as long"
    )
    return f"{question.name}: {fastest.ms:.4g} ms, fastest of {len(measured.tried)} divisions; {more}"
