"""The table, as a reader sees it, word for word."""

from __future__ import annotations

import dataclasses
import io
import os
from pathlib import Path

from rich.console import Console

from crucible.contract import CONTRACTS
from crucible.hardware import Device
from crucible.judge.verdict.evidence import (
    Check,
    Compared,
    Costs,
    Finding,
    Kernel,
    Measured,
    NotCompared,
    Speedup,
    TensorError,
)
from crucible.judge.verdict.verdict import Cheated, InferenceOnly, NotJudged, Passed, Verdict, Wrong
from crucible.report import table
from crucible.roofline import Floor
from crucible.run import Ground, Run
from crucible.task import Task

GOLDEN = Path(__file__).parent / "golden/table.txt"


def checked(error: float, missing: tuple[str, ...] = ()) -> Check:
    tensor = TensorError("output", 0, error, 1.0, error / 2, 1.0, (0,), 0, 0, 8)
    return Compared((tensor,), 4.0, missing)


def timed(median: float, spread: float) -> Measured:
    return Measured(median, (median - spread, median + spread), 100, "CUDA events", "forward+backward")


VERDICTS = (
    Verdict("plain_pytorch", Passed(), checked(0.11), checked(0.07), timed(12.3456, 0.04)),
    Verdict("one_kernel", Passed(), checked(0.2), checked(0.25), timed(1.25, 0.02)),
    Verdict("another_kernel", Passed(), checked(0.21), checked(0.2), timed(1.26, 0.02)),
    Verdict(
        "wrong_layout",
        Wrong("forward", "output is off by 1.3 in relative L2 (allowed 0.0012) on its own inputs, worst at [0, 3]"),
        checked(1083.0),
    ),
    Verdict("no_backward", InferenceOnly(("input[0]",)), checked(0.1), Compared((), 4.0, ("input[0]",))),
    Verdict("in_triton", NotJudged("written in Triton; there is no GPU here to run it")),
    Verdict(
        "too_clever",
        Cheated("patched function", "it replaced torch.allclose"),
        findings=(Finding("it searched the process for other objects", "gc.get_objects [red]not markup[/red]"),),
    ),
    Verdict("forward_only", Passed(), checked(0.3), NotCompared("raises RuntimeError"), timed(0.5, 0.3)),
)


def shown(run: Run, width: int = 140) -> str:
    text = io.StringIO()
    table.show(run, Console(file=text, width=width, color_system=None))
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines()) + "\n"


def a_run(*verdicts: Verdict, training: bool = True, device: str = "cuda") -> Run:
    task = Task("conv3d_softmax", Path("conv3d_softmax/reference.py"), "", {}, training=training)
    finding = Finding("the check is weak here: zeros everywhere would pass", "on 3 cases")
    place = Device(device, "NVIDIA H200" if device == "cuda" else "CPU: none", "570")
    return Run(task, CONTRACTS["tf32"], place, {"torch": "2.13.0"}, 0, verdicts, Ground((finding,)))


def test_the_table_is_the_golden_one() -> None:
    """To renew: UPDATE_GOLDEN=1 pytest tests/test_table.py, and read the difference."""
    text = shown(a_run(*VERDICTS))
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8")


def test_a_narrow_terminal_cuts_nothing_off() -> None:
    """Folded instead: two names with one beginning stay apart."""
    assert "…" not in shown(a_run(*VERDICTS), 100)


def test_a_run_in_which_nothing_passed_says_so() -> None:
    text = shown(a_run(VERDICTS[3], training=False, device="cpu"))
    assert "best: none passed" in text
    assert "full size, forward, contract tf32" in text
    assert "CPU time" in text


# --- a run with baselines, floors and costs

TIMED = Path(__file__).parent / "golden/table_timed.txt"
FLOORS = (
    Floor("forward", 0.2, "memory", "0.2 ms: 0.85 GB at 4.25 TB/s"),
    Floor("forward+backward", 0.6, "matrix products", "0.6 ms: 250 GFLOP of matrix products at 416 TFLOP/s"),
)


def raced(median: float, covers: str = "forward+backward", how: str = "as called") -> Measured:
    """Beside an eager that takes 12 ms and a compiled one that takes 2 ms."""
    speedups = tuple(
        Speedup(name, ms / median, (0.98 * ms / median, 1.02 * ms / median), (ms / median,) * 6)
        for name, ms in (("eager", 12.0), ("compile", 2.0))
    )
    quartiles = (0.99 * median, 1.01 * median)
    return Measured(median, quartiles, 100, "CUDA events", covers, how=how, speedups=speedups)


def passed(name: str, median: float, kernels: int) -> Verdict:
    costs = Costs(3.25, 96 << 20, 7, (Kernel("gemm", kernels, median / kernels),), median, median, 1)
    further = (raced(median / 3, "forward"), raced(0.9 * median, how="graph replay"))
    return Verdict(
        name, Passed(), checked(0.1), checked(0.2), raced(median), further, costs=costs, build_s=31.0, total_s=44.5
    )


def test_a_timed_run_is_the_golden_one() -> None:
    """Speed-ups with their intervals, ties, shares of the floor, costs. To renew: UPDATE_GOLDEN=1."""
    right = (passed("fused", 0.75, 2), passed("fused_again", 0.751, 3), passed("as_compiled", 2.001, 9))
    wrong = Verdict("channels-last", Wrong("forward", "output is off by 3"), checked(1083.0))
    ground = Ground((), (passed("eager", 12.0, 14), passed("compile", 2.0, 9), wrong), FLOORS)
    run = dataclasses.replace(a_run(*right, VERDICTS[3]), ground=ground)
    text = shown(run, 170)
    if os.environ.get("UPDATE_GOLDEN"):
        TIMED.write_text(text, encoding="utf-8")
    assert text == TIMED.read_text(encoding="utf-8")
