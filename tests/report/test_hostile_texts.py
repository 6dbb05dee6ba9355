"""What a candidate says, however it says it, is its own verdict's: nothing of it reaches a terminal raw, and the next
candidate is judged as if it had not been."""

from __future__ import annotations

import json
import math
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recorded import whole_run
from rich.console import Console

from crucible import cli, legible
from crucible.judge.process.replies import LONGEST_TEXT, MOST_KERNELS, is_reply
from crucible.judge.timing.contents import OWN, Contents, Placed, TimedSlot
from crucible.judge.timing.contestant import LEAST_MS, ProcessContestant
from crucible.judge.timing.race import Turn, measured
from crucible.judge.verdict.clipped import LONGEST, MOST, clipped
from crucible.judge.verdict.evidence import Finding
from crucible.judge.verdict.verdict import NotJudged, Raises, Verdict, to_json
from crucible.report import table, why
from crucible.roofline import Floor
from crucible.run import Ground, run_from_json
from support import PLAIN, SMALL_TASK, write

RAW = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069\u200b-\u200f]")
EVIL = "\x1b]0;title\x07\x1b[2J\ud800\u202e\x9b31m\r\nFAKE  True"
PLAIN_SOURCE = PLAIN.read_text()
HEAD = "import os, sys, torch\n"
CLASS = "class ModelNew(torch.nn.Module):\n    def __init__(self, *a):\n        super().__init__()\n"
RAISES = HEAD + CLASS + "    def forward(self, x):\n        raise "
MUTE = "class Mute(Exception):\n    def __str__(self):\n        raise self\n"
FLOOD = "raise RuntimeError(\"Error building extension 'x'\" + 'a.cu:1: error: flood\\n' * 10**6)\n"
BUILDS = """from torch.utils.cpp_extension import load_inline
for i in range(300):
    try:
        load_inline('n' * 5000, [], bad='e' * 100_000)
    except Exception: pass
"""
HOSTILE = {
    "a_surrogate": (f"{RAISES}ValueError({EVIL!r})\n", "raises"),
    "no_words": (MUTE + RAISES + "Mute\n", "raises"),
    "long_type": (RAISES + "type('E' * 10**6, (Exception,), {})('x')\n", "raises"),
    "build_flood": (HEAD + FLOOD + CLASS, "does-not-build"),
    "many_builds": (HEAD + BUILDS + PLAIN_SOURCE, "passed"),
    "odd\x1b[31mname\udc80": (PLAIN_SOURCE, "passed"),
}


@pytest.mark.slow
def test_hostile_texts_spoil_their_own_verdicts_alone_and_reach_no_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [write(tmp_path / f"{name}.py", source) for name, (source, _) in HOSTILE.items()]
    options = ["--device", "cpu", "--baselines", "none", "--race-limit", "0.05", "--shrink-limit", "0"]
    outputs = ["--json", str(tmp_path / "run.json"), "--page", str(tmp_path / "page.html")]
    arguments = ["judge", str(SMALL_TASK), *map(str, files), str(PLAIN), *options, *outputs]
    monkeypatch.setattr(sys, "argv", ["crucible", *arguments])
    with pytest.raises(SystemExit) as end:
        cli.main()
    shown = capsys.readouterr()
    assert end.value.code == 0, shown.err
    assert not RAW.search(shown.out) and not RAW.search(shown.err)
    assert not re.search(r"^FAKE", shown.out, re.MULTILINE)
    data = json.loads((tmp_path / "run.json").read_text())
    found = {entry["name"]: entry["verdict"]["kind"] for entry in data["candidates"]}
    assert found == {**{name: kind for name, (_, kind) in HOSTILE.items()}, "plain": "passed"}
    assert len((tmp_path / "run.json").read_text()) < 4_000_000
    assert not RAW.search((tmp_path / "page.html").read_text())
    for arguments in (["explain", str(tmp_path / "run.json")], ["explain", str(tmp_path / "run.json"), "--markdown"]):
        monkeypatch.setattr(sys, "argv", ["crucible", *arguments])
        cli.app(arguments, standalone_mode=False)
        assert not RAW.search(capsys.readouterr().out)


@given(st.text(st.characters()))
@settings(max_examples=100, deadline=None)
def test_a_legible_line_is_one_line_that_every_encoding_takes(text: str) -> None:
    shown = legible.line(text)
    assert len(shown.splitlines()) <= 1
    assert not RAW.search(shown)
    shown.encode()
    assert legible.line(shown) == shown
    assert legible.lines(legible.lines(text)) == legible.lines(text)


@pytest.mark.parametrize("name", ["candidate", "claim", "evidence", "outcome", "trouble"])
def test_no_field_of_a_record_writes_to_the_terminal(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    run = whole_run("x")
    given = {"candidate": "x", "claim": "c", "evidence": "e", "outcome": "o", "trouble": "", name: EVIL}
    verdict = Verdict(given["candidate"], Raises("forward", given["outcome"]),
                      findings=(Finding(given["claim"], given["evidence"]),))  # fmt: skip
    run = replace(run, verdicts=(verdict,), trouble=given["trouble"], explanations={})
    console = Console(force_terminal=True, width=200, no_color=True)
    table.show(run, console)
    why.show(run, None, console)
    bare = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)  # what the table's own styles are
    assert not RAW.search(bare)
    assert not re.search(r"^FAKE", bare, re.MULTILINE)


def test_only_one_module_makes_text_for_the_terminal() -> None:
    made = re.compile(r"(?<![\w.])Text\(")
    source = Path(cli.__file__).parents[1]
    files = [f for room in ("", "cli/", "report/") for f in source.glob(f"{room}*.py")]
    others = [f.name for f in files if made.search(f.read_text())]
    assert others == ["words.py"]


PROFILE = {"done": "profile", "first_call_s": 1.0, "peak_bytes": 1, "allocations": 1, "kernels": [], "busy_ms": 0.0,
           "span_ms": 0.0, "streams": 0, "operators": [], "operators_ms": 0.0, "call_ms": 1.0}  # fmt: skip


@pytest.mark.parametrize(
    "reply",
    [
        *(
            {"done": "sample", "device_ms": value, "wall_ms": 1.0}
            for value in (10**400, -1.0, 1e300, float("nan"), True)
        ),
        {**PROFILE, "peak_bytes": 10**400},
        {**PROFILE, "busy_ms": 10**400},
        {**PROFILE, "span_ms": 1e308},
        {**PROFILE, "kernels": [["k", 1, 1.0]] * (MOST_KERNELS + 1)},
        {**PROFILE, "kernels": [["k" * (LONGEST_TEXT + 1), 1, 1.0]]},
        {**PROFILE, "kernels": [["k", 10**30, 1.0]]},
        {"done": "backward", "gradients": {"w": {"dtype": "float32", "shape": [10**4000]}}, "mutated": []},
    ],
)
def test_a_number_that_is_no_measurement_is_a_forged_reply(reply: dict[str, object]) -> None:
    assert not is_reply(str(reply["done"]), reply)


def test_what_a_clock_or_a_profile_can_say_is_taken() -> None:
    assert is_reply("profile", {**PROFILE, "kernels": [["k", 3, 0.5]] * MOST_KERNELS, "peak_bytes": 1 << 45})
    for value in (0, 0.0, 5e-324, 1e9):
        assert is_reply("sample", {"done": "sample", "device_ms": value, "wall_ms": 1.0})


def test_a_record_is_cut_and_keeps_its_kind() -> None:
    cut = clipped((Finding("a" * 10**6, "b"),) * (MOST + 5))
    assert len(cut) == MOST and isinstance(cut[0], Finding)
    assert cut[0].claim.startswith("a" * LONGEST) and len(cut[0].claim) < LONGEST + 50
    assert clipped(Raises("forward", "short", 3)) == Raises("forward", "short", 3)


def test_a_failure_of_the_judges_own_is_told_as_such_and_survives_its_record() -> None:
    run = whole_run("x")
    own = Verdict("x", NotJudged("a reason", failed=True))
    run = replace(run, verdicts=(own,), explanations={})
    again = run_from_json(run.to_json())
    assert again.verdict("x").outcome == own.outcome
    assert own.outcome.words == "not judged: the judge failed: a reason"


@pytest.mark.parametrize("ms", [0, 0.0, 5e-324])
def test_a_time_of_nothing_is_a_nanosecond(ms: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is divided by it, and multiplied, stays a number that JSON has."""
    slot = TimedSlot(None, "cuda", 1.0)  # type: ignore[arg-type]
    contestant = ProcessContestant("x", None, Contents(False, ()), slot, lambda *_: None)  # type: ignore[arg-type]
    monkeypatch.setattr(contestant, "_ask", lambda *_: {"device_ms": ms, "wall_ms": ms})
    turns = [Turn(*zip(*[contestant._sample(Placed(OWN, 0, 0), 1.0)] * 3, strict=True)) for _ in range(6)]
    for device in ("cpu", "cuda"):
        record, _ = measured("x", {"x": turns, "eager": turns}, device=device, covers="forward", how="as called")
        floors = (Floor("forward", 1.0, "memory", ""),)
        share = Ground(floors=floors).share_of_floor(record)
        json.dumps([to_json(record), share], allow_nan=False)
        assert record.median_ms >= LEAST_MS and math.isfinite(share)
