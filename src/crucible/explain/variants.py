"""The finding about another function: the variant of the reference that a wrong answer is the answer of."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from crucible.judge.verdict.evidence import Finding, Variant
from crucible.judge.verdict.verdict import Verdict
from crucible.run import Run


def another_function(verdict: Verdict, run: Run) -> Iterator[Finding]:
    """Which function it computes in place of the reference's."""
    variant = verdict.variant
    if not isinstance(variant, Variant):
        return
    variant = _borne_out(variant, run.sources.get(verdict.candidate, ""))
    exact = variant.error_to_variant <= variant.allowed
    lines = ", ".join(map(str, variant.lines))
    where = f"line{'s' * (len(variant.lines) > 1)} {lines} of the reference" if lines else "the reference"
    yield Finding(
        f"it {'computes' if exact else 'is near'} {variant.words}",
        variant.evidence,
        f"compute what stands in {where}: the error is then {variant.error_to_variant:.2g}, not "
        f"{variant.error_to_reference:.2g}",
        "certain" if exact and not variant.alike else "likely",
    )


def _borne_out(variant: Variant, source: str) -> Variant:
    """TF32 and float16 keep the same 10 bits, so that either may be said first: float16 where the source names it and
    does not name TF32."""
    other = variant.words.replace("rounded to TF32", "rounded to float16")
    if other not in variant.alike or re.search("tf32", source, re.IGNORECASE) or not re.search("half|float16", source):
        return variant
    return replace(variant, words=other, alike=(variant.words, *(words for words in variant.alike if words != other)))
