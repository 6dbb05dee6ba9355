"""Findings about gradients that are missing or wrong."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator

from crucible.explain.source import line_text
from crucible.explain.values import described
from crucible.explain.words import listed
from crucible.judge.verdict.evidence import Compared, Finding, NotCompared, TensorError
from crucible.judge.verdict.verdict import InferenceOnly, Passed, Verdict, Wrong
from crucible.run import Run

_DETACHES = re.compile(r"\.detach\(\)|\.data\b(?!_)|no_grad\(|inference_mode\(|\.item\(\)|\.numpy\(\)")
CLOSE = 1e-3
"""Of a factor to a product of sizes."""


def missing_gradients(verdict: Verdict, run: Run) -> Iterator[Finding]:
    """Which inputs and parameters no gradient reaches, and what cuts them off."""
    if isinstance(verdict.outcome, InferenceOnly):
        yield from _missing(verdict, run)


def inference_alone(verdict: Verdict, run: Run) -> Iterator[Finding]:
    """The same of a candidate that passed, since no gradients were asked for; a backward that raises."""
    backward = verdict.backward
    if isinstance(verdict.outcome, Passed):
        yield from _missing(verdict, run)
        if isinstance(backward, NotCompared) and backward.raised:
            yield Finding(
                "its backward raises: it is good for inference alone", backward.reason, "give it a backward of its own"
            )


def _missing(verdict: Verdict, run: Run) -> Iterator[Finding]:
    backward = verdict.backward
    missing = backward.missing if isinstance(backward, Compared) else ()
    if not missing or not isinstance(backward, Compared):
        return
    reached = list(dict.fromkeys(tensor.name for tensor in backward.tensors))
    source = run.sources.get(verdict.candidate, "")
    claim = f"no gradient reaches {listed(missing)}"
    evidence = f"{len(missing)} missing; " + (f"reached: {listed(reached)}" if reached else "none is reached")
    why, remedy, line = _cut(source, bool(reached))
    yield Finding(
        f"{claim}: {why}" if why else claim,
        evidence + (f"; line {line}, `{line_text(source, line)}`" if line else ""),
        f"{remedy}; {len(missing)} gradient{'s' if len(missing) > 1 else ''} missing",
        "certain" if not why else "likely",
        line,
    )


def wrong_gradients(verdict: Verdict, run: Run) -> Iterator[Finding]:
    """Which gradients are wrong, by which factor, where."""
    if isinstance(verdict.outcome, Wrong) and verdict.outcome.what == "gradient":
        yield from _wrong(verdict)


def wrong_though_not_asked_for(verdict: Verdict, run: Run) -> Iterator[Finding]:
    """The same of a candidate that passed, since training was not asked for."""
    if isinstance(verdict.outcome, Passed):
        yield from _wrong(verdict)


def _wrong(verdict: Verdict) -> Iterator[Finding]:
    backward = verdict.backward
    if not isinstance(backward, Compared):
        return
    wrong = sorted((t for t in backward.tensors if not t.ok), key=lambda tensor: -tensor.ratio)
    for tensor in wrong[:3]:
        yield from _of_one(tensor, [t.name for t in wrong], verdict)


def _of_one(tensor: TensorError, names: list[str], verdict: Verdict) -> Iterator[Finding]:
    others = [name for name in names if name != tensor.name]
    beside = f"; wrong as well: {listed(others)}" if others else "; all other gradients are right"
    if tensor.map is None:
        yield Finding(f"{tensor.name} is wrong", _off(tensor) + beside, "compare its formula with the chain rule")
        return
    fit = next((f for f in tensor.map.fits if f.of == "all" and f.dim < 0 and f.what == "factor"), None)
    if tensor.map.got.rms == 0:
        yield Finding(
            f"{tensor.name} is zero: backward gives it, and computes nothing into it",
            f"rms 0, should be {tensor.map.want.rms:.3g}{beside}",
            f"return the real gradient: its rms should be {tensor.map.want.rms:.3g}",
        )
    elif fit is not None:
        yield _of_factor(tensor, fit.values[0], fit.residual, beside, verdict)
    else:
        for finding in described(tensor):
            yield Finding(
                finding.claim,
                finding.evidence + beside,
                finding.remedy,
                finding.confidence,
                finding.line,
                finding.kernel,
            )


def _of_factor(tensor: TensorError, factor: float, residual: float, beside: str, verdict: Verdict) -> Finding:
    why, remedy = "", f"look for a factor of {factor:.5g} or {1 / factor:.5g} in the chain rule"
    sizes = _sizes(verdict)
    for value, what in ((1 / factor, "divided by"), (factor, "multiplied by")):
        words = _as_sizes(value, sizes)
        if words and abs(value - 1) > CLOSE:
            why = f": it is {what} {words}"
            mean, total = "a mean was taken for a sum over it", "it was summed over what it should be averaged over"
            remedy = f"{mean if what == 'divided by' else total}, or the broadcast dimension was left out"
            break
    return Finding(
        f"{tensor.name} is {factor:.5g} times what it should be{why}",
        f"with the factor the relative L2 error is {residual:.2g}, without {tensor.relative_l2:.2g} "
        f"(allowed {tensor.relative_l2_allowed:.2g}){beside}",
        f"{remedy}; the error falls from {tensor.relative_l2:.2g} to {residual:.2g}",
        "certain" if residual <= max(tensor.relative_l2_allowed, 1e-4) else "likely",
    )


def _sizes(verdict: Verdict) -> dict[str, tuple[int, ...]]:
    """Shapes that are known: outputs', then other gradients'."""
    checks = [check for check in (verdict.forward, verdict.backward) if isinstance(check, Compared)]
    return {tensor.name: tensor.shape for check in checks for tensor in check.tensors if tensor.shape}


def _as_sizes(value: float, shapes: dict[str, tuple[int, ...]]) -> str:
    """A number as a product of dimensions of one tensor: `16, the size of dimension 0 of output`."""
    for name, shape in shapes.items():
        for count in (1, 2, 3):
            for dims in itertools.combinations(range(len(shape)), count):
                product = math.prod(shape[dim] for dim in dims)
                if product > 1 and abs(value / product - 1) < CLOSE:
                    words = " and ".join(str(dim) for dim in dims)
                    noun = "size of dimension" if count == 1 else "sizes of dimensions"
                    return f"{product}, the {noun} {words} of {name}"
    return ""


def _cut(source: str, partly: bool) -> tuple[str, str, int]:
    """What cuts gradients off, the remedy and the line, by the candidate's text."""
    lines = source.split("\n")
    hit = next(
        (i for i, line in enumerate(lines, 1) if _DETACHES.search(line) and not line.lstrip().startswith("#")), 0
    )
    own = re.search(r"autograd\.Function\b", source)
    if own and partly and (not hit or re.search(r"return\b.*\bNone\b", source)):
        backward = next((i for i, line in enumerate(lines, 1) if "def backward" in line), 0)
        return "its own backward stops before", "return a gradient for each input of the autograd.Function", backward
    if hit:
        return "the graph is cut", "take the detaching call out of forward", hit
    if not own and re.search(r"load_inline|triton", source):
        return (
            "its kernels run outside of autograd",
            "wrap them in a torch.autograd.Function with a backward",
            next((i for i, line in enumerate(lines, 1) if "def forward" in line), 0),
        )
    return "", "let each of them take part in the output through operations that autograd knows", 0


def _off(tensor: TensorError) -> str:
    return f"off by {tensor.relative_l2:.2g} in relative L2 (allowed {tensor.relative_l2_allowed:.2g})"
