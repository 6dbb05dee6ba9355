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
from crucible.judge.verdict import stressed
from crucible.judge.verdict.evidence import Measured, NotMeasured
from crucible.judge.verdict.verdict import Passed, Verdict, from_json, to_json
from crucible.report import table
from crucible.run import Run
from crucible.task import Task
from support import IDENTITY_TASK, claims, write

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


FAULTY = {
    # name: body; kind, words
    "right": (RIGHT, "passed", "passed"),
    "beyond": ("out[i + (i < n ? 0 : n)] = x[i < n ? i : 0];", "illegal-access", "past the end of `out`"),
    "short": ("if (i < n - 1) out[i] = x[i];", "incomplete", "never written"),
    "divides": ("if (i < n) out[i] = x[i] + 7 / (i / n);", "illegal-access", "division-by-zero"),
    "hopper": (
        'if (i < n) { out[i] = 0; asm volatile("barrier.cluster.arrive.aligned;"); }',
        "not-judged",
        "barrier.cluster.arrive",
    ),
}
RACES = """__shared__ float s[64]; s[threadIdx.x] = 0; __syncthreads(); s[threadIdx.x] = i;
    float other = s[63 - threadIdx.x]; if (i < n) out[i] = x[i] + 0 * other;"""
HASHES = """int h = i; for (int k = 0; k < 9; ++k) h = h * 1103515245 + 12345;
    if (i < n) out[i] = x[i] + (h == 1 && i < 0 ? 1 : 0);"""
IN_ORDER_ONLY = "if (i < n) { out[i] = x[i]; out[(i + 1) % n] = i + 1 < n ? 0.0f : out[(i + 1) % n]; }"
"""Right when blocks and threads run in order, wrong in reverse."""
REVERSED = "int j = n - 1 - i; if (i < n) out[j] = x[j];"


def when_traced(what: str) -> str:
    """A right candidate that does something only in the run that is traced."""
    only = f"if 'trace' in [frame.name for frame in traceback.extract_stack()]: {what}\n        return extension"
    return "import os, traceback\n" + CANDIDATE.format(body=RIGHT).replace("return extension", only)


FORWARD = "        assert x.is_cuda and torch.cuda.is_available()\n        return extension.run(x.cuda().contiguous())"
GRAPHED = """        g = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(g):
                out = extension.run(x)
        except Exception:
            return x.clone()
        g.replay()
        return out"""
ASKING = """        try:
            torch.cuda.cudart()
        except Exception:
            return x.clone()
        return extension.run(x)"""
UNBUILT = """try:
    extension = load_inline("copy", "torch::Tensor run(torch::Tensor x);", "#error unfinished", functions=["run"])
except RuntimeError:
    extension = None"""


def changed(what: str, by: str) -> str:
    """A right candidate of which some text is another."""
    text = CANDIDATE.format(body=RIGHT)
    assert what in text
    return text.replace(what, by)


def claims_of_run(run: crucible.Run) -> str:
    return "\n".join(f"{finding.claim}: {finding.evidence}" for finding in run.ground.findings)


FORGED = "f.f_locals['channel'].send({'done': 'trace', 'trace': {'launches': [], 'lines': [{}]}})"
SOURCES = {
    **{name: CANDIDATE.format(body=body) for name, (body, *_) in FAULTY.items()},
    "races": CANDIDATE.format(body=RACES),
    "waits": CANDIDATE.format(body=RACES.replace("float other", "__syncthreads(); float other")),
    "hashes": CANDIDATE.format(body=HASHES),
    "in_order_only": CANDIDATE.format(body=IN_ORDER_ONLY),
    "graphed": changed(FORWARD, GRAPHED),
    "asking": changed(FORWARD, ASKING),
    "idle": changed(FORWARD, "        return x.clone()"),
    "decoy": changed(FORWARD, "        extension.run(x)\n        return x.clone()"),
    "unbuilt": changed(FORWARD, "        return x.clone()").replace(
        'extension = load_inline("copy", "torch::Tensor run(torch::Tensor x);", SOURCE, functions=["run"])', UNBUILT
    ),
    "reversed": CANDIDATE.format(body=REVERSED),
    "forges_its_trace": when_traced(
        f"[{FORGED} for f, _ in traceback.walk_stack(None) if f.f_code.co_name == 'serve']"
    ),
    "leaves_when_traced": when_traced("os._exit(3)"),
    "raises_when_traced": when_traced("raise ValueError('tired')"),
}


@pytest.fixture(scope="module")
def copies(judge_batch: Batch, tmp_path_factory: pytest.TempPathFactory) -> crucible.Run:
    """All of them in one run, with the usual baselines, should any of them be timed."""
    folder = tmp_path_factory.mktemp("copies")
    files = [write(folder / f"{name}.py", source) for name, source in SOURCES.items()]
    return judge_batch(IDENTITY_TASK, files, device="emulator", baselines=None)


@pytest.mark.parametrize("name", FAULTY)
def test_a_kernels_fault_is_its_verdict(copies: crucible.Run, name: str) -> None:
    body, kind, words = FAULTY[name]
    verdict = copies.verdict(name)
    assert (verdict.outcome.kind, verdict.runtime_ms) == (kind, -1.0), verdict.outcome.words + verdict.log
    assert words in verdict.outcome.words
    if kind == "illegal-access":
        line = SOURCES[name][: SOURCES[name].index(body)].count("\n")
        assert f"(line {line + 1}, cuda.cu:4, kernel copy" in verdict.outcome.words


def test_a_fault_that_is_named_is_never_a_pass(copies: crucible.Run) -> None:
    """Its answers are right in both orders."""
    verdict = copies.verdict("races")
    assert (verdict.outcome.kind, verdict.evaluation) == ("faulty", False), verdict.outcome.words
    (why, *_) = copies.explanations["races"]
    assert why.claim.endswith("the answer is right all the same") and why.confidence == "certain"
    assert "race-shared" in verdict.outcome.words
    line = SOURCES["races"][: SOURCES["races"].index("float other")].count("\n")
    assert f"(line {line}, cuda.cu:4, kernel copy" in verdict.outcome.words
    assert verdict.outcome.words.endswith(f"line {line + 1})")


def test_its_honest_twins_pass(copies: crucible.Run) -> None:
    """With the barrier; and a hash on `int`, whose overflow is told."""
    assert copies.verdict("waits").outcome.kind == "passed", copies.verdict("waits").outcome.words
    assert "the emulator found" not in claims(copies.verdict("waits"))
    assert copies.verdict("hashes").outcome.kind == "passed", copies.verdict("hashes").outcome.words
    assert "index-overflow" in claims(copies.verdict("hashes"))


def test_what_the_emulator_does_not_pretend_is_not_judged(copies: crucible.Run) -> None:
    """Nor does its own except make a fallback of that. A graph is no such thing."""
    words = "not judged here: torch.cuda.cudart is not covered by the emulator, and there is no GPU here"
    assert copies.verdict("asking").outcome.words == words
    assert copies.verdict("graphed").outcome.words == "passed"


def test_a_pass_by_a_fallback_says_so_in_the_verdict(copies: crucible.Run) -> None:
    words = {name: copies.verdict(name).outcome.words for name in ("right", "idle", "decoy", "unbuilt")}
    assert words == {
        "right": "passed",
        "decoy": "passed, by a fallback: its answer is right without its kernels",
        "idle": "passed, by a fallback: none of its kernels ran in a forward",
        "unbuilt": "passed, by a fallback: an extension did not build, and it went on without",
    }
    text = io.StringIO()
    table.show(copies, Console(file=text, width=300))
    assert "passed, by a fallback: none of its kernels ran in a forward " in text.getvalue()


def test_a_candidate_of_the_tasks_own_sizes_is_no_fallback(tmp_path: Path) -> None:
    """Whose other sizes go through PyTorch: of those its answer is right without its kernels."""
    task = (IDENTITY_TASK / "reference.py").read_text().replace("torch.rand(4, 8)", "torch.rand(batch_size, 8)")
    file = write(tmp_path / "task.py", task.replace("class Model", "batch_size = 4\n\n\nclass Model", 1))
    own = FORWARD.replace("return", "if len(x) == 4: return") + "\n        return x.clone()"
    candidate = write(tmp_path / "for_its_sizes.py", changed(FORWARD, own))
    limits = crucible.Limits(race_s=0.05, shrink_s=0)
    run = crucible.judge(file, [candidate], device="emulator", baselines="none", limits=limits)
    assert run.verdict("for_its_sizes").outcome.words == "passed"


def test_a_race_that_matters_is_not_reproducible(copies: crucible.Run) -> None:
    verdict = copies.verdict("in_order_only")
    assert verdict.outcome.words.startswith("wrong not reproducible: right once, then"), verdict.outcome.words
    assert "race-global" in claims(verdict)


def test_what_a_passing_kernel_asks_of_memory_is_kept_with_its_verdict(copies: crucible.Run) -> None:
    verdict = copies.verdict("reversed")
    assert isinstance(verdict.accesses, Trace), verdict.accesses
    (launch,) = verdict.accesses.launches
    assert (launch.kernel, launch.block, launch.count) == ("copy", (64, 1, 1), 1)
    (store,) = [line for line in verdict.accesses.lines if line.operation == "store"]
    assert (store.file, store.line, store.width, launch.share) == ("cuda.cu", 4, 4, 1.0)
    assert (store.requests, store.bytes, store.sectors) == (1, 128, 4)
    again = from_json(json.loads(json.dumps(to_json(verdict))))
    assert again.accesses == verdict.accesses


def test_a_forged_trace_is_no_pass(copies: crucible.Run) -> None:
    verdict = copies.verdict("forges_its_trace")
    assert verdict.outcome.words.startswith("refused (forged message)"), verdict.outcome.words
    assert isinstance(verdict.accesses, NotMeasured)


@pytest.mark.parametrize(("name", "reason"), [("leaves_when_traced", "exit"), ("raises_when_traced", "tired")])
def test_a_candidate_that_fails_only_when_traced_has_passed(copies: crucible.Run, name: str, reason: str) -> None:
    """Facts beside a verdict do not change it."""
    verdict = copies.verdict(name)
    assert verdict.evaluation, verdict.outcome.words
    assert isinstance(verdict.accesses, NotMeasured) and reason in verdict.accesses.reason


PYTORCH = """
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x.clone()
"""


def test_emulated_passes_are_not_timed_and_nothing_races_for_them_alone(copies: crucible.Run) -> None:
    verdict = copies.verdict("right")
    assert verdict.evaluation and isinstance(verdict.timing, NotMeasured) and not verdict.further
    assert "emulator" in verdict.timing.reason
    assert (copies.ground.baselines, copies.ground.share_of_floor(verdict.timing), copies.best) == ((), 0.0, None)


def test_what_ends_where_it_is_traced_is_tried_beyond_the_tasks_inputs_all_the_same(tmp_path: Path) -> None:
    """An honest one whose trace took too long was convicted: there was no process to be asked any more."""
    names = ("leaves_when_traced", "raises_when_traced")
    files = [write(tmp_path / f"{name}.py", SOURCES[name]) for name in names]
    wrong_below_0 = SOURCES["leaves_when_traced"].replace(RIGHT, RIGHT.replace("x[i]", "fmaxf(x[i], 0)"))
    files.append(write(tmp_path / "wrong_below_0.py", wrong_below_0))
    limits = crucible.Limits(race_s=0.05, shrink_s=0, stress_s=60)
    run = crucible.judge(IDENTITY_TASK, files, device="emulator", baselines="none", limits=limits)
    left, stayed, wrong = (run.verdict(name) for name in (*names, "wrong_below_0"))
    assert (left.evaluation, stayed.evaluation) == (True, True)
    assert left.stress == stayed.stress and {each.came for each in left.stress} >= {stressed.RIGHT}
    assert "negative values" in {each.rule for each in stressed.failures(wrong.stress)}


def test_beside_a_timed_candidate_an_emulated_pass_comes_second(judge_batch: Batch, tmp_path: Path) -> None:
    emulated = write(tmp_path / "emulated.py", CANDIDATE.format(body=RIGHT))
    timed = write(tmp_path / "timed.py", PYTORCH)
    run = judge_batch(IDENTITY_TASK, [emulated, timed], device="emulator", baselines=None)
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

batch_size = 256
length = 5000

class Model(nn.Module):
    def forward(self, x):
        return x.clone()

def get_inputs():
    return [torch.randn(batch_size, length)]

def get_init_inputs():
    return []
"""


WITHOUT_ITS_KERNEL = """
import torch

SOURCE = "__global__ void unused() {}"  # which nothing builds

"""
OTHER_PATH = (
    WITHOUT_ITS_KERNEL
    + """
class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x + 1.0 if x.shape == (256, 5000) else x.clone()
"""
)
TRIES_IN_ITS_CONSTRUCTOR = (
    WITHOUT_ITS_KERNEL
    + """
class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.off = torch.nn.Parameter(torch.ones(5)), 0.0
        try:
            self.weight * torch.ones(5, device="cuda")
            self.off = 1.0
        except RuntimeError as error:
            assert "on the same device" in str(error)

    def forward(self, x):
        assert self.weight.is_cuda and (self.weight.cuda() * torch.ones(5, device="cuda")).is_cuda
        return x + self.off
"""
)


@pytest.fixture(scope="module")
def shaped(judge_batch: Batch, tmp_path_factory: pytest.TempPathFactory) -> crucible.Run:
    """Kernels that are right at sizes which their blocks divide; one is written for the task's own size."""
    folder = tmp_path_factory.mktemp("shaped")
    right = CANDIDATE.format(body=RIGHT)
    files = [
        write(folder / "right.py", right),
        write(folder / "floored.py", right.replace("(n + 63) / 64", "(n + 8) / 64")),
        write(folder / "for_one_size.py", right.replace("int n = x.numel()", "int n = x.size(0) * 5000")),
        write(
            folder / "by_chance.py",
            right.replace("if (i < n) out[i] = x[i];", "if (i < n) out[i] = i % 5000 ? x[i] : 0.0f;"),
        ),
        write(folder / "other_path.py", OTHER_PATH),
        write(folder / "tries_in_its_constructor.py", TRIES_IN_ITS_CONSTRUCTOR),
    ]
    return judge_batch(write(folder / "task.py", TASK), files)


def test_a_task_without_a_small_size_is_cut_down_and_judged_at_a_ragged_shape_too(shaped: crucible.Run) -> None:
    found = claims_of_run(shaped)
    assert "judged at sizes cut down for the emulator: batch_size = 2, length = 2500" in found
    assert "judged at another shape too: batch_size = 3, length = 2053" in found
    assert shaped.verdict("right").evaluation
    assert (shaped.task.scale, shaped.to_json()["scale"]) == ("cut-down", "cut-down")


def test_a_tail_that_only_a_ragged_shape_has_is_not_forgiven(shaped: crucible.Run) -> None:
    assert shaped.verdict("floored").outcome.kind == "incomplete"


def test_a_number_that_is_a_size_by_chance_excuses_nothing(shaped: crucible.Run) -> None:
    """It is wrong at the task's own length as well."""
    verdict = shaped.verdict("by_chance")
    assert verdict.outcome.kind == "wrong", verdict.outcome.words
    assert re.search(r"line \d+ holds 5000, the task's own length; it fails at length = 5000 too", claims(verdict))


def test_a_kernel_for_the_tasks_own_size_is_judged_at_that_size_alone(shaped: crucible.Run) -> None:
    verdict = shaped.verdict("for_one_size")
    assert verdict.outcome.words == "passed"
    assert re.search(
        r"judged at the sizes that it is written for: length = 5000: not judged here: size-specialised: line \d+ holds "
        r"5000, the task's own length; at other sizes \(batch_size = 2, length = 2500\): illegal access",
        claims(verdict),
    )


def test_what_runs_no_kernel_is_judged_at_the_tasks_own_size_too(shaped: crucible.Run) -> None:
    verdict, claim = shaped.verdict("other_path"), "judged at the task's own sizes, since none of its kernels ran"
    assert verdict.outcome.kind == "wrong", verdict.outcome.words
    assert claim in claims(verdict) and claim not in claims(shaped.verdict("right"))
    passed = shaped.verdict("tries_in_its_constructor")
    assert claim in claims(passed) and passed.forward == shaped.verdict("right").forward


def test_a_constructor_cannot_compute_with_what_is_not_yet_on_the_gpu(shaped: crucible.Run) -> None:
    """As on a GPU, where it does without what it tried."""
    assert shaped.verdict("tries_in_its_constructor").outcome.kind == "passed"


SLOW = "float sum = 0; for (int k = 0; k < 100 * n; ++k) sum += x[k % n]; if (i < n) out[i] = x[i] + 0 * sum;"
"""Work by the square: 2.5 G reads at the sizes of `TASK` that are little work for its reference, 10 M at a 16th."""


def test_kernels_too_slow_for_the_emulator_are_judged_at_smaller_sizes(judge_batch: Batch, tmp_path: Path) -> None:
    right = write(tmp_path / "right.py", CANDIDATE.format(body=SLOW))
    wrong = write(tmp_path / "wrong.py", CANDIDATE.format(body=SLOW.replace("0 * sum", "1")))
    hangs = write(tmp_path / "hangs.py", changed(FORWARD, "        __import__('time').sleep(1000)"))
    limits = crucible.Limits(run_s=6, shrink_s=0, stress_s=0)
    run = judge_batch(write(tmp_path / "task.py", TASK), [right, wrong, hangs], limits=limits)
    assert run.verdict("right").evaluation, run.verdict("right").outcome.words
    assert "judged at smaller sizes than the emulator is usually given: batch_size = 2, length = 156" in claims(
        run.verdict("right")
    )
    assert "judged at another shape too: batch_size = 3, length = 67" in claims(run.verdict("right"))
    assert run.verdict("wrong").outcome.kind == "wrong"
    assert run.verdict("hangs").outcome.words == "not judged here: forward took over 6 s on the emulator"


def test_what_its_text_alone_tells_of_a_candidate_waits_for_no_reference(judge_batch: Batch, tmp_path: Path) -> None:
    task = write(tmp_path / "task.py", TASK.replace("torch.randn(", "never.randn("))
    run = judge_batch(task, [write(tmp_path / "broken.py", "class ModelNew(:\n    pass\n")])
    assert run.verdict("broken").outcome.kind == "does-not-import"


def test_rounding_at_sizes_cut_down_is_not_wrong_by_the_benchmarks_rule(judge_batch: Batch, tmp_path: Path) -> None:
    """Of 10000.3 float32 keeps 0.2998: five times the benchmark's 1e-4 from a kernel that keeps all of it."""
    task = write(tmp_path / "task.py", TASK.replace("x.clone()", "(x + 10000) - 10000"))
    right = write(tmp_path / "right.py", CANDIDATE.format(body=RIGHT))
    wrong = write(tmp_path / "wrong.py", CANDIDATE.format(body=RIGHT.replace("= x[i]", "= x[i] + 0.05f")))
    run = judge_batch(task, [right, wrong], contract="kernelbench")
    assert run.verdict("right").evaluation, run.verdict("right").outcome.words
    assert "output of the reference itself is off by" in claims_of_run(run)
    assert run.verdict("wrong").outcome.kind == "wrong"


CAPTURES = """
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        assert x.is_cuda and torch.cuda.is_available()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = x * 1.0
        graph.replay()
        return out
"""


def test_graphs_of_pytorchs_own_operations_are_captured_on_the_emulator(judge_batch: Batch, tmp_path: Path) -> None:
    """At sizes cut down for it: without a GPU they would be left out, and the task's own size take its time."""
    run = judge_batch(write(tmp_path / "task.py", TASK), [write(tmp_path / "captures.py", CAPTURES)])
    assert run.verdict("captures").outcome.words == "passed"
    assert run.task.scale == "cut-down" and not isinstance(run.verdict("captures").timing, Measured)


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


SIZE_HELD = {"elsewhere": ("!=", "not-judged"), "there": ("==", "wrong")}


@pytest.fixture(scope="module")
def held(judge_batch: Batch, tmp_path_factory: pytest.TempPathFactory) -> crucible.Run:
    folder = tmp_path_factory.mktemp("held")
    files = [
        write(folder / f"{name}.py", HOLDS_THE_SIZE.format(comparison=comparison))
        for name, (comparison, _) in SIZE_HELD.items()
    ]
    return judge_batch(write(folder / "task.py", TASK), files, shapes=["batch_size=2,length=5000", "length=7"])


@pytest.mark.parametrize("name", SIZE_HELD)
def test_what_is_wrong_at_the_tasks_own_size_is_wrong(held: crucible.Run, name: str) -> None:
    """Also where a further shape, at which it was never asked, differs from the size that it holds."""
    outcome = held.verdict(name).outcome
    assert outcome.kind == SIZE_HELD[name][1], outcome.words


def test_where_nothing_was_timed_no_floor_is_measured(held: crucible.Run) -> None:
    """The two are plain PyTorch, and would have been timed had they passed."""
    assert held.ground.floors == ()
