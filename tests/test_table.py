"""The table, as a reader sees it, word for word."""

from __future__ import annotations

import dataclasses
import io
import os
import re
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from crucible.contract import CONTRACTS
from crucible.hardware import Device
from crucible.judge.verdict.evidence import (
    NOT_MEASURED,
    Check,
    Compared,
    Costs,
    Finding,
    Kernel,
    Measured,
    NotCompared,
    NotMeasured,
    Speedup,
    TensorError,
)
from crucible.judge.verdict.modelled import Modelled
from crucible.judge.verdict.verdict import Cheated, InferenceOnly, NotJudged, Passed, Verdict, Wrong
from crucible.judge.verdict.whose import Whose
from crucible.report import table
from crucible.report.names import shortened
from crucible.roofline import Floor
from crucible.run import Ground, Run
from crucible.task import Task

GOLDEN = Path(__file__).parent / "golden/table"
WIDTHS = (80, 100, 160)


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


def shown(run: Run, width: int = 140, *, verbose: bool = False) -> str:
    text = io.StringIO()
    table.show(run, Console(file=text, width=width, color_system=None), verbose=verbose)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines()) + "\n"


def a_run(*verdicts: Verdict, training: bool = True, device: str = "cuda") -> Run:
    task = Task("conv3d_softmax", Path("conv3d_softmax/reference.py"), "", {}, training=training)
    finding = Finding("the check is weak here: zeros everywhere would pass", "on 3 cases")
    place = Device(device, "NVIDIA H200" if device == "cuda" else "CPU: none", "570")
    return Run(task, CONTRACTS["tf32"], place, {"torch": "2.13.0"}, 0, verdicts, Ground((finding,)))


def held_to_golden(name: str, text: str) -> None:
    """To renew: UPDATE_GOLDEN=1 pytest tests/test_table.py, and read the difference."""
    file = GOLDEN / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")


@pytest.mark.parametrize("width", WIDTHS)
def test_the_table_is_the_golden_one(width: int) -> None:
    text = shown(a_run(*VERDICTS), width)
    assert max(map(len, text.splitlines())) <= width
    held_to_golden(f"verdicts_{width}", text)


def test_names_that_begin_and_end_alike_stay_apart() -> None:
    names = [f"{'a' * 30}{middle}{'z' * 30}" for middle in ("one", "two")]
    assert shortened([*names, "short"], 20) == [*names, "short"]
    assert shortened([names[0], "b" * 40], 21) == ["a" * 10 + "…" + "z" * 10, "b" * 10 + "…" + "b" * 10]
    assert cell_len(shortened(["核" * 40], 15)[0]) <= 15


def many(count: int) -> Run:
    """Half of them refused, under names as generators give them."""
    wrong = Wrong("forward", "output is off by 1.3 in relative L2 (allowed 0.0012) on its own inputs, worst at [0, 3]")
    return a_run(*(
        Verdict(f"level_2_problem_90_sample_{i}_kernel", wrong if i % 2 else Passed(), checked(0.1), checked(0.1),
                NOT_MEASURED if i % 2 else timed(1.0 + i, 0.01))
        for i in range(count)
    ))  # fmt: skip


@pytest.mark.parametrize("width", WIDTHS)
def test_two_hundred_candidates_are_a_line_each_and_few_reasons(width: int) -> None:
    lines = shown(many(200), width).splitlines()
    assert max(map(len, lines)) <= width
    rows = [line.split()[1] for line in lines if line.startswith(tuple("0123456789-")) and "_kernel" in line]
    assert len(set(rows)) == 200
    assert (rows[0] == "level_2_problem_90_sample_0_kernel") == (width == 160)
    assert len(lines) < 200 + 12 + 2 * 9
    assert "92 more reasons: --verbose, or crucible explain latest" in lines
    assert any(line.startswith("best: level_2_problem_90_sample_0_kernel (100 passed, 100 wrong)") for line in lines)


def test_no_color_and_no_terminal_mean_no_escapes(monkeypatch: pytest.MonkeyPatch) -> None:
    def escapes(**options: Any) -> int:
        text = io.StringIO()
        table.show(a_run(*VERDICTS), Console(file=text, width=100, **options))
        return len(re.findall(r"\x1b\[[0-9;]*3[123]m", text.getvalue()))

    assert escapes(force_terminal=True, color_system="standard") > 0
    assert escapes() == 0
    monkeypatch.setenv("NO_COLOR", "1")
    assert escapes(force_terminal=True) == 0


def test_the_width_of_a_pipe_is_what_columns_says(monkeypatch: pytest.MonkeyPatch) -> None:
    for said, width in (("132", 132), ("", 100), ("12", 100), ("wide", 100)):
        monkeypatch.setenv("COLUMNS", said)
        assert table.plain_width() == width


def test_a_run_in_which_nothing_passed_says_so() -> None:
    text = shown(a_run(VERDICTS[3], training=False, device="cpu"))
    assert "best: none passed" in text
    assert "full size, forward, contract tf32" in text
    assert "CPU time" in text


def test_a_run_that_ended_before_its_first_verdict_is_told() -> None:
    """`max()` of no rows raised, and hid why the judge had failed."""
    assert shown(a_run()).splitlines()[2:] == ["no verdicts: the run ended before the first"]


# --- a run with baselines, floors and costs

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


def timed_run() -> Run:
    right = (passed("fused", 0.75, 2), passed("fused_again", 0.751, 3), passed("as_compiled", 2.001, 9))
    wrong = Verdict("channels-last", Wrong("forward", "output is off by 3"), checked(1083.0))
    ground = Ground((), (passed("eager", 12.0, 14), passed("compile", 2.0, 9), wrong), FLOORS)
    why = Finding("it takes 1.25 times the least time, which matrix products set", "0.75 ms")
    cause = Finding("it computes the reference with weight read as if laid out [out, in]", "relative L2 1e-7")
    run = a_run(*right, VERDICTS[3])
    return dataclasses.replace(run, ground=ground, explanations={"fused": (why,), "wrong_layout": (cause,)})


@pytest.mark.parametrize("width", WIDTHS)
def test_a_timed_run_is_the_golden_one(width: int) -> None:
    """Speed-ups, ties, shares of the floor, as far as they have room; why the best is where it is."""
    text = shown(timed_run(), width)
    assert max(map(len, text.splitlines())) <= width
    held_to_golden(f"timed_{width}", text)


def test_verbose_has_intervals_costs_and_notes() -> None:
    text = shown(timed_run(), 100, verbose=True)
    assert max(map(len, text.splitlines())) <= 100
    held_to_golden("timed_verbose_100", text)


@pytest.mark.parametrize("width", WIDTHS)
def test_modelled_times_are_marked_and_rank_among_themselves(width: int) -> None:
    text = shown(modelled_run(), width)
    assert max(map(len, text.splitlines())) <= width
    held_to_golden(f"modelled_{width}", text)


def modelled_run() -> Run:
    """On a laptop: one timed by its CPU's clock, two on the emulator."""
    one, two = (
        Verdict(
            name, Passed(), checked(0.1), timing=NotMeasured("the emulator has no clock"),
            modelled=Modelled(ms, "forward", "NVIDIA H200", "full size", 3e9, 1.9e11, launches, ()),
            whose=Whose(("chain_kernel",) * (launches - 1), ("convolution", "empty"), NotMeasured("-"), "the emulator"),
        )
        for name, ms, launches in (("one_kernel", 0.9, 2), ("two_kernels", 1.38, 3))
    )  # fmt: skip
    run = a_run(two, VERDICTS[0], one, VERDICTS[3], training=False, device="cpu")
    return dataclasses.replace(run, gpu="NVIDIA H200")
