"""References that draw random numbers: a seed is set before each call, and right is who draws PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import crucible
from crucible.errors import TaskError
from crucible.judge.boundary.bundles import read_bundle
from crucible.judge.oracle import batches
from crucible.judge.timing.contents import Contents
from crucible.judge.verdict.verdict import NotJudged, Wrong
from support import write
from test_oracle import compared, errors, prepared, returning, source

TASK = """
import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features)

    def forward(self, x):
        return F.dropout(self.linear(x), 0.25, self.training) * torch.rand(len(x), 1)


batch_size = 32
features = 48


def get_inputs():
    return [torch.randn(batch_size, features)]


def get_init_inputs():
    return [features]
"""
CANDIDATE = """
import torch
from torch import nn
from torch.nn import functional as F

MASKS = {{}}

class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features)

    def forward(self, x):
        y = self.linear(x)
        {}
"""
BODIES = {
    "same_draws": """mask = torch.empty_like(y).bernoulli_(0.75) / 0.75 if self.training else 1.0
        return y * mask * torch.rand(len(x), 1)""",
    "other_order": "scale = torch.rand(len(x), 1)\n        return F.dropout(y, 0.25, self.training) * scale",
    "draws_nothing": "return y * 0.5",
    "keeps_its_masks": """if self.training and len(y) not in MASKS:
            MASKS[len(y)] = F.dropout(torch.ones_like(y), 0.25), torch.rand(len(x), 1)
        mask, scale = MASKS[len(y)] if self.training else (1.0, torch.rand(len(x), 1))
        return y * mask * scale""",
    "another_shape": "return F.dropout(y, 0.25, self.training)[:, :1] * torch.rand(len(x), 1)",
}


@pytest.fixture(scope="module")
def verdicts(
    judge_batch: Callable[..., crucible.Run], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, crucible.Verdict]:
    folder = tmp_path_factory.mktemp("draws")
    task = write(folder / "task.py", TASK)
    files: list[Path] = [write(folder / f"{name}.py", CANDIDATE.format(body)) for name, body in BODIES.items()]
    limits = crucible.Limits(race_s=0.05, shrink_s=0, stress_s=120)
    run = judge_batch(task, files, training=True, baselines="eager", limits=limits)
    assert run.ground.baselines[0].evaluation, run.ground.baselines[0].outcome.words
    return {verdict.candidate: verdict for verdict in run.verdicts}


def test_who_draws_as_pytorch_does_is_right(verdicts: dict[str, crucible.Verdict]) -> None:
    right = verdicts["same_draws"]
    assert right.evaluation, right.outcome.words
    assert right.backward and right.runtime_ms > 0
    assert not [rule for rule in right.stress if rule.failed]


@pytest.mark.parametrize("name", ["other_order", "draws_nothing", "keeps_its_masks"])
def test_who_draws_otherwise_is_not_judged(verdicts: dict[str, crucible.Verdict], name: str) -> None:
    outcome = verdicts[name].outcome
    assert isinstance(outcome, NotJudged), outcome
    assert "draws others than PyTorch, or is wrong" in outcome.reason and "--mode eval" in outcome.reason


def test_draws_that_are_kept_are_found_by_timed_calls(verdicts: dict[str, crucible.Verdict]) -> None:
    assert "while it was timed" in verdicts["keeps_its_masks"].outcome.words


def test_no_draws_excuse_another_shape(verdicts: dict[str, crucible.Verdict]) -> None:
    outcome = verdicts["another_shape"].outcome
    assert isinstance(outcome, Wrong) and outcome.what == "shape", outcome


def test_a_run_says_what_it_holds_candidates_to(tmp_path: Path) -> None:
    oracle = prepared(tmp_path, returning("F.dropout(x)"))
    found = oracle.description()
    assert found["draws"] and found["precision"] == "float64"
    assert "a seed is set before each call" in found["findings"][0]["claim"]
    assert not prepared(tmp_path / "none", returning("F.dropout(x, 0.0)")).description()["draws"]


@pytest.mark.parametrize(
    ("expression", "precision"),
    [
        ("F.dropout(x, 0.3) * 0.1", "float64"),
        ("F.alpha_dropout(x, 0.3) * 0.1", "float64"),
        ("x * torch.rand_like(x) * 0.1 + torch.rand(6)", "float64"),
        ("F.scaled_dot_product_attention(x, x, x, dropout_p=0.3)", "float64"),
        ("F.rrelu(x, training=True)", "float32"),
        ("F.rrelu(x * 0.1, training=True, inplace=True)", "float32"),
    ],
)
def test_float64_takes_what_float32_draws(tmp_path: Path, expression: str, precision: str) -> None:
    """Where it cannot, right is float32."""
    oracle = prepared(tmp_path, returning(expression), contract="fp32")
    assert oracle.description()["precision"] == precision
    reference, case = oracle.answers.reference, oracle.cases[0]
    (single,) = reference.evaluate(case.state, case.inputs).outputs
    wide = case.outputs[0].values.view(single.tensor.shape).double()
    torch.testing.assert_close(single.tensor.double(), wide, rtol=1e-5, atol=1e-6)
    assert torch.equal(wide, wide.float().double()) is (precision == "float32")


def test_gradients_behind_a_dropout_may_be_nearer_to_float64_than_eager(tmp_path: Path) -> None:
    """Eager adds 64 equal numbers up one after the other, by as many roundings: what does not was convicted. A mean
    hands each channel of the bias what is pulled back through it."""
    body = "\n        self.conv = nn.Conv2d(3, 16, 3)\n    def forward(self, x):\n"
    body += "        return F.dropout(self.conv(x).mean((2, 3)), 0.2)\n"
    oracle = prepared(tmp_path, source(body, "torch.randn(batch, 3, 10, 10)"), contract="fp32", training=True)
    case = oracle.cases[0]
    (drawn,) = oracle.answers.reference.evaluate(case.state, case.inputs).outputs
    (cotangent,) = read_bundle(tmp_path / "inputs/case0.cotangents")
    gradient = (cotangent.double() * (drawn.tensor != 0) / 0.8).sum(0)
    said = errors(compared(oracle, 0, "gradient", [gradient.float()], ("conv.bias",)))
    assert [each.ok for each in said] == [True], said


def test_draws_that_two_seeds_do_not_show_are_seeded_too(tmp_path: Path) -> None:
    """Of few numbers, or zeros, a dropout often leaves the same: an honest copy of the task was convicted of the calls
    in which it does not."""
    for name, expression in (
        ("few", "F.dropout(x.sum().reshape(1), 0.001)"),
        ("zeros", "F.dropout(x.clamp(0, 0), 0.5)"),
    ):
        assert prepared(tmp_path / name, returning(expression)).description()["draws"]


@pytest.mark.parametrize(
    ("expression", "contract", "why"),
    [
        ("F.dropout(x)", "kernelbench", "one generator, one after the other"),
        ("F.dropout(x)", "bf16", "in bfloat16 PyTorch draws others"),
        ("x + torch.rand(x.shape, generator=torch.Generator().manual_seed(int(time.time_ns() % 2**40)))", "tf32",
         "a seed does not fix them"),
    ],
)  # fmt: skip
def test_where_a_seed_says_nothing_there_is_no_answer(tmp_path: Path, expression: str, contract: str, why: str) -> None:
    with pytest.raises(TaskError, match=f"draws random numbers.*{why}.*--mode eval"):
        prepared(tmp_path, "import time\n" + returning(expression), contract=contract)


def test_a_batch_is_not_divided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of a batch would draw what the whole does not."""
    monkeypatch.setattr(batches, "PART_BYTES", 64)
    oracle = prepared(tmp_path, returning("F.dropout(x)", "torch.ones(8, 64)"))
    (output,) = oracle.cases[0].outputs
    oracle.reference.model.train()
    wanted = oracle.reference.evaluate(oracle.cases[0].state, oracle.cases[0].inputs).outputs[0].tensor
    assert torch.equal(output.values, wanted.flatten())


def test_a_seed_tells_nobody_which_call_is_compared() -> None:
    """A process reads it for nothing: one that only compared calls had, a second time, would say when to be honest."""
    answers = [(11, 0, 3), (12, 2, 4), (13, 0, 5), (14, 2, 6)]
    told = {"timed": [answers, []], "weights_of": [0, 2], "late": False, "inside": False, "draws": True}
    contents = Contents(False, (11, 12, 13, 14)).known(told)
    for weights in (0, 2):
        compared = {contents.secret(number, weights).draws for number in range(4)}
        assert len(compared) == 2 and {contents.chosen(weights).draws for _ in range(60)} == compared
    without = Contents(False, (11, 12, 13, 14)).known({**told, "draws": False})
    assert {without.chosen(0).draws, without.secret(0, 0).draws} == {None}
