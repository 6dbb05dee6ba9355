"""`score`: from any event loop, many at once, one at a time on the device; it ends in order."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import crucible
from crucible import scoring, store
from crucible.candidate import Candidate
from crucible.errors import CandidateError, DeviceError, JudgeError, MisuseError, StoreError, TaskError
from crucible.judge.process import supervised
from crucible.judge.process.oracle_process import OracleProcess
from crucible.judge.verdict.verdict import NotJudged, Passed, Verdict, Wrong
from crucible.run import Run
from crucible.task import Task
from report.recorded import whole_run
from support import PLAIN, SMALL_TASK, processes_mentioning, wait_until_gone

QUICK: dict[str, Any] = {
    "device": "cpu",
    "baselines": "none",
    "limits": crucible.Limits(race_s=0.05, shrink_s=0, stress_s=0),
}
REFERENCE = (SMALL_TASK / "reference.py").read_text()
RIGHT = PLAIN.read_text()
WRONG = RIGHT.replace("* self.scale", "* self.scale * 2")
ENDLESS = RIGHT.replace("import torch\n", "import time\nimport torch\n", 1).replace(
    "        return F", "        open('going', 'w').close()\n        time.sleep(600)\n        return F"
)


def in_another_thread(coroutine: Any) -> Any:
    """What a coroutine returns in an event loop that is not the main thread's."""
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(asyncio.run(coroutine)))
    thread.start()
    thread.join()
    return results[0]


def runs() -> list[Path]:
    return sorted((store.home() / "runs").glob("*"))


async def until(condition: Any, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)


def is_idle() -> bool:
    """Whether all that was asked for is over."""
    return not any(thread.name.startswith("crucible-score") for thread in threading.enumerate())


def running(folder: Path, candidate: str) -> list[str]:
    """Processes of one candidate of a judgement that works in `folder`."""
    return [line for own in folder.glob(f"crucible-*/{candidate}") for line in processes_mentioning(str(own))]


@pytest.fixture
def works_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this test's judgements have their folders."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


def test_many_at_once_share_a_run_and_leave_nothing_open(works_in: Path) -> None:
    async def scored(number: int) -> list[Verdict]:
        await until(is_idle)  # what an earlier test left may work on, by the lock of that test's home
        answers = [f"{RIGHT}# {number}\n", f"{WRONG}# {number}\n", f"<think>\n```python\n{RIGHT}```\n", RIGHT]
        tasks = [asyncio.create_task(crucible.score(REFERENCE, answer, **QUICK)) for answer in answers]
        with scoring.turn("cpu", lambda: False):  # until all of them wait
            await until(lambda: len(scoring._lane("cpu")._waiting) == len(tasks))
        got = await asyncio.gather(*tasks)
        await until(is_idle)
        return got

    def open_now() -> tuple[int, int]:
        gc.collect()
        return len(os.listdir("/proc/self/fd")), threading.active_count()

    asyncio.run(scored(0))  # starts the fork server, which stays: two descriptors more
    before = open_now()
    one = in_another_thread(scored(1))
    two = asyncio.run(scored(2))
    for verdicts in (one, two):
        assert [v.outcome.kind for v in verdicts] == ["passed", "wrong", "does-not-import", "passed"]
        assert {v.candidate for v in verdicts} == {"candidate"}
        assert verdicts[0].parts.runtime_ms and verdicts[1].reward("kernrl") == -0.25
        assert "no code block" in verdicts[2].outcome.words and verdicts[2].reward("kernrl") == -0.5
    assert two[3].cached  # the same content was judged before
    assert len(runs()) == 3
    deadline = time.monotonic() + 20
    # A thread that ends takes its moment, and one may be somebody else's; a leak of two runs is two and more.
    while any(now > then for now, then in zip(open_now(), (before[0], before[1] + 1), strict=True)):
        assert time.monotonic() < deadline, (before, open_now(), threading.enumerate())
        time.sleep(0.1)
    assert not wait_until_gone(str(works_in)) and not list(works_in.iterdir())


def test_a_task_that_is_cancelled_ends_its_judgement_alone(works_in: Path) -> None:
    async def scored() -> None:
        endless = asyncio.create_task(crucible.score(REFERENCE, ENDLESS, **QUICK))
        await until(lambda: not is_idle())  # it stands before the other in the queue
        right = asyncio.create_task(crucible.score(REFERENCE, RIGHT, **QUICK))
        await until(lambda: list(works_in.glob("crucible-*/candidate0/going")))
        later = asyncio.create_task(crucible.score(REFERENCE, WRONG, **QUICK))
        await asyncio.sleep(0.2)
        for task in (later, endless):
            start = time.monotonic()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert time.monotonic() - start < 20  # of 600 s
        await until(lambda: not running(works_in, "candidate0"), 20.0)
        assert (await right).evaluation
        await until(is_idle)

    asyncio.run(scored())
    assert [path.stem[:3] for path in (runs()[0] / "candidates").iterdir()] == ["001"]
    assert not wait_until_gone(str(works_in), 20) and not supervised._ended


def test_when_all_are_cancelled_the_run_ends_and_what_stands_is_kept(works_in: Path) -> None:
    async def scored() -> None:
        right = asyncio.create_task(crucible.score(REFERENCE, RIGHT, **QUICK))
        await until(lambda: not is_idle())  # it stands before the other in the queue
        endless = asyncio.create_task(crucible.score(REFERENCE, ENDLESS, **QUICK))
        assert (await right).evaluation
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(endless, 1.0)
        assert not wait_until_gone(str(works_in))
        assert (await crucible.score(REFERENCE, RIGHT, **QUICK)).cached

    asyncio.run(scored())
    assert not list(works_in.iterdir())


def test_a_reference_that_takes_long_is_ended_too(works_in: Path) -> None:
    slow = REFERENCE.replace("import torch\n", "import time\nimport torch\n", 1).replace(
        "    return [torch.rand", "    open('inputs/going', 'w').close()\n    time.sleep(600)\n    return [torch.rand"
    )

    async def scored() -> None:
        task = asyncio.create_task(crucible.score(slow, RIGHT, **QUICK))
        await until(lambda: list(works_in.glob("crucible-*/inputs/going")))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, 20)
        assert not wait_until_gone(str(works_in))
        await until(is_idle, 10)

    asyncio.run(scored())


PROGRAM = """
import os, signal, sys, threading, time
import crucible
from crucible import scoring
from crucible.judge.process import launcher
reference, endless = open(sys.argv[1]).read(), open(sys.argv[2]).read()
def alarm(*_): raise KeyboardInterrupt
signal.signal(signal.SIGALRM, alarm)
signal.setitimer(signal.ITIMER_REAL, 6.0)
options = dict(device="cpu", baselines="none", limits=crucible.Limits(run_s=600))
try:
    crucible.score_sync(reference, endless, **options)
except KeyboardInterrupt:
    print("interrupted", os.listdir(os.environ["TMPDIR"]), flush=True)
if (pid := os.fork()) == 0:
    os._exit(bool(scoring._lanes or launcher._launchers))
print("fork", os.waitpid(pid, 0)[1], flush=True)
threading.Thread(target=crucible.score_sync, args=(reference, endless), kwargs=options, daemon=True).start()
time.sleep(2)
"""


def test_a_program_that_is_interrupted_or_ends_leaves_nothing_running(tmp_path: Path) -> None:
    (tmp_path / "endless.py").write_text(ENDLESS)
    (tmp_path / "work").mkdir()
    command = [sys.executable, "-c", PROGRAM, str(SMALL_TASK / "reference.py"), str(tmp_path / "endless.py")]
    done = subprocess.run(
        command, env={**os.environ, "TMPDIR": str(tmp_path / "work")}, capture_output=True, text=True, timeout=90
    )
    assert done.stdout == "interrupted []\nfork 0\n", done.stderr
    assert not wait_until_gone(str(tmp_path / "work"), 10) and not list((tmp_path / "work").iterdir())


@pytest.mark.parametrize(
    ("reference", "candidate", "options", "error", "words"),
    [
        ("x = 1\n", RIGHT, {}, TaskError, "defines no Model"),
        ("class Model(:\n", RIGHT, {}, TaskError, "not valid Python, line 1"),
        ("", RIGHT, {}, TaskError, "give a reference's text"),
        ("/no/such/task.py", RIGHT, {}, TaskError, "no task at"),
        (REFERENCE, Path("/no/such/candidate.py"), {}, CandidateError, "cannot read candidate"),
        (REFERENCE, 3, {}, CandidateError, "no candidate in int"),
        (REFERENCE, RIGHT, {"entry_point": "a b"}, CandidateError, "entry point 'a b'"),
        (REFERENCE, RIGHT, {"device": "tpu"}, DeviceError, "no device 'tpu'"),
        (REFERENCE, RIGHT, {"contract": "exact"}, MisuseError, "no contract 'exact'"),
        (REFERENCE.replace("torch.rand(batch", "torch.rand(-batch"), RIGHT, {}, TaskError, "get_inputs"),
        (REFERENCE, RIGHT, {"limits": crucible.Limits(oracle_s=0.01)}, JudgeError, "answers took over 0.01 s"),
    ],
)
def test_what_is_no_verdict_is_an_exception(
    reference: str, candidate: Any, options: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        crucible.score_sync(reference, candidate, **{**QUICK, **options})


def test_options_are_those_of_judge() -> None:
    with pytest.raises(TypeError, match=r"no option 'speed'.*baselines, contract"):
        crucible.score_sync(REFERENCE, RIGHT, speed=1)
    assert "listener" not in scoring.OPTIONS and "strict" in scoring.OPTIONS


def test_a_home_that_cannot_be_written_is_an_exception(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRUCIBLE_HOME", "/dev/null/home")
    with pytest.raises(StoreError, match="CRUCIBLE_HOME"):
        crucible.score_sync(REFERENCE, RIGHT, **QUICK)


def request(source: str = RIGHT) -> scoring._Request:
    task, candidate = Task.from_source(REFERENCE), Candidate("a", Path("a.py"), source)
    return scoring._Request(task, candidate, {}, "cpu")


def test_only_what_is_judged_alike_goes_into_one_run() -> None:
    one, other, eager = request(), request(WRONG), request()
    eager.options = {"baselines": "eager"}
    training = scoring._Request(
        one.task.at(scale=None, training=True, mode="eval", small_by_default=False), one.candidate, {}, "cpu"
    )
    assert one.key == other.key and len({one.key, eager.key, training.key}) == 3


def alone(verdict: Verdict) -> Run:
    return replace(whole_run(), verdicts=(verdict,))


def test_the_judges_failure_on_one_candidate_is_its_exception_alone() -> None:
    requests = [request(), request(RIGHT), request(WRONG)]
    batch = scoring._Batch(requests)
    batch.reached(alone(Verdict("a-0", NotJudged("the oracle was lost", failed=True))))
    batch.reached(alone(Verdict("a-1", NotJudged("needs tilelang"))))
    errors = [one.verdict.exception(0) for one in requests[:2]]
    assert all(isinstance(error, JudgeError) and "the oracle was lost" in str(error) for error in errors)
    assert errors[0] is not errors[1]
    assert requests[2].verdict.result(0) == Verdict("a", NotJudged("needs tilelang"))


def test_what_fails_where_the_disk_is_full_is_nobodys_fault_but_who_filled_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """/proc has no room, ever."""
    monkeypatch.setattr("tempfile.tempdir", "/proc")
    one, two, three = request(), request(), request()
    scoring._Batch([one]).reached(alone(Verdict("a-0", Passed())))
    assert one.verdict.result(0).evaluation
    scoring._Batch([two]).reached(alone(Verdict("a-0", Wrong("forward", "x"))))
    with pytest.raises(StoreError, match="0 MiB left"):
        two.verdict.result(0)
    own = tmp_path / "own/deeper"
    own.mkdir(parents=True)
    (own / "filled").write_bytes(b"\1" * (scoring.ROOM_BYTES + 1))
    batch = scoring._Batch([three])
    batch.began(tmp_path, {"a-0": tmp_path / "own"})
    batch.reached(alone(Verdict("a-0", Wrong("forward", "x"))))
    assert three.verdict.result(0).outcome.kind == "wrong"


def test_nothing_starts_where_it_was_called_off(tmp_path: Path) -> None:
    supervised.end_below(tmp_path / "work")
    with pytest.raises(JudgeError, match="called off"):
        OracleProcess(_folder(tmp_path / "work/deeper"), crucible.Limits())
    assert not wait_until_gone(str(tmp_path / "work"))
    supervised.forget_ended(tmp_path)
    oracle = OracleProcess(_folder(tmp_path / "work/again"), crucible.Limits())
    deadline = time.monotonic() + 10  # a fork stands in its folder a moment after it was asked for
    while not (there := processes_mentioning(str(tmp_path / "work"))) and time.monotonic() < deadline:
        time.sleep(0.05)
    oracle.kill()
    assert there


def _folder(path: Path) -> Path:
    path.mkdir(parents=True)
    return path


def test_one_at_a_time_scores_on_a_device_whoever_asks() -> None:
    order: list[str] = []

    def other() -> None:
        with scoring.turn("cpu", lambda: False) as is_ours:
            order.append(f"second {is_ours}")

    with scoring.turn("cpu", lambda: False) as is_ours, scoring.turn("cuda", lambda: False):
        thread = threading.Thread(target=other)
        thread.start()
        with scoring.turn("cpu", lambda: True) as not_ours:
            assert (is_ours, not_ours) == (True, False)
        time.sleep(0.2)
        order.append("first")
    thread.join()
    assert order == ["first", "second True"]


def test_a_text_is_never_taken_for_a_file(tmp_path: Path) -> None:
    """A model that answers with a file's name would have somebody else's kernel judged as its own."""
    candidate = scoring.as_candidate(str(PLAIN))
    assert "pathlib.Path" in (candidate.fault() or "") and candidate.source == str(PLAIN)
    assert scoring.as_candidate(PLAIN).source == RIGHT and scoring.as_candidate(PLAIN).name == "plain"
    answer = tmp_path / "answer.md"
    answer.write_text(f"```python\n{RIGHT.replace('ModelNew', 'Fast')}```\n")
    for given in (answer, answer.read_text()):
        assert scoring.as_candidate(given, "Fast").source.endswith("\nModelNew = Fast\n")
    assert scoring.as_candidate(answer).unusable
    assert scoring.as_candidate(RIGHT).source == RIGHT


def test_a_turn_of_another_process_is_waited_for() -> None:
    code = textwrap.dedent("""
        import sys
        from crucible import scoring
        with scoring.turn("cpu", lambda: False):
            print("mine", flush=True)
            sys.stdin.read()
    """)
    other = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert other.stdout is not None and other.stdout.readline() == b"mine\n"
    asked = iter([False, False, True, True])
    with scoring.turn("cpu", lambda: next(asked)) as is_ours:
        assert not is_ours
    other.send_signal(signal.SIGKILL)  # its turn ends with it
    other.communicate()
    with scoring.turn("cpu", lambda: False) as is_ours:
        assert is_ours
