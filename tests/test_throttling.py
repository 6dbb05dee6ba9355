"""The GPU's clocks as nvidia-smi prints them, whole and broken, and when they are worth a word."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crucible.judge.timing.throttling import NOTABLE, ClockWatch, doubts, read_clocks
from crucible.judge.verdict.evidence import Clocks, NotMeasured

LINES = """1980, 3201, 41, 412.55, 0x0000000000000000
1935, 3201, 44, 689.71, 0x0000000000000004
1965, 3201, 43, 640.02, 0x0000000000000000
"""
READ = Clocks((1935, 1980), (3201, 3201), 44.0, 689.71, ("power cap",))
STEADY = Clocks((1965, 1980), (3201, 3201), 44.0, 500.0, ())


def test_lowest_and_highest_of_what_was_read() -> None:
    assert read_clocks(LINES) == READ


@pytest.mark.parametrize(
    ("reasons", "words"),
    [
        ("0x0000000000000000", ()),
        ("0x0000000000000001", ()),  # idle
        ("0x0000000000000002", ()),  # the applications' own setting
        ("0x0000000000000004", ("power cap",)),
        ("0x0000000000000008", ("hardware slowdown",)),
        ("0x0000000000000020", ("software thermal limit",)),
        ("0x0000000000000040", ("hardware thermal limit",)),
        ("0x0000000000000080", ("power brake",)),
        ("0x000000000000004C", ("power cap", "hardware slowdown", "hardware thermal limit")),
    ],
)
def test_only_reasons_that_slow_it_down_are_named(reasons: str, words: tuple[str, ...]) -> None:
    clocks = read_clocks(f"1980, 3201, 41, 412.55, {reasons}\n")
    assert isinstance(clocks, Clocks)
    assert clocks.slowed_by == words


def test_reasons_of_all_readings_are_gathered() -> None:
    clocks = read_clocks("1980, 3201, 41, 412.55, 0x0000000000000004\n1980, 3201, 41, 412.55, 0x0000000000000020\n")
    assert isinstance(clocks, Clocks)
    assert clocks.slowed_by == ("power cap", "software thermal limit")


@pytest.mark.parametrize(
    "broken",
    [
        "",
        "1935, 3201, 44, 68",  # the last line, cut off when the process was ended
        "1935",
        "[N/A], 3201, 44, 689.71, 0x0000000000000000",
        "1935, 3201, 44, [Unknown Error], 0x0000000000000000",
        "1935, 3201, 44, 689.71, Not Active",
        "1935, 3201, 44, 689.71,",
        "Unable to determine the device handle for GPU0000:18:00.0: Unknown Error",
        "clocks.sm [MHz], clocks.mem [MHz], temperature.gpu, power.draw [W], clocks_event_reasons.active",
    ],
)
def test_a_broken_line_is_left_out(broken: str) -> None:
    assert read_clocks(f"{LINES}{broken}") == READ
    assert read_clocks(f"{broken}\n{LINES}") == READ
    assert read_clocks(f"{broken}\n") == NotMeasured("nvidia-smi gave no readings")


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="0123456789abcdefx.,- []/\n", max_size=80) | st.text(max_size=40))
def test_no_text_is_too_odd(text: str) -> None:
    assert isinstance(read_clocks(text), Clocks | NotMeasured)


@pytest.mark.parametrize(
    ("low", "high", "reasons", "told"),
    [
        (1965, 1980, (), False),
        (1900, 1980, ("power cap",), False),  # a small dip at the power cap is a card's everyday life
        (1881, 1980, (), False),
        (1880, 1980, (), True),
        (1345, 1980, ("power cap",), True),
        (1980, 1980, ("hardware thermal limit",), True),
        (1980, 1980, ("power cap", "power brake"), True),
    ],
)
def test_a_change_of_the_clock_is_told(low: int, high: int, reasons: tuple[str, ...], told: bool) -> None:
    assert (low < (1 - NOTABLE) * high or "limit" in str(reasons) or "brake" in str(reasons)) is told
    findings = doubts(dataclasses.replace(STEADY, sm_mhz=(low, high), slowed_by=reasons))
    assert len(findings) == told
    for finding in findings:
        assert f"{low} to {high} MHz" in finding.evidence
        assert all(reason in finding.evidence for reason in reasons)


def test_what_was_not_read_is_no_doubt() -> None:
    assert doubts(NotMeasured("no GPU whose clocks could be read")) == []


def test_without_a_gpu_there_is_nothing_to_read() -> None:
    with ClockWatch("cpu") as watch:
        first = watch.stop()
    assert isinstance(first, NotMeasured)
    assert watch.stop() == first
