"""Seeds: one secret number a run, from which all that is drawn in it follows, and which nothing drawn tells of."""

from __future__ import annotations

import hashlib
import secrets

BITS = 63
"""What every generator takes."""


def secret() -> int:
    """A seed that nobody can know beforehand."""
    return secrets.randbits(BITS)


def derived(seed: int, purpose: str, *numbers: int) -> int:
    """The seed for one purpose (`inputs`, 2), by SHA-256: who sees it, or finds it out from what was drawn under it,
    knows neither the run's seed nor that of another purpose."""
    text = "/".join([str(seed), purpose, *map(str, numbers)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> (64 - BITS)


def draws_of(contents: int) -> int:
    """What is drawn from while a module runs on the contents of that seed, which it does not tell."""
    return derived(contents, "draws")


def construction(seed: int, of_rule: int | None) -> int:
    """What modules are constructed under, which candidates know: that of the contract's rule, where it has one."""
    return derived(seed, "construction") if of_rule is None else of_rule
