"""Findings about outputs that nobody wrote."""

from __future__ import annotations

from collections.abc import Iterator

from crucible.explain.source import kernels
from crucible.explain.values import place_words
from crucible.explain.words import listed, share
from crucible.judge.verdict.evidence import Compared, Finding, TensorError
from crucible.judge.verdict.verdict import Incomplete, InferenceOnly, Passed, Verdict, Wrong
from crucible.legible import counted
from crucible.run import Run


def placeholder_bodies(verdict: Verdict, run: Run) -> Iterator[Finding]:
    """Kernels whose text writes nothing, in a candidate that leaves its output unwritten or wrong."""
    if not isinstance(verdict.outcome, Incomplete | Wrong):
        return
    empty = [kernel for kernel in kernels(run.sources.get(verdict.candidate, "")) if not kernel.writes]
    if empty:
        names = listed([f"{kernel.name} (line {kernel.line})" for kernel in empty])
        whole = "the body of a kernel is a placeholder" if len(empty) == 1 else "the bodies of kernels are placeholders"
        yield Finding(
            f"{whole}: nothing in it writes memory" if len(empty) == 1 else f"{whole}: nothing in them writes memory",
            f"{names}; {verdict.outcome.words}",
            f"write the {len(empty)} missing bodies" if len(empty) > 1 else "write the 1 missing body",
            line=empty[0].line,
            kernel=empty[0].name,
        )


def kernels_never_launched(verdict: Verdict, run: Run) -> Iterator[Finding]:
    """Kernels that the emulator saw no launch of, where the output is not right."""
    never = [fault for fault in verdict.faults if fault.kind == "never-ran"]
    if not never or isinstance(verdict.outcome, Passed | InferenceOnly):
        return
    names = listed([fault.kernel for fault in never])
    yield Finding(
        f"{'a kernel is' if len(never) == 1 else f'{len(never)} kernels are'} never launched: {names}",
        "; ".join(fault.words for fault in never[:3]),
        f"launch {names}, or take {'it' if len(never) == 1 else 'them'} out: 0 launches were seen",
        "certain" if isinstance(verdict.outcome, Incomplete) else "possible",
        never[0].python_line,
        never[0].kernel,
    )


def unwritten_outputs(verdict: Verdict, run: Run) -> Iterator[Finding]:
    """How much of which tensor was never written, where, and by which kernel."""
    if not isinstance(verdict.outcome, Incomplete):
        return
    fault = next((f for f in verdict.faults if f.kind == "uninitialised-global" and "never written" in f.detail), None)
    read = next((f for f in verdict.faults if f.kind.startswith("uninitialised") and f is not fault), None)
    tensor = unwritten_tensor(verdict)
    part = tensor.unwritten / tensor.elements if tensor and tensor.elements else 0.0
    kernel, line = (fault.kernel, fault.python_line) if fault else ("", 0)
    if read is not None and (fault is None or tensor is None):
        yield Finding(
            f"`{read.kernel}` reads memory that nobody wrote, and the result is computed from it",
            read.words,
            "write it before it is read, or start it at zero (torch::zeros, a store to shared memory first)",
            line=read.python_line,
            kernel=read.kernel,
        )
    elif tensor is not None and part >= 1:
        who = f": `{kernel}` ends before it stores any" if kernel else ""
        evidence = fault.words if fault else f"all of {counted(tensor.elements, 'element')} still the judge's poison"
        yield Finding(
            f"nothing of {tensor.name} is ever written{who}",
            evidence,
            f"store the result: 0 of {counted(tensor.elements, 'element')} are written",
            line=line,
            kernel=kernel,
        )
    elif tensor is not None:
        where = place_words(tensor.map) if tensor.map else ""
        yield Finding(
            f"{share(part)} of {tensor.name} is never written" + (f": {where}" if where else ""),
            f"{tensor.unwritten} of {counted(tensor.elements, 'element')} still the judge's poison"
            + (f"; {fault.words}" if fault else ""),
            f"cover {counted(tensor.unwritten, 'element')} more: round the grid up, and look at loop bounds and guards",
            line=line,
            kernel=kernel,
        )
    else:
        yield Finding(
            "part of the result is never written", verdict.outcome.detail, "write every element of the output"
        )


def unwritten_tensor(verdict: Verdict) -> TensorError | None:
    """The tensor with the largest unwritten share."""
    checks = [check for check in (verdict.forward, verdict.backward) if isinstance(check, Compared)]
    tensors = [tensor for check in checks for tensor in check.tensors if tensor.unwritten]
    return max(tensors, key=lambda tensor: tensor.unwritten / tensor.elements, default=None)
