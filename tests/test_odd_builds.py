"""Nobody honest is convicted: candidates of odd build pass, and their dishonest twins do not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import crucible
from odd_builds import HEAD, ODD_BUILDS, OF_RENAMED, RENAMED, module, same_names
from support import TESTS, claims, some, write

ODD_TASK = TESTS / "data/odd_task"
NO_GRADIENTS = ("inference_only", "detached", "out_argument")
DISHONEST = {
    # name: source, what is wrong, words of the verdict
    "drops_the_norm": (
        same_names("return compute(x, *self.weights()[:2], None, None, *self.weights()[4:])"),
        "weights",
        "the initial norm.weight, norm.bias",
    ),
    "drops_a_bias_beside_decoys": (
        module(
            f"{RENAMED}\ndel self.ln.bias\nself.ln.bias = None\n"
            "self.one, self.two = (nn.Parameter(torch.zeros(inner)) for _ in range(2))",
            f"return compute(x, {OF_RENAMED}) + (self.one + self.two).sum() * 0",
        ),
        "weights",
        "the initial norm.bias",
    ),
    "keeps_a_copy": (
        same_names("return compute(x, *self.copy)", "self.copy = [w.detach().clone() for w in self.weights()]"),
        "weights",
        "the initial first.weight, first.bias",
    ),
    "packs_at_the_first_call": (
        same_names(
            "self.packed = self.packed if self.packed is not None else self.left.weight.t().contiguous()\n"
            "return compute(x, *self.weights()[:4], self.packed.t(), self.right.weight)",
            "self.packed = None",
        ),
        "weights",
        "the initial left.weight",
    ),
    "swaps_left_and_right": (
        module(RENAMED, f"w = ({OF_RENAMED})\nreturn compute(x, *w[:4], w[5], w[4])"),
        "forward",
        "right.weight is gate.weight (by their values",
    ),
    "other_weights": (
        module(
            f"{RENAMED}\nself.packed = nn.Parameter(torch.rand(2, inner, inner))\ndel self.value, self.gate",
            "return compute(x, self.gemm.weight, self.gemm.bias, self.ln.weight, self.ln.bias, *self.packed)",
        ),
        "forward",
        "(left.weight, right.weight were not copied: nothing in it corresponds; left as it constructs them: packed)",
    ),
    "an_instance": ("ModelNew = nn.Linear(8, 16)\n", "", "not a class or function that makes one"),
}


HERE = some(list(ODD_BUILDS), 4, lambda name: name in ("renamed", *NO_GRADIENTS))
"""Dishonest ones are judged all of them."""


@pytest.fixture(scope="module")
def odd(judge_batch: Callable[..., crucible.Run], tmp_path_factory: pytest.TempPathFactory) -> crucible.Run:
    """All of them in one run, timed for a moment each."""
    folder = tmp_path_factory.mktemp("odd")
    sources = {
        **{name: ODD_BUILDS[name] for name in HERE},
        **{name: f"{HEAD}\n{source}" for name, (source, *_) in DISHONEST.items()},
    }
    files = [write(folder / f"{name}.py", source) for name, source in sources.items()]
    return judge_batch(ODD_TASK, files, limits=crucible.Limits(race_s=0.05, shrink_s=0, stress_s=0))


def test_there_are_sixty() -> None:
    assert len(ODD_BUILDS) >= 60


@pytest.mark.parametrize("name", HERE)
def test_an_honest_candidate_of_odd_build_passes(name: str, odd: crucible.Run) -> None:
    verdict = odd.verdict(name)
    assert verdict.evaluation, verdict.outcome.words
    assert verdict.forward.words == "ok"
    assert verdict.backward.words == "ok" or "gradients are missing" in claims(verdict)
    assert "gradients not compared" not in claims(verdict)
    assert "not judged with new weights" not in claims(verdict)


@pytest.mark.parametrize("name", DISHONEST)
def test_a_dishonest_one_does_not(name: str, odd: crucible.Run) -> None:
    outcome = odd.verdict(name).outcome
    _, what, words = DISHONEST[name]
    assert not odd.verdict(name).evaluation
    assert getattr(outcome, "what", "") == what, outcome.words
    assert words in outcome.words


UNKNOWN = module(
    "first, norm, left, right = nn.Linear(width, inner), nn.LayerNorm(inner), nn.Linear(inner, inner, False), "
    "nn.Linear(inner, inner, False)\nself.first, self.norm, self.left = first, norm, left\n"
    "self.halved = nn.Parameter(right.weight.detach() / 2)\nself.other = nn.Parameter(torch.zeros(3, inner, inner))",
    "return compute(x, self.first.weight, self.first.bias, self.norm.weight, self.norm.bias, self.left.weight, "
    "self.halved * 2 + self.other.sum(0))",
)


def test_weights_in_a_form_that_is_not_known_are_not_judged_with_new_ones(
    judge_batch: Callable[..., crucible.Run], tmp_path: Path
) -> None:
    """Half of a weight: paired by its shape that is wrong, left alone it is right, and who knows what else it holds."""
    file = write(tmp_path / "unknown.py", f"{HEAD}\n{UNKNOWN}")
    verdict = judge_batch(ODD_TASK, [file]).verdict("unknown")
    assert verdict.evaluation, verdict.outcome.words
    assert "not judged with new weights: what holds them in the candidate is not known: right.weight" in claims(verdict)


def test_the_benchmarks_rule_copies_no_weights(judge_batch: Callable[..., crucible.Run], tmp_path: Path) -> None:
    """What keeps a copy is right by that rule; what draws its weights in another order is wrong."""
    other = same_names("return super().forward(x)", "self.first = nn.Linear(width, inner)")
    sources = {"keeps": DISHONEST["keeps_a_copy"][0], "renamed": ODD_BUILDS["renamed"], "other": other}
    files = [write(tmp_path / f"{name}.py", f"{HEAD}\n{source}") for name, source in sources.items()]
    run = judge_batch(ODD_TASK, files, contract="kernelbench")
    assert {v.candidate: v.evaluation for v in run.verdicts} == {"keeps": True, "renamed": True, "other": False}
    assert run.contract.seed == 42
    assert "paired" not in claims(run.verdict("renamed"))
