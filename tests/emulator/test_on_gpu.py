"""The comparison with a GPU, as far as it runs without one: the sanitizer's text is read, processes are ended."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
import time
import types
from pathlib import Path
from typing import Any

import corpus
import pytest
import sanitizer
import torch

from crucible import hardware
from crucible.emulator import nvcc
from crucible.judge.verdict.sanitizer_reports import reports
from sanitizer_texts import BARRIER, CLEAN, COPIED, MISALIGNED, OUT_OF_BOUNDS, RACE, REFUSED, UNINITIALISED

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.append(str(BENCHMARKS))

import emulator_record  # noqa: E402


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (MISALIGNED, [("misaligned", "misaligned_float4_odd_offset", (14,))]),
        (OUT_OF_BOUNDS, [("out-of-bounds-shared", "bins", (12,)), ("out-of-bounds-local", "table", (9,))]),
        (RACE, [("race-shared", "tiles", (15, 19, 20))]),
        (BARRIER, [("divergent-barrier", "guarded", (13,))]),
        (UNINITIALISED, [("uninitialised-global", "plus", (10,))]),
        (COPIED, [("uninitialised-global", "", ())]),
        (COPIED.replace("Uninitialized", "Invalid"), [("out-of-bounds-global", "", ())]),
        (REFUSED, [("launch-limits", "", ())]),
        (CLEAN, []),
    ],
)
def test_reports_of_the_sanitizer_are_read(output: str, expected: list[tuple[str, str, tuple[int, ...]]]) -> None:
    assert [(r.kind, sanitizer.corpus_kernel(r), r.lines) for r in reports(output)] == expected


@pytest.mark.parametrize("heading", ["Internal Sanitizer Error: out of memory", "Out-of-range shared or local address"])
def test_what_nobody_has_a_name_for_is_a_report_too(heading: str) -> None:
    (report,) = reports(f"========= COMPUTE-SANITIZER\n========= {heading}\n=========     at k\n=========\n")
    assert (report.kind, report.heading) == ("", heading)


def test_calls_that_pytorch_itself_handles_are_no_report() -> None:
    assert reports(REFUSED.replace("cudaLaunchKernel", "cudaPointerGetAttributes")) == []


@pytest.mark.parametrize(
    ("kind", "output", "run", "words"),
    [
        ("race-shared", RACE, {"same_line": True}, "agrees, same line"),
        ("missing-syncwarp", RACE, {}, "agrees"),
        ("unchecked-launch", REFUSED, {}, "agrees"),
        ("race-shared", RACE, {"ended": "hung"}, "agrees, then it hangs"),
        ("race-shared", CLEAN, {}, "DIFFERS: silent"),
        ("race-shared", UNINITIALISED, {}, "DIFFERS: Uninitialized __global__ memory read of size 4 bytes"),
        ("race-shared", "", {"ended": "hung"}, "DIFFERS: it hangs under racecheck"),
        ("race-shared", "", {"ended": "died"}, "DID NOT RUN"),
        ("race-global", "", {}, "cannot see it: racecheck watches shared memory only"),
        ("race-global", "", {"ended": "hung"}, "DIFFERS: it hangs"),
        ("divergent-barrier", "", {"ended": "hung"}, "agrees: it hangs under synccheck"),
        ("divergent-barrier", CLEAN, {}, "DIFFERS: silent"),
        ("deadlock", "", {"ended": "hung"}, "agrees: it hangs"),
        ("runaway-loop", "", {}, "DIFFERS: it ends"),
        ("index-overflow", "", {"ended": "died"}, "agrees: it dies"),
        ("index-overflow", "", {"ended": "failed"}, "DID NOT RUN"),
        ("index-overflow", "", {}, "cannot see it: no tool watches arithmetic"),
        ("absent-lanes", BARRIER, {}, "agrees"),
        ("out-of-bounds-shared", CLEAN, {}, "DIFFERS: silent"),
        ("out-of-bounds-shared", CLEAN, {"name": "out-of-bounds-shared_negative"}, "cannot see it: it reads the 1 KB"),
        ("out-of-bounds-shared", OUT_OF_BOUNDS, {"name": "out-of-bounds-shared_negative"}, "agrees"),
    ],
)
def test_a_verdict_says_how_gpu_and_emulator_compare(kind: str, output: str, run: dict[str, Any], words: str) -> None:
    said = sanitizer.verdict(kind, reports(output), **run)
    assert said == words or (words.endswith("KB") and said.startswith(words))


def test_every_planted_kind_has_a_tool_or_a_reason(script: types.ModuleType) -> None:
    kinds = {kernel.kind for kernel in script.kernels("faults")}
    assert kinds <= {*sanitizer.TOOLS, *sanitizer.CANNOT_SEE, *sanitizer.HANGS}
    assert not set(sanitizer.HANGS) & {*sanitizer.TOOLS, *sanitizer.CANNOT_SEE}


def test_absent_lanes_of_the_corpus_are_those_that_synccheck_does_not_check(script: types.ModuleType) -> None:
    for kernel in (kernel for kernel in script.kernels("faults") if kernel.kind == "absent-lanes"):
        faulty = [line for line in kernel.text.splitlines() if "// FAULT" in line]
        assert all(re.search(r"__(shfl|ballot|any|all|match|reduce)\w*_sync\(", line) for line in faulty), kernel.name
        assert "__syncwarp" not in kernel.text


@pytest.mark.skipif(not hardware.nvcc(), reason="there is no nvcc here")
def test_local_arrays_that_memcheck_is_silent_about_are_in_registers(script: types.ModuleType) -> None:
    compiler = nvcc.find("sm_90", [])
    assert compiler
    for kernel in (kernel for kernel in script.kernels("faults") if kernel.kind == "out-of-bounds-local"):
        (compiled,) = compiler.kernels(kernel.text, [], []) or [None]
        assert compiled and compiled.stack_bytes == 0, kernel.name
        assert kernel.path.stem in sanitizer.UNSEEN


def test_a_process_that_hangs_is_ended_with_all_that_it_started(script: types.ModuleType) -> None:
    child = "import subprocess, sys, time; print(subprocess.Popen(['sleep', '60'], process_group=0).pid, flush=True)"
    done = script.run([sys.executable, "-c", f"{child}; time.sleep(60)"], 1.0)
    assert done.hung
    until = time.monotonic() + 20
    while _is_alive(int(done.output)) and time.monotonic() < until:
        time.sleep(0.05)
    assert not _is_alive(int(done.output))


@pytest.mark.parametrize(
    ("end", "died"),
    [
        ("print('CUDA error: an illegal memory access', flush=True); os.abort()", True),
        ("os.abort()", False),
        ("raise RuntimeError('CUDA error: an illegal memory access')", False),
    ],
)
def test_a_process_dies_of_the_gpu_where_it_aborts_with_its_error(
    script: types.ModuleType, end: str, died: bool
) -> None:
    assert script.run([sys.executable, "-c", f"import os; {end}"], 10).died == died


def _is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_the_answer_of_a_job_is_its_last_line(script: types.ModuleType) -> None:
    done = script.run([sys.executable, "-c", "print('words'); print('{\"a\": 1}')"], 10)
    assert done.answer == {"a": 1}
    assert script.run([sys.executable, "-c", "print('{}'); raise SystemExit(3)"], 10).answer is None


def test_what_a_record_lacks_is_run_by_the_next_call(script: types.ModuleType, tmp_path: Path) -> None:
    faults, right = script.kernels("faults"), script.kernels("right")
    record = {"faults": {faults[0].path.stem: {"kind": "x"}}, "twins": {}, "right": {right[0].path.stem: {"tools": {}}}}
    campaign = script.Campaign(tmp_path, 0.0, tmp_path / "results.json", record)
    assert campaign.pending("faults", 1, 1) == faults[1:]
    assert campaign.pending("twins", 2, 2) == faults[1::2]
    assert campaign.pending("right", 1, 1) == right


def test_distances_are_in_units_of_the_tolerance(script: types.ModuleType) -> None:
    one, nan = torch.ones(3), torch.tensor([1.0, 1.0, torch.nan])
    assert script.distance([one], [one], 1e-4) == 0
    assert script.distance([one + 1e-4], [one], 1e-4) == pytest.approx(0.5, rel=1e-2)
    assert script.distance([one], [nan], 1e-4) == script.distance([one[:2]], [one], 1e-4) == float("inf")
    assert script.distance([torch.tensor([5, 7])], [torch.tensor([5, 9])], 1e-4) > 1


def test_a_record_becomes_a_table(script: types.ModuleType) -> None:
    said = {"kind": "race-shared", "emulator": ["race-shared: ..."], "tool": "racecheck"}
    said["reports"] = [{"kind": "race-shared", "heading": "Error: Race"}]
    record = {
        "faults": {"race-shared_tiles": {**said, "verdict": "agrees, same line"}},
        "twins": {"race-shared_tiles": {"tools": {"racecheck": "clean"}}},
        "right": {"softmax": {"reference": 3.0, "emulator": 0.1, "tools": {"memcheck": "clean"}}},
    }
    record["summary"] = script.summary(record)
    text = script.table(record)
    assert (
        "| race-shared | race-shared_tiles | found | racecheck | Error: Race | agrees, same line | racecheck: clean |"
        in text
    )
    assert "| race-shared | 1 | 1 | 1 agrees, same line | 1 |" in text
    assert "right kernel softmax" in text
    assert json.loads(text[text.rindex("{") :])["found by the emulator"] == 1


def test_the_committed_record_has_the_whole_corpus(committed: dict[str, Any], script: types.ModuleType) -> None:
    planted = {kernel.path.stem for kernel in script.kernels("faults")}
    assert committed["faults"].keys() == committed["twins"].keys() == planted
    assert committed["right"].keys() == {kernel.path.stem for kernel in script.kernels("right")}


def test_the_committed_verdicts_are_what_the_rules_say(committed: dict[str, Any], script: types.ModuleType) -> None:
    assert {name: of["verdict"] for name, of in committed["faults"].items()} == {
        name: script.judged(name, of) for name, of in committed["faults"].items()
    }
    assert committed["summary"] == script.summary(committed)


def test_on_the_gpu_no_planted_fault_differs_and_no_twin_has_one(committed: dict[str, Any]) -> None:
    known = ("agrees", "cannot see it: ")
    assert {of["verdict"] for of in committed["faults"].values() if not of["verdict"].startswith(known)} == set()
    assert [name for name, of in committed["faults"].items() if emulator_record.emulator_found(of) != "found"] == []
    assert [name for name, of in committed["twins"].items() if not emulator_record.is_clean(of)] == []


def test_every_file_with_a_reason_of_its_own_needs_it(committed: dict[str, Any]) -> None:
    assert all(committed["faults"][name]["verdict"] == words for name, words in sanitizer.UNSEEN.items())


def test_kernels_of_the_field_are_on_the_gpu_what_they_are_here(committed: dict[str, Any]) -> None:
    field = [committed["right"][path.stem] for path in (corpus.KERNELS / "field").glob("*.cu")]
    assert len(field) >= 30
    assert max(of[side] for of in field for side in ("reference", "emulator")) <= 1
    assert all(of["emulator's faults"] == [] for of in field)


def test_the_documentation_shows_the_committed_record(committed: dict[str, Any]) -> None:
    assert emulator_record.by_kind(committed) in (BENCHMARKS.parent / "docs/emulator.md").read_text()


@pytest.fixture(scope="module")
def committed(script: types.ModuleType) -> dict[str, Any]:
    """What a run on an H200 left."""
    record: dict[str, Any] = json.loads(script.RESULTS.read_text())
    return record


@pytest.fixture(scope="module")
def script() -> types.ModuleType:
    """benchmarks/emulator_on_gpu.py as a module."""
    spec = importlib.util.spec_from_file_location("emulator_on_gpu", BENCHMARKS / "emulator_on_gpu.py")
    assert spec and spec.loader
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
