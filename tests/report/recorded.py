"""A run that has everything a page shows, with a text of the caller's wherever a candidate has a say."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from crucible.contract import CONTRACTS
from crucible.hardware import Device
from crucible.judge.verdict.error_map import Along, ErrorMap, Picture, Values
from crucible.judge.verdict.evidence import (
    Compared,
    Costs,
    Finding,
    Kernel,
    Measured,
    NotCompared,
    NotMeasured,
    Resources,
    Speedup,
    TensorError,
)
from crucible.judge.verdict.modelled import Modelled
from crucible.judge.verdict.trials import SmallestFailing, Trial
from crucible.judge.verdict.verdict import DoesNotBuild, NotJudged, Passed, Verdict, Wrong
from crucible.roofline import Floor
from crucible.run import Ground, Run
from crucible.task import Task

FLOOR = Floor(
    "forward",
    0.378,
    "memory",
    "0.378 ms: 1.61 GB at 4.26 TB/s (55.6 GFLOP of matrix products at 415 TFLOP/s take 0.134 ms)",
)
SHAPE = (("batch_size", 1), ("width", 33))
PLANES = (("012345678", "9abcdefgh"), ("ijklmnopq", "rstuvINUU"))


def timed(median: float, *over: tuple[str, float]) -> Measured:
    speedups = tuple(Speedup(name, by, (0.98 * by, 1.02 * by), (by,) * 6) for name, by in over)
    return Measured(median, (0.99 * median, 1.01 * median), 100, "CUDA events", "forward", speedups=speedups)


def right(error: float = 0.1) -> Compared:
    tensor = TensorError("output", 0, error, 1.0, error / 2, 1.0, (0,), 0, 0, 8)
    return Compared((tensor,), 4.0, cases=("its own inputs",))


def mapped(name: str) -> TensorError:
    """Wrong in its second channel; four planes of two channels and two slices."""
    along = (
        Along(0, 2, (), 0, (), 0.0, 0.25, 0.0, (0.25, 0.25)),
        Along(1, 2, ((1, 2),), 0, (), 0.5, 0.0, 1.0, (0.0, 0.5)),
    )
    values = Values(-1.0, 1.0, 0.0, 0.5, 0.0)
    pictures = tuple(Picture((0, c, s), PLANES[(c + s) % 2]) for c in range(2) for s in range(2))
    seen = ErrorMap(
        (2, 2, 2, 2, 9), 144, "wrong", 36, along, 0.5, 1.0, ((0, 1, 0, 0, 0),), -1, 144, values, values,
        (0.25, -1.0, 0.25), (0.0, 0.0), "", pictures=pictures,
    )  # fmt: skip
    return TensorError(name, 0, 0.5, 0.001, 2.0, 0.001, (0, 1, 1, 0, 3), 0, 0, 144, map=seen, shape=(2, 2, 2, 2, 9))


def kernels(text: str) -> Costs:
    found = (Kernel(f"void ns::{text}<float>(float*)", 1, 1.5), Kernel("second(int)", 2, 0.5))
    return Costs(0.3, 96 << 20, 7, found, 2.0, 2.1, 1)


def whole_run(text: str = "plain", training: bool = False) -> Run:
    """One that passed, one that is wrong, one that does not build, one that could not be judged, one that Crucible
    wrote; a baseline. `text` stands wherever a candidate, its compiler or its kernels have a say."""
    best, wrong, broken, absent, written = (
        f"{text} {name}" for name in ("best", "wrong", "broken", "absent", "written")
    )
    speedups = (("eager", 2.0), ("compile", 0.8))
    verdicts = (
        Verdict(best, Passed(), right(), timing=timed(2.0, *speedups), costs=kernels(text), log=text, build_s=31.0,
                resources=(Resources(text, 256, 40, 0, 0, 0, 0, 0, 8, 64, 1.0, "threads"),)),
        Verdict(wrong, Wrong("forward", text), Compared((mapped(text),), 4.0, cases=(text,)),
                smallest_failing=SmallestFailing(SHAPE, text, SHAPE, (Trial(SHAPE, "wrong"),), text)),
        Verdict(broken, DoesNotBuild(text, 2), log=text),
        Verdict(absent, NotJudged(text)),
        Verdict(written, Passed(), right(), NotCompared(f"raises {text}"), timed(2.5, *speedups), costs=kernels("k")),
    )  # fmt: skip
    baselines = (
        Verdict("eager", Passed(), right(), timing=timed(4.0, ("compile", 0.4)), costs=kernels("gemm")),
        Verdict("compile", Passed(), right(), timing=timed(1.6, ("eager", 2.5)), costs=kernels("triton_poi_fused")),
    )
    task = Task(f"{text}_task", Path("a_task/reference.py"), "", {}, training=training)
    finding = Finding(text, text, text, "likely", 2, text)
    return Run(
        task,
        CONTRACTS["tf32"],
        Device("cuda", "NVIDIA H200", "580"),
        {"python": "3.12.3", "torch": "2.11.0"},
        0,
        verdicts,
        Ground((Finding(text, text),), baselines, (FLOOR,)),
        trouble=text,
        sources={
            best: f"import torch\n{text}\nx = 1\n",
            broken: f"a\n{text}\nb\n",
            written: f"{SAID + text!r}\nx = 1\n",
        },
        explanations={name: (finding, Finding("second", "seen")) for name in (best, wrong, broken)},
    )


SAID = "Fused by Crucible: one kernel.\n\nPlan: the pool goes into the convolution."


def many(count: int) -> Run:
    """As a generator leaves them: a third passed, a third on the emulator, a third refused."""
    run = whole_run()
    best, wrong = run.verdicts[:2]
    model = Modelled(1.0, "forward", "NVIDIA H200", "full size", 1e6, 0.0, 1, ())
    emulated = Verdict("e", Passed(), timing=NotMeasured("the emulator"), modelled=model)
    verdicts = tuple(dataclasses.replace((best, emulated, wrong)[i % 3], candidate=f"sample_{i}") for i in range(count))
    text = "import torch\n" + "x = 1\n" * 100
    sources = {verdict.candidate: text for verdict in verdicts}
    found = {v.candidate: (Finding("it is wrong", "seen", line=2),) for v in verdicts if not v.evaluation}
    return dataclasses.replace(run, verdicts=verdicts, sources=sources, explanations=found)
