"""Every cheat that is known in public, tried on the judge: one file each in `cheats/`.

A file's docstring says what to expect: `Expected: <kind>` ends its first line, `How:` names the particular,
`Finding:` a finding that must be there. A file with `ARMED = True` is judged once more with `ARMED = False`: without
the trick the same code must pass, or its refusal would show nothing. `Costs: <twin>` is for what hides its runtime: it
takes turns with eager PyTorch, and where it passes it may not seem faster than the honest file that does its work.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

import crucible
from crucible.judge.process.sandbox import landlock_abi
from crucible.judge.verdict.evidence import Measured
from crucible.judge.verdict.verdict import OUTCOMES
from support import CHEATS, GATE_TASK, IDENTITY_TASK, ORDER_TASK, SMALL_TASK, claims, some

FILES = sorted(CHEATS.glob("*.py"))
OTHER_TASK = {
    "returns_input_alias": IDENTITY_TASK,
    "caches_by_invariants": ORDER_TASK,
    "honest_slow_sort": ORDER_TASK,
    "skips_a_closed_gate": GATE_TASK,
    "honest_slow_gate": GATE_TASK,
}
ALONE = ("forges_with_the_secret", "native_fork")
"""Those that may end the judge itself: kept apart, so that the others' verdicts come all the same."""
COUNTING = ("counts_calls", "counts_many_calls")
"""Those that do as they should for many calls."""
MUCH_FASTER = 0.5
"""A cheat's runtime as a share of its honest twin's, below which the twin's work was hidden."""
DISARMED = (
    "caches_by_pointer",
    "counts_calls",
    "defers_to_a_thread",
    "early_exit",
    "forging_the_result_file",
    "hunts_reference",
    "kills_parent",
    "lazy_subclass",
    "lazy_while_timed",
    "mutates_inputs",
    "overwrites_its_last_answer",
    "patched_timers",
    "returns_input_alias",
    "spoils_the_inputs",
    "stale_memory",
    "works_in_bursts",
    "works_in_the_constructor",
)
"""A representative of each way to cheat."""
DISARMED_HERE = some(DISARMED, 3, lambda name: name in OTHER_TASK)


@dataclass(frozen=True)
class Expectation:
    """What a cheat's docstring says."""

    kinds: tuple[str, ...]
    how: str
    finding: str
    costs: str
    """The honest file whose runtime it must not undercut."""


def expectation(file: Path) -> Expectation:
    text = ast.get_docstring(ast.parse(file.read_text())) or ""
    first = text.splitlines()[0]
    named = dict(re.findall(r"^(How|Finding|Costs): (.+)$", text, re.MULTILINE))
    kinds = tuple(first.rpartition("Expected: ")[2].split(" or "))
    return Expectation(kinds, named.get("How", ""), named.get("Finding", ""), named.get("Costs", ""))


def in_batch(file: Path) -> bool:
    return file.stem not in ALONE and file.stem not in OTHER_TASK and not expectation(file).costs


RACED = [file for file in FILES if expectation(file).costs]
TWINS = {expectation(file).costs for file in RACED}


@pytest.fixture(scope="module")
def verdicts(judge_batch: Callable[..., crucible.Run]) -> dict[str, crucible.Verdict]:
    """All cheats of the small task, in two runs: where they count their calls, the race is as long as usual."""
    found = {}
    for race_s in (0, 0.05):
        here = [file for file in FILES if in_batch(file) and (file.stem in COUNTING) == (race_s == 0)]
        run = judge_batch(SMALL_TASK, here, limits=crucible.Limits(race_s=race_s, shrink_s=0))
        found.update({verdict.candidate: verdict for verdict in run.verdicts})
    return found


@pytest.fixture(scope="module")
def raced(judge_batch: Callable[..., crucible.Run]) -> dict[str, crucible.Verdict]:
    """What hides its runtime, and the honest twins, in turns with eager PyTorch; a run for each task."""
    found = {}
    for task in (SMALL_TASK, *dict.fromkeys(OTHER_TASK.values())):
        names = [name for file in RACED for name in (expectation(file).costs, file.stem)]
        here = [CHEATS / f"{name}.py" for name in dict.fromkeys(names) if OTHER_TASK.get(name, SMALL_TASK) == task]
        if here:
            found.update({verdict.candidate: verdict for verdict in race(judge_batch, task, here).verdicts})
    return found


def race(judge_batch: Callable[..., crucible.Run], task: Path, files: list[Path]) -> crucible.Run:
    """In turns with eager PyTorch."""
    limits = crucible.Limits(race_s=0.25, shrink_s=0, stress_s=0)
    return judge_batch(task, files, baselines="eager", limits=limits)


@pytest.fixture(scope="module")
def disarmed(
    judge_batch: Callable[..., crucible.Run], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, crucible.Verdict]:
    """The representatives without their trick, in one run for each task."""
    folder = tmp_path_factory.mktemp("disarmed")
    for name in DISARMED_HERE:
        source = (CHEATS / f"{name}.py").read_text()
        assert "\nARMED = True\n" in source
        (folder / f"{name}.py").write_text(source.replace("\nARMED = True\n", "\nARMED = False\n"))
    small = [folder / f"{name}.py" for name in DISARMED_HERE if name not in OTHER_TASK]
    found = list(judge_batch(SMALL_TASK, small).verdicts)
    for name, task in [(name, task) for name, task in OTHER_TASK.items() if name in DISARMED_HERE]:
        found += judge_batch(task, [folder / f"{name}.py"]).verdicts
    return {verdict.candidate: verdict for verdict in found}


def check(file: Path, verdict: crucible.Verdict) -> None:
    expected, outcome = expectation(file), verdict.outcome
    assert outcome.kind in expected.kinds, outcome.words
    assert expected.how in ("", getattr(outcome, "how", getattr(outcome, "what", ""))), outcome.words
    assert expected.finding in claims(verdict)
    assert verdict.evaluation == (outcome.kind == "passed")
    assert (verdict.runtime_ms == -1.0) == (not verdict.evaluation)


@pytest.mark.slow
@pytest.mark.parametrize("file", [file for file in FILES if in_batch(file)], ids=lambda file: file.stem)
def test_each_cheat_gets_the_verdict_its_file_names(file: Path, verdicts: dict[str, crucible.Verdict]) -> None:
    if file.stem == "reads_the_task_file" and not landlock_abi():
        pytest.skip("this kernel has no Landlock, so files stay readable")
    check(file, verdicts[file.stem])


@pytest.mark.slow
def test_what_a_cheat_leaves_in_shared_memory_is_gone(verdicts: dict[str, crucible.Verdict]) -> None:
    assert verdicts["leaves_shared_memory"].evaluation
    assert not Path("/dev/shm/crucible-left-by-a-cheat").exists()


@pytest.mark.slow
@pytest.mark.parametrize("file", RACED, ids=lambda file: file.stem)
def test_what_hides_its_runtime_is_caught_or_its_cost_is_counted(
    file: Path, raced: dict[str, crucible.Verdict], judge_batch: Callable[..., crucible.Run]
) -> None:
    """Those two alone are judged again where it looks hidden: on a busy machine one of two medians of some
    microseconds may be another's work."""
    verdict, twin = raced[file.stem], raced[expectation(file).costs]
    for _ in range(2):
        check(file, verdict)
        if not undercut(verdict, twin):
            return
        run = race(judge_batch, OTHER_TASK.get(file.stem, SMALL_TASK), [CHEATS / f"{twin.candidate}.py", file])
        verdict, twin = run.verdict(file.stem), run.verdict(twin.candidate)
    check(file, verdict)
    assert not (seen := undercut(verdict, twin)), seen


def undercut(verdict: crucible.Verdict, twin: crucible.Verdict) -> str:
    """What was measured, where a cheat that passed seems faster than the honest file that does its work."""
    assert isinstance(twin.timing, Measured)
    if not (isinstance(verdict.timing, Measured) and verdict.evaluation):
        return ""
    own, honest = verdict.timing.speedup_over("eager"), twin.timing.speedup_over("eager")
    assert own is not None and honest is not None
    # Two medians of some microseconds, taken apart on a busy machine: three times as much is still noise.
    if verdict.runtime_ms > MUCH_FASTER * twin.runtime_ms and own.ratio < 3 * honest.ratio / MUCH_FASTER:
        return ""
    return f"{verdict.timing}\nthe honest twin: {twin.timing}\n{claims(verdict)}"


ALONE_HERE = [f for f in FILES if f.stem in (*ALONE, *OTHER_TASK) and f not in RACED and f.stem not in TWINS]


@pytest.mark.slow
@pytest.mark.parametrize("file", ALONE_HERE, ids=lambda file: file.stem)
def test_each_cheat_judged_alone_gets_the_verdict_its_file_names(
    file: Path, judge_batch: Callable[..., crucible.Run]
) -> None:
    run = judge_batch(OTHER_TASK.get(file.stem, SMALL_TASK), [file])
    check(file, run.verdict(file.stem))


@pytest.mark.slow
@pytest.mark.parametrize("name", DISARMED_HERE)
def test_without_its_trick_the_same_candidate_passes(name: str, disarmed: dict[str, crucible.Verdict]) -> None:
    verdict = disarmed[name]
    assert verdict.evaluation, verdict.outcome.words
    assert verdict.runtime_ms > 0


HONEST = [file for file in sorted(CHEATS.glob("honest_*.py")) if in_batch(file)]


@pytest.mark.parametrize("file", HONEST, ids=lambda file: file.stem)
def test_honest_candidates_that_look_odd_raise_no_suspicion(file: Path, verdicts: dict[str, crucible.Verdict]) -> None:
    assert verdicts[file.stem].outcome.kind == "passed"
    assert verdicts[file.stem].findings == ()


def test_the_task_file_is_refused_by_the_sandbox_not_merely_missing(verdicts: dict[str, crucible.Verdict]) -> None:
    if not landlock_abi():
        pytest.skip("this kernel has no Landlock, so files stay readable")
    words = verdicts["reads_the_task_file"].outcome.words
    assert f"PermissionError {SMALL_TASK / 'reference.py'}" in words


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_file_says_what_to_expect(file: Path) -> None:
    assert set(expectation(file).kinds) <= set(OUTCOMES)
    assert file.stem.startswith("honest_") == ("ARMED" not in file.read_text())
