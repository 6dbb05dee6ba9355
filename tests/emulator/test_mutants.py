"""Mutants: how they are made, that the record is of these kernels, and that a sample of them is still caught."""

from __future__ import annotations

import copy
import importlib.util
import json
import sys
import types
from pathlib import Path
from typing import Any

import corpus
import mutants
import pytest

from crucible.emulator import session

SCRIPT = Path(__file__).parents[2] / "benchmarks/emulator_mutation.py"
SAMPLE = 48
"""One of as many mutants runs here: a dozen of all kinds, 10 s."""


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("__syncthreads();", ["(void)0;"]),
        ("cg::sync(block);", ["(void)0;"]),
        ("block.sync();", ["(void)0;"]),
        ("__syncwarp(0xff);", ["(void)0;"]),
        ("__threadfence();", ["(void)0;"]),
        ("if (i < n) y[i] = 0;", ["if ((true)) y[i] = 0;", "if (i <= n) y[i] = 0;"]),
        ("if (i >= n) return;", ["if ((false)) return;", "if (i > n) return;"]),
        ("for (int k = 8; k > 0; k >>= 1) f(k);", ["for (int k = 8; k >= 0; k >>= 1) f(k);"]),
        ("y[i] = t == 0 ? x[i] : 0.0f;", ["y[i] = (true) ? x[i] : 0.0f;"]),
        ("y[i] = (t == 0 && up) ? 1 : 0;", ["y[i] = ((true) && up) ? 1 : 0;", "y[i] = (t == 0 && (true)) ? 1 : 0;"]),
        ("bool in = a == b;", ["bool in = (true);"]),
        ("int blocks = (n + 63) / 64;", ["int blocks = (n) / 64;"]),
        ("int blocks = (n + b.x - 1) / b.x;", []),
        ("int blocks = (n + B - 1) / B;", ["int blocks = (n) / B;"]),
        ("f<int>(x->y << 2, static_cast<float>(z));", []),
    ],
)
def test_barriers_are_removed_and_guards_loosened(tmp_path: Path, line: str, expected: list[str]) -> None:
    file = tmp_path / "kernel.cu"
    file.write_text(f"__global__ void k() {{\n{line}\n}}\nbool host(int a) {{ return a < 3; }}\n")
    found = mutants.mutants(corpus.Kernel(file))
    assert [mutant.text.split("\n")[1] for mutant in found] == expected
    assert all(mutant.what.startswith("2: ") for mutant in found)


def test_names_of_mutants_are_distinct() -> None:
    for kernel in mutants.kernels():
        names = [mutant.what for mutant in mutants.mutants(kernel)]
        assert len(names) == len(set(names)), kernel.path


def test_every_mutated_kernel_has_a_barrier_and_a_guard() -> None:
    assert len(mutants.kernels()) >= 20
    for kernel in mutants.kernels():
        changes = [mutant.what.rpartition(" ")[2] for mutant in mutants.mutants(kernel)]
        assert {"removed", "dropped"} <= set(changes), kernel.path


def test_the_record_is_of_these_kernels_and_the_table_explains_the_rest(
    script: types.ModuleType, record: dict[str, Any]
) -> None:
    assert script.problems(record) == []


def test_a_record_that_does_not_fit_is_refused(script: types.ModuleType, record: dict[str, Any]) -> None:
    (kernel, what), *_ = mutants.not_caught()
    other = next(w for w, by in record["kernels"][kernel]["caught_by"].items() if by)
    caught, missing, unexplained, stale, too_few = (copy.deepcopy(record) for _ in range(5))
    caught["kernels"][kernel]["caught_by"][what] = "race-shared, forward, inputs 1"
    assert script.problems(caught) == [f"{kernel} | {what} | is caught by race-shared, forward, inputs 1"]
    del missing["kernels"][kernel]["caught_by"][what]
    assert script.problems(missing) == [f"{kernel} | {what} | no such mutant"]
    unexplained["kernels"][kernel]["caught_by"][other] = ""
    assert script.problems(unexplained) == [f"{kernel} | {other} | not caught and not in the table"]
    stale["kernels"][kernel]["digest"] = "of another text"
    assert [problem.split(":")[0] for problem in script.problems(stale)] == [kernel]
    for of in too_few["kernels"].values():
        of["caught_by"] = dict.fromkeys(of["caught_by"], "")
    assert script.problems(too_few)[-1].startswith("only 0.0% are caught")


def test_a_sample_is_caught_as_the_record_says(record: dict[str, Any]) -> None:
    every = [mutant for kernel in mutants.kernels() for mutant in mutants.mutants(kernel)]
    sample = every[::SAMPLE]
    session.start().thread_limit(1.0)
    built = corpus.build(sample, "sample_of_mutants")
    for mutant in sample:
        recorded = record["kernels"][mutant.path.stem]["caught_by"][mutant.what]
        assert bool(mutants.caught_by(built, mutant)) == bool(recorded), (mutant.path.stem, mutant.what, recorded)
    session.start().thread_limit(10.0)


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    """What the whole run found."""
    loaded: dict[str, Any] = json.loads((SCRIPT.parent / "results/emulator_mutation.json").read_text())
    return loaded


@pytest.fixture(scope="module")
def script() -> types.ModuleType:
    """benchmarks/emulator_mutation.py as a module."""
    spec = importlib.util.spec_from_file_location("emulator_mutation", SCRIPT)
    assert spec and spec.loader
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
