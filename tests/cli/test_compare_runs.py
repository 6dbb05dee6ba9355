"""`crucible compare`: verdicts that changed, ratios with intervals, ties; what cannot be compared."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from crucible.cli import app
from crucible.errors import MisuseError
from crucible.hardware import Device
from crucible.judge.verdict.evidence import NotMeasured
from crucible.judge.verdict.modelled import Modelled
from crucible.judge.verdict.verdict import Passed, Verdict, Wrong
from crucible.report.compared import differences, setting
from crucible.run import Run
from test_table import a_run, raced


def passed(name: str, ms: float) -> Verdict:
    return Verdict(name, Passed(), timing=raced(ms))


def modelled(name: str, ms: float, at: str = "full size") -> Verdict:
    model = Modelled(ms, "forward", "NVIDIA H200", at, 1.0, 0.0, 1, ())
    return Verdict(name, Passed(), timing=NotMeasured("the emulator"), modelled=model)


WRONG = Wrong("forward", "output is off by 3")
BEFORE = (
    *(passed(name, ms) for name, ms in (("faster", 2.0), ("same", 1.0), ("broken", 1.0), ("gone", 1.0))),
    Verdict("mended", WRONG),
    *(modelled(name, 2.0) for name in ("model", "other_size", "timed_now")),
)
AFTER = (
    *(passed(name, ms) for name, ms in (("faster", 1.0), ("same", 1.001), ("mended", 3.0), ("new", 1.0))),
    Verdict("broken", WRONG),
    modelled("model", 1.0),
    modelled("other_size", 1.0, "the size judged"),
    passed("timed_now", 1.0),
)


def test_what_changed_and_by_how_much() -> None:
    found = {one.name: one for one in differences(a_run(*BEFORE), a_run(*AFTER))}
    assert set(found) == {verdict.candidate for verdict in (*BEFORE, *AFTER)}
    assert (found["faster"].times, found["faster"].better) == ("2 ms → 1 ms", True)
    assert found["faster"].ratio.startswith("0.5 [0.49") and found["faster"].ratio.endswith("]")
    assert found["same"].ratio.startswith("tie 1 [") and not found["same"].changed
    assert (found["broken"].before, found["broken"].after, found["broken"].better) == ("passed", "wrong forward", False)
    assert (found["mended"].better, found["mended"].changed) == (True, True)
    assert (found["gone"].after, found["new"].before) == ("-", "-")
    assert found["gone"].better is None and found["gone"].changed


def test_modelled_times_are_held_against_modelled_ones_of_one_size_alone() -> None:
    found = {one.name: one for one in differences(a_run(*BEFORE), a_run(*AFTER))}
    assert (found["model"].times, found["model"].ratio, found["model"].better) == (
        "~2 ms → ~1 ms",
        "0.5 modelled",
        True,
    )
    assert (found["other_size"].ratio, found["timed_now"].ratio) == ("-", "-")


def test_times_of_other_devices_or_sizes_are_no_ratio_and_the_difference_is_told() -> None:
    one, two = a_run(*BEFORE), a_run(*AFTER)
    two = dataclasses.replace(two, device=Device("cuda", "NVIDIA H100", "570"))
    assert setting(one, two) == ["device: NVIDIA H200, then NVIDIA H100"]
    assert all(one.ratio == "-" for one in differences(one, two))


def test_without_rounds_quartiles_decide() -> None:
    def bare(ms: float, spread: float) -> Run:
        timing = dataclasses.replace(raced(ms), speedups=(), quartiles_ms=(ms - spread, ms + spread))
        return a_run(Verdict("k", Passed(), timing=timing))

    (apart,) = differences(bare(1.0, 0.1), bare(2.0, 0.1))
    (near,) = differences(bare(1.0, 0.6), bare(2.0, 0.6))
    assert (apart.ratio, apart.better) == ("2, without an interval", False)
    assert (near.ratio, near.changed) == ("tie 2", False)


def test_the_verb_reads_files_and_prints_what_changed(tmp_path: Path) -> None:
    files = [tmp_path / "before.json", tmp_path / "after.json"]
    for file, verdicts in zip(files, (BEFORE, AFTER), strict=True):
        file.write_text(json.dumps(a_run(*verdicts).to_json()))
    done = CliRunner().invoke(app, ["compare", *map(str, files)], env={"COLUMNS": "100"}, catch_exceptions=False)
    lines = [line.rstrip() for line in done.output.splitlines()]
    assert lines[0] == "conv3d_softmax: 7 changed, 2 candidates as before"
    assert not any(line.startswith("same") for line in lines)
    assert any(line.startswith("mended") and "wrong forward" in line and "- → 3 ms" in line for line in lines)
    assert max(map(len, lines)) <= 100
    whole = CliRunner().invoke(app, ["compare", "--all", *map(str, files)], env={"COLUMNS": "100"})
    assert any(line.startswith("same") for line in whole.output.splitlines())


def test_runs_of_other_tasks_are_not_compared(tmp_path: Path) -> None:
    files = [tmp_path / "one.json", tmp_path / "two.json"]
    for file, name in zip(files, ("one", "two"), strict=True):
        file.write_text(json.dumps({**a_run(*BEFORE).to_json(), "task": name}))
    with pytest.raises(MisuseError, match="no task in common: one; two"):
        CliRunner().invoke(app, ["compare", *map(str, files)], catch_exceptions=False)
