"""The finding about another function: the variant of the reference that a wrong answer is the answer of."""

from __future__ import annotations

from collections.abc import Iterator

from crucible.judge.evidence import Finding, Variant
from crucible.judge.verdict import Verdict
from crucible.run import Run


def another_function(verdict: Verdict, run: Run) -> Iterator[Finding]:
    """Which function it computes in place of the reference's."""
    variant = verdict.variant
    if not isinstance(variant, Variant):
        return
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
