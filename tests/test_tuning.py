"""Divisions by measurement: what is asked, tried, refused, chosen and kept. Kernels run on the emulator; times are
those of a plain clock of the tests' own."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from crucible import emulator, fusing, store
from crucible.algebra.convolution.fused import Convolution
from crucible.algebra.program import Reduction
from crucible.capture import trace
from crucible.emission.file import emit
from crucible.emission.operator import operator
from crucible.errors import DeviceError, TuningError
from crucible.gpus import H200, Gpu, known_gpu
from crucible.kinds.convolution import ways
from crucible.plan.planner import fuse as plan_of
from crucible.plan.steps import Fused, Plan
from crucible.schedule.convolution.questions import Multiplying, Question, Way, WeightGradient
from crucible.schedule.convolution.tiling import Tiling
from crucible.schedule.convolution.warpgroup.phases import PhaseWalks
from crucible.schedule.convolution.warpgroup.streams import Streams
from crucible.schedule.convolution.warpgroup.walks import Walks
from crucible.schedule.convolution.weight_division import Division
from crucible.tuning.bench import Bench, Calls, Run, host
from crucible.tuning.cache import Cache, Measured, Tried
from crucible.tuning.expected import subject
from crucible.tuning.search import Search, check_gpu, questions
from support import NIGHTLY

TASK = Path(__file__).parents[1] / "tasks/conv3d_leakyrelu_sum_clamp_gelu"
GPU = replace(H200, sms=2)
AMPERE = replace(known_gpu("a100"), sms=2)
"""Where warps multiply, and so have chains in front."""
"""So that blocks take several items each."""
COUNT = 1


class Module(nn.Module):
    """A function of a convolution and an input."""

    def __init__(self, conv: nn.Module, function: Callable[[nn.Module, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.conv, self.function = conv, function
        self.scale = nn.Parameter(torch.randn(16, 1, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(self, x)


def _softmax(y: torch.Tensor) -> torch.Tensor:
    return F.softmax(y.flatten(2), 2).reshape(y.shape)


MODULES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "chain": (
        lambda: Module(nn.Conv3d(8, 16, 3), lambda m, x: (F.leaky_relu(m.conv(x), 0.2) * m.scale).clamp(-1, 1)),
        (3, 8, 4, 5, 10),
    ),
    "pooled": (
        lambda: Module(nn.ConvTranspose3d(8, 16, 3, 2, 1, 1), lambda m, x: F.max_pool3d(m.conv(x) * m.scale, 2)),
        (2, 8, 2, 3, 5),
    ),
    "averaged": (lambda: Module(nn.Conv3d(8, 16, 3), lambda m, x: F.avg_pool3d(m.conv(x), 2)), (2, 8, 4, 5, 10)),
    "clamped": (
        lambda: Module(nn.ConvTranspose3d(8, 16, 3, 2, 1, 1), lambda m, x: _softmax(m.conv(x).clamp(0, 1))),
        (2, 8, 2, 4, 8),
    ),
    "fronted": (
        lambda: Module(nn.ConvTranspose2d(8, 16, 3, 2), lambda m, x: m.conv(F.leaky_relu(x * 0.75, 0.1)).tanh()),
        (3, 8, 5, 6),
    ),
    "depthwise": (lambda: Module(nn.Conv2d(24, 24, 3, groups=24), lambda m, x: m.conv(x).tanh()), (3, 24, 7, 9)),
    "halves": (lambda: Module(nn.Conv2d(8, 16, 3), lambda m, x: m.conv(x).tanh()).bfloat16(), (3, 8, 6, 10)),
    "softmax": (
        lambda: Module(nn.ConvTranspose3d(8, 16, 3, 2, 1, 1), lambda m, x: _softmax(m.conv(x) * m.scale)),
        (2, 8, 2, 4, 8),
    ),
}


@cache
def planned(name: str, tf32: bool = True) -> Plan:
    torch.manual_seed(0)
    make, shape = MODULES[name]
    gpu = AMPERE if name == "fronted" else GPU
    module = make()
    graph = trace(module, [torch.randn(shape, dtype=next(module.parameters()).dtype, requires_grad=True)])
    return plan_of(graph, tf32=tf32, gpu=gpu, rewrite=False)  # an average stays a pool inside


PLANS = [*((name, True) for name in MODULES), ("chain", False)]
"""Of all modules, and of one whose products keep float32's precision."""


@cache
def asked() -> dict[str, tuple[Question, list[Way]]]:
    found = [each for plan in PLANS for each in questions(planned(*plan))]
    return {each.text: (each, ways.ways(each, GPU, COUNT)) for each in found}


RUN = {
    ("chain", True): ("kernel", "keeping", "input", "weight"),
    ("halves", True): ("again",),  # of half types no product is kept
    ("pooled", True): ("keeping", "input", "weight"),
    ("averaged", True): ("kernel",),
    ("clamped", True): ("kernel_pass_1", "again_pass_2"),
    ("softmax", True): ("kernel_pass_1",),
    ("fronted", True): ("kernel", "input", "weight"),
    ("depthwise", True): ("kernel", "weight"),
    ("chain", False): ("kernel",),
}
AT_NIGHT = {("pooled", "weight"), ("fronted", "weight"), ("clamped", "again_pass_2"), ("depthwise", "kernel")}
AT_NIGHT |= {("pooled", "input"), ("softmax", "kernel_pass_1"), ("averaged", "kernel")}
AT_NIGHT |= {("fronted", "kernel"), ("fronted", "input")}
"""Of kinds that are built by day, too; a pool's input gradient is so in write/test_pooled_convolution.py."""
if not NIGHTLY:
    RUN = {plan: tuple(end for end in ends if (plan[0], end) not in AT_NIGHT) for plan, ends in RUN.items()}
"""The questions whose ways are built: how their names end."""


@cache
def run() -> list[str]:
    """Their keys."""
    return [each.text for plan, ends in RUN.items() for each in questions(planned(*plan)) if each.name.endswith(ends)]


NUMBERS = range(18 if NIGHTLY else 9)


def clock(calls: Calls) -> dict[str, float]:
    """The last way is the fastest."""
    return {name: float(len(calls) - number) for number, name in enumerate(calls)}


def faults() -> list[emulator.Fault]:
    """But for kernels that are still to run."""
    return [each for each in emulator.faults() if each.kind != "never-ran"]


@pytest.fixture(scope="module")
def bench() -> Bench:
    return Bench(torch.device("cpu"), emulator.load_inline, clock, faults)


@pytest.fixture(scope="module")
def built(bench: Bench) -> dict[str, list[Run]]:
    """All in one extension."""
    emulator.forget()
    return bench.built(GPU, {key: asked()[key] for key in run()})


def nth(number: int) -> tuple[str, Question, list[Way]]:
    key = run()[number]
    return key, *asked()[key]


def test_all_that_is_built_is_run() -> None:
    assert len(run()) == len(NUMBERS)


# what is asked and tried


def test_the_questions_are_of_every_kind() -> None:
    found = [question for question, _ in asked().values()]
    multiplying = [each for each in found if isinstance(each, Multiplying)]
    assert sum(isinstance(each, WeightGradient) for each in found) == len(MODULES)  # two share theirs
    assert any(each.alike for each in multiplying) and not all(each.alike for each in multiplying)
    assert any(each.conv.reductions for each in multiplying) and any(each.conv.exact for each in multiplying)
    assert {each.conv.pool.kind for each in multiplying if each.conv.pool} == {"max", "avg"}
    assert any(each.conv.spread for each in multiplying)
    assert any(each.conv.front is not None for each in multiplying)
    assert any(result.sums for each in multiplying for result in each.conv.results)


def test_ways_are_of_every_kind_and_told_apart() -> None:
    kinds = {type(way) for _, found in asked().values() for way in found}
    assert kinds >= {Tiling, Walks, PhaseWalks, Division}
    for question, found in asked().values():
        assert len({ways.described(way) for way in found}) == len(found) > 0, question.name


def kernels(plan: Plan) -> dict[str, str]:
    """What a plan is lowered to: texts by name."""
    steps = [each for each in plan.steps if isinstance(each, Fused)]
    hosts = [each for step in steps for each in operator(step, plan.types, plan.gpu).hosts]
    return {kernel.name: kernel.text for each in hosts for kernel in each.kernels}


def alone(question: Question, way: Way) -> str:
    """The text of its kernel in a division."""
    made = ways.lowered(question, way, GPU, question.name).kernels
    return next(each for each in made if each.name == question.name).text


def with_parts(text: str) -> str:
    """A weight's parts are called after its gradient, which has a name of its own in a plan."""
    return re.sub(r"\b\w+_parts\b", "parts", text)


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_the_first_way_is_the_one_that_is_taken_unmeasured(plan: tuple[str, bool]) -> None:
    made = kernels(planned(*plan))
    for question in questions(planned(*plan)):
        first = ways.ways(question, GPU, COUNT)[0]
        assert with_parts(made[question.name]) == with_parts(alone(question, first)), question.name


# right


@pytest.mark.parametrize("number", NUMBERS)
def test_every_way_is_right(bench: Bench, built: dict[str, list[Run]], number: int) -> None:
    key, question, found = nth(number)
    assert len(bench.measured(question, found, built[key], GPU)) == len(found)


def altered(made: Sequence[torch.Tensor], at: int, by: float) -> list[torch.Tensor]:
    """With one value of one result changed: a choice is another one."""
    changed = made[at].clone()
    changed[0] = (int(changed[0]) + 1) % 8 if changed.dtype == torch.uint8 else changed[0] + by
    return [changed if number == at else each for number, each in enumerate(made)]


@pytest.mark.parametrize("number", NUMBERS)
def test_one_wrong_value_of_a_way_is_refused_by_name(bench: Bench, built: dict[str, list[Run]], number: int) -> None:
    key, question, found = nth(number)
    named, work = host(question, found[-1], GPU, "named"), subject(question, bench.device)
    made = built[key][-1](*(work.given[name] for name in named.takes))
    for (at, name), by in itertools.product(enumerate(named.makes), (1.0, float("nan"))):
        with pytest.raises(TuningError) as refused:
            bench.measured(question, found[-1:], [lambda *given, at=at, by=by: altered(made, at, by)], GPU)
        said = str(refused.value)
        assert question.name in said and ways.described(found[-1]) in said
        assert name.removesuffix("_parts") in said or isinstance(question, WeightGradient)


def test_a_fault_in_a_way_is_refused_by_name(bench: Bench, built: dict[str, list[Run]]) -> None:
    key, question, found = nth(0)
    watched = replace(bench, faults=lambda: ["a write outside of memory"])
    with pytest.raises(TuningError, match="a write outside of memory"):
        watched.measured(question, found, built[key], GPU)


def crossing(*, writes: bool) -> Question:
    """A convolution that is reduced over its channels, beside its result or without it."""
    (step,) = (each for each in planned("chain").steps if isinstance(each, Fused))
    conv = step.compute
    assert isinstance(conv, Convolution)
    (result,) = conv.results
    crossings = (Reduction("least", "max", -result.expr), Reduction("mean", "sum", result.expr * 0.25))
    named = replace(conv, name=f"crossing_{writes}", results=conv.results if writes else (), crossings=crossings)
    return Multiplying(named, int(writes))


@pytest.mark.slow
def test_reductions_over_channels_are_of_streams_and_judged(bench: Bench) -> None:
    """Of a block that has all channels, and of blocks that have parts of them."""
    for question in (crossing(writes=True), crossing(writes=False)):
        found = ways.ways(question, GPU, 40)
        assert {type(way) for way in found} == {Streams} and question.text != asked_of_product(question).text
        found = [next(way for way in found if way.channel_tiles == parts) for parts in (1, 2)]
        made = bench.built(GPU, {question.text: (question, found)})[question.text]
        assert len(bench.measured(question, found, made, GPU)) == len(found)
        for way, run_ in zip(found, made, strict=True):
            named, work = host(question, way, GPU, "named"), subject(question, bench.device)
            values = run_(*(work.given[name] for name in named.takes))
            for at, name in enumerate(named.makes):
                with pytest.raises(TuningError, match=name.removesuffix("_parts")):
                    bench.measured(question, [way], [lambda *_, at=at, all_=values: altered(all_, at, 9.0)], GPU)


def asked_of_product(question: Question) -> Question:
    """Without its reductions."""
    assert isinstance(question, Multiplying)
    return replace(question, conv=replace(question.conv, crossings=()))


# chosen, and kept


@pytest.fixture(scope="module")
def ready(bench: Bench, built: dict[str, list[Run]]) -> Bench:
    """With what was built before."""

    @dataclass(frozen=True)
    class Ready(Bench):
        def built(self, gpu: Gpu, asked: Mapping[str, tuple[Question, Sequence[Way]]]) -> dict[str, list[Run]]:
            return {key: built[key] for key in asked}

    return Ready(bench.device, bench.load, bench.time, bench.faults)


@pytest.fixture
def said() -> list[str]:
    return []


def searching(bench: Bench, folder: Path, say: Callable[[str], object]) -> Search:
    return Search(bench, Cache(folder / "tuned", "a GPU", {"torch": "2"}, say), say, COUNT)


@pytest.fixture
def search(ready: Bench, tmp_path: Path, said: list[str]) -> Search:
    return searching(ready, tmp_path, said.append)


@pytest.fixture(scope="module")
def searched(ready: Bench, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Plan]:
    """Where a first search keeps what it finds, and its plan: three seconds on the emulator."""
    folder = tmp_path_factory.mktemp("searched")
    return folder, searching(ready, folder, str).plan(planned("chain"))


@pytest.fixture
def second(ready: Bench, searched: tuple[Path, Plan], tmp_path: Path, said: list[str]) -> Search:
    """The search after it, with a copy of what was kept."""
    shutil.copytree(searched[0], tmp_path, dirs_exist_ok=True)
    return searching(ready, tmp_path, said.append)


def test_the_plan_is_lowered_by_the_fastest_ways(searched: tuple[Path, Plan]) -> None:
    _, found = searched
    made, words = kernels(found), " ".join(fusing.plan_of(emit(found, "module")).split())
    assert made != kernels(planned("chain"))
    for question in questions(planned("chain")):
        last = ways.ways(question, GPU, COUNT)[-1]
        assert with_parts(made[question.name]) == with_parts(alone(question, last))
        assert f"- {question.name}: 1 ms, fastest of" in words


def test_what_the_search_gained_is_said(searched: tuple[Path, Plan]) -> None:
    words = " ".join(fusing.plan_of(emit(searched[1], "module")).split())
    for question in questions(planned("chain")):
        count = len(ways.ways(question, GPU, COUNT))
        gained = f"takes {count} ms, {count}.00 times as long" if count > 1 else "is the fastest"
        start = f"{question.name}: 1 ms, fastest of {count} divisions"
        assert f"{start}; that of least estimated time {gained}" in words


def test_a_second_search_builds_and_times_nothing(searched: tuple[Path, Plan], second: Search) -> None:
    def load(*args: Any, **more: Any) -> Any:
        raise AssertionError("built again")

    idle = replace(second, bench=Bench(torch.device("cpu"), load, lambda calls: {}))
    assert emit(idle.plan(planned("chain")), "module") == emit(searched[1], "module")


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: "{",
        lambda data: "[]",
        lambda data: json.dumps(data | {"gpu": "another"}),
        lambda data: json.dumps(data | {"versions": {"torch": "1"}}),
        lambda data: json.dumps(data | {"chosen": "Tiling: of somebody else"}),
        lambda data: json.dumps(data | {"tried": []}),
        lambda data: json.dumps(data | {"tried": [each | {"ms": "soon"} for each in data["tried"]]}),
    ],
)
def test_a_spoilt_or_foreign_file_is_told_and_not_used(
    search: Search, said: list[str], spoil: Callable[[dict[str, Any]], str]
) -> None:
    question, kept = asked()[run()[0]][0], Measured((Tried("one", 2.0, 4.0), Tried("another", 3.0, 1.0)))
    search.cache.put(question, kept)
    assert search.cache.get(question) == kept and not said
    (file,) = search.cache.root.glob("*.json")
    file.write_text(spoil(json.loads(file.read_text())))
    assert search.cache.get(question) is None
    assert str(file) in said[0] and f"{question.name} is measured again" in said[0]


def test_a_spoilt_file_is_written_anew(second: Search, said: list[str]) -> None:
    file = sorted(second.cache.root.glob("*.json"))[0]
    kept = file.read_text()
    file.write_text(kept[:-9])
    second.plan(planned("chain"))
    assert any(str(file) in each for each in said) and file.read_text() == kept


def test_other_ways_than_were_tried_are_measured_again(second: Search, said: list[str]) -> None:
    question = questions(planned("chain"))[0]
    kept = second.cache.get(question)
    assert kept is not None
    second.cache.put(question, Measured(kept.tried[1:]))
    second.plan(planned("chain"))
    assert any("other divisions were tried before" in each for each in said)
    assert second.cache.get(question) == kept


def test_a_question_is_the_same_in_any_process() -> None:
    """Sets and hashes of words come in another order there."""
    code = "import test_tuning as t; print(t.store.key_of([q.text for q in t.questions(t.planned('softmax'))]))"
    folders = [str(Path(__file__).parent), str(Path(fusing.__file__).parents[1])]
    environment = {**os.environ, "PYTHONPATH": ":".join(folders), "PYTHONHASHSEED": "1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout == f"{store.key_of([question.text for question in questions(planned('softmax'))])}\n"


# the front door


def test_tuning_needs_the_gpu_that_is_tuned_for() -> None:
    with pytest.raises(DeviceError, match="no NVIDIA GPU: run it where there is one, or leave --tune out"):
        check_gpu(H200, "")
    with pytest.raises(DeviceError, match="on NVIDIA H200 says nothing of NVIDIA L40S"):
        check_gpu(known_gpu("l40s"), "NVIDIA H200")
    check_gpu(H200, "NVIDIA H200")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_what_to_do(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "crucible", "fuse", str(TASK), "--tune", "-o", str(tmp_path / "fused.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and not (tmp_path / "fused.py").exists()
    assert "this machine has no NVIDIA GPU: run it where there is one, or leave --tune out" in done.stderr


def test_the_emulator_is_no_clock() -> None:
    with pytest.raises(DeviceError, match="emulate=True"):
        fusing.fuse(nn.Conv3d(8, 16, 3), torch.randn(1, 8, 4, 5, 6), emulate=True, tune=True)
