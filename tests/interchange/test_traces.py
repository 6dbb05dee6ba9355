"""FlashInfer-Bench and SOL-ExecBench: their definitions become tasks, their solutions candidates, verdicts traces."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from a_dataset import CUSTOM, DEFINITION, HELPER, INTO, RANDOM, REFERENCE, RIGHT, STORED, dataset, solution

from crucible import cli
from crucible.candidate import Candidate
from crucible.errors import MisuseError
from crucible.interchange.definition import definition_of, solution_of, workload_of
from crucible.interchange.traces import STATUS, Problem, TraceFile, problems, status_of, trace_file, trace_of
from crucible.interchange.wrapping import candidate_of, task_of
from crucible.judge.verdict import verdict as v
from crucible.judge.verdict.evidence import Compared, NotMeasured, TensorError
from crucible.judge.verdict.verdict import Cheated, Faulty, NotJudged, Outcome, Passed, TimedOut, Verdict, Wrong
from crucible.run import Run
from crucible.task import Task
from report.recorded import right, timed, whole_run
from support import write

SOL = os.environ.get("CRUCIBLE_SOL_EXECBENCH", "")
"""A checkout of SOL-ExecBench, whose models are to read our traces."""
STATUSES = {
    "PASSED", "INCORRECT_SHAPE", "INCORRECT_NUMERICAL", "INCORRECT_DTYPE", "RUNTIME_ERROR", "COMPILE_ERROR", "TIMEOUT",
}  # fmt: skip
"""FlashInfer-Bench's."""
SCHEMA = definition_of(DEFINITION, "a test")
ONE = solution_of(solution("one", RIGHT), "a test")
SOL_ONE = solution_of(solution("one", RIGHT, sol=True), "a test")
OUTCOMES: list[Outcome] = [
    v.Passed(), v.Wrong("forward", "off"), v.Fragile(("zeros",), "off"), v.Incomplete("a half"), v.Faulty("a race"),
    v.InferenceOnly(("x",)), v.DoesNotBuild("no ;"), v.DoesNotImport("no module"), v.Raises("forward", "no"),
    v.LaunchError("too large"), v.IllegalAccess("at 0"), v.OutOfMemory("9 GB"), v.TimedOut("forward", 3.0),
    v.Crashed("forward", "signal 11"), v.Cheated("early exit", "left"), v.NotJudged("no GPU"),
]  # fmt: skip
"""One of each kind."""


def executed(text: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(compile(text, "a_text.py", "exec"), names)
    return names


def task(workload: dict[str, Any], root: Path = Path()) -> Task:
    return task_of(SCHEMA, workload_of(workload, "a test"), root)


def candidate(one: dict[str, Any], workload: dict[str, Any] = RANDOM) -> Candidate:
    return candidate_of(SCHEMA, workload_of(workload, "a test"), solution_of(one, "a test"))


def same(workload: dict[str, Any], given: Candidate, root: Path = Path()) -> bool:
    """Whether a candidate computes what its task does, on the task's own inputs."""
    reference = executed(task(workload, root).source)
    inputs = reference["get_inputs"]()
    wanted = reference["Model"](*reference["get_init_inputs"]())(*inputs)
    found = executed(given.source)["ModelNew"]()(*inputs)
    assert type(found) is tuple and len(found) == len(wanted) == 2
    return all(torch.allclose(a, b, atol=1e-6) for a, b in zip(found, wanted, strict=True))


def test_random_inputs_and_scalars(tmp_path: Path) -> None:
    assert same(RANDOM, candidate(solution("right", RIGHT)))
    assert not same(RANDOM, candidate(solution("wrong", REFERENCE.replace("+ eps", "+ 1 + eps"))))
    x, weight = executed(task(RANDOM).source)["get_inputs"]()
    assert x.shape == (4, 8) and weight.shape == (8,) and x.dtype == weight.dtype == torch.float32
    assert "_run(x, weight, 1e-06)" in task(RANDOM).source
    file = write(tmp_path / "task.py", task(RANDOM).source)
    assert Task.load(file).source == file.read_text()  # it is a task as anybody's


def test_destination_passing_and_several_files(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "import torch\n" + INTO.replace("from .helper", "from helper_of_one")
    given = candidate(solution("into", text, into=True, **{"helper_of_one.py": HELPER}))
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert same(RANDOM, given)
    sys.modules.pop("helper_of_one"), sys.modules.pop("kernel")
    assert "torch.empty((4, 8)" in given.source and "torch.zeros" not in given.source
    sol = candidate(solution("into", INTO, into=True, sol=True))
    assert "torch.zeros((4, 8), dtype=torch.float32, device=x.device)" in sol.source  # which SOL-ExecBench promises


def test_stored_inputs(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch", reason="safetensors is not installed")
    with pytest.raises(MisuseError, match=r"blob/weights\.safetensors"):
        task(STORED, tmp_path)
    (tmp_path / "blob").mkdir()
    weight = torch.rand(8)
    safetensors.save_file({"weight": weight}, tmp_path / "blob/weights.safetensors")
    assert torch.equal(executed(task(STORED, tmp_path).source)["get_inputs"]()[1], weight)
    assert same(STORED, candidate(solution("right", RIGHT), STORED), tmp_path)
    safetensors.save_file({"weight": torch.rand(9)}, tmp_path / "blob/weights.safetensors")
    with pytest.raises(ValueError, match=r"is \(9,\)"):
        executed(task(STORED, tmp_path).source)["get_inputs"]()


def test_inputs_of_the_references_own_function_and_axes_by_expression() -> None:
    reference = REFERENCE.replace('"x": ', '"weight": torch.ones(8), "x": ')
    data = {**DEFINITION, "reference": reference, "custom_inputs_entrypoint": "make_inputs"}
    data["axes"] = {**DEFINITION["axes"], "twice": {"type": "expr", "expression": "2 * (rows + columns) // 2 ** 1"}}
    data["inputs"] = {**DEFINITION["inputs"], "x": {"shape": ["rows", "8"], "dtype": "float32"}}
    schema = definition_of(data, "a test")
    workload = workload_of(CUSTOM, "a test")
    assert schema.sizes(workload) == {"rows": 5, "columns": 8, "twice": 13}
    x, weight = executed(task_of(schema, workload, Path()).source)["get_inputs"]()
    assert x.shape == (5, 8) and bool((x >= 1).all()) and torch.equal(weight, torch.ones(8))


def test_what_a_run_gives_in_another_form_is_the_same() -> None:
    as_dict = RIGHT.replace("return y, y.sum(-1)", 'return {"total": y.sum(-1), "y": y, "more": 3}')
    assert same(RANDOM, candidate(solution("dict", as_dict)))
    assert same(RANDOM, candidate(solution("list", RIGHT.replace("return y, y.sum(-1)", "return [y, y.sum(-1)]"))))
    with pytest.raises(ValueError, match="3 outputs"):
        same(RANDOM, candidate(solution("three", RIGHT.replace("y.sum(-1)", "y, y"))))


def test_a_workloads_tolerance_is_the_tasks() -> None:
    assert task(RANDOM).tolerance == {}
    stated = {**RANDOM, "tolerance": {"max_atol": 0.5, "max_error_cap": 2}}
    assert task(stated).tolerance == {"atol": 0.5, "rtol": 0.01, "matched": 0.99, "cap": 2.0}
    assert task(stated).digest != task({**RANDOM, "tolerance": {"max_atol": 0.25, "max_error_cap": 2}}).digest
    for odd in ({"max_atol": -1}, {"max_rtol": "x"}, {"required_matched_ratio": True}, {"max_error_cap": math.inf}):
        with pytest.raises(MisuseError, match="tolerance"):
            task({**RANDOM, "tolerance": odd})


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float8_e4m3fn", "int64", "int8", "bool"])
def test_inputs_of_each_type(dtype: str) -> None:
    data = {**DEFINITION, "inputs": {"x": {"shape": ["rows", "columns"], "dtype": dtype}}}
    data["reference"] = "def run(x):\n    return x, x.float().sum(-1)\n"
    (x,) = executed(task_of(definition_of(data, "a test"), workload_of(RANDOM, "a test"), Path()).source)[
        "get_inputs"
    ]()
    assert x.dtype == getattr(torch, dtype) and x.shape == (4, 8)


def test_native_solutions_are_built_by_pytorch_with_their_files_and_flags() -> None:
    one = solution("native", "// a kernel\n__global__ void k() {}\n", sol=True, **{"kernel.h": "#pragma once\n"})
    one["sources"][0]["path"] = "kernel.cu"
    one["spec"] |= {"languages": ["cuda_cpp"], "entry_point": "kernel.cu::launch"}
    one["spec"]["compile_options"] = {"cuda_cflags": ["--use_fast_math"]}
    given = candidate(one)
    assert given.language == "cuda" and compile(given.source, "kernel.py", "exec")
    assert "sources=[os.path.join(_folder, 'kernel.cu')]" in given.source
    assert "extra_cuda_cflags=['--use_fast_math']" in given.source and ").launch" in given.source
    one["spec"]["binding"] = "tvm-ffi"
    with pytest.raises(MisuseError, match="tvm-ffi"):
        candidate(one)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"reference": "def walk(x): pass"}, "no function `run`"),
        ({"reference": "def run(:"}, "SyntaxError"),
        ({"inputs": {"x; import os": {"shape": [], "dtype": "float32"}}}, "no name of Python's"),
        ({"inputs": {"x": {"shape": [], "dtype": "float4_e2m1"}}}, "float4_e2m1"),
        ({"axes": {"rows": {"type": "const", "value": -1}}}, "no size"),
        ({"name": ""}, "no name"),
    ],
)
def test_a_definition_that_cannot_be_is_named(change: dict[str, Any], words: str) -> None:
    with pytest.raises(MisuseError, match=words):
        definition_of({**DEFINITION, **change}, "its file")


def test_expressions_compute_sizes_and_nothing_else() -> None:
    for expression in (
        "__import__('os')",
        "rows.real",
        "9 ** 9 ** 9 ** 9",
        "rows / 3",
        "0 - rows",
        "[rows]",
        "rows //0",
    ):
        axes = {**DEFINITION["axes"], "odd": {"type": "expr", "expression": expression}}
        with pytest.raises(MisuseError, match="axis 'odd'"):
            definition_of({**DEFINITION, "axes": axes}, "a test").sizes(workload_of(RANDOM, "a test"))


@pytest.mark.parametrize("path", ["/etc/passwd", "../up.py", "a/../../b.py", ""])
def test_a_source_stays_in_its_folder(path: str) -> None:
    with pytest.raises(MisuseError, match="is no solution"):
        solution_of(solution("x", RIGHT, **{path: "text"}), "a file")


def verdict_of(outcome: Outcome, **changes: Any) -> Verdict:
    largest = replace(right().tensors[0], largest=0.25)
    return Verdict("one", outcome, Compared((largest,), 4.0), timing=timed(2.0, ("eager", 2.0)), **changes)


def traced(verdict: Verdict, sol: bool = False, run: Run | None = None) -> dict[str, Any]:
    given = SOL_ONE if sol else ONE
    problem = Problem(SCHEMA, (workload_of(RANDOM, "a test"),), (given,), Path())
    return trace_of(run or whole_run(), verdict, problem, problem.workloads[0], given)


@pytest.mark.parametrize("sol", [False, True])
@pytest.mark.parametrize("outcome", OUTCOMES, ids=lambda outcome: outcome.kind)
def test_each_outcome_has_a_status_and_what_goes_with_it(outcome: Outcome, sol: bool) -> None:
    verdict = verdict_of(outcome)
    if isinstance(outcome, NotJudged):
        assert status_of(verdict, sol=sol) == "" and outcome.kind not in STATUS
        return
    found = traced(verdict, sol)["evaluation"]
    assert found["status"] in STATUSES | ({"REWARD_HACK"} if sol else set())
    assert (found["correctness"] is not None) == (found["status"] in ("PASSED", "INCORRECT_NUMERICAL"))
    assert (found["performance"] is not None) == (found["status"] == "PASSED")
    assert found["log"].startswith(outcome.words) and found["environment"]["hardware"] == "NVIDIA H200"


def test_statuses_that_matter() -> None:
    assert {outcome.kind for outcome in OUTCOMES} == set(v.OUTCOMES) == {*STATUS, "not-judged"}

    def status(outcome: Outcome, sol: bool = False, **changes: Any) -> str:
        return status_of(replace(verdict_of(outcome), **changes), sol=sol)

    assert status(Passed()) == "PASSED"
    assert status(Passed(), timing=NotMeasured("emulated")) == ""
    assert status(Wrong("shape", "x")) == "INCORRECT_SHAPE" and status(Wrong("dtype", "x")) == "INCORRECT_DTYPE"
    assert status(Wrong("forward", "x")) == status(Wrong("nan", "x")) == "INCORRECT_NUMERICAL"
    assert status(Cheated("early exit", "x"), sol=True) == "REWARD_HACK"
    assert status(Cheated("early exit", "x")) == "RUNTIME_ERROR" and status(TimedOut("forward", 3)) == "TIMEOUT"
    assert status(Faulty("a race")) == "RUNTIME_ERROR"


def test_a_trace_has_the_figures_of_the_verdict() -> None:
    found = traced(verdict_of(Passed()))
    assert found["workload"] == RANDOM and (found["definition"], found["solution"]) == ("scaled_norm", "one")
    performance = found["evaluation"]["performance"]
    assert performance == {"latency_ms": 2.0, "reference_latency_ms": 4.0, "speedup_factor": 2.0}
    correctness = found["evaluation"]["correctness"]
    assert correctness["max_absolute_error"] == 0.25 and correctness["max_relative_error"] == 0.05
    nan = TensorError("output", 0, 0.1, 1.0, 0.1, 1.0, (0,), 3, 0, 8)
    broken = replace(verdict_of(Wrong("nan", "x")), forward=Compared((nan,), 4.0))
    assert math.isnan(float(traced(broken)["evaluation"]["correctness"]["max_absolute_error"]))
    sol = traced(broken, sol=True)["evaluation"]["correctness"]
    assert sol["has_nan"] is True and math.isfinite(sol["max_absolute_error"])


def test_traces_of_others_stay_to_the_letter(tmp_path: Path) -> None:
    theirs = '{"definition":"d",  "workload":{"uuid":"u"},"solution":"s","evaluation":{"status":"PASSED"}}'
    file = tmp_path / "traces.jsonl"
    file.write_text(theirs)
    TraceFile(file).add([traced(verdict_of(Passed()))])
    lines = file.read_text().splitlines()
    assert lines[0] == theirs and json.loads(lines[1])["solution"] == "one" and len(lines) == 2
    again = TraceFile(file)
    workload = workload_of(RANDOM, "a test")
    assert again.holds(Problem(SCHEMA, (), (), tmp_path), workload, ONE)
    assert not again.holds(Problem(SCHEMA, (), (), tmp_path), workload, replace(ONE, name="two"))
    file.write_text(json.dumps({**traced(verdict_of(Passed())), "evaluation": None}))
    assert not TraceFile(file).done
    for text in ("my notes", '{"a": 1}', "[1]"):
        file.write_text(text)
        with pytest.raises(MisuseError, match=r"traces\.jsonl"):
            TraceFile(file)
        assert file.read_text() == text


def test_a_folder_is_read_as_the_benchmarks_lay_it_out(tmp_path: Path) -> None:
    root = dataset(tmp_path / "data", [RANDOM, CUSTOM], [solution("right", RIGHT)])
    (found,) = problems(root)
    assert [one.uuid for one in found.workloads] == ["w-random", "w-custom"] and found.solutions[0].name == "right"
    assert trace_file(root, None, found, found.solutions[0]) == root / "traces/somebody/rmsnorm/scaled_norm.jsonl"
    for author in ("../../up", "..", "."):
        odd = replace(found.solutions[0], author=author)
        file = trace_file(root, None, found, odd)
        assert file.resolve().is_relative_to(root / "traces") and len(file.relative_to(root).parts) == 4
    with pytest.raises(MisuseError, match="neither"):
        problems(tmp_path)
    write(root / "solutions/again.json", json.dumps(solution("right", REFERENCE)))
    with pytest.raises(MisuseError, match="two solutions"):
        problems(root)


@pytest.mark.slow
def test_a_problem_is_judged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "problem"
    write(root / "definition.json", json.dumps(DEFINITION))
    write(root / "workload.jsonl", json.dumps(RANDOM) + "\n")
    write(root / "solution_right.json", json.dumps(solution("right", RIGHT, sol=True)))
    write(root / "solution_wrong.json", json.dumps(solution("wrong", RIGHT.replace("+ eps", "+ 1"), sol=True)))
    arguments = ["crucible", "traces", str(root), "--device", "cpu", "--race-limit", "0.05"]
    monkeypatch.setattr(sys, "argv", arguments)

    def called() -> tuple[int, str]:
        with pytest.raises(SystemExit) as end:
            cli.main()
        return int(end.value.code or 0), capsys.readouterr().err

    code, said = called()
    assert code == 0 and "1 of 2 right, 0 had a trace" in said
    found = {one["solution"]: one["evaluation"] for one in map(json.loads, (root / "traces.jsonl").open())}
    assert found["right"]["status"] == "PASSED" and found["right"]["performance"]["latency_ms"] > 0
    assert (
        found["wrong"]["status"] == "INCORRECT_NUMERICAL" and found["wrong"]["correctness"]["max_absolute_error"] > 0.01
    )
    before = (root / "traces.jsonl").read_bytes()
    assert "0 of 0 right, 2 had a trace" in called()[1] and (root / "traces.jsonl").read_bytes() == before


def test_flashinfer_benchs_own_reader_takes_the_traces(tmp_path: Path) -> None:
    data = pytest.importorskip("flashinfer_bench.data", reason="flashinfer-bench is not installed (it wants CUDA)")
    given = [solution("one", RIGHT)]
    root = dataset(tmp_path, [RANDOM], given)
    (problem,) = problems(root)
    nan = TensorError("output", 0, 0.1, 1.0, 0.1, 1.0, (0,), 3, 0, 8)
    verdicts = [verdict_of(outcome) for outcome in OUTCOMES if not isinstance(outcome, NotJudged)]
    verdicts.append(replace(verdict_of(Wrong("nan", "x")), forward=Compared((nan,), 4.0)))
    TraceFile(trace_file(root, None, problem, problem.solutions[0])).add(traced(verdict) for verdict in verdicts)
    read = data.TraceSet.from_path(str(root))
    assert list(read.definitions) == ["scaled_norm"] and len(read.workloads["scaled_norm"]) == 1
    statuses = [trace.evaluation.status.value for trace in read.traces["scaled_norm"]]
    assert statuses == [status_of(verdict, sol=False) for verdict in verdicts]
    best = read.get_best_trace("scaled_norm", max_abs_error=1.0, max_rel_error=1.0)
    assert best.evaluation.performance.speedup_factor == 2.0


READ = """
import json, sys, types
root = sys.argv[1]
for name in ("sol_execbench", "sol_execbench.core"):  # their own imports want a GPU's packages
    package = types.ModuleType(name)
    package.__path__ = [f"{root}/src/{name.replace('.', '/')}"]
    sys.modules[name] = package
from sol_execbench.core.data.definition import Definition
from sol_execbench.core.data.solution import Solution
from sol_execbench.core.data.trace import Trace
Definition(**json.load(open(sys.argv[2])))
Solution(**json.load(open(sys.argv[3])))
print([Trace(**json.loads(line)).evaluation.status.value for line in open(sys.argv[4])])
"""


@pytest.mark.skipif(not SOL, reason="CRUCIBLE_SOL_EXECBENCH names no checkout of SOL-ExecBench")
def test_sol_execbenchs_own_models_take_the_traces(tmp_path: Path) -> None:
    one = {**solution("one", RIGHT, sol=True)}
    one["spec"] |= {"target_hardware": ["LOCAL"]}
    verdicts = [verdict_of(outcome) for outcome in OUTCOMES if not isinstance(outcome, NotJudged)]
    TraceFile(tmp_path / "traces.jsonl").add(traced(verdict, sol=True) for verdict in verdicts)
    files = [write(tmp_path / f"{number}.json", json.dumps(data)) for number, data in enumerate((DEFINITION, one))]
    command = [sys.executable, "-c", READ, SOL, *map(str, files), str(tmp_path / "traces.jsonl")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str([status_of(verdict, sol=True) for verdict in verdicts])
