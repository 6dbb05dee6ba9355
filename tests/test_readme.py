"""The README says what the recorded results say."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import crucible
from crucible import fusing
from crucible.task import Task

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
RESULTS = ROOT / "benchmarks/results"


def test_the_results_table_is_the_recorded_one() -> None:
    script = ROOT / "benchmarks/record_verdicts.py"
    command = [sys.executable, str(script), str(RESULTS / "verdicts_h200.json"), "--markdown"]
    table = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    assert len(table.splitlines()) == 2 + 21 + 3 * 4
    assert table in README


def test_every_recorded_verdict_is_the_one_its_candidate_states() -> None:
    record = json.loads((RESULTS / "verdicts_h200.json").read_text())
    assert record["device"] == "NVIDIA H200"
    assert all(candidate["as_stated"] for run in record["runs"] for candidate in run["candidates"])


FIRST = {
    "atomic_max_float": "no form of `atomicMax` takes these arguments",
    "cut_off_softmax": "nothing of output is ever written",
    "doubled_braces": "its CUDA string has the doubled braces of an f-string and is none",
    "empty": "the file holds no code",
    "no_input_gradient": "no gradient reaches conv_transpose.bias, conv_transpose.weight, input[0]: its own backward",
    "placeholder_kernels": "the bodies of kernels are placeholders",
    "shared_memory_overflow": "a launch is refused",
    "wrong_weight_layout": "it computes the reference with conv_transpose.weight read as if laid out [out, in, ...]",
}
"""What the first finding on each bad candidate says, on a GPU too."""


def test_the_recorded_findings_name_each_cause_first() -> None:
    record = json.loads((RESULTS / "verdicts_h200.json").read_text())
    candidates = [candidate for run in record["runs"] for candidate in run["candidates"]]
    bad = {each["name"]: each["explanations"][0]["claim"] for each in candidates if not each["evaluation"]}
    assert bad.keys() == FIRST.keys()
    assert all(claim.startswith(FIRST[name]) for name, claim in bad.items())
    slow = [f["claim"] for each in candidates if each["evaluation"] for f in each["explanations"]]
    assert not any(claim.startswith(cause) for claim in slow for cause in FIRST.values())


def test_the_table_of_written_tasks_is_the_recorded_one() -> None:
    script = ROOT / "benchmarks/written_modules.py"
    command = [sys.executable, str(script), str(RESULTS / "written_tasks_h200.json"), "--markdown"]
    table = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    assert len(table.splitlines()) == 2 + 3 + 1
    assert table in README


def test_the_written_modules_ratios_are_the_recorded_ones() -> None:
    modules = json.loads((RESULTS / "written_modules_h200.json").read_text())["modules"].values()
    words = []
    for covers in ("forward", "forward+backward"):
        ratios = [found[covers]["over"]["compile"]["ratio"] for found in modules]
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        words.append((f"{mean:.2f} {covers}", sum(ratio < 0.8 for ratio in ratios)))
    assert f"All {len(modules)} modules" in README
    assert (
        f"geometric mean {words[0][0]} and {words[1][0]},\n{words[0][1]} and {words[1][1]} of them below 0.8" in README
    )


def test_the_python_example_uses_what_the_package_offers() -> None:
    example = README.split("```python\n")[1].split("```")[0]
    compile(example, "README.md", "exec")
    assert len(example.strip().splitlines()) <= 10
    for name in ("ranked", "best"):
        assert f"run.{name}" in example and hasattr(crucible.Run, name)


def test_the_plan_is_the_one_that_is_written() -> None:
    task = Task.load(ROOT / "tasks/convtranspose3d_leakyrelu_multiply_leakyrelu_maxpool")
    assert fusing.plan_of(fusing.write(task)) in README


def test_both_commands_are_make_targets() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in ("judge", "test", "gpu-test"):
        assert f"make {target}" in README and f"\n{target}:" in makefile
