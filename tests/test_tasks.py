"""The shipped tasks: each candidate's first line states its verdict, and the judge is held to it.

Without a GPU the emulator runs them, at small scale; without a compiler they must be "not judged", never a pass.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

import crucible
from crucible import hardware
from crucible.candidate import Candidate
from crucible.explain.findings import findings
from crucible.run import run_from_json
from support import NIGHTLY, TASKS, claims, some, stated_kind, write_zeros

QUICK = {"baselines": "none", "limits": crucible.Limits(race_s=0.05, shrink_s=0, stress_s=0)}
CONTRACTS = ("fp32", "tf32", "bf16", "kernelbench")


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_every_candidate_states_its_verdict_on_its_first_line(task: Path) -> None:
    for file in (task / "candidates").glob("*.py"):
        assert re.match(r'"""[^\n]+ Expected: [\w-]+(; \w+: [\w-]+)*\."""', file.read_text()), file


FAULTS = {
    "shared_memory_overflow": "softmax_kernel<<<",
    "placeholder_kernels": "__global__ void leaky_add_clamp_kernel",
    "wrong_weight_layout": "weight[c * taps + tap]",
    "cut_off_softmax": "__global__ void softmax_kernel",
}
"""What the emulator names the line of, by candidate."""
COMPUTES = {
    "wrong_weight_layout": {
        "conv_transpose.weight read as if laid out [out, in, ...]",
        "the padding of conv_transpose ignored",
    },
}
"""What a wrong one computes in place of the reference."""


AT_NIGHT = {"atomic_max_bits", "block_softmax_1024"}
"""Right as `block_softmax_256` is, and each as long on the emulator: a quarter of a minute."""
CAUSES = {
    "atomic_max_float": "no form of `atomicMax` takes these arguments",
    "cut_off_softmax": "nothing of output is ever written: `softmax_kernel` ends before it stores any",
    "doubled_braces": "its CUDA string has the doubled braces of an f-string and is none",
    "empty": "the file holds no code",
    "no_input_gradient": "no gradient reaches conv_transpose.bias, conv_transpose.weight, input[0]: its own backward",
    "placeholder_kernels": "the bodies of kernels are placeholders: nothing in them writes memory",
    "shared_memory_overflow": "`softmax_kernel` is launched with more than the GPU allows",
    "wrong_weight_layout": "conv_transpose.weight is read in another order than the reference reads it",
}
"""Why each bad candidate is bad: its first finding."""


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_verdicts_without_a_gpu(task: Path) -> None:
    """CUDA candidates get the very verdicts on the emulator that a GPU would give them, and their faults have lines."""
    files = [f for f in sorted((task / "candidates").glob("*.py")) if NIGHTLY or f.stem not in AT_NIGHT]
    run = crucible.judge(task, files, device="emulator", **QUICK)
    assert {v.candidate: v.outcome.kind for v in run.verdicts} == {f.stem: stated_kind(f, "tf32") for f in files}
    for file in files:
        if file.stem in FAULTS:
            before, found, _ = file.read_text().partition(FAULTS[file.stem])
            assert found
            line = before.count("\n") + 1
            assert f"line {line}, cuda.cu:" in claims(run.verdict(file.stem)), claims(run.verdict(file.stem))
        if file.stem in COMPUTES:
            variant = run.verdict(file.stem).variant
            assert set(getattr(variant, "edits", ())) == COMPUTES[file.stem], variant
    for verdict in run.verdicts:
        why = run.explanations[verdict.candidate]
        assert verdict.evaluation is (verdict.candidate not in CAUSES)
        if verdict.evaluation:
            assert not [finding for finding in why if finding.claim.startswith("output")], "a cause of nothing"
        else:
            assert why[0].claim.startswith(CAUSES[verdict.candidate]), why
    assert findings(run_from_json(json.loads(json.dumps(run.to_json())))) == run.explanations


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_cuda_candidates_never_pass_where_they_cannot_run(task: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "nvcc", lambda: "")  # as on a machine without the toolkit
    monkeypatch.setattr(hardware, "cxx", lambda: "")  # nor a compiler for the emulator
    files = [f for f in (task / "candidates").glob("*.py") if Candidate.load(f).language == "cuda"]
    run = crucible.judge(task, files, device="cpu", **QUICK)
    assert {v.outcome.kind for v in run.verdicts} == {"not-judged"}
    assert run.best is None


EACH = [
    (task, contract)
    for contract in CONTRACTS
    for task in sorted(TASKS, key=lambda task: "conv3d_leaky" not in task.name)
]
"""The smallest task under every contract is tried always, and the one that PyTorch cannot compute under one."""


@pytest.mark.parametrize(
    ("task", "contract"),
    some(EACH, len(EACH), lambda each: each[0].name.startswith("conv3d") or each == (TASKS[0], "bf16")),
    ids=lambda each: getattr(each, "name", each),
)
def test_good_and_bad_differ_and_zeros_are_refused_under_each_contract(
    task: Path, contract: str, tmp_path: Path, crucible_home: Path
) -> None:
    zeros = write_zeros(tmp_path, task, "small")
    files = [task / "candidates/plain_pytorch.py", zeros]
    run = crucible.judge(task, files, contract=contract, device="cpu", **QUICK)
    # PyTorch has no bfloat16 avg_pool3d on the CPU, which is worked round in the reference and charged to nobody.
    good = "not-judged" if contract == "bf16" and "avgpool3d" in task.name else "passed"
    assert run.verdict("plain_pytorch").outcome.kind == good
    assert run.verdict("zeros").outcome.kind == "wrong"


def test_a_second_run_of_an_unchanged_task_is_answered_from_the_store(
    crucible_home: Path, judged: Callable[[], crucible.Run]
) -> None:
    first, second = judged(), judged()
    assert not first.verdict("plain_pytorch").cached
    assert second.verdict("plain_pytorch").cached
    assert second.verdict("plain_pytorch") == first.verdict("plain_pytorch")


@pytest.fixture
def judged() -> Callable[[], crucible.Run]:
    task = TASKS[0]
    return lambda: crucible.judge(task, [task / "candidates/plain_pytorch.py"], device="cpu", **QUICK)
