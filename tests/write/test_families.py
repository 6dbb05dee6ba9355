"""Kernels of programs: on the emulator against float64, as golden text, and through nvcc."""

from __future__ import annotations

import pytest
from harness import Runner, Step, assert_close, built, expected, random_storages
from layouts import LAYOUTS
from programs import CASES

from crucible import emulator
from crucible.write.adjoint import adjoint
from crucible.write.families.lower import lower
from crucible.write.program import Program
from crucible.write.stages import stages


def both_ways() -> dict[str, Program]:
    """The programs that tests share, forward and backward."""
    found = {}
    for name, make in CASES.items():
        case = make()
        upstream = {result.name: f"grad_{result.name}" for result in case.program.results}
        found[name] = case.program
        found[f"{name} backward"] = adjoint(case.program, list(case.shapes), upstream)
    return found


PROGRAMS = {**both_ways(), **{name: make() for name, make in LAYOUTS.items()}}
MULTIPROCESSORS = {"long rows": 1}
"""Fewer than the H200 has, for layouts that need many rows otherwise."""


def steps_of(programs: dict[str, Program]) -> dict[str, Step]:
    return {
        f"{name} {place}": Step(step, lower(step, MULTIPROCESSORS.get(name, 132)))
        for name, program in programs.items()
        for place, step in enumerate(stages(program))
    }


STEPS = steps_of(PROGRAMS)


@pytest.fixture(scope="module")
def run() -> Runner:
    return built("families", STEPS)


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_kernels_compute_the_program(name: str, run: Runner) -> None:
    emulator.forget()
    steps = {which: step for which, step in STEPS.items() if which.rpartition(" ")[0] == name}
    known = random_storages(PROGRAMS[name], 3)
    for which, step in steps.items():
        given = {each.name: known[each.name] for each in step.program.operands}
        found, wanted = run(which, given), expected(step.program, given)
        for result in step.program.results:
            assert_close(found[result.name], wanted[result.name], f"{which}: {result.name}")
        known |= found
    assert [fault.words for fault in emulator.faults() if fault.kind != "never-ran"] == []
