"""The field, with lanes that only play at being processes: who is lost, who was disturbed, who is left."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from crucible.judge.process.candidate_process import Ended
from crucible.judge.timing import contestant
from crucible.judge.timing.contestant import BaselineLost, ProcessContestant
from crucible.judge.timing.contestants import SLOWED, Contestants
from crucible.judge.timing.race import Pace, Turn
from crucible.judge.verdict.evidence import Measured, NotMeasured
from crucible.judge.verdict.stop import Stop
from crucible.judge.verdict.verdict import Crashed, Raises
from support import CHEATS, Judge

PACE = Pace(limit_s=1e6, warm_limit_s=1e6, rounds=(8, 8))


@dataclass
class PlayedLane:
    """A lane whose step takes as long as it is told, at no time at all."""

    name: str
    step_ms: float
    backward: bool = False
    replay: bool = False
    fails_at: int = -1
    """The turn in which its process ends."""
    failure: Callable[[str], Exception] = lambda name: BaselineLost(name, Crashed("timing", "signal 9"))
    turns: list[int] = field(default_factory=list)
    beside_ms: tuple[float, ...] = (0.1,)
    """What passes beside its samples, in one turn after another."""

    checks: int = 4
    weights: int = 1

    def turn(self, samples: int, checked: int, weights: int = -1) -> Turn:
        self.turns.append(checked)
        if 0 <= self.fails_at < len(self.turns):
            raise self.failure(self.name)
        outside = self.step_ms + self.beside_ms[len(self.turns) % len(self.beside_ms)]
        return Turn((self.step_ms,) * samples, (self.step_ms,) * samples, (outside,) * samples)


def lane(name: str, step_ms: float, **more: Any) -> Any:
    return cast(ProcessContestant, PlayedLane(name, step_ms, **more))


def a_field(device: str = "cuda", said: list[str] | None = None) -> Contestants:
    return Contestants(device, PACE, (said if said is not None else []).append)


def ratios(record: Measured) -> dict[str, float]:
    return {speedup.baseline: speedup.ratio for speedup in record.speedups}


# --- baselines among themselves


def test_baselines_meet_and_are_kept_for_the_candidates() -> None:
    one = a_field()
    eager, compiled = lane("eager", 6.0), lane("compile", 3.0)
    records = one.meet([eager, compiled])
    assert {name: record.median_ms for name, (record, _) in records.items()} == {"eager": 6.0, "compile": 3.0}
    assert ratios(records["eager"][0]) == {"compile": 0.5}
    assert ratios(records["compile"][0]) == {"eager": 2.0}
    assert one.rivals == {(False, False): [eager, compiled]}
    record, findings = one.race(lane("own", 2.0))
    assert ratios(record) == {"eager": 3.0, "compile": 1.5}
    assert findings == []


def test_nobody_meets() -> None:
    one = a_field()
    assert one.meet([]) == {}
    assert one.rivals == {}
    record, findings = one.race(lane("own", 2.0))
    assert (record.median_ms, record.speedups, findings) == (2.0, (), [])


def test_each_discipline_has_rivals_of_its_own() -> None:
    one = a_field()
    for backward in (False, True):
        one.meet([lane("eager", 6.0 + backward, backward=backward)])
    one.meet([lane("eager", 5.0, replay=True)])
    found = {}
    for backward, replay in ((False, False), (True, False), (False, True), (True, True)):
        record, _ = one.race(lane("own", 1.0, backward=backward, replay=replay))
        found[record.covers, record.how] = ratios(record)
    assert found == {
        ("forward", "as called"): {"eager": 6.0},
        ("forward+backward", "as called"): {"eager": 7.0},
        ("forward", "graph replay"): {"eager": 5.0},
        ("forward+backward", "graph replay"): {},
    }


def test_what_baselines_among_themselves_leave_unsure_is_not_held_against_a_candidate() -> None:
    one, unsteady = a_field(), (30.0, 30.0, 34.0, 34.0)
    one.meet([lane("eager", 1.0, beside_ms=unsteady)])
    assert one.race(lane("own", 1.0, beside_ms=(34.0,)))[0].clock == "CUDA events"
    assert one.race(lane("own", 1.0, beside_ms=(44.0,)))[0].clock == "the judge's own clock"


def test_a_candidate_that_makes_the_baselines_unsteady_may_hide_nothing_for_that() -> None:
    one, eager = a_field(), lane("eager", 1.0)
    one.meet([eager])
    eager.beside_ms = (0.1, 0.1, 8.1)
    assert one.race(lane("own", 1.0, beside_ms=(4.1,)))[0].clock == "the judge's own clock"


def test_only_the_candidates_calls_are_compared() -> None:
    one = a_field()
    eager, own = lane("eager", 6.0), lane("own", 2.0)
    one.meet([eager])
    eager.turns.clear()
    one.race(own)
    assert sum(place >= 0 for place in own.turns) == own.checks
    assert all(place < 0 for place in eager.turns)


# --- a baseline that is lost


@pytest.mark.parametrize("fails_at", [0, 1, 4, 7])
def test_a_baseline_that_is_lost_is_dropped_and_the_race_goes_on(fails_at: int) -> None:
    said: list[str] = []
    one = a_field(said=said)
    eager, lost = lane("eager", 6.0), lane("compile", 3.0)
    one.meet([eager, lost])
    lost.turns.clear()
    lost.fails_at = fails_at
    record, findings = one.race(lane("own", 2.0))
    assert ratios(record) == {"eager": 3.0}
    assert len(record.speedups[0].rounds) == PACE.rounds[0]  # of a race that was run again, whole
    assert findings == []
    assert said == ["baseline lost: compile crashed in timing: signal 9"]
    assert one.rivals == {(False, False): [eager]}
    asked = len(lost.turns)
    assert ratios(one.race(lane("next", 1.0))[0]) == {"eager": 6.0}
    assert len(lost.turns) == asked


def test_what_is_lost_is_lost_for_every_discipline() -> None:
    """Its process is the same."""
    one = a_field()
    lost = lane("compile", 3.0)
    one.meet([lane("eager", 6.0), lost])
    one.meet([lane("eager", 7.0, backward=True), lane("compile", 4.0, backward=True)])
    lost.fails_at = 0
    one.race(lane("own", 2.0))
    assert ratios(one.race(lane("own", 1.0, backward=True))[0]) == {"eager": 7.0}


def test_all_baselines_may_be_lost() -> None:
    said: list[str] = []
    one = a_field(said=said)
    rivals = [lane("eager", 6.0), lane("compile", 3.0)]
    one.meet(rivals)
    for rival in rivals:
        rival.turns.clear()
        rival.fails_at = 3
    record, findings = one.race(lane("own", 2.0))
    assert (record.median_ms, record.speedups, findings) == (2.0, (), [])
    assert len(said) == 2


def test_one_that_is_lost_among_the_baselines_leaves_the_others() -> None:
    one = a_field()
    eager = lane("eager", 6.0)
    records = one.meet([lane("compile", 3.0, fails_at=5), eager])
    assert {name: record.median_ms for name, (record, _) in records.items()} == {"eager": 6.0}
    assert one.rivals == {(False, False): [eager]}
    assert one.alone_ms == {(False, False): {"eager": 6.0}}


def test_nobody_may_be_left_when_baselines_meet() -> None:
    one = a_field()
    assert one.meet([lane("eager", 6.0, fails_at=2), lane("compile", 3.0, fails_at=2)]) == {}
    assert one.rivals == {(False, False): []}
    assert one.race(lane("own", 2.0))[0].speedups == ()


@pytest.mark.parametrize("error", [Ended(Crashed("timing", "signal 9")), Stop(Raises("timing", "ValueError: no"))])
def test_a_candidate_that_fails_ends_its_own_race_and_no_more(error: Exception) -> None:
    one = a_field()
    one.meet([lane("eager", 6.0)])
    with pytest.raises(type(error)) as caught:
        one.race(lane("own", 2.0, fails_at=4, failure=lambda name: error))
    assert caught.value is error
    assert ratios(one.race(lane("next", 2.0))[0]) == {"eager": 3.0}


@pytest.mark.parametrize("name", ["eager", "compile"])
def test_a_candidate_may_have_a_baselines_name(name: str) -> None:
    """A file `eager.py` is nobody's mistake, and its turns are its own."""
    one = a_field()
    eager, compiled = lane("eager", 6.0), lane("compile", 3.0)
    one.meet([eager, compiled])
    record, _ = one.race(lane(name, 2.0))
    assert record.median_ms == 2.0
    assert ratios(record) == {"eager": 3.0, "compile": 1.5}
    assert one.rivals == {(False, False): [eager, compiled]}


# --- baselines that were disturbed


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_a_disturbed_baseline_is_told_of_and_its_ratio_is_by_its_time_alone(device: str) -> None:
    one = a_field(device)
    eager, compiled = lane("eager", 6.0), lane("compile", 3.0)
    one.meet([eager, compiled])
    factor = 2 * SLOWED[device]
    eager.step_ms *= factor  # a candidate that keeps the device, or the machine, busy
    record, findings = one.race(lane("own", 2.0))
    assert record.median_ms == 2.0
    assert ratios(record) == pytest.approx({"eager": 3.0, "compile": 1.5})
    speedup = record.speedup_over("eager")
    assert speedup is not None
    assert speedup.rounds == pytest.approx((3.0,) * PACE.rounds[0])
    assert speedup.interval[0] < 3.0 < speedup.interval[1] < 3.1
    (finding,) = findings
    assert "slower beside it than alone" in finding.claim
    assert finding.evidence == f"eager by {factor - 1:.0%}"


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_a_little_slower_is_no_disturbance_and_faster_is_none(device: str) -> None:
    for factor in ((1 + SLOWED[device]) / 2, 1.0, 0.5):
        one = a_field(device)
        eager = lane("eager", 6.0)
        one.meet([eager])
        eager.step_ms *= factor
        record, findings = one.race(lane("own", 2.0))
        assert findings == []
        assert ratios(record) == pytest.approx({"eager": 3.0 * factor})


def test_the_next_candidate_is_not_held_to_what_disturbed_the_last() -> None:
    one = a_field()
    eager = lane("eager", 6.0)
    one.meet([eager])
    eager.step_ms = 18.0
    assert one.race(lane("own", 2.0))[1] != []
    eager.step_ms = 6.0
    record, findings = one.race(lane("next", 2.0))
    assert (ratios(record), findings) == ({"eager": 3.0}, [])


def test_on_a_cpu_no_clocks_are_read() -> None:
    record, _ = a_field("cpu").race(lane("own", 2.0))
    assert isinstance(record.clocks, NotMeasured)


def test_who_works_while_the_judge_waits_for_a_processor_forges_nothing(
    judge_source: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine the judge's thread is kept waiting for as long as a call takes: none of it is left to its own
    clock then, and all of it is the candidate's processor time."""
    waited_ms = itertools.count(0, 100_000)
    monkeypatch.setattr(contestant, "kept_waiting_ms", lambda: float(next(waited_ms)))
    assert judge_source((CHEATS / "honest_slow.py").read_text()).evaluation
