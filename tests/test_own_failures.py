"""What fails of the judge's own costs nothing that is finished: whichever of its processes is killed, whatever its own
code raises over one candidate, and a run that was cut short goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import crucible
from crucible import cli, pipeline, store
from crucible.contract import find_contract
from crucible.errors import MisuseError, RecordError
from crucible.hardware import Device
from crucible.judge import examine
from crucible.judge.attempts import answers
from crucible.judge.process.limits import Limits
from crucible.plan import planner
from crucible.request import Request, request_from_json
from support import PLAIN, SMALL_TASK, wait_until_gone, write

PLAIN_SOURCE = PLAIN.read_text()
SLOW_ONCE = PLAIN_SOURCE.replace(
    "    def forward(self, x):\n",
    "    def forward(self, x):\n        import time\n        time.sleep(0 if DONE else 4)\n        DONE.append(1)\n",
).replace("class ModelNew", "DONE = []\n\n\nclass ModelNew")  # fmt: skip
SLEEPER = PLAIN_SOURCE.replace(
    "    def forward(self, x):\n", "    def forward(self, x):\n        __import__('time').sleep(1000)\n"
)
QUICKLY = ["--device", "cpu", "--race-limit", "0.05", "--shrink-limit", "0", "--stress-limit", "0"]


def start(home: Path, *arguments: str | Path) -> subprocess.Popen[str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    temporary = home.parent / "tmp"
    temporary.mkdir(exist_ok=True)
    return subprocess.Popen(
        [sys.executable, "-m", "crucible", "judge", *map(str, arguments)],
        env={**own, "CRUCIBLE_HOME": str(home), "TMPDIR": str(temporary), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def lines_until(process: subprocess.Popen[str], words: str) -> None:
    """Reads progress up to a line that says so."""
    assert process.stderr is not None
    for line in process.stderr:
        if words in line:
            return
    pytest.fail(f"it never said {words!r}")


def children(pid: int) -> list[int]:
    return [int(child) for task in Path(f"/proc/{pid}/task").glob("*")
            for child in (task / "children").read_text().split()]  # fmt: skip


def folder_of(pid: int) -> str:
    return os.path.basename(os.readlink(f"/proc/{pid}/cwd"))


def supervisors(judge: int) -> list[int]:
    return [pid for server in children(judge) for pid in children(server)]


def the_server(judge: int, _: str) -> int:
    return next(server for server in children(judge) if children(server))


def the_supervisor(judge: int, folder: str) -> int:
    return next(pid for pid in supervisors(judge) if folder_of(pid) == folder)


def the_process(judge: int, folder: str) -> int:
    return children(the_supervisor(judge, folder))[0]


def the_oracle(judge: int, _: str) -> int:
    return next(c for pid in supervisors(judge) if folder_of(pid).startswith("crucible-") for c in children(pid))


def the_baseline(judge: int, _: str) -> int:
    return the_process(judge, "baseline0")


VICTIMS: dict[str, Callable[[int, str], int]] = {
    "supervisor": the_supervisor,
    "oracle": the_oracle,
    "baseline": the_baseline,
    "worker": the_process,
    "server": the_server,
}
"""The server last: with it go processes of candidates to come."""


@pytest.mark.slow
def test_whichever_process_is_killed_only_its_own_candidate_may_lose(crucible_home: Path, tmp_path: Path) -> None:
    files = [write(tmp_path / f"{name}.py", SLOW_ONCE) for name in VICTIMS]
    process = start(
        crucible_home, SMALL_TASK, *files, PLAIN, *QUICKLY, "--baselines", "eager", "--json", tmp_path / "j"
    )
    for number, (name, victim) in enumerate(VICTIMS.items()):
        lines_until(process, f"judging {name}")
        time.sleep(1.5)
        os.kill(victim(process.pid, f"candidate{number}"), signal.SIGKILL)
    out, trouble = process.communicate(timeout=200)
    assert process.returncode == 0, trouble
    found = {entry["name"]: entry for entry in json.loads((tmp_path / "j").read_text())["candidates"]}
    kinds = {name: entry["verdict"]["kind"] for name, entry in found.items()}
    assert kinds == {**dict.fromkeys([*VICTIMS, "plain"], "passed"), "worker": "crashed"}, trouble
    assert "killed by SIGKILL" in found["worker"]["verdict"]["words"]
    assert [s["baseline"] for s in found["plain"]["timing"]["speedups"]] == ["eager"]  # it came up again
    assert "Traceback" not in trouble and "Traceback" not in out
    assert wait_until_gone(str(crucible_home.parent / "tmp")) == []


@pytest.mark.slow
def test_a_run_that_was_cut_short_goes_on_with_what_is_missing(crucible_home: Path, tmp_path: Path) -> None:
    sleeper = write(tmp_path / "sleeper.py", SLEEPER)
    other = write(tmp_path / "other.py", PLAIN_SOURCE + "\n# other\n")
    limits = ["--run-limit", "6", "--seed", "77", "--baselines", "none"]
    process = start(crucible_home, SMALL_TASK, PLAIN, sleeper, other, *QUICKLY, *limits)
    lines_until(process, "judging sleeper")
    process.send_signal(signal.SIGTERM)
    _, trouble = process.communicate(timeout=60)
    assert process.returncode == 143, trouble
    (folder,) = (crucible_home / "runs").iterdir()
    assert f"--resume {folder.name}" in trouble
    sleeper.unlink()  # the run has its own copy of all that it was asked for
    first = (folder / "candidates/000-plain.json").read_text()
    assert json.loads((folder / "run.json").read_text())["cut_short"] == "interrupted"

    process = start(crucible_home, "--resume", folder.name)
    lines_until(process, "judging sleeper")
    process.kill()
    process.communicate(timeout=60)
    assert wait_until_gone(str(crucible_home.parent / "tmp"), 15) == []

    process = start(crucible_home, "--resume", "latest", "--json", tmp_path / "run.json")
    out, trouble = process.communicate(timeout=120)
    assert process.returncode == 0, trouble
    assert "1 of 3 candidates is judged" in trouble and "judging plain" not in trouble
    data = json.loads((tmp_path / "run.json").read_text())
    kinds = {entry["name"]: entry["verdict"]["kind"] for entry in data["candidates"]}
    assert kinds == {"plain": "passed", "sleeper": "timed-out", "other": "passed"}
    assert data["seed"] == 77 and data["cut_short"] == "" and data["trouble"] == ""
    assert (folder / "candidates/000-plain.json").read_text() == first
    assert list((crucible_home / "runs").iterdir()) == [folder]
    assert "best:" in out


@pytest.mark.slow
def test_json_is_written_when_the_judge_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = (SMALL_TASK / "reference.py").read_text()
    huge = source.replace("return F.leaky_relu", "torch.empty(10**15); return F.leaky_relu")
    task = write(tmp_path / "huge.py", huge)
    file = tmp_path / "run.json"
    monkeypatch.setattr(sys, "argv", ["crucible", "judge", str(task), str(PLAIN), *QUICKLY, "--json", str(file)])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 3
    data = json.loads(file.read_text())
    assert data["cut_short"] == "failed" and "out of memory" in data["trouble"] and data["candidates"] == []
    assert "the judge failed" in capsys.readouterr().err


def test_a_mistake_of_any_command_is_told_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def planted(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a fault that was planted")

    monkeypatch.setattr(planner, "fold", planted)
    monkeypatch.setattr(sys, "argv", ["crucible", "fuse", str(SMALL_TASK), "-o", str(tmp_path / "fused.py")])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 3
    words = capsys.readouterr().err
    assert words.startswith("crucible: a mistake in Crucible: ZeroDivisionError: a fault that was planted (")
    assert words.endswith("CRUCIBLE_TRACEBACK=1 shows all of it\n") and words.count("\n") == 1


@pytest.mark.slow
def test_what_the_judges_own_code_raises_over_one_candidate_is_that_candidates_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crucible_home: Path
) -> None:
    write(tmp_path / "aa_unlucky.py", PLAIN_SOURCE + "\n# unlucky\n")
    write(tmp_path / "lucky.py", PLAIN_SOURCE)
    real = examine.Examination._audit

    def planted(self: examine.Examination, *, after_running: bool = False) -> None:
        if after_running and self.candidate.name == "aa_unlucky":
            raise ZeroDivisionError("a fault that was planted")
        real(self, after_running=after_running)

    monkeypatch.setattr(examine.Examination, "_audit", planted)
    options = {"device": "cpu", "baselines": "none", "limits": Limits(race_s=0.05, shrink_s=0, stress_s=0)}
    run = crucible.judge(SMALL_TASK, [tmp_path], **options)
    outcome = run.verdict("aa_unlucky").outcome
    assert outcome.kind == "not-judged" and "the judge failed: ZeroDivisionError" in outcome.words
    assert "planted" in run.verdict("aa_unlucky").log  # where, for whoever mends it
    assert run.verdict("lucky").evaluation and run.cut_short == ""
    monkeypatch.undo()
    monkeypatch.setenv("CRUCIBLE_HOME", str(crucible_home))
    again = pipeline.resume("latest")  # what the judge failed on is missing
    assert again.verdict("aa_unlucky").evaluation and again.folder == run.folder
    assert again.verdict("aa_unlucky").seed == again.seed == run.seed  # the secret one, recorded
    assert all(verdict.cached for verdict in crucible.judge(SMALL_TASK, [tmp_path], **options).verdicts)


def test_a_request_comes_back_as_it_was(tmp_path: Path) -> None:
    task = crucible.Task.load(SMALL_TASK).at(scale="full", training=True, mode="eval", small_by_default=False)
    task = task.shaped(["batch_size=3", "batch_size=5"]).cut_down(own=False)
    candidate = crucible.Candidate("odd\udc80", Path("x.py"), "text \ud800")
    versions = {"python": "3"}
    rest = (None, 5, True, Limits(run_s=3), (), False, True, [candidate])
    rule = find_contract("fp32")
    asked = Request(task, rule, Device("cpu", "one", "d"), versions, "code", *rest)
    folder = store.RunFolder(tmp_path)
    folder.begin(asked.to_json())
    again = request_from_json(folder.request())
    assert again == asked and again.task.digest == task.digest
    again.check(Device("cpu", "one", "d"), versions, "code")
    with pytest.raises(MisuseError, match=r"device was one, is two; .*python was 3, is 4"):
        again.check(Device("cpu", "two", "d"), {"python": "4"}, "code")


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"schema": "crucible.request/1"}', "[" * 10**5])
def test_a_request_that_cannot_be_read_is_named(content: str, tmp_path: Path) -> None:
    write(tmp_path / "request.json", content)
    with pytest.raises(RecordError):
        pipeline.resume(str(tmp_path))


def test_a_fresh_process_says_whether_a_device_computes(tmp_path: Path) -> None:
    assert answers("cpu", tmp_path, Limits())
    assert not answers("meta", tmp_path, Limits())  # whose values cannot be had
