"""The smallest failing shape in words: what was seen fail here and pass there, and no more."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from explaining import a_run, claims, why

import crucible
from crucible.explain.findings import findings
from crucible.judge.verdict.evidence import Finding
from crucible.judge.verdict.trials import OTHERWISE, REFUSED, RIGHT, WRONG, At, NotShrunk, SmallestFailing, Trial
from crucible.judge.verdict.verdict import Passed, Verdict, Wrong
from crucible.run import run_from_json
from support import write

OFF = Wrong("forward", "output is off by 0.4 in relative L2 (allowed 1e-05) on its own inputs, worst at [0, 0]")


def at(batch: int, width: int) -> At:
    return (("batch_size", batch), ("width", width))


def shrunk(found: tuple[int, int], stopped: str = "", **came: list[tuple[int, int]]) -> SmallestFailing:
    """A search that ended at a shape, with what came of the others."""
    trials = tuple(Trial(at(*one), how.replace("_", " ")) for how, shapes in came.items() for one in shapes)
    return SmallestFailing(at(*found), OFF.words, at(4, 70), trials, stopped)


def said(found: SmallestFailing | NotShrunk) -> Finding | None:
    """The finding about it."""
    return next((one for one in why(OFF, smallest_failing=found) if "smallest shape" in one.claim), None)


FIRST = (4, 70)
OVER = shrunk((1, 33), wrong=[FIRST, (1, 33), (1, 64), (1, 65)], right=[(1, 32), (1, 1)])
PAST = shrunk((1, 33), wrong=[FIRST, (1, 33), (1, 65)], right=[(1, 32), (1, 64)])
SHORT = shrunk((1, 1), wrong=[FIRST, (1, 1), (1, 31), (1, 33), (1, 65)], right=[(4, 64), (1, 32), (1, 64)])
SHOWS = {
    "a bound": (
        OVER,
        "batch_size = 1, width = 33; right at width = 32, wrong at 64 and 65: as if nothing over 32 were",
    ),
    "a multiple": (PAST, "width = 33; right at width = 32 and 64, wrong at 33 and 65: as if only multiples of 32 were"),
    "a multiple from below": (
        SHORT,
        "batch_size = 1, width = 1; right at width = 32 and 64, wrong at 31, 33 and 65: as if only multiples of 32",
    ),
    "a neighbour": (shrunk((2, 1), wrong=[FIRST, (2, 1)], right=[(1, 1)]), "width = 1; right at batch_size = 1"),
    "two neighbours": (
        shrunk((3, 17), wrong=[FIRST, (3, 17)], right=[(2, 17), (3, 16)]),
        "batch_size = 3, width = 17; right at width = 16; right at batch_size = 2",
    ),
    "right elsewhere": (shrunk(FIRST, refused=[FIRST], right=[(2, 16)]), "70; right at batch_size = 2, width = 16"),
    "wrong everywhere": (
        shrunk((1, 1), wrong=[FIRST, (1, 1)]),
        "batch_size = 1, width = 1; nothing is smaller, and no shape that was tried is right",
    ),
    "the reference's end": (
        shrunk((1, 3), wrong=[FIRST, (1, 3)], refused=[(1, 2), (1, 1)]),
        "width = 3; the reference takes nothing smaller, and no",
    ),
    "the candidate's end": (
        shrunk((1, 3), wrong=[FIRST, (1, 3)], ended_otherwise=[(1, 2)]),
        "width = 3; nothing smaller is known to be right or wrong",
    ),
}


@pytest.mark.parametrize("case", SHOWS)
def test_the_smallest_failing_shape_is_said_with_what_is_right_beside_it(case: str) -> None:
    found, words = SHOWS[case]
    finding = said(found)
    assert finding is not None and words in finding.claim, finding
    assert (finding.confidence, finding.line) == ("certain", 0)
    assert OFF.words in finding.evidence and "shapes tried: " in finding.evidence
    shape = ",".join(f"{name}={size}" for name, size in found.at)
    assert f"--shape {shape}" in finding.remedy


def without(found: SmallestFailing, *shapes: tuple[int, int]) -> SmallestFailing:
    """As if these had not been tried."""
    gone = [at(*one) for one in shapes]
    return replace(found, trials=tuple(trial for trial in found.trials if trial.at not in gone))


NEARLY: dict[str, tuple[SmallestFailing | NotShrunk, str]] = {
    "a bound, twice of which was not tried": (without(OVER, (1, 64)), "as if"),
    "a bound, but for one beyond": (
        replace(OVER, trials=tuple(replace(t, came=RIGHT) if t.at == at(1, 65) else t for t in OVER.trials)),
        "as if",
    ),
    "a multiple, the next of which ended otherwise": (
        replace(PAST, trials=tuple(replace(t, came=OTHERWISE) if t.at == at(1, 65) else t for t in PAST.trials)),
        "as if",
    ),
    "a neighbour that was refused": (shrunk((1, 33), wrong=[FIRST, (1, 33)], refused=[(1, 32)]), "right at"),
    "a neighbour two away": (shrunk((1, 33), wrong=[FIRST, (1, 33)], right=[(1, 31)]), "width = 32"),
    "nothing but the first": (shrunk(FIRST, "it died", wrong=[FIRST]), "smallest"),
    "nothing at all": (NotShrunk("the task has no size of its inputs' alone"), "smallest"),
}


@pytest.mark.parametrize("case", NEARLY)
def test_what_was_not_seen_is_not_said(case: str) -> None:
    found, words = NEARLY[case]
    finding = said(found)
    assert words not in (finding.claim if finding else "")
    assert (finding is None) == (words == "smallest")


def test_a_search_that_was_cut_short_says_so() -> None:
    finding = said(replace(OVER, stopped="20 s were up"))
    assert finding and finding.evidence.endswith("; the search ended early: 20 s were up")
    assert "4 wrong, 2 right, 0 that" in finding.evidence and "right at 1 x 32, 1 x 1;" in finding.evidence


def test_a_pass_has_no_smallest_failing_shape() -> None:
    assert "smallest" not in claims(why(Passed(), smallest_failing=OVER))


def test_a_record_tells_it_again_and_one_of_before_does_without() -> None:
    run = a_run(Verdict("candidate", OFF, smallest_failing=PAST))
    data = json.loads(json.dumps(run.to_json()))
    del data["candidates"][0]["explanations"]
    assert findings(run_from_json(data)) == findings(run)
    del data["candidates"][0]["smallest_failing"]
    (verdict,) = run_from_json(data).verdicts
    assert verdict.smallest_failing == NotShrunk("not kept")


def test_refused_shapes_are_counted_apart() -> None:
    finding = said(shrunk((1, 3), wrong=[FIRST, (1, 3)], refused=[(1, 2)], ended_otherwise=[(1, 1)]))
    assert finding and "2 wrong, 0 right, 2 that the reference or the candidate refuses" in finding.evidence
    assert {REFUSED, OTHERWISE, WRONG} == {"refused", "ended otherwise", "wrong"}


# --- kernels, on the emulator

TASK = """
import torch
from torch import nn

batch_size = 3
width = 70

class Model(nn.Module):
    def forward(self, x):
        return x * 2.0

def get_inputs():
    return [torch.rand(batch_size, width)]

def get_init_inputs():
    return []
"""
KERNEL = '''
import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
__global__ void twice(const float* x, float* out, int n) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    {body}
}}
torch::Tensor run(torch::Tensor x) {{
    auto out = torch::empty_like(x);
    int n = x.size(1);
    twice<<<dim3({blocks}, x.size(0)), 32>>>(x.data_ptr<float>(), out.data_ptr<float>(), n);
    return out;
}}
"""
extension = load_inline("twice", "torch::Tensor run(torch::Tensor x);", SOURCE, functions=["run"])


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.run(x.contiguous())
'''
ROW = "x += blockIdx.y * n; out += blockIdx.y * n; "
KERNELS = {
    "right": (ROW + "if (i < n) out[i] = 2 * x[i];", "(n + 31) / 32"),
    "no_tail": (ROW + "if (i < n) out[i] = 2 * x[i];", "n / 32"),
    "no_guard": (ROW + "out[i] = 2 * x[i];", "(n + 31) / 32"),
    "one_block": (ROW + "if (i < n) out[i] = 2 * x[i];", "1"),
}


@pytest.fixture(scope="module")
def run(judge_batch: Callable[..., crucible.Run], tmp_path_factory: pytest.TempPathFactory) -> crucible.Run:
    folder = tmp_path_factory.mktemp("smallest")
    files = [
        write(folder / f"{name}.py", KERNEL.format(body=body, blocks=blocks))
        for name, (body, blocks) in KERNELS.items()
    ]
    task = write(folder / "reference.py", TASK)
    return judge_batch(task, files, device="emulator", limits=crucible.Limits(race_s=0.05))


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        (
            "no_tail",
            "incomplete",
            "width = 33; right at width = 32 and 64, wrong at 33 and 65: as if only multiples of",
        ),
        ("no_guard", "illegal-access", "batch_size = 1, width = 1; right at width = 32"),
        (
            "one_block",
            "incomplete",
            "batch_size = 1, width = 33; right at width = 32, wrong at 64 and 65: as if nothing",
        ),
    ],
)
def test_a_kernels_fault_is_told_with_the_shape_at_which_it_begins(
    run: crucible.Run, name: str, kind: str, words: str
) -> None:
    assert run.verdict(name).outcome.kind == kind
    finding = next(one for one in run.explanations[name] if "smallest shape" in one.claim)
    assert words in finding.claim
    assert ("out-of-bounds" in finding.evidence) == (name == "no_guard")


def test_a_right_kernel_is_tried_at_no_other_shape(run: crucible.Run) -> None:
    verdict = run.verdict("right")
    assert verdict.evaluation and isinstance(verdict.smallest_failing, NotShrunk)
    assert "smallest" not in claims(run.explanations["right"])


def test_the_shapes_are_in_the_record_on_disk(run: crucible.Run) -> None:
    data = json.loads((Path(run.folder) / "run.json").read_text())
    kept = {one["name"]: one["smallest_failing"] for one in data["candidates"]}
    assert kept["one_block"]["at"] == [["batch_size", 1], ["width", 33]]
    assert kept["right"]["kind"] == "NotShrunk"
