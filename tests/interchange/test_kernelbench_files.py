"""KernelBench's runs: read, judged, and written so that the benchmark's own analysis scores them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from crucible import cli
from crucible.candidate import Candidate
from crucible.errors import MisuseError
from crucible.interchange.kernelbench import Results, Sample, Timings, entry_of, problems, samples
from crucible.judge.verdict.evidence import Moments
from crucible.judge.verdict.verdict import (
    Cheated,
    DoesNotBuild,
    IllegalAccess,
    NotJudged,
    Outcome,
    Passed,
    TimedOut,
    Verdict,
    Wrong,
)
from crucible.run import Run
from report.recorded import timed, whole_run
from support import PLAIN, SMALL_TASK, write

CHECKOUT = os.environ.get("CRUCIBLE_KERNELBENCH", "")
"""A checkout of KernelBench, whose analysis is to score our files."""
MOMENTS = Moments(2.5, 0.25, 2.0, 3.0)
RESULT = {"sample_id", "compiled", "correctness", "metadata", "runtime", "runtime_stats"}
STATISTICS = {"mean", "std", "min", "max", "num_trials", "hardware", "device"}
WRONG = PLAIN.read_text().replace("F.leaky_relu", "F.relu6").replace("self.negative_slope)", ")")


def sample(problem: int, number: int, text: str = "x = 1\n") -> Sample:
    name = f"level_1_problem_{problem}_sample_{number}_kernel"
    return Sample(problem, number, Candidate(name, Path(f"{name}.py"), text))


def run_of(given: Sample, outcome: Outcome, ms: float = 2.0) -> Run:
    measured = replace(timed(ms, ("eager", 2.0)), moments=replace(MOMENTS, mean_ms=ms))
    verdict = Verdict(given.candidate.name, outcome, timing=measured)
    whole = whole_run()
    baselines = tuple(replace(b, timing=replace(b.timing, moments=MOMENTS)) for b in whole.ground.baselines)
    return replace(whole, verdicts=(verdict,), ground=replace(whole.ground, baselines=baselines))


def result(outcome: Outcome) -> dict[str, Any]:
    run = run_of(sample(1, 0), outcome)
    return entry_of(run, run.verdicts[0], sample(1, 0))


def test_a_pass_has_every_field_of_the_benchmark() -> None:
    found = result(Passed())
    assert set(found) == RESULT and set(found["runtime_stats"]) >= STATISTICS
    assert (found["sample_id"], found["compiled"], found["correctness"], found["runtime"]) == (0, True, True, 2.0)
    assert found["runtime_stats"] | {"median": 2.0} == {
        "mean": 2.0, "std": 0.25, "min": 2.0, "max": 3.0, "num_trials": 100, "hardware": "NVIDIA H200",
        "device": "cuda", "median": 2.0,
    }  # fmt: skip
    assert found["metadata"]["hardware"] == "NVIDIA H200"
    assert found["metadata"]["crucible"]["verdict"] == "passed"


@pytest.mark.parametrize(
    ("outcome", "compiled", "key"),
    [
        (Wrong("forward", "off"), True, "correctness_issue"),
        (DoesNotBuild("no ;"), False, "compilation_error"),
        (TimedOut("import or build", 3), False, "compilation_error"),
        (TimedOut("forward", 3), True, "runtime_error"),
        (IllegalAccess("at 0"), True, "runtime_error"),
        (Cheated("early exit", "left"), True, "runtime_error"),
    ],
)
def test_what_did_not_pass_says_why_and_has_no_runtime(outcome: Outcome, compiled: bool, key: str) -> None:
    found = result(outcome)
    assert set(found) == RESULT
    assert (found["compiled"], found["correctness"], found["runtime"]) == (compiled, False, -1.0)
    assert found["runtime_stats"] == {} and found["metadata"][key] == outcome.words


def test_results_of_others_stay_and_ours_are_renewed_with_the_kernel(tmp_path: Path) -> None:
    theirs = {"sample_id": 0, "compiled": True, "correctness": False, "metadata": {}, "runtime": -1.0}
    write(tmp_path / "eval_results.json", json.dumps({"10": [theirs], "2": [theirs]}))
    results = Results(tmp_path)
    given = sample(2, 1)
    assert results.holds(sample(2, 0)) and not results.holds(given)
    assert results.add(run_of(given, Passed()), [given]) == []
    data = json.loads((tmp_path / "eval_results.json").read_text())
    assert list(data) == ["2", "10"] and data["10"] == [theirs] and data["2"][0] == theirs
    assert data["2"][1]["correctness"] and results.holds(given)
    assert not results.holds(sample(2, 1, "x = 2\n"))
    results.add(run_of(given, Wrong("forward", "off")), [given])
    assert [e["correctness"] for e in json.loads((tmp_path / "eval_results.json").read_text())["2"]] == [False, False]


def test_what_has_no_verdict_is_not_a_false(tmp_path: Path) -> None:
    given = [sample(1, 0), sample(1, 1)]
    run = run_of(given[0], NotJudged("disk full", failed=True))
    assert Results(tmp_path).add(run, given) == [one.candidate.name for one in given]
    assert not (tmp_path / "eval_results.json").exists()


@pytest.mark.parametrize("text", ["my notes", "[]", '{"a": []}', '{"1": [{"x": 1}]}', '{"1": {}}'])
def test_a_file_of_another_kind_is_never_written_over(text: str, tmp_path: Path) -> None:
    file = write(tmp_path / "eval_results.json", text)
    with pytest.raises(MisuseError, match=r"eval_results\.json"):
        Results(tmp_path)
    assert file.read_text() == text


def test_baselines_go_to_the_files_of_their_kind_and_others_measured_stay(tmp_path: Path) -> None:
    theirs = {"mean": 9.0, "std": 0.1}
    file = write(tmp_path / "baseline_time_torch.json", json.dumps({"level1": {"1_a.py": theirs}, "level2": {}}))
    timings = Timings(tmp_path, 1)
    for name in ("1_a.py", "2_b.py", "2_b.py"):
        timings.add(run_of(sample(1, 0), Passed()), Path(name))
    eager = json.loads(file.read_text())
    assert eager["level1"]["1_a.py"] == theirs and set(eager["level1"]["2_b.py"]) >= STATISTICS
    assert eager["level2"] == {} and eager["level1"]["2_b.py"]["mean"] == 2.5
    compiled = json.loads((tmp_path / "baseline_time_torch_compile_inductor_default.json").read_text())
    assert list(compiled["level1"]) == ["1_a.py", "2_b.py"]
    write(file, '{"level1": 3}')
    with pytest.raises(MisuseError, match="baseline_time_torch"):
        Timings(tmp_path, 1)


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(MisuseError, match="--checkout"):
        problems(tmp_path, 1)
    with pytest.raises(MisuseError, match="level_3_problem"):
        samples(tmp_path, 3)
    with pytest.raises(MisuseError, match="no folder"):
        samples(tmp_path / "nothing", 3)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Three tasks of level 1, a run with two kernels for the first and one for the second."""
    root = tmp_path / "KernelBench"
    for name in ("1_a.py", "2_b.py", "3_c.py"):
        write(root / f"KernelBench/level1/{name}", (SMALL_TASK / "reference.py").read_text())
    run = root / "runs/mine"
    write(run / "level_1_problem_1_sample_0_kernel.py", PLAIN.read_text())
    write(run / "level_1_problem_1_sample_1_kernel.py", WRONG)
    write(run / "level_1_problem_2_sample_0_kernel.py", "import nothing_of_that_name\n")
    write(run / "level_2_problem_9_sample_0_kernel.py", "of another level")
    return root


@pytest.mark.slow
def test_a_run_is_judged_once_and_goes_on_with_what_changed(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], crucible_home: Path
) -> None:
    folder = checkout / "runs/mine"
    command = ["kernelbench", str(folder), "--level", "1", "--device", "cpu", "--baselines", "eager"]

    def called() -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["crucible", *command, "--race-limit", "0.05", "--hardware", "HERE"])
        with pytest.raises(SystemExit) as end:
            cli.main()
        return int(end.value.code or 0), capsys.readouterr().err

    assert called()[0] == 0
    found = json.loads((folder / "eval_results.json").read_text())
    said = {(p, e["sample_id"]): (e["compiled"], e["correctness"], e["runtime"] > 0) for p in found for e in found[p]}
    assert said == {("1", 0): (True, True, True), ("1", 1): (True, False, False), ("2", 0): (False, False, False)}
    eager = json.loads((checkout / "results/timing/HERE/baseline_time_torch.json").read_text())["level1"]
    assert set(eager["1_a.py"]) >= STATISTICS and eager["1_a.py"]["min"] <= eager["1_a.py"]["mean"]

    runs = len(list((crucible_home / "runs").iterdir()))
    before = (folder / "eval_results.json").read_bytes()
    assert "0 of 0 right, 3 had a result" in called()[1]
    assert (folder / "eval_results.json").read_bytes() == before
    assert len(list((crucible_home / "runs").iterdir())) == runs

    write(folder / "level_1_problem_2_sample_0_kernel.py", PLAIN.read_text())
    assert "1 of 1 right, 2 had a result" in called()[1]
    assert json.loads((folder / "eval_results.json").read_text())["2"][0]["correctness"]


SCORE = """
import json, sys, types
root = sys.argv[1]
package = types.ModuleType("kernelbench")  # its own imports litellm, openai and more; the analysis needs none of it
package.__path__ = [f"{root}/src/kernelbench"]
sys.modules["kernelbench"] = package
sys.path.insert(0, f"{root}/scripts")
from benchmark_eval_analysis import analyze_greedy_eval
found = analyze_greedy_eval("mine", "HERE", sys.argv[2], 1, baseline_file=sys.argv[3], eval_results_dir=f"{root}/runs")
print(json.dumps(found))
"""


@pytest.mark.skipif(not CHECKOUT, reason="CRUCIBLE_KERNELBENCH names no checkout of KernelBench")
def test_the_benchmarks_own_analysis_scores_our_files(checkout: Path, tmp_path: Path) -> None:
    pytest.importorskip("pydra")
    pytest.importorskip("tabulate")
    shutil.copytree(Path(CHECKOUT) / "src", checkout / "src")
    (checkout / "scripts").mkdir()
    shutil.copy(Path(CHECKOUT) / "scripts/benchmark_eval_analysis.py", checkout / "scripts")
    results, timings = Results(checkout / "runs/mine"), Timings(checkout / "results/timing/HERE", 1)

    def add(problem: int, outcome: Outcome, ms: float) -> None:
        run = run_of(sample(problem, 0), outcome, ms)
        results.add(run, [sample(problem, 0)])
        timings.add(run, sorted((checkout / "KernelBench/level1").iterdir())[problem - 1])

    add(1, Passed(), 2.0)
    add(2, Wrong("forward", "off"), 1.0)
    add(3, Passed(), 5.0)
    for name in ("baseline_time_torch", "baseline_time_torch_compile_inductor_default"):
        file = checkout / f"results/timing/HERE/{name}.json"
        done = subprocess.run(
            [sys.executable, "-c", SCORE, checkout, name, file], capture_output=True, text=True, check=True
        )
        found = json.loads(done.stdout.splitlines()[-1])
        assert (found["total_count"], found["compiled_count"], found["correct_count"]) == (3, 3, 2)
        assert found["geo_mean_speedup"] == pytest.approx((2.5 / 2 * 2.5 / 5) ** 0.5)
        third = pytest.approx(1 / 3)
        assert found["fast_p"] == {"0.0": pytest.approx(2 / 3), "0.5": third, "0.8": third, "1.0": third,
                                   "1.5": 0.0, "2.0": 0.0}  # fmt: skip
