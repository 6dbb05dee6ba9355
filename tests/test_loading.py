"""What goes in and comes out: nested inputs, weights by name, modes, and the run as a record."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import crucible
from crucible.judge.verdict.evidence import Compared, Measured
from support import PLAIN, SMALL_TASK, Judge, claims, write

NESTED_TASK = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, size, *, scale):
        super().__init__()
        self.table = nn.Embedding(10, size)
        self.scale = scale

    def forward(self, x, ids, pair, options):
        first, (second, times) = pair
        looked_up = self.table(ids) * self.scale
        rest = (first + second * times, [ids + options["shift"]])
        return {"sum": looked_up + x, "rest": rest, "mean": looked_up.mean(), "largest": int(ids.max())}


def get_inputs():
    pair = (torch.rand(3), [torch.rand(3), 2.5])
    ids = torch.randint(0, 10, (4,))
    return {"x": torch.rand(4, 6), "ids": ids, "pair": pair, "options": {"shift": 1}}


def get_init_inputs():
    return {"size": 6, "scale": 1.5}
"""
NESTED_CANDIDATE = NESTED_TASK.partition("def get_inputs")[0].replace("class Model(", "class ModelNew(")
NESTED = {
    # name: what to replace, by what; kind, what
    "same": ("", "", "passed", ""),
    "checks_its_inputs": (
        "        first, (",
        "        assert ids.dtype == torch.int64 and x.dtype == torch.float32\n"
        "        assert type(pair) is tuple and type(pair[1]) is list and type(pair[1][1]) is float\n"
        "        assert type(options) is dict and type(options['shift']) is int\n"
        "        first, (",
        "passed",
        "",
    ),
    "list_for_tuple": (
        'rest = (first + second * times, [ids + options["shift"]])',
        'rest = [first + second * times, (ids + options["shift"],)]',
        "passed",
        "",
    ),
    "missing_key": (', "mean": looked_up.mean()', "", "wrong", "structure"),
    "other_order_of_keys": (
        '"sum": looked_up + x, "rest": rest',
        '"rest": rest, "sum": looked_up + x',
        "passed",
        "",
    ),
    "wrong_integer": ("ids + options", "ids + 1 + options", "wrong", "forward"),
    "wrong_number": ("int(ids.max())", "int(ids.max()) - 1", "wrong", "forward"),
    "float_for_integer": ("[ids + options", "[0.0 + ids + options", "wrong", "dtype"),
    "wrong_inside": ("second * times", "second", "wrong", "forward"),
}
BATCH_NORM_TASK = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(6)

    def forward(self, x):
        return torch.relu(self.norm(x))


def get_inputs():
    return [torch.rand(16, 6) * 3 + 1]


def get_init_inputs():
    return []
"""
BATCH_NORM = BATCH_NORM_TASK.partition("def get_inputs")[0].replace("class Model(", "class ModelNew(")
F_BATCH_NORM = (
    "torch.nn.functional.batch_norm(x, self.norm.running_mean, self.norm.running_var, "
    "self.norm.weight, self.norm.bias, {})"
)
NORM_VARIANTS = {
    # name: what stands for self.norm(x); kind in train mode, kind in eval mode
    "same": ("self.norm(x)", "passed", "passed"),
    "always_batch_statistics": (F_BATCH_NORM.format("True"), "passed", "wrong"),
    "always_running_statistics": (F_BATCH_NORM.format("False"), "wrong", "passed"),
    "follows_the_mode": (F_BATCH_NORM.format("self.training"), "passed", "passed"),
    "no_statistics_at_all": ("x * self.norm.weight + self.norm.bias", "wrong", "wrong"),
}


@pytest.fixture(scope="module")
def nested(judge_batch: Callable[..., crucible.Run], tmp_path_factory: pytest.TempPathFactory) -> crucible.Run:
    folder = tmp_path_factory.mktemp("nested")
    task = write(folder / "nested_task.py", NESTED_TASK)
    for name, (old, new, _, _) in NESTED.items():
        assert old in NESTED_CANDIDATE
        write(folder / f"candidates/{name}.py", NESTED_CANDIDATE.replace(old, new) if old else NESTED_CANDIDATE)
    return judge_batch(task, [folder / "candidates"])


@pytest.mark.parametrize("name", NESTED)
def test_nested_inputs_and_outputs(name: str, nested: crucible.Run) -> None:
    *_, kind, what = NESTED[name]
    outcome = nested.verdict(name).outcome
    assert outcome.kind == kind, outcome.words
    assert getattr(outcome, "what", "") == what, outcome.words


def test_every_tensor_of_a_nested_output_is_compared_and_named(nested: crucible.Run) -> None:
    check = nested.verdict("same").forward
    assert isinstance(check, Compared)
    assert {tensor.name for tensor in check.tensors} == {
        "output['sum']",
        "output['rest'][0]",
        "output['rest'][1][0]",
        "output['mean']",
        "output['largest']",
    }
    gradients = nested.verdict("same").backward
    assert isinstance(gradients, Compared)
    assert "gradient of table.weight" in {tensor.name for tensor in gradients.tensors}


@pytest.fixture(scope="module", params=["train", "eval"])
def batch_norm(
    request: pytest.FixtureRequest, judge_batch: Callable[..., crucible.Run], tmp_path_factory: pytest.TempPathFactory
) -> crucible.Run:
    folder = tmp_path_factory.mktemp("norm")
    task = write(folder / "norm_task.py", BATCH_NORM_TASK)
    for name, (expression, *_) in NORM_VARIANTS.items():
        write(folder / f"candidates/{name}.py", BATCH_NORM.replace("self.norm(x)", expression))
    return judge_batch(task, [folder / "candidates"], mode=request.param)


@pytest.mark.parametrize("name", NORM_VARIANTS)
def test_batch_norm_follows_the_mode(name: str, batch_norm: crucible.Run) -> None:
    expected = dict(zip(("train", "eval"), NORM_VARIANTS[name][1:], strict=True))[batch_norm.task.mode]
    outcome = batch_norm.verdict(name).outcome
    assert outcome.kind == expected, outcome.words


# --- weights, and the run as a record

PLAIN_SOURCE = PLAIN.read_text()
NEW_WEIGHT = "        self.extra = nn.Parameter(torch.ones(3))\n        self.negative_slope ="
EXTRA = PLAIN_SOURCE.replace("        self.negative_slope =", NEW_WEIGHT)
RENAMED = PLAIN_SOURCE.replace("self.scale", "self.factor")
RESHAPED = PLAIN_SOURCE.replace(
    "self.bias = nn.Parameter(torch.randn(out_", "self.bias = nn.Parameter(torch.randn(1, out_"
)
LINEAR = "        self.linear = nn.Linear(in_features, out_features)\n"
REORDERED = (
    PLAIN_SOURCE.replace(LINEAR, "")
    .replace("        self.negative_slope =", f"{LINEAR}        self.negative_slope =")
    .replace("torch.randn(out_features)", "torch.zeros(out_features)")
)
RETURNS = "return F.leaky_relu(self.linear(x), self.negative_slope) * self.scale + self.bias"
NO_GRADIENT = PLAIN_SOURCE.replace(RETURNS, f"with torch.no_grad():\n            {RETURNS}")
INFINITE = PLAIN_SOURCE.replace("* self.scale", "/ 0.0 * self.scale")
KEEPS = PLAIN_SOURCE.replace(
    "self.bias = nn.Parameter(torch.randn(out_features))", "self.kept = torch.randn(out_features)"
)
KEEPS = KEEPS.replace("+ self.bias", "+ self.kept")
FIRST = PLAIN_SOURCE.replace("self.linear(x)", "F.linear(x, self.packed.t(), self.linear.bias)")
FIRST = FIRST.replace(
    "self.negative_slope = ",
    "self.packed = self.linear.weight.detach().t().contiguous()\n        self.negative_slope = ",
)
WEIGHTS = {
    "extra": EXTRA,
    "infinite": INFINITE,
    "keeps": KEEPS,
    "keeps_packed": FIRST,
    "no_gradient": NO_GRADIENT,
    "plain": PLAIN_SOURCE,
    "renamed": RENAMED,
    "reordered": REORDERED,
    "reshaped": RESHAPED,
}


@pytest.fixture(scope="module")
def weights(judge_batch: Callable[..., crucible.Run], tmp_path_factory: pytest.TempPathFactory) -> crucible.Run:
    folder = tmp_path_factory.mktemp("weights")
    for name, source in WEIGHTS.items():
        write(folder / f"{name}.py", source)
    return judge_batch(SMALL_TASK, [folder])


def test_weights_are_copied_by_name_whatever_their_order(weights: crucible.Run) -> None:
    for name in ("plain", "reordered"):
        assert weights.verdict(name).evaluation, weights.verdict(name).outcome.words
        assert weights.verdict(name).findings == ()


def test_a_weight_without_a_counterpart_is_named(weights: crucible.Run) -> None:
    extra = weights.verdict("extra")
    assert extra.evaluation
    assert "weights without a counterpart in the reference were left as seeded: extra" in claims(extra)


@pytest.mark.parametrize(("name", "own"), [("renamed", "scale is factor"), ("reshaped", "")])
def test_a_weight_under_another_name_or_in_another_shape_is_paired(name: str, own: str, weights: crucible.Run) -> None:
    verdict = weights.verdict(name)
    assert verdict.evaluation, verdict.outcome.words
    assert own in claims(verdict)
    assert ("weights were paired otherwise than by name" in claims(verdict)) == bool(own)


@pytest.mark.parametrize(("name", "kept", "lost"), [("keeps", "bias", "bias"), ("keeps_packed", "linear.weight", "")])
def test_a_candidate_that_keeps_a_copy_of_its_weights_is_told_so(
    name: str, kept: str, lost: str, weights: crucible.Run
) -> None:
    verdict = weights.verdict(name)
    assert verdict.outcome.kind == "wrong" and getattr(verdict.outcome, "what", "") == "weights"
    assert verdict.outcome.words.startswith("wrong weights: it keeps a copy of its weights")
    assert verdict.outcome.words.endswith(f"its answer is that of the initial {kept}")
    found = "weights of the reference found no counterpart, so they were not copied: " in claims(verdict)
    assert found == bool(lost)
    (first, *_) = weights.explanations[name]
    assert first.claim.startswith("it keeps a copy of its weights") and "nn.Parameter" in first.remedy


def test_a_run_answers_from_python(weights: crucible.Run) -> None:
    passed = {"extra", "no_gradient", "plain", "renamed", "reordered", "reshaped"}
    assert isinstance(weights, crucible.Run)
    assert weights.best in passed
    assert [verdict.candidate for verdict in weights.verdicts] == sorted(WEIGHTS)
    ranks = [rank for rank, _ in weights.ranked]
    assert ranks[0] == 1 and ranks[len(passed) :] == [0, 0, 0] and 0 not in ranks[: len(passed)]
    assert {verdict.candidate for rank, verdict in weights.ranked if rank} == passed
    runtimes = [verdict.runtime_ms for rank, verdict in weights.ranked if rank]
    assert runtimes == sorted(runtimes) and runtimes[0] > 0
    assert [floor.covers for floor in weights.ground.floors] == ["forward"]
    with pytest.raises(KeyError):
        weights.verdict("nobody")


def test_missing_gradients_are_named_and_cost_nothing_where_only_forward_is_asked(weights: crucible.Run) -> None:
    verdict = weights.verdict("no_gradient")
    assert verdict.evaluation
    assert "inference only" in claims(verdict)
    assert "inference only" not in claims(weights.verdict("plain"))


def test_a_run_as_json(weights: crucible.Run) -> None:
    data = weights.to_json()
    assert data["schema"] == "crucible.run/1"
    assert data["task"] == "small_task"
    assert data["device"]["kind"] == "cpu" and data["device"]["name"]
    assert data["contract"] == "tf32"
    assert data["best"] == weights.best
    assert len(data["candidates"]) == len(WEIGHTS)
    for entry in data["candidates"]:
        verdict = weights.verdict(entry["name"])
        assert entry["evaluation"] is verdict.evaluation
        assert entry["runtime_ms"] == verdict.runtime_ms
        assert entry["verdict"]["kind"] == verdict.outcome.kind
        assert entry["verdict"]["words"] == verdict.outcome.words
        assert {"forward", "backward", "findings", "timing", "log", "rank"} <= entry.keys()
        assert [finding["claim"] for finding in entry["findings"]] == [f.claim for f in verdict.findings]
    plain = next(entry for entry in data["candidates"] if entry["name"] == "plain")
    assert {tensor["name"] for tensor in plain["forward"]["tensors"]} == {"output"}
    assert "gradient of linear.weight" in {tensor["name"] for tensor in plain["backward"]["tensors"]}
    assert plain["timing"]["median_ms"] == plain["runtime_ms"]


def test_the_record_on_disk_is_the_run_and_is_strict_json(weights: crucible.Run) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    kept = (Path(weights.folder) / "run.json").read_text()
    assert json.loads(kept, parse_constant=refuse) == weights.to_json()
    assert weights.verdict("infinite").outcome.kind == "wrong"
    for number, name in enumerate(sorted(WEIGHTS)):
        entry = json.loads((Path(weights.folder) / f"candidates/{number:03d}-{name}.json").read_text())
        assert entry["name"] == name and entry["evaluation"] == weights.verdict(name).evaluation


@pytest.mark.slow
def test_training_asks_for_gradients_and_times_them(judge_batch: Callable[..., crucible.Run], tmp_path: Path) -> None:
    files = [write(tmp_path / f"{name}.py", WEIGHTS[name]) for name in ("plain", "no_gradient")]
    run = judge_batch(SMALL_TASK, files, training=True)
    plain, missing = run.verdict("plain"), run.verdict("no_gradient")
    assert isinstance(plain.timing, Measured) and plain.timing.covers == "forward+backward"
    assert missing.outcome.kind == "inference-only"
    assert "linear.weight" in missing.outcome.words and "input[0]" in missing.outcome.words


@pytest.mark.slow
def test_the_same_content_is_answered_from_the_earlier_run(judge_source: Judge, tmp_path: Path) -> None:
    first = judge_source(PLAIN_SOURCE)
    again = judge_source(PLAIN_SOURCE, name="another_name")
    assert first.evaluation and not first.cached
    assert again.cached and again.candidate == "another_name"
    assert again.runtime_ms == first.runtime_ms
    file = write(tmp_path / "wrong.py", INFINITE)
    wrong = crucible.judge(SMALL_TASK, [file], device="cpu", baselines="none", seed=0)
    assert not wrong.verdict("wrong").evaluation
    assert [floor.covers for floor in wrong.ground.floors] == ["forward"]  # known from the first
    assert not judge_source(PLAIN_SOURCE, fresh=True).cached


@pytest.mark.slow
def test_the_benchmarks_own_rule_as_a_contract(judge_batch: Callable[..., crucible.Run], tmp_path: Path) -> None:
    slightly = PLAIN_SOURCE.replace("+ self.bias", "+ self.bias + {}")
    files = [
        write(tmp_path / "within.py", slightly.format("2e-5")),
        write(tmp_path / "beyond.py", slightly.format("1e-2")),
    ]
    run = judge_batch(SMALL_TASK, files, contract="kernelbench")
    assert run.verdict("within").evaluation, run.verdict("within").outcome.words
    assert run.verdict("beyond").outcome.kind == "wrong"


KEEPS_ITS_OUTPUT = """
    import torch
    from torch import nn

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(8, 4)
            self.last = None

        def forward(self, x):
            self.last = torch.tanh(self.linear(x))
            return self.last * 2

    def get_inputs():
        return [torch.rand(6, 8)]

    def get_init_inputs():
        return []
"""


def test_a_reference_that_keeps_a_tensor_of_its_last_call_can_be_judged(
    judge_batch: Callable[..., crucible.Run], tmp_path: Path
) -> None:
    task = write(tmp_path / "keeps.py", KEEPS_ITS_OUTPUT)
    itself = write(tmp_path / "itself.py", KEEPS_ITS_OUTPUT + "\n    ModelNew = Model\n")
    verdict = judge_batch(task, [itself], contract="bf16", baselines=None).verdict("itself")
    assert verdict.evaluation, verdict.outcome.words
