"""CUDA candidates judged without a GPU: what the emulator finds becomes the verdict, or stands beside it."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

import crucible
from crucible.contract import CONTRACTS
from crucible.emulator.trace import Trace
from crucible.hardware import Device
from crucible.judge.evidence import Measured, NotMeasured
from crucible.judge.verdict import Passed, Verdict, from_json, to_json
from crucible.report import table
from crucible.run import Run
from crucible.task import Task
from support import IDENTITY_TASK, Judge, claims, write

CANDIDATE = '''
import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
__global__ void copy(const float* x, float* out, int n) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    {body}
}}
torch::Tensor run(torch::Tensor x) {{
    TORCH_CHECK(x.is_cuda(), "x must be a CUDA tensor");
    auto out = torch::empty_like(x);
    int n = x.numel();
    copy<<<(n + 63) / 64, 64>>>(x.data_ptr<float>(), out.data_ptr<float>(), n);
    return out;
}}
"""
extension = load_inline("copy", "torch::Tensor run(torch::Tensor x);", SOURCE, functions=["run"])


class ModelNew(nn.Module):
    def forward(self, x):
        assert x.is_cuda and torch.cuda.is_available()
        return extension.run(x.cuda().contiguous())
'''
Batch = Callable[..., crucible.Run]
RIGHT = "if (i < n) out[i] = x[i];"


@pytest.mark.parametrize(
    ("body", "kind", "words"),
    [
        (RIGHT, "passed", "passed"),
        ("out[i + (i < n ? 0 : n)] = x[i < n ? i : 0];", "illegal-access", "past the end of `out`"),
        ("if (i < n - 1) out[i] = x[i];", "incomplete", "never written"),
        ("if (i < n) out[i] = x[i] + 7 / (i / n);", "illegal-access", "division-by-zero"),
        ('if (i < n) { out[i] = 0; asm volatile("wgmma.fence.sync.aligned;"); }', "not-judged", "wgmma.fence"),
    ],
)
def test_a_kernels_fault_is_its_verdict(judge_source: Judge, body: str, kind: str, words: str) -> None:
    text = CANDIDATE.format(body=body)
    verdict = judge_source(text, IDENTITY_TASK, device="emulator")
    assert (verdict.outcome.kind, verdict.runtime_ms) == (kind, -1.0), verdict.outcome.words + verdict.log
    assert words in verdict.outcome.words
    if kind == "illegal-access":
        line = text[: text.index(body)].count("\n")
        assert f"(line {line + 1}, cuda.cu:4, kernel copy" in verdict.outcome.words


def test_a_fault_that_does_no_harm_stands_beside_a_pass(judge_source: Judge) -> None:
    body = "__shared__ float s[64]; s[threadIdx.x] = i; float other = s[63 - threadIdx.x]; "
    verdict = judge_source(CANDIDATE.format(body=body + "if (i < n) out[i] = x[i] + 0 * other;"), IDENTITY_TASK)
    assert "race-shared: read after write" in claims(verdict) or "uninitialised-shared" in claims(verdict)


def test_a_race_that_matters_is_not_reproducible(judge_source: Judge) -> None:
    """Right when blocks and threads run in order, wrong in reverse."""
    body = "if (i < n) { out[i] = x[i]; out[(i + 1) % n] = i + 1 < n ? 0.0f : out[(i + 1) % n]; }"
    verdict = judge_source(CANDIDATE.format(body=body), IDENTITY_TASK, device="emulator")
    assert verdict.outcome.words.startswith("wrong not reproducible: right once, then"), verdict.outcome.words
    assert "race-global" in claims(verdict)


REVERSED = "int j = n - 1 - i; if (i < n) out[j] = x[j];"


def test_what_a_passing_kernel_asks_of_memory_is_kept_with_its_verdict(judge_source: Judge) -> None:
    verdict = judge_source(CANDIDATE.format(body=REVERSED), IDENTITY_TASK, device="emulator")
    assert isinstance(verdict.accesses, Trace), verdict.accesses
    (launch,) = verdict.accesses.launches
    assert (launch.kernel, launch.block, launch.count) == ("copy", (64, 1, 1), 1)
    (store,) = [line for line in verdict.accesses.lines if line.operation == "store"]
    assert (store.file, store.line, store.width, launch.share) == ("cuda.cu", 4, 4, 1.0)
    assert (store.requests, store.bytes, store.sectors) == (1, 128, 4)
    again = from_json(json.loads(json.dumps(to_json(verdict))))
    assert again.accesses == verdict.accesses


def when_traced(what: str) -> str:
    """A right candidate that does something only in the run that is traced."""
    only = f"if 'trace' in [frame.name for frame in traceback.extract_stack()]: {what}\n        return extension"
    return "import os, traceback\n" + CANDIDATE.format(body=RIGHT).replace("return extension", only)


def test_a_forged_trace_is_no_pass(judge_source: Judge) -> None:
    forged = "f.f_locals['channel'].send({'done': 'trace', 'trace': {'launches': [], 'lines': [{}]}})"
    forging = f"[{forged} for f, _ in traceback.walk_stack(None) if f.f_code.co_name == 'serve']"
    verdict = judge_source(when_traced(forging), IDENTITY_TASK, device="emulator")
    assert verdict.outcome.words.startswith("refused (forged message)"), verdict.outcome.words
    assert isinstance(verdict.accesses, NotMeasured)


@pytest.mark.parametrize(("what", "reason"), [("os._exit(3)", "exit"), ("raise ValueError('tired')", "tired")])
def test_a_candidate_that_fails_only_when_traced_has_passed(judge_source: Judge, what: str, reason: str) -> None:
    """Facts beside a verdict do not change it."""
    verdict = judge_source(when_traced(what), IDENTITY_TASK, device="emulator")
    assert verdict.evaluation, verdict.outcome.words
    assert isinstance(verdict.accesses, NotMeasured) and reason in verdict.accesses.reason


PYTORCH = """
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x.clone()
"""


def test_emulated_passes_are_not_timed_and_nothing_races_for_them_alone(tmp_path: Path) -> None:
    emulated = write(tmp_path / "emulated.py", CANDIDATE.format(body=RIGHT))
    run = crucible.judge(IDENTITY_TASK, [emulated], device="emulator")
    verdict = run.verdict("emulated")
    assert verdict.evaluation and isinstance(verdict.timing, NotMeasured) and not verdict.further
    assert "emulator" in verdict.timing.reason
    assert (run.ground.baselines, run.ground.share_of_floor(verdict.timing), run.best) == ((), 0.0, None)


def test_beside_a_timed_candidate_an_emulated_pass_comes_second(tmp_path: Path) -> None:
    emulated = write(tmp_path / "emulated.py", CANDIDATE.format(body=RIGHT))
    timed = write(tmp_path / "timed.py", PYTORCH)
    run = crucible.judge(IDENTITY_TASK, [emulated, timed], device="emulator")
    assert [(rank, v.candidate, v.runtime_ms > 0) for rank, v in run.ranked] == [
        (1, "timed", True),
        (2, "emulated", False),
    ]
    assert run.best == "timed"
    assert [v.candidate for v in run.ground.baselines] == ["eager"]


def a_run(*verdicts: Verdict) -> Run:
    task = Task("a_task", Path("a_task/reference.py"), "", {})
    return Run(task, CONTRACTS["tf32"], Device("cpu", "CPU: none", "1"), {"torch": "2.13"}, 7, verdicts)


def emulated_pass(name: str) -> Verdict:
    return Verdict(name, Passed(), timing=NotMeasured("the emulator has no clock"))


def test_emulated_passes_share_the_rank_after_what_was_timed() -> None:
    timed = Verdict("a", Passed(), timing=Measured(1.0, (1.0, 1.0), 100, "CPU time", "forward"))
    run = a_run(emulated_pass("c"), timed, emulated_pass("b"))
    assert [(rank, verdict.candidate) for rank, verdict in run.ranked] == [(1, "a"), (2, "c"), (2, "b")]
    assert run.best == "a"
    assert [entry["runtime_ms"] for entry in run.to_json()["candidates"]] == [1.0, -1.0, -1.0]


def test_where_nothing_was_timed_the_table_says_why_nothing_is_best() -> None:
    text = io.StringIO()
    run = a_run(emulated_pass("c"))
    table.show(run, Console(file=text, width=table.PLAIN_WIDTH))
    assert run.best is None
    assert "passed, not timed" in text.getvalue()
    assert "best: none was timed: the emulator has no clock" in text.getvalue()


# --- other shapes than the task's own

TASK = """
import torch
from torch import nn

batch_size = 64
length = 5000

class Model(nn.Module):
    def forward(self, x):
        return x.clone()

def get_inputs():
    return [torch.randn(batch_size, length)]

def get_init_inputs():
    return []
"""


@pytest.fixture(scope="module")
def shaped(judge_batch: Batch, tmp_path_factory: pytest.TempPathFactory) -> crucible.Run:
    """Kernels that are right at sizes which their blocks divide; one is written for the task's own size."""
    folder = tmp_path_factory.mktemp("shaped")
    right = CANDIDATE.format(body=RIGHT)
    files = [
        write(folder / "right.py", right),
        write(folder / "floored.py", right.replace("(n + 63) / 64", "(n + 8) / 64")),
        write(folder / "for_one_size.py", right.replace("int n = x.numel()", "int n = x.size(0) * 5000")),
    ]
    return judge_batch(write(folder / "task.py", TASK), files)


def test_a_task_without_a_small_size_is_cut_down_and_judged_at_a_ragged_shape_too(shaped: crucible.Run) -> None:
    found = "\n".join(f"{finding.claim}: {finding.evidence}" for finding in shaped.ground.findings)
    assert "judged at sizes cut down for the emulator: batch_size = 2, length = 2500" in found
    assert "judged at another shape too: batch_size = 3, length = 2053" in found
    assert shaped.verdict("right").evaluation
    assert (shaped.task.scale, shaped.to_json()["scale"]) == ("cut-down", "cut-down")


def test_a_tail_that_only_a_ragged_shape_has_is_not_forgiven(shaped: crucible.Run) -> None:
    assert shaped.verdict("floored").outcome.kind == "incomplete"


def test_a_kernel_for_the_tasks_own_size_is_size_specialised_and_not_wrong(shaped: crucible.Run) -> None:
    outcome = shaped.verdict("for_one_size").outcome
    assert outcome.kind == "not-judged"
    assert re.match(r"not judged here: size-specialised: line \d+ holds 5000, the task's own length", outcome.words)
    assert "at other sizes (batch_size = 2, length = 2500): illegal access" in outcome.words


def test_the_shapes_that_the_user_asks_for_replace_the_judges_own(judge_batch: Batch, tmp_path: Path) -> None:
    floored = write(tmp_path / "floored.py", CANDIDATE.format(body=RIGHT).replace("(n + 63) / 64", "n / 64"))
    task = write(tmp_path / "task.py", TASK)
    assert judge_batch(task, [floored], shapes=["batch_size=1,length=128"]).verdict("floored").evaluation
    verdict = judge_batch(task, [floored], shapes=["batch_size=1,length=128", "length=129"]).verdict("floored")
    assert verdict.outcome.kind == "incomplete"


HOLDS_THE_SIZE = """
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x + 1.0 if x.shape[1] {comparison} 5000 else x.clone()
"""


@pytest.mark.parametrize(("comparison", "kind"), [("!=", "not-judged"), ("==", "wrong")])
def test_what_is_wrong_at_the_tasks_own_size_is_wrong(
    judge_batch: Batch, tmp_path: Path, comparison: str, kind: str
) -> None:
    """Also where a further shape, at which it was never asked, differs from the size that it holds."""
    file = write(tmp_path / "holds.py", HOLDS_THE_SIZE.format(comparison=comparison))
    task = write(tmp_path / "task.py", TASK)
    run = judge_batch(task, [file], shapes=["batch_size=2,length=5000", "length=7"])
    assert run.verdict("holds").outcome.kind == kind, run.verdict("holds").outcome.words
