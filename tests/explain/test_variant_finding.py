"""Which function it computes instead: said first where it is known, with both errors; a near miss is no certainty."""

from __future__ import annotations

import json

import pytest
from explaining import a_run, why

from crucible.explain.findings import findings
from crucible.judge.verdict.evidence import Finding, NoVariant, Variant
from crucible.judge.verdict.verdict import Verdict, Wrong
from crucible.run import run_from_json

TANH = Variant(
    "the reference with gelu(approximate='tanh') in place of 'none' (reference.py:27)",
    ("gelu(approximate='tanh') in place of 'none'",),
    (27,),
    "relative L2",
    2.1e-4,
    9.8e-8,
    4.6e-7,
)
WRONG = Wrong("forward", "output is off by 450 times what is allowed")


def test_a_match_is_the_cause() -> None:
    first = why(WRONG, variant=TANH)[0]
    assert first.claim == f"it computes {TANH.words}"
    assert first.confidence == "certain"
    assert "9.8e-08 from that and 0.00021 from the reference" in first.evidence
    assert "line 27 of the reference" in first.remedy


def test_what_the_judge_noted_of_it_is_not_told_twice() -> None:
    note = Finding("it computes another function than the reference", TANH.evidence)
    assert sum("tanh" in finding.evidence for finding in why(WRONG, variant=TANH, findings=(note,))) == 1


@pytest.mark.parametrize("change", [{"error_to_variant": 1e-6}, {"alike": ("the reference without gelu",)}])
def test_a_near_miss_and_a_choice_are_not_certain(change: dict[str, object]) -> None:
    assert why(WRONG, variant=Variant(**{**vars(TANH), **change}))[0].confidence == "likely"


def test_without_a_match_nothing_is_said() -> None:
    assert not [f for f in why(WRONG, variant=NoVariant("none of 400 matched")) if "the reference with" in f.claim]


ROUNDED = "the reference with the operands of linear rounded to {} (reference.py:18)"


@pytest.mark.parametrize(
    ("source", "alike", "said"),
    [
        ("__half2float(__float2half(x))", ("float16", "bfloat16"), "float16"),
        ("x * w", ("float16",), "TF32"),
        ("half x; wmma::__float_to_tf32(y)", ("float16",), "TF32"),
        ("__half2float(__float2half(x))", ("bfloat16",), "TF32"),
    ],
)
def test_of_two_roundings_to_the_same_bits_the_source_tells(source: str, alike: tuple[str, ...], said: str) -> None:
    words = tuple(ROUNDED.format(name) for name in alike)
    first = why(WRONG, source, variant=Variant(**{**vars(TANH), "words": ROUNDED.format("TF32"), "alike": words}))[0]
    assert first.claim == f"it computes {ROUNDED.format(said)}"
    assert ROUNDED.format(said) in first.evidence and first.confidence == "likely"


def test_a_record_explains_it_as_the_run_did() -> None:
    run = a_run(Verdict("candidate", WRONG, variant=TANH))
    again = run_from_json(json.loads(json.dumps(run.to_json())))
    assert again.verdict("candidate").variant == TANH
    assert findings(again) == findings(run)
