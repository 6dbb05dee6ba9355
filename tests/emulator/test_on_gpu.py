"""The comparison with a GPU, as far as it runs without one: the sanitizer's text is read, processes are ended."""

from __future__ import annotations

import importlib.util
import json
import sys
import time
import types
from pathlib import Path

import pytest
import sanitizer
import torch

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"

MISALIGNED = """
========= COMPUTE-SANITIZER
========= Invalid __global__ read of size 16 bytes
=========     at in_misaligned_float4_odd_offset::add_rows(const float *, float *, int)+0x90 in misaligned_float4.cu:14
=========     by thread (1,0,0) in block (0,0,0)
=========     Access to 0x7f3e2fa00004 is misaligned
=========     and is inside the nearest allocation at 0x7f3e2fa00000 of size 4000 bytes
=========
========= Program hit cudaErrorLaunchFailure (error 719) due to "unspecified launch failure" on CUDA API call to \
cudaDeviceSynchronize.
=========
{"misaligned_float4_odd_offset": "CUDA error: misaligned address"}
========= ERROR SUMMARY: 2 errors
"""
OUT_OF_BOUNDS = """
========= Invalid __shared__ write of size 4 bytes
=========     at void in_bins::histogram<(int)4>(const int *, int)+0x1f0 in bins.cu:12
=========     by thread (3,0,0) in block (1,0,0)
=========     Access to 0x400 is out of bounds
=========
========= Invalid __local__ read of size 4 bytes
=========     at in_table::look_up(float *)+0x20 in table.cu:9
=========     by thread (0,0,0) in block (0,0,0)
=========     Access to 0xfffcd4 is out of bounds
=========
========= ERROR SUMMARY: 2 errors
"""
RACE = """
========= Error: Race reported between Write access at in_tiles::matmul16(const float *, int)+0x310 in tiles.cu:15
=========     and Read access at in_tiles::matmul16(const float *, int)+0x450 in tiles.cu:19 [3584 hazards]
=========     and Read access at in_tiles::matmul16(const float *, int)+0x460 in tiles.cu:20 [1024 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""
BARRIER = """
========= Barrier error detected. Divergent thread(s) in block
=========     at __syncthreads()+0x30 in sm_30_intrinsics.hpp:110
=========     by thread (0,0,0) in block (0,0,0)
=========         Device Frame: in_guarded::reduce(const float *, float *, int)+0x120 in guarded.cu:13
=========
========= ERROR SUMMARY: 1 error
"""
UNINITIALISED = """
========= Uninitialized __global__ memory read of size 4 bytes
=========     at in_plus::accumulate(float *)+0x60 in plus.cu:10
=========     by thread (0,0,0) in block (0,0,0)
=========     Address 0x7fd3f8400000
=========
========= Host API uninitialized memory access
=========     at 0x7fd3f8400200 in cudaMemcpyAsync source
=========
========= ERROR SUMMARY: 2 errors
"""
REFUSED = """
========= Program hit cudaErrorInvalidConfiguration (error 9) due to "invalid configuration argument" \
on CUDA API call to cudaLaunchKernel.
=========     Saved host backtrace up to driver entry point at error
=========         Host Frame: in_big::run(at::Tensor) in big.cu:20 [0x1234]
=========
========= ERROR SUMMARY: 1 error
"""
CLEAN = """
========= COMPUTE-SANITIZER
{}
========= ERROR SUMMARY: 0 errors
"""


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (MISALIGNED, [("misaligned", "misaligned_float4_odd_offset", (14,))]),
        (OUT_OF_BOUNDS, [("out-of-bounds-shared", "bins", (12,)), ("out-of-bounds-local", "table", (9,))]),
        (RACE, [("race-shared", "tiles", (15, 19, 20))]),
        (BARRIER, [("divergent-barrier", "guarded", (13,))]),
        (UNINITIALISED, [("uninitialised-global", "plus", (10,)), ("uninitialised-global", "", ())]),
        (REFUSED, [("launch-limits", "", ())]),
        (CLEAN, []),
    ],
)
def test_reports_of_the_sanitizer_are_read(output: str, expected: list[tuple[str, str, tuple[int, ...]]]) -> None:
    assert [(report.kind, report.kernel, report.lines) for report in sanitizer.reports(output)] == expected


def test_an_error_of_the_tool_itself_is_not_clean() -> None:
    (report,) = sanitizer.reports("========= Internal Sanitizer Error: out of memory\n=========\n")
    assert (report.kind, report.heading) == ("", "Internal Sanitizer Error: out of memory")


@pytest.mark.parametrize(
    ("kind", "output", "lines", "hung", "words"),
    [
        ("race-shared", RACE, {19}, False, "agrees, same line"),
        ("missing-syncwarp", RACE, {7}, False, "agrees"),
        ("unchecked-launch", REFUSED, {7}, False, "agrees"),
        ("race-shared", CLEAN, {19}, False, "DIFFERS: silent"),
        ("race-shared", UNINITIALISED, {19}, False, "DIFFERS: Uninitialized __global__ memory read of size 4 bytes"),
        ("race-global", CLEAN, {19}, False, "cannot see it: racecheck watches shared memory only"),
        ("deadlock", "", {19}, True, "agrees: it hangs"),
        ("runaway-loop", "", {19}, False, "DIFFERS: it ends"),
        ("race-shared", "", {19}, True, "hung under the tool"),
    ],
)
def test_a_verdict_says_how_tool_and_emulator_compare(
    kind: str, output: str, lines: set[int], hung: bool, words: str
) -> None:
    assert sanitizer.verdict(kind, sanitizer.reports(output), lines, hung=hung) == words


def test_every_planted_kind_has_a_tool_or_a_reason(script: types.ModuleType) -> None:
    kinds = {kernel.kind for kernel in script.kernels("faults")}
    assert kinds <= sanitizer.TOOLS.keys() | sanitizer.CANNOT_SEE.keys()
    assert not sanitizer.TOOLS.keys() & sanitizer.CANNOT_SEE.keys()


def test_a_process_that_hangs_is_ended_with_all_that_it_started(script: types.ModuleType) -> None:
    child = "import subprocess, sys, time; print(subprocess.Popen(['sleep', '60'], process_group=0).pid, flush=True)"
    done = script.run([sys.executable, "-c", f"{child}; time.sleep(60)"], 1.0)
    assert done.hung
    until = time.monotonic() + 20
    while _is_alive(int(done.output)) and time.monotonic() < until:
        time.sleep(0.05)
    assert not _is_alive(int(done.output))


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
    said = {"kind": "race-shared", "emulator": ["race-shared: ..."], "tool": "racecheck", "reports": ["Error: Race"]}
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
    assert "right kernel softmax" in text
    assert json.loads(text[text.rindex("{") :])["found by the emulator"] == 1


@pytest.fixture(scope="module")
def script() -> types.ModuleType:
    """benchmarks/emulator_on_gpu.py as a module."""
    spec = importlib.util.spec_from_file_location("emulator_on_gpu", BENCHMARKS / "emulator_on_gpu.py")
    assert spec and spec.loader
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
