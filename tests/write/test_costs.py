"""Costs stand in one record a GPU: each field told, each read, and no private ones beside it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import crucible
from crucible.gpus import GPUS, H200
from crucible.schedule import machine
from crucible.schedule.machine import MACHINES, Machine, machine_of

PACKAGE = Path(crucible.__file__).parent
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
ROOMS = ("plan", "algebra", "schedule", "kinds", "kernel", "print", "target", "emission", "tuning", "capture")
MODEL = {PACKAGE / "schedule" / name for name in ("cost.py", "machine.py")}
"""Where they belong."""
FILES = sorted(file for room in ROOMS for file in (PACKAGE / room).rglob("*.py") if file not in MODEL)
WORDS = {
    "CLOCK", "CLOCKS", "CYCLES", "GHZ", "MHZ", "HZ", "NS", "US", "MS", "S", "SECONDS", "MICROSECONDS", "MILLISECONDS",
    "LATENCY", "BANDWIDTH", "THROUGHPUT", "FLOPS", "TFLOPS", "EFFICIENCY", "OVERHEAD", "COST", "COSTS", "SPEEDUP",
}  # fmt: skip
"""Of a constant's name: time, or a rate."""
TIMEOUTS = {"HANG_S"}
"""What is waited for at most is no cost."""
COUNTS = frozenset({0, 1, 2, 3, 4, 5, 8, 16, 32, 128})
"""Lanes, words, sectors and lines: what one counts with. Any other number in an estimate is a cost."""
ESTIMATES = re.compile(r"(^|_)(clocks?|seconds|milliseconds|microseconds|time|estimate|pays?|faster)($|_)")
SOURCE = re.compile(r"^\w+( a clock)?: .* From: (.*)\.$", re.DOTALL)
HEADING = re.compile(r'^notes\.md, "(.*)"$')
PLAIN = ("not measured", "CUDA C++ Programming Guide", "gpus.py")


# no private ones


def constants(tree: ast.Module) -> Iterator[str]:
    """Names of times and rates that are given as numbers, of a module or a class."""
    scopes: list[ast.Module | ast.ClassDef] = [tree, *(n for n in ast.walk(tree) if isinstance(n, ast.ClassDef))]
    for node in (each for scope in scopes for each in scope.body):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if is_set(node) else []
        names = [n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)]
        value = getattr(node, "value", None)
        if value is not None and any(map(number, ast.walk(value))):
            yield from (
                name for name in names if WORDS & {*name.strip("_").upper().split("_")} and name not in TIMEOUTS
            )


def is_set(node: ast.stmt) -> bool:
    return isinstance(node, ast.AnnAssign) and node.value is not None


def number(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool)


def literals(tree: ast.Module) -> Iterator[tuple[str, object]]:
    """Numbers that are no counts in functions which estimate, or ask the model."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and (ESTIMATES.search(node.name) or asks(node)):
            for each in ast.walk(node):
                if isinstance(each, ast.Constant) and number(each) and not is_count(each.value):
                    yield node.name, each.value


def is_count(value: object) -> bool:
    return value == 0 or (isinstance(value, int) and value in COUNTS)


def asks(function: ast.FunctionDef) -> bool:
    asked = (n.value for n in ast.walk(function) if isinstance(n, ast.Attribute))
    return any(isinstance(each, ast.Name) and each.id in ("cost", "pays") for each in asked)


@pytest.mark.parametrize("file", FILES, ids=lambda file: "/".join(file.relative_to(PACKAGE).with_suffix("").parts))
def test_there_are_no_private_costs(file: Path) -> None:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    assert [*constants(tree), *literals(tree)] == [], "times and rates belong in schedule/machine.py"


@pytest.mark.parametrize(
    "text",
    [
        "LAUNCH_US = 4.0",
        "STEP_CLOCKS, TURNED_CLOCKS = 1900, 2150",
        "BYTES_PER_S: float = 4.25e12",
        "class Walks:\n    bytes_a_clock: float = 14.1",
        "def clocks(n):\n    return 1.05 * n",
        "def total_clocks(n):\n    return n + 8000",
        "def _staged(m, n):\n    return cost.load_rounds(m, n) + 14 * n",
        "def pays(channels):\n    return channels <= 64",
    ],
)
def test_one_would_be_seen(text: str) -> None:
    tree = ast.parse(text)
    assert [*constants(tree), *literals(tree)] != []


def test_what_is_no_cost_is_left_alone() -> None:
    tree = ast.parse("HANG_S = 30.0\nTILE, STEP = 128, 32\ndef rows(n):\n    return n * 27\nCLOCKS = machine.clocks")
    assert [*constants(tree), *literals(tree)] == []


# the record


def told() -> dict[str, str]:
    """What is written of each field, by part and name."""
    found = {}
    for part in ast.parse(Path(machine.__file__).read_text(encoding="utf-8")).body:
        if isinstance(part, ast.ClassDef):
            for field, text in zip(part.body, part.body[1:], strict=False):
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                    is_text = isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
                    found[f"{part.name}.{field.target.id}"] = str(text.value.value) if is_text else ""  # type: ignore[attr-defined]
    return found


def parts(of: Machine) -> Iterator[tuple[str, Any]]:
    for field in fields(of):
        value = getattr(of, field.name)
        if is_dataclass(value):
            yield field.name, value


def test_every_field_has_a_unit_and_a_source() -> None:
    said = told()
    notes = " ".join((BENCHMARKS / "notes.md").read_text(encoding="utf-8").split())
    for part, value in parts(machine_of(H200)):
        for field in fields(value):
            name = f"{type(value).__name__}.{field.name}"
            found = SOURCE.match(" ".join(said[name].split()))
            assert found, f"{part}.{field.name}: unit: what it is. From: where it is from."
            source, heading = found[2], HEADING.match(found[2])
            is_heading = heading is not None and heading[1] in notes
            assert is_heading or source in PLAIN or (BENCHMARKS / "results" / source).is_file(), source


def test_every_field_is_read() -> None:
    """One that nothing reads is no cost."""
    files = [PACKAGE / "schedule/cost.py", *(file for file in FILES if file.is_relative_to(PACKAGE / "schedule"))]
    read = {n.attr for file in files for n in ast.walk(ast.parse(file.read_text())) if isinstance(n, ast.Attribute)}
    assert {f.name for _, part in parts(machine_of(H200)) for f in fields(part)} <= read


def test_every_gpu_has_a_record() -> None:
    assert {name: each.gpu for name, each in MACHINES.items()} == {name: name for name in MACHINES}
    for gpu in GPUS:
        found = machine_of(gpu)
        assert found is MACHINES.get(gpu.short_name, machine.H200)
    assert machine_of(replace(H200, sms=2)) is machine.H200, "part of a GPU has its costs"


def test_constants_of_another_gpu_say_so() -> None:
    for each in MACHINES.values():
        alike = [value for _, value in parts(each)] == [value for _, value in parts(machine.H200)]
        assert alike == (each.stands_in or each is machine.H200)
