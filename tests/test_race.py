"""Races of stand-ins on a clock that only they move: who takes turns, for how long, and what the turns say."""

from __future__ import annotations

import dataclasses
import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crucible.judge.timing.race import CPU_PACE, GPU_PACE, HIDDEN_MS, Pace, Race, Turn, measured, paired, unsure
from crucible.judge.verdict.evidence import Finding, Measured, Moments, Speedup
from support import NIGHTLY

STEADY = Pace(limit_s=1e6, warm_limit_s=1e6, half_width=0.005)


@dataclass
class Machine:
    """The time there is, how slow everything is at it, and who took a turn."""

    slowness: Callable[[float], float] = lambda now_s: 1.0
    now_s: float = 0.0
    log: list[tuple[str, int, int]] = field(default_factory=list)
    """Name, samples, and the number of the sample that is compared."""
    given: list[Turn] = field(default_factory=list)

    def clock(self) -> float:
        return self.now_s


@dataclass
class Runner:
    """A contestant whose step takes `step_ms` on a machine at its usual speed."""

    name: str
    step_ms: float
    machine: Machine
    noise: Callable[[], float] = lambda: 1.0
    cold: Sequence[float] = ()
    """By how much each of its first turns is slower."""
    checks: int = 4
    weights: int = 1
    asked: list[tuple[int, int]] = field(default_factory=list)
    """Weights of each turn, and the sample that is compared."""
    uncounted: list[Turn] = field(default_factory=list)

    def turn(self, samples: int, checked: int, weights: int = -1) -> Turn:
        self.asked.append((weights, checked))
        seen = sum(entry[0] == self.name for entry in self.machine.log)
        self.machine.log.append((self.name, samples, checked))
        cold = self.cold[seen] if seen < len(self.cold) else 1.0
        taken = []
        for _ in range(samples + 1):
            taken.append(self.step_ms * cold * self.noise() * self.machine.slowness(self.machine.now_s))
            self.machine.now_s += taken[-1] / 1e3
        ms = tuple(taken[1:])
        self.machine.given.append(Turn(ms, ms, ms))
        self.uncounted += self.machine.given[-1:] if weights >= 0 else []
        return self.machine.given[-1]


def race(*runners: Runner, pace: Pace = STEADY, seed: int = 0) -> Race:
    run = Race(runners, pace, random.Random(seed), runners[0].machine.clock)
    run.run()
    return run


def machine_of(run: Race) -> Machine:
    machine: Machine = run.contestants[0].machine  # type: ignore[attr-defined]
    return machine


def log_of(run: Race) -> list[tuple[str, int, int]]:
    return machine_of(run).log


def parts_of(run: Race, *, counted: bool = True) -> tuple[list[tuple[str, int, int]], ...]:
    """The machine's log: the warm-up, the rounds, and what comes after them."""
    machine, log = machine_of(run), log_of(run)
    timed = {id(turn) for turns in run.turns.values() for turn in turns}
    of_rounds = [i for i, turn in enumerate(machine.given) if id(turn) in timed]
    assert not counted or of_rounds == list(range(of_rounds[0], of_rounds[-1] + 1))
    return log[: of_rounds[0]], log[of_rounds[0] : of_rounds[-1] + 1], log[of_rounds[-1] + 1 :]


def rounds_of(run: Race) -> list[tuple[str, int, int]]:
    return parts_of(run)[1]


def warm_up_of(run: Race, name: str) -> list[int]:
    """Samples of each of a contestant's turns before the rounds."""
    return [samples for who, samples, _ in parts_of(run)[0] if who == name]


def pair(machine: Machine, first_ms: float = 2.0, second_ms: float = 3.0, **more: Any) -> tuple[Runner, Runner]:
    return Runner("own", first_ms, machine, **more), Runner("eager", second_ms, machine, **more)


# --- order and warm-up


def test_turns_come_in_abba_order() -> None:
    run = race(*pair(Machine()), pace=dataclasses.replace(STEADY, rounds=(8, 8)))
    order = "".join("A" if name == "own" else "B" for name, _, _ in rounds_of(run))
    assert order == "ABBA BAAB ABBA BAAB".replace(" ", "")


def test_with_three_each_order_has_its_mirror_image() -> None:
    machine = Machine()
    runners = [Runner(name, 1.0, machine) for name in "ABC"]
    run = race(*runners, pace=dataclasses.replace(STEADY, rounds=(4, 4)))
    assert "".join(name for name, _, _ in rounds_of(run)) == "ABCCBACBAABC"
    assert {name: len(turns) for name, turns in run.turns.items()} == {"A": 4, "B": 4, "C": 4}


@pytest.mark.parametrize("cold", [(), (4.0,), (9.0, 4.0, 2.0), (5.0, 4.0, 3.0, 2.5, 2.0, 1.5)])
def test_the_warm_up_goes_on_until_two_turns_agree(cold: Sequence[float]) -> None:
    machine = Machine()
    own, eager = pair(machine)
    own.cold = cold
    run = race(own, eager)
    full = [samples for samples in warm_up_of(run, "own") if samples == STEADY.samples[0]]
    assert len(full) == len(cold) + 2
    assert len([samples for samples in warm_up_of(run, "eager") if samples == STEADY.samples[0]]) == 2
    assert all(ms == own.step_ms for turn in run.turns["own"] for ms in turn.device_ms)


def test_the_warm_up_of_a_step_that_never_steadies_ends() -> None:
    own, eager = pair(Machine())
    own.cold = [2.0, 1.0] * 50
    assert warm_up_of(race(own, eager), "own").count(STEADY.samples[0]) == STEADY.warm_turns[1]


def test_the_warm_up_ends_with_its_limit() -> None:
    own, eager = pair(Machine(), first_ms=100.0)
    own.cold = [2.0, 1.0] * 50
    run = race(own, eager, pace=dataclasses.replace(STEADY, warm_limit_s=1.5))
    assert warm_up_of(run, "own").count(STEADY.samples[0]) == 3  # 0.8, 0.4, 0.8 s


def test_the_warm_ups_length_is_left_to_chance_and_to_nothing_else() -> None:
    runs = [race(*pair(Machine()), seed=seed) for seed in range(30)]
    lengths = [tuple(len(warm_up_of(run, name)) for name in ("own", "eager")) for run in runs]
    assert set(lengths) == {(a, b) for a in (2, 3, 4) for b in (2, 3, 4)}
    again = race(*pair(Machine()), seed=7)
    assert (again.turns, lengths[7]) == (runs[7].turns, tuple(len(warm_up_of(again, n)) for n in ("own", "eager")))


# --- how many rounds


def noise(share: float, seed: int = 0) -> Callable[[], float]:
    draw = random.Random(seed)
    return lambda: draw.uniform(1 - share, 1 + share)


@pytest.mark.parametrize("pace", [STEADY, GPU_PACE, CPU_PACE])
def test_a_race_whose_ratios_are_known_ends_after_the_fewest_rounds(pace: Pace) -> None:
    run = race(*pair(Machine()), pace=pace)
    assert [len(turns) for turns in run.turns.values()] == [pace.rounds[0]] * 2


def test_a_race_goes_on_to_its_most_while_a_ratio_is_not_known() -> None:
    run = race(*pair(Machine(), noise=noise(0.9)))
    assert [len(turns) for turns in run.turns.values()] == [STEADY.rounds[1]] * 2


def test_one_rival_whose_ratio_is_not_known_keeps_the_race_going() -> None:
    machine = Machine()
    own, eager = pair(machine)
    run = race(own, eager, Runner("compile", 3.0, machine, noise=noise(0.9)))
    assert len(run.turns["own"]) == STEADY.rounds[1]


def test_a_race_ends_between_the_two_as_soon_as_enough_is_known() -> None:
    wide = dataclasses.replace(STEADY, half_width=0.06)
    lengths = [len(race(*pair(Machine(), noise=noise(0.3, s)), pace=wide, seed=s).turns["own"]) for s in range(10)]
    assert STEADY.rounds[0] < statistics.median(lengths) < STEADY.rounds[1]


def test_a_race_ends_with_its_limit() -> None:
    """A round of 20 samples and 20 untimed calls, 0.1 s."""
    pace = dataclasses.replace(STEADY, limit_s=1.25, samples=(19, 19))
    machine = Machine()
    run = race(*pair(machine, 2.0, 3.0, noise=noise(0.5)), pace=pace)
    assert len(run.turns["own"]) in (12, 14)


def test_the_warm_up_does_not_count_towards_the_limit() -> None:
    own, eager = pair(Machine(), noise=noise(0.5))
    own.cold = [1000.0]
    pace = dataclasses.replace(STEADY, limit_s=1.25, samples=(19, 19))
    assert len(race(own, eager, pace=pace).turns["own"]) in (12, 14)


def test_even_past_the_limit_the_fewest_rounds_are_taken() -> None:
    run = race(*pair(Machine(), noise=noise(0.9)), pace=dataclasses.replace(STEADY, limit_s=0.0))
    assert len(run.turns["own"]) == STEADY.rounds[0]


def test_alone_it_is_its_own_time_that_must_be_known() -> None:
    machine = Machine()
    assert len(race(Runner("own", 2.0, machine)).turns["own"]) == STEADY.rounds[0]
    assert len(race(Runner("own", 2.0, Machine(), noise=noise(0.9))).turns["own"]) == STEADY.rounds[1]


@settings(max_examples=25, deadline=None)
@given(st.floats(0, 0.9), st.floats(0, 5), st.integers(0, 1000))
def test_rounds_are_even_and_everybody_has_them_all(share: float, limit_s: float, seed: int) -> None:
    pace = dataclasses.replace(CPU_PACE, limit_s=limit_s)
    run = race(*pair(Machine(), noise=noise(share, seed)), pace=pace, seed=seed)
    (rounds,) = {len(turns) for turns in run.turns.values()}
    assert rounds % 2 == 0
    assert pace.rounds[0] <= rounds <= pace.rounds[1]


def test_a_race_of_little_time_takes_short_turns() -> None:
    usual, short = CPU_PACE, CPU_PACE.within(0.04)
    assert usual.within(0) == usual and short.rounds == usual.rounds
    for pace, size in ((usual, 5), (short, 3)):
        assert {len(turn.device_ms) for turn in race(*pair(Machine()), pace=pace).turns["own"]} == {size}


# --- the calls that are compared


@pytest.mark.parametrize("checks", [1, 2, 4])
def test_as_many_calls_of_the_judged_one_are_compared_as_have_answers(checks: int) -> None:
    for seed in range(40):
        log = log_of(race(*pair(Machine(), checks=checks), pace=CPU_PACE, seed=seed))
        compared = [(name, samples, checked) for name, samples, checked in log if checked >= 0]
        assert len(compared) == checks
        assert all(name == "own" and checked < samples for name, samples, checked in compared)


def test_the_very_last_call_is_one_of_them() -> None:
    """What would be lazy from some call on is lazy in this one."""
    for seed in range(40):
        name, samples, checked = log_of(race(*pair(Machine()), pace=CPU_PACE, seed=seed))[-1]
        assert (name, checked) == ("own", samples - 1)


def test_nothing_is_compared_while_it_warms_up_and_what_comes_after_the_rounds_is_not_timed() -> None:
    for seed in range(40):
        run = race(*pair(Machine()), seed=seed)
        before, rounds, after = parts_of(run)
        assert all(checked < 0 for _, _, checked in before)
        assert all(name == "own" and checked == samples - 1 for name, samples, checked in after)
        sizes = [samples for name, samples, _ in rounds if name == "own"]
        assert [len(turn.device_ms) for turn in run.turns["own"]] == sizes


def test_which_rounds_and_places_are_compared_is_left_to_chance() -> None:
    numbers, places, many, last = set(), set(), set(), set()
    for seed in range(RACES):
        _, rounds, after = parts_of(race(*pair(Machine()), pace=CPU_PACE, seed=seed))
        own = [checked for name, _, checked in rounds if name == "own"]
        numbers |= {number for number, checked in enumerate(own) if checked >= 0}
        places |= {checked for checked in own if checked >= 0}
        many.add(len(after))
        last.add(after[-1][1])
    assert numbers == set(range(CPU_PACE.rounds[0]))
    assert places == set(range(5))  # 10 ms of a step of 2 ms
    assert last == {1, 2, 3, 4, 5}
    assert many >= {1, 2, 3}


def test_with_one_answer_only_the_last_call_is_compared() -> None:
    for seed in range(20):
        run = race(*pair(Machine(), checks=1), seed=seed)
        assert all(checked < 0 for _, _, checked in rounds_of(run))


def test_what_counts_runs_on_the_last_weights_and_every_set_is_compared() -> None:
    between = 0
    for seed in range(40):
        own, eager = pair(Machine(), weights=2)
        run = race(own, eager, pace=CPU_PACE, seed=seed)
        _, rounds, after = parts_of(run, counted=False)
        assert {id(turn) for turn in run.turns["own"]}.isdisjoint(map(id, own.uncounted))
        assert {weights for weights, _ in own.asked if weights >= 0} == {0, 1}
        assert all(checked >= 0 for weights, checked in own.asked if weights >= 0)
        assert all(weights == -1 for weights, _ in eager.asked)
        between += sum(name == "own" for name, _, _ in rounds) > len(run.turns["own"])
        assert len(after) >= 2
    assert between > 10


# --- how long a turn is


@pytest.mark.parametrize(("step_ms", "samples"), [(0.001, 20), (1.0, 20), (2.0, 10), (5.0, 4), (9.0, 3), (500.0, 3)])
def test_a_turns_samples_follow_the_steps_duration(step_ms: float, samples: int) -> None:
    run = race(*pair(Machine(), step_ms, 2.0))
    assert {len(turn.device_ms) for turn in run.turns["own"]} == {samples}
    assert {len(turn.device_ms) for turn in run.turns["eager"]} == {10}


def test_a_step_that_takes_no_time_has_the_most_samples() -> None:
    run = race(*pair(Machine(), 0.0, 0.0))
    assert {len(turn.device_ms) for turn in run.turns["own"]} == {STEADY.samples[1]}


# --- what a race finds out


def found(run: Race, device: str = "cuda") -> tuple[Measured, list[Finding]]:
    return measured("own", run.turns, device=device, covers="forward", how="as called")


def over_eager(run: Race, device: str = "cuda") -> Speedup:
    speedup = found(run, device)[0].speedup_over("eager")
    assert speedup is not None
    return speedup


@pytest.mark.parametrize("rounds", [8, 12, 40])
@pytest.mark.parametrize(
    "drift",
    [
        lambda now_s: 1 + 0.3 * min(now_s, 1.0),
        lambda now_s: 1 / (1 + 0.3 * min(now_s, 1.0)),
        lambda now_s: 2.0 if now_s > 0.4 else 1.0,
    ],
    ids=["slower by 30 %", "faster by 30 %", "half the speed from some moment on"],
)
def test_a_drift_of_the_machine_cancels(drift: Callable[[float], float], rounds: int) -> None:
    """It happens in the second that the race lasts; the warm-up is a few milliseconds of it."""
    pace = dataclasses.replace(STEADY, rounds=(rounds, rounds), samples=(3, 1000), turn_ms=1000 / rounds / 2)
    run = race(*pair(Machine(drift), 1.0, 1.5), pace=pace)
    times = [ms for turn in run.turns["own"] for ms in turn.device_ms]
    assert max(times) > 1.2 * min(times)
    assert over_eager(run).ratio == pytest.approx(1.5, rel=0.01)


def test_a_wave_of_the_machine_cancels() -> None:
    machine = Machine()
    machine.slowness = lambda now_s: 1.3 if int(now_s / 0.5) % 2 else 1.0
    run = race(*pair(machine, 1.0, 1.5), pace=dataclasses.replace(STEADY, rounds=(40, 40)))
    assert over_eager(run).ratio == pytest.approx(1.5, rel=0.01)


RACES = 200 if NIGHTLY else 100


def outliers(seed: int) -> Callable[[], float]:
    """Two percent of noise, and one call in twenty that takes three times as long."""
    draw = random.Random(seed)
    return lambda: draw.uniform(0.98, 1.02) * (3.0 if draw.random() < 0.05 else 1.0)


@pytest.mark.parametrize("noisy", [lambda seed: noise(0.02, seed), lambda seed: noise(0.3, seed), outliers])
def test_the_interval_of_a_race_holds_the_true_ratio(noisy: Callable[[int], Callable[[], float]]) -> None:
    """Also as the race is stopped when its interval is narrow."""
    pace = dataclasses.replace(STEADY, rounds=(8, 14), half_width=0.02, samples=(3, 5))
    hits = 0
    for seed in range(RACES):
        run = race(*pair(Machine(), noise=noisy(seed)), pace=pace, seed=seed)
        low, high = over_eager(run).interval
        hits += low <= 1.5 <= high
    assert hits >= 0.88 * RACES


def test_ratios_are_paired_round_by_round() -> None:
    run = race(*pair(Machine(), noise=noise(0.2)))
    speedup = over_eager(run)
    own, eager = run.turns["own"], run.turns["eager"]
    by_hand = [statistics.median(b.device_ms) / statistics.median(a.device_ms) for a, b in zip(own, eager, strict=True)]
    assert list(speedup.rounds) == by_hand == paired(eager, own)
    assert speedup.ratio == statistics.median(by_hand)
    assert speedup.interval[0] <= speedup.ratio <= speedup.interval[1]


# --- what counts


def turns(device_ms: float, wall_ms: float, beside_ms: float = 0.5, count: int = 8, samples: int = 3) -> list[Turn]:
    """All alike; `beside_ms` more pass outside of a sample than it reports."""
    one = Turn((device_ms,) * samples, (wall_ms,) * samples, (wall_ms + beside_ms,) * samples)
    return [one] * count


def by_kernel(told_ms: float, worked_ms: float, outside_ms: float, queued_ms: float = 0.0) -> list[Turn]:
    """Turns on a CPU, with the kernel's account of them."""
    clocks = (told_ms, told_ms, outside_ms, worked_ms, queued_ms)
    return [Turn(*((ms,) * 3 for ms in clocks))] * 8


@pytest.mark.parametrize(
    ("own", "runtime", "clock"),
    [
        (by_kernel(1.0, 3.0, 4.0), 1.0, "CPU time"),
        (by_kernel(1.0, 13.0, 14.0), 11.0, "the kernel's account"),
        (by_kernel(1.0, 3.0, 14.0), 11.0, "waiting too"),
        (by_kernel(1.0, 3.0, 24.0, queued_ms=20.0), 1.0, "CPU time"),
        (by_kernel(100.0, 120.0, 121.0), 100.0, "CPU time"),
        (by_kernel(100.0, 132.0, 133.0), 130.0, "the kernel's account"),
    ],
    ids=["honest", "a helper's work", "waiting", "a busy machine", "within a quarter", "beyond a quarter"],
)
def test_work_and_waiting_that_a_process_does_not_tell_of_count(own: list[Turn], runtime: float, clock: str) -> None:
    eager = by_kernel(5.0, 7.0, 8.0)  # drawing, flushing, messages: 2 ms of work that nobody is timed for
    record, findings, over = told(own, "cpu", eager=eager)
    assert (record.median_ms, record.clock) == (pytest.approx(runtime), clock)
    assert over["eager"].ratio == pytest.approx(5.0 / runtime)
    assert bool(findings) == (clock != "CPU time")
    (theirs, none) = measured(
        "eager", {"own": own, "eager": eager}, device="cpu", covers="forward", how="", trusted=True
    )
    assert (theirs.median_ms, none) == (5.0, [])  # what a candidate does makes no baseline slower


def told(
    own: list[Turn], device: str = "cuda", **rivals: list[Turn]
) -> tuple[Measured, list[Finding], dict[str, Speedup]]:
    record, findings = measured("own", {"own": own, **rivals}, device=device, covers="forward", how="as called")
    return record, findings, {speedup.baseline: speedup for speedup in record.speedups}


def test_the_record_says_how_it_was_taken() -> None:
    one = [
        Turn((1.0, 2.0), (1.1, 2.1), (1.2, 2.2)),
        Turn((3.0, 4.0), (3.1, 4.1), (3.2, 4.2)),
    ]
    record, findings = measured("own", {"own": one}, device="cuda", covers="forward+backward", how="graph replay")
    moments = Moments(2.5, 1.25**0.5, 1.0, 4.0)
    taken = (4, "CUDA events", "forward+backward", "graph replay", 2.6)
    assert record == Measured(2.5, (1.75, 3.25), *taken, moments=moments)
    assert findings == []


def test_each_rival_has_its_ratio() -> None:
    record, _, over = told(turns(2.0, 2.0), eager=turns(6.0, 6.0), compile=turns(1.0, 1.0))
    assert [speedup.baseline for speedup in record.speedups] == ["eager", "compile"]
    assert (over["eager"].ratio, over["compile"].ratio) == (3.0, 0.5)
    assert over["eager"].rounds == (3.0,) * 8
    assert over["eager"].interval == pytest.approx((2.97, 3.03))
    assert record.speedup_over("max-autotune") is None


@pytest.mark.parametrize(
    ("events", "wall", "counts"),
    [
        (10.0, 11.9, False),
        (10.0, 12.1, True),
        (0.03, 0.22, False),  # launching, synchronising and the flush are in a short step's wall time
        (0.03, 0.24, True),
        (0.0, 5.0, True),
    ],
)
def test_alone_wall_time_counts_where_the_device_worked_on(events: float, wall: float, counts: bool) -> None:
    record, findings, _ = told(turns(events, wall))
    assert record.median_ms == (wall if counts else events)
    assert record.wall_ms == wall
    assert record.clock == ("wall time" if counts else "CUDA events")
    assert ["worked on" in finding.claim for finding in findings] == [True] * counts


@pytest.mark.parametrize(
    ("events", "wall", "runtime"),
    [
        (10.0, 11.9, 10.0),
        (10.0, 12.05, 10.0),  # 0.1 ms as the baseline's, and 1.95 ms
        (10.0, 12.2, 12.1),
        (0.03, 0.17, 0.03),
        (0.03, 0.19, 0.09),
        (5.0, 5.0, 5.0),
        (0.0, 5.1, 5.0),
    ],
)
def test_beside_a_baseline_what_its_wall_time_has_too_is_taken_off(events: float, wall: float, runtime: float) -> None:
    record, findings, over = told(turns(events, wall), eager=turns(20.0, 20.1))
    assert record.median_ms == pytest.approx(runtime)
    assert record.clock == ("CUDA events" if runtime == events else "wall time")
    assert bool(findings) is (runtime != events)
    assert over["eager"].ratio == pytest.approx(20.0 / runtime)


def test_the_least_of_the_baselines_gaps_is_the_honest_one() -> None:
    """One baseline that works on after its stream does not excuse a candidate that does."""
    record, _, _ = told(turns(1.0, 5.0), eager=turns(20.0, 20.1), compile=turns(1.0, 9.0))
    assert record.median_ms == pytest.approx(4.9)


def test_a_rivals_wall_time_counts_beside_that_of_other_rivals() -> None:
    """The candidate's own is no measure for them: a lie would make them slower."""
    over = told(turns(2.0, 2.0), eager=turns(2.0, 8.0), compile=turns(2.0, 2.0))[2]
    assert (over["eager"].ratio, over["compile"].ratio) == (4.0, 1.0)
    assert told(turns(2.0, 2.0), eager=turns(2.0, 8.0))[2]["eager"].ratio == 1.0


@pytest.mark.parametrize("beside", [0.05, 0.15, 0.25, 0.45, 2.0])
def test_who_behaves_like_the_baseline_ties_with_it(beside: float) -> None:
    """The flush is in every sample's wall time: 4 x 96 MB at 0.86 TB/s, an L40S, are 0.45 ms."""
    for step_ms in (0.03, 0.5, 1.0, 10.0):
        over = told(turns(step_ms, step_ms + beside), eager=turns(step_ms, step_ms + beside))[2]
        assert over["eager"].ratio == pytest.approx(1.0), step_ms


@pytest.mark.parametrize(("cpu", "wall", "waits"), [(1.0, 20.9, False), (1.0, 21.1, True), (10.0, 49.0, False)])
def test_on_a_cpu_it_is_processor_time_and_waiting_is_told(cpu: float, wall: float, waits: bool) -> None:
    record, findings, _ = told(turns(cpu, wall), "cpu")
    assert (record.median_ms, record.clock) == (cpu, "CPU time")
    assert ["waits" in finding.claim for finding in findings] == [True] * waits


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_time_that_passes_and_is_not_reported_counts(device: str) -> None:
    hidden = 3 * HIDDEN_MS[device]
    honest = turns(2.0, 2.0, 0.5)
    record, findings, over = told(turns(0.1, 0.1, 0.5 + hidden), device, eager=honest)
    assert record.clock == "the judge's own clock"
    assert record.median_ms == pytest.approx(0.1 + hidden)
    assert record.quartiles_ms == pytest.approx((0.1 + hidden, 0.1 + hidden))
    assert over["eager"].ratio == pytest.approx(2.0 / (0.1 + hidden))
    assert "judge's own clock" in findings[-1].claim


@pytest.mark.parametrize("device", ["cuda", "cpu"])
@pytest.mark.parametrize(
    ("beside", "honest", "why"),
    [
        (0.9, 0.0, "less than is worth a word"),
        (10.9, 10.0, "less than is worth a word beyond a baseline's"),
        (5.0, 5.0, "as much as a baseline's"),
        (1.0, 9.0, "less than a baseline's"),
    ],
)
def test_what_putting_contents_in_place_takes_is_not_held_against_it(
    device: str, beside: float, honest: float, why: str
) -> None:
    unit = HIDDEN_MS[device]
    record, findings, _ = told(turns(1.0, 1.0, beside * unit), device, eager=turns(1.0, 1.0, honest * unit))
    assert (record.median_ms, findings) == (1.0, []), why


def test_what_is_done_now_before_the_one_clock_now_before_the_other_counts_whole() -> None:
    """A thread that holds the interpreter works in four calls of ten before the wall's clock starts, in four behind it
    and before the device's, in two where all clocks see it: each gap alone is mostly nothing."""
    device = (1.0,) * 8 + (100.0,) * 2
    wall = (1.2,) * 4 + (100.2,) * 6
    own = [Turn(device, wall, (100.7,) * 10)] * 8
    record, findings, _ = told(own, eager=turns(1.0, 1.2))
    assert record.clock == "the judge's own clock"
    assert record.median_ms == pytest.approx(100.0, rel=0.01)
    assert "1 ms a call, and 100 ms pass" in findings[-1].evidence


def test_a_small_part_of_a_long_step_is_not_held_against_it() -> None:
    assert told(turns(100.0, 100.0, 45.0), eager=turns(100.0, 100.0, 0.0))[0].median_ms == 100.0
    assert told(turns(100.0, 100.0, 55.0), eager=turns(100.0, 100.0, 0.0))[0].median_ms == 155.0


def test_the_least_of_what_passes_beside_the_baselines_is_honest() -> None:
    """One baseline that was disturbed does not raise what a candidate may hide."""
    rivals = {"eager": turns(1.0, 1.0, 0.1), "compile": turns(1.0, 1.0, 30.0)}
    assert told(turns(1.0, 1.0, 20.0), **rivals)[0].clock == "the judge's own clock"


def test_one_interrupted_turn_hides_nothing() -> None:
    own = turns(1.0, 1.0)
    own[3] = dataclasses.replace(own[3], outside_ms=(10_000.0,) * 3)
    assert told(own, eager=turns(1.0, 1.0))[1] == []


def unsteady(beside_ms: Sequence[float], device_ms: float = 1.0) -> list[Turn]:
    """Turns of one sample each, beside which so much passes."""
    return [Turn((device_ms,), (device_ms,), (device_ms + beside,)) for beside in beside_ms]


SLOT_MS = (31.0, 33.2, 30.0, 29.7, 34.0, 31.4, 29.5, 31.4)
"""Beside eager PyTorch's turns, where 64 MiB were put in place for each sample (H100)."""


@pytest.mark.parametrize(("beyond", "counts"), [(1.5, False), (5.0, True)])
def test_what_baselines_among_themselves_leave_unsure_is_not_held_against_it(beyond: float, counts: bool) -> None:
    alone, own = unsteady(SLOT_MS), unsteady([ms + beyond for ms in SLOT_MS])
    kept = {"device": "cuda", "covers": "forward", "how": "as called", "unsure_ms": unsure(alone, "cuda")}
    assert 1.5 < kept["unsure_ms"] < 5.0
    record, findings = measured("own", {"own": own, "eager": alone}, **kept)
    assert (record.clock == "the judge's own clock", bool(findings)) == (counts, counts)


def test_who_lies_unsteadily_or_unsettles_the_baselines_is_not_believed_the_more() -> None:
    hidden = unsteady([0.0, 3.0, 3.0, 0.0, 3.0, 3.0, 0.0, 3.0], device_ms=0.1)
    unsettled = unsteady([0.0, 9.0, 0.0, 9.0, 0.0, 9.0, 0.0, 0.0])
    for rival in (unsteady([0.0] * 8), unsettled):
        assert told(hidden, eager=rival)[0].clock == "the judge's own clock"


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_a_baseline_is_timed_by_its_own_clock(device: str) -> None:
    """Otherwise one that waits a little longer than the candidate for its contents is a slow one."""
    both = {"eager": turns(1.0, 1.0, 100.0), "the candidate": turns(1.0, 1.0, 0.0)}
    kept = {"device": device, "covers": "forward", "how": "as called"}
    assert measured("eager", both, **kept, trusted=True)[0].median_ms == 1.0
    assert measured("eager", both, **kept)[0].median_ms == 101.0


def test_alone_nothing_can_be_said_of_what_is_hidden() -> None:
    assert told(turns(1.0, 1.0, 50.0))[0].clock == "CUDA events"


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_a_process_that_reports_no_time_at_all_does_not_end_the_judge(device: str) -> None:
    """A forged report of zeros is as finite as any; what passes outside is too short to be noticed."""
    record, _, over = told(turns(0.0, 0.0, 0.01), device, eager=turns(1.0, 1.0, 0.01))
    assert record.median_ms < 0.1
    assert over["eager"].ratio > 1
