"""Baselines: which are chosen, what their source says, and that each is judged before it is compared."""

from __future__ import annotations

import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import crucible
from crucible.errors import MisuseError
from crucible.judge.timing.baselines import ANCHOR, BASELINES, as_candidate, choose_baselines
from crucible.judge.verdict.evidence import Compared, Costs, Measured, NotMeasured, Speedup
from crucible.task import Task
from support import PLAIN, SMALL_TASK, claims, write

CONVOLUTION = """
import torch
import torch.nn as nn

batch = 4
width = 3
SMALL = {"batch": 2, "width": 5}

class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.scale = nn.Parameter(torch.randn(4, 1, 1))

    def forward(self, x):
        return self.norm(self.conv(x)) * self.scale

def get_inputs():
    return [torch.randn(batch, width, 6, 6)]

def get_init_inputs():
    return [width]
"""


@pytest.fixture
def convolution(tmp_path: Path) -> Task:
    return Task.load(write(tmp_path / "convolution.py", CONVOLUTION))


@pytest.fixture
def linear() -> Task:
    return Task.load(SMALL_TASK)


def names(wanted: str | None, task: Task, device: str) -> list[str]:
    return [baseline.name for baseline in choose_baselines(wanted, task, device)]


# --- which


def test_the_usual_ones(convolution: Task, linear: Task) -> None:
    assert names(None, convolution, "cuda") == ["eager", "compile", "max-autotune", "compile-channels-last"]
    assert names(None, linear, "cuda") == ["eager", "compile", "max-autotune"]
    assert names(None, convolution, "cpu") == names(None, linear, "cpu") == ["eager"]


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_all_and_none(convolution: Task, linear: Task, device: str) -> None:
    assert names("all", convolution, device) == list(BASELINES)
    assert names("all", linear, device) == ["eager", "compile", "max-autotune"]
    assert names("all,compile", linear, device) == ["eager", "compile", "max-autotune"]
    assert names("none", convolution, device) == []


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_those_named_in_their_order_and_each_once(convolution: Task, linear: Task, device: str) -> None:
    assert names("compile,eager,compile", linear, device) == ["compile", "eager"]
    assert names("channels-last", convolution, device) == ["channels-last"]
    assert names("channels-last", linear, device) == ["channels-last"]  # who names it has a reason


@pytest.mark.parametrize("wanted", ["fast", "eager,fast", "all,fast", "Eager", "eager,", "none,eager"])
def test_an_unknown_one_is_a_misuse_that_names_the_choices(linear: Task, wanted: str) -> None:
    with pytest.raises(MisuseError) as caught:
        choose_baselines(wanted, linear, "cpu")
    assert all(name in str(caught.value) for name in (*BASELINES, "all", "none"))
    unknown = next(name for name in wanted.split(",") if name not in (*BASELINES, "all"))
    assert repr(unknown) in str(caught.value)


def test_a_misuse_is_noticed_before_anything_runs() -> None:
    with pytest.raises(MisuseError, match="fast"):
        crucible.judge(SMALL_TASK, [PLAIN], device="cpu", baselines="fast")


def test_candidates_are_ranked_by_one_that_is_usual_everywhere() -> None:
    assert {baseline.name for baseline in BASELINES.values()} == set(BASELINES)
    assert ANCHOR in BASELINES


# --- as candidates


def module_of(source: str) -> dict[str, Any]:
    module = types.ModuleType("baseline")
    exec(compile(source, "baseline.py", "exec"), module.__dict__)
    return module.__dict__


@pytest.mark.parametrize("name", BASELINES)
def test_its_source_is_a_candidate_with_the_references_weights(name: str, convolution: Task) -> None:
    candidate = as_candidate(BASELINES[name], convolution)
    assert (candidate.name, candidate.fault(), candidate.language) == (name, None, "pytorch")
    names_ = module_of(candidate.source)
    torch.manual_seed(0)
    own = names_["ModelNew"](*names_["get_init_inputs"]())
    torch.manual_seed(0)
    reference = names_["Model"](*names_["get_init_inputs"]())
    assert isinstance(own, names_["Model"])
    assert list(own.state_dict()) == list(reference.state_dict())
    assert all(
        torch.equal(a, b) for a, b in zip(own.state_dict().values(), reference.state_dict().values(), strict=True)
    )
    assert [n for n, _ in own.named_parameters()] == [n for n, _ in reference.named_parameters()]


@pytest.mark.parametrize("name", ["eager", "channels-last"])
def test_it_gives_what_the_reference_gives(name: str, convolution: Task) -> None:
    names_ = module_of(as_candidate(BASELINES[name], convolution).source)
    torch.manual_seed(0)
    own, reference = (names_[cls](3) for cls in ("ModelNew", "Model"))
    reference.load_state_dict(own.state_dict())
    x = names_["get_inputs"]()[0]
    torch.testing.assert_close(own(x), reference(x))
    torch.testing.assert_close(own(x=x), reference(x=x))


def test_channels_last_is_what_its_name_says(convolution: Task) -> None:
    source = as_candidate(BASELINES["channels-last"], convolution).source
    probe = source.replace("return self.norm", "seen.append((x, self.conv.weight)); return self.norm")
    names_ = module_of(f"seen = []\n{probe}")
    model = names_["ModelNew"](3)
    model.load_state_dict({name: value.contiguous() for name, value in model.state_dict().items()})
    model(names_["get_inputs"]()[0])
    model(x=names_["get_inputs"]()[0])
    assert len(names_["seen"]) == 2
    for tensors in names_["seen"]:
        assert all(t.is_contiguous(memory_format=torch.channels_last) and not t.is_contiguous() for t in tensors)


def test_channels_last_takes_inputs_of_any_kind() -> None:
    text = "class Model(torch.nn.Module):\n    def forward(self, a, b, c=None):\n        return a, b, c\n"
    task = Task("odd", Path("odd.py"), f"import torch\n{text}", {})
    model = module_of(as_candidate(BASELINES["channels-last"], task).source)["ModelNew"]()
    volume, plane = torch.randn(2, 3, 4, 5, 6), torch.randn(2, 3)
    a, b, c = model(volume, 7, c=plane)
    assert torch.equal(a, volume)
    assert a.is_contiguous(memory_format=torch.channels_last_3d)
    assert b == 7
    assert torch.equal(c, plane)


@pytest.mark.parametrize("name", BASELINES)
def test_the_sizes_are_those_of_the_tasks_scale(name: str, convolution: Task) -> None:
    small = convolution.at(scale="small", training=False, mode="train", small_by_default=False)
    names_ = module_of(as_candidate(BASELINES[name], small).source)
    assert names_["get_inputs"]()[0].shape == (2, 5, 6, 6)
    assert names_["ModelNew"](*names_["get_init_inputs"]()).conv.in_channels == 5
    assert module_of(as_candidate(BASELINES[name], convolution).source)["get_inputs"]()[0].shape == (4, 3, 6, 6)


# --- in a run


Batch = Callable[..., crucible.Run]


@pytest.fixture(scope="module")
def with_eager(judge_batch: Batch) -> crucible.Run:
    return judge_batch(SMALL_TASK, [PLAIN], baselines="eager", training=True)


def speedup(verdict: crucible.Verdict, baseline: str) -> Speedup:
    assert isinstance(verdict.timing, Measured)
    found = verdict.timing.speedup_over(baseline)
    assert found is not None
    return found


def holds_about_one(found: Speedup) -> bool:
    """The machine is noisy: a third or thrice is all that is asked."""
    low, high = found.interval
    return low <= 3.0 and high >= 0.3


def test_eager_passes_its_own_check_and_is_timed(with_eager: crucible.Run) -> None:
    (eager,) = with_eager.ground.baselines
    assert (eager.candidate, eager.outcome.kind) == ("eager", "passed")
    for check in (eager.forward, eager.backward):
        assert isinstance(check, Compared)
        assert check.ok
        assert check.tensors
    assert isinstance(eager.timing, Measured)
    assert (eager.timing.covers, eager.timing.clock, eager.timing.how) == ("forward+backward", "CPU time", "as called")
    assert isinstance(eager.costs, Costs)
    assert eager.costs.allocations > 0


def test_a_plain_candidate_is_about_as_fast_as_eager(with_eager: crucible.Run) -> None:
    plain = with_eager.verdict("plain")
    assert plain.evaluation
    timings = [plain.timing, *plain.further]
    assert [t.covers for t in timings if isinstance(t, Measured)] == ["forward+backward", "forward"]
    for timing in timings:
        assert isinstance(timing, Measured)
        found = timing.speedup_over("eager")
        assert found is not None
        assert holds_about_one(found)
        assert found.interval[0] <= found.ratio <= found.interval[1]
        assert len(found.rounds) >= 6
        assert len(found.rounds) % 2 == 0


def test_baselines_are_not_ranked_and_are_in_the_json(with_eager: crucible.Run) -> None:
    assert [verdict.candidate for _, verdict in with_eager.ranked] == ["plain"]
    data = with_eager.to_json()
    (entry,) = data["baselines"]
    assert (entry["name"], entry["evaluation"], entry["rank"]) == ("eager", True, 0)
    assert [entry["name"] for entry in data["candidates"]] == ["plain"]


PICKY = """
import torch
import torch.nn as nn

class Model(nn.Module):
    '''Gives another answer, or none, for another layout: a reference that no baseline may change.'''
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, x):
        if x.is_contiguous(memory_format=torch.channels_last):
            {otherwise}
        return self.conv(x)

def get_inputs():
    return [torch.randn(4, 3, 6, 6)]

def get_init_inputs():
    return []
"""
CONV = """
import torch
import torch.nn as nn

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, x):
        return self.conv(x)
"""


def picky_run(judge_batch: Batch, folder: Path, otherwise: str, baselines: str) -> crucible.Run:
    task = write(folder / "picky.py", PICKY.format(otherwise=otherwise))
    return judge_batch(task, [write(folder / "plain_conv.py", CONV)], baselines=baselines)


def test_a_wrong_baseline_is_reported_and_not_compared(judge_batch: Batch, tmp_path: Path) -> None:
    run = picky_run(judge_batch, tmp_path, "x = x * 1.5", "eager,channels-last")
    eager, wrong = run.ground.baselines
    assert eager.outcome.kind == "passed"
    assert (wrong.candidate, wrong.outcome.kind, wrong.runtime_ms) == ("channels-last", "wrong", -1.0)
    assert "relative L2" in wrong.outcome.words or "peak" in wrong.outcome.words
    assert isinstance(wrong.timing, NotMeasured)
    plain = run.verdict("plain_conv")
    assert plain.evaluation
    assert isinstance(plain.timing, Measured)
    assert [s.baseline for s in plain.timing.speedups] == ["eager"]


def test_a_baseline_that_crashes_is_named_and_the_run_goes_on(judge_batch: Batch, tmp_path: Path) -> None:
    run = picky_run(judge_batch, tmp_path, "raise ValueError('not in this layout')", "channels-last,eager")
    crashed, eager = run.ground.baselines
    assert (crashed.candidate, crashed.outcome.kind) == ("channels-last", "raises")
    assert "not in this layout" in crashed.outcome.words
    assert eager.outcome.kind == "passed"
    plain = run.verdict("plain_conv")
    assert plain.evaluation
    assert holds_about_one(speedup(plain, "eager"))
    assert isinstance(plain.timing, Measured)
    assert plain.timing.speedup_over("channels-last") is None
    assert run.trouble == ""


def test_a_run_without_a_baseline_left_still_judges(judge_batch: Batch, tmp_path: Path) -> None:
    run = picky_run(judge_batch, tmp_path, "import os; os._exit(3)", "channels-last")
    (crashed,) = run.ground.baselines
    assert crashed.outcome.kind in ("crashed", "cheated")
    plain = run.verdict("plain_conv")
    assert plain.evaluation
    assert isinstance(plain.timing, Measured)
    assert plain.timing.speedups == ()
    assert run.best == "plain_conv"


WORN = PICKY.replace("super().__init__()", "super().__init__()\n        self.calls = 0").replace(
    "if x.is_contiguous(memory_format=torch.channels_last):", "self.calls += 1\n        if self.calls > 30:"
)


def test_a_baseline_lost_while_it_is_timed_has_not_passed(judge_batch: Batch, tmp_path: Path) -> None:
    task = write(tmp_path / "worn.py", WORN.format(otherwise="raise RuntimeError('worn out')"))
    run = judge_batch(task, [write(tmp_path / "plain_conv.py", CONV)], baselines="eager")
    (eager,) = run.ground.baselines
    assert run.verdict("plain_conv").evaluation
    assert (eager.outcome.kind, eager.runtime_ms) == ("raises", -1.0)
    assert "worn out" in eager.outcome.words


def test_a_candidate_named_like_a_baseline_takes_turns_with_it(judge_batch: Batch, tmp_path: Path) -> None:
    run = judge_batch(SMALL_TASK, [write(tmp_path / "eager.py", PLAIN.read_text())], baselines="eager")
    verdict = run.verdict("eager")
    assert verdict.evaluation
    assert holds_about_one(speedup(verdict, "eager"))


WRITES = """
import torch
import torch.nn as nn

class {name}(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 16)

    def forward(self, x):
        x.mul_(2)
        return self.linear(x)
"""
FORM = "def get_inputs():\n    return [torch.rand(4, 8)]\n\ndef get_init_inputs():\n    return []\n"


def test_a_reference_that_writes_to_its_inputs_is_timed_in_training_too(judge_batch: Batch, tmp_path: Path) -> None:
    """It is judged on copies, so its gradients are right; what is right is timed."""
    task = write(tmp_path / "writes.py", WRITES.format(name="Model") + FORM)
    candidate = write(tmp_path / "writes_too.py", WRITES.format(name="ModelNew"))
    run = judge_batch(task, [candidate], baselines="eager", training=True)
    verdict = run.verdict("writes_too")
    assert verdict.evaluation, verdict.outcome.words
    assert [baseline.outcome.kind for baseline in run.ground.baselines] == ["passed"]
    assert holds_about_one(speedup(verdict, "eager"))


@pytest.mark.slow
def test_torch_compile_is_a_baseline_on_a_cpu_too(judge_batch: Batch) -> None:
    run = judge_batch(SMALL_TASK, [PLAIN], baselines="compile")
    (compiled,) = run.ground.baselines
    assert (compiled.candidate, compiled.outcome.words) == ("compile", "passed")
    assert isinstance(compiled.timing, Measured)
    assert isinstance(compiled.costs, Costs)
    assert compiled.costs.first_call_s > compiled.timing.median_ms / 1e3
    plain = run.verdict("plain")
    assert speedup(plain, "compile").ratio > 0
    assert "baseline" not in claims(plain)
