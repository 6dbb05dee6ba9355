"""The committed table of mutants: enough rows, enough causes named first, and a sample that is judged again."""

from __future__ import annotations

import importlib.util
import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from crucible.judge.verdict.evidence import Finding

SCRIPT = Path(__file__).parents[2] / "benchmarks/explain_mutants.py"
SAMPLE = ("default_slope", "rest_left", "no_guard")
"""An operator's argument, an unwritten tail, an access outside: one kernel's, so that one run judges them."""


@pytest.fixture(scope="module")
def script() -> types.ModuleType:
    """benchmarks/explain_mutants.py as a module."""
    spec = importlib.util.spec_from_file_location("explain_mutants", SCRIPT)
    assert spec and spec.loader
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def table(script: types.ModuleType) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(script.RESULTS.read_text())
    return loaded


def test_four_causes_of_five_are_named_first_and_none_where_there_is_none(
    table: dict[str, Any], script: types.ModuleType
) -> None:
    rows = table["rows"]
    named = [row for row in rows if row["right"]]
    assert len(rows) >= 20 and len(named) >= 16 and len(named) >= 0.8 * len(rows)
    assert (table["mutants"], table["right"]) == (len(rows), len(named))
    assert script.problems(table) == []


def test_the_table_is_of_the_mutants_as_they_are(table: dict[str, Any], script: types.ModuleType) -> None:
    rows = {(row["kernel"], row["name"]): row for row in table["rows"]}
    assert [(m.kernel, m.name) for m in script.MUTANTS] == list(rows)
    assert [control["kernel"] for control in table["unmutated"]] == list(dict.fromkeys(kernel for kernel, _ in rows))
    for mutant in script.MUTANTS:
        row = rows[mutant.kernel, mutant.name]
        said = Finding(row["claim"], row["evidence"])
        assert (row["expected_claim"], row["expected_evidence"]) == (mutant.claim, mutant.evidence)
        assert row["right"] is (row["verdict"] != "passed" and mutant.is_named_by(said)), row
        assert mutant.candidate.source != script.right(mutant.kernel).source


def test_a_table_that_names_too_few_or_accuses_a_right_kernel_is_refused(
    table: dict[str, Any], script: types.ModuleType
) -> None:
    assert len(script.problems({**table, "right": int(0.79 * table["mutants"])})) == 1
    accused = {**table["unmutated"][0], "causes": ["output is wrong"]}
    assert len(script.problems({**table, "unmutated": [accused]})) == 1


def test_a_sample_is_explained_as_the_table_says(table: dict[str, Any], script: types.ModuleType) -> None:
    mutants = [mutant for mutant in script.MUTANTS if mutant.kernel == "bias_gelu" and mutant.name in SAMPLE]
    run = script.judged("bias_gelu", mutants)
    recorded = {row["name"]: row["claim"] for row in table["rows"] if row["kernel"] == "bias_gelu"}
    assert len(mutants) == len(SAMPLE)
    for name in SAMPLE:
        assert run.explanations[name][0].claim == recorded[name], run.verdict(name).outcome.words
