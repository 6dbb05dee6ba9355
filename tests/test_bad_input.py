"""Tasks, candidates, disks and users that misbehave: each gets a clear word, and nothing is left running."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import crucible
from crucible import cli
from crucible.errors import CandidateError, TaskError
from support import PLAIN, SMALL_TASK, Judge, processes_mentioning, wait_until_gone, write

PLAIN_SOURCE = PLAIN.read_text()
TASK_SOURCE = (SMALL_TASK / "reference.py").read_text()
RETURNS = "        return F.leaky_relu(self.linear(x), self.negative_slope) * self.scale + self.bias"


def returning(*lines: str) -> str:
    """The plain candidate with another end of its forward."""
    assert RETURNS in PLAIN_SOURCE
    return PLAIN_SOURCE.replace(RETURNS, "\n".join(f"        {line}" for line in lines))


def importing(*lines: str) -> str:
    """The plain candidate that first does something when it is imported."""
    return "\n".join([*lines, PLAIN_SOURCE])


# --- tasks


def task_returning(*lines: str) -> str:
    return TASK_SOURCE.replace(RETURNS, "\n".join(f"        {line}" for line in lines))


STATIC_TASKS = {
    "without_model": (TASK_SOURCE.replace("class Model(", "class Modell("), ["defines no Model", "get_inputs"]),
    "without_inputs": (TASK_SOURCE.replace("def get_inputs", "def inputs"), ["defines no get_inputs"]),
    "syntax_error": (TASK_SOURCE.replace("return [torch.rand", "return [[torch.rand"), ["not valid Python", "line 2"]),
    "null_bytes": (TASK_SOURCE + "\0", ["not valid Python"]),
    "small_names_unknown": (
        TASK_SOURCE + "SMALL = {'batch_size': 2, 'depht': 3}\n",
        ["SMALL names depht", "does not define"],
    ),
    "small_is_computed": (TASK_SOURCE + "SMALL = dict(batch_size=2)\n", ["SMALL must be a literal dict"]),
}
RUNNING_TASKS = {
    "raises_in_forward": (
        task_returning("raise ValueError('no such thing')"),
        TaskError,
        ["line 17", "Model.forward raises ValueError: no such thing"],
    ),
    "raises_in_init": (
        TASK_SOURCE.replace("return [in_features, out", "return [in_features, 1, 2, out"),
        TaskError,
        ["Model(...) raises TypeError"],
    ),
    "gives_nan": (task_returning("return self.linear(x) * float('nan')"), TaskError, ["output has NaN"]),
    "gives_nothing": (
        task_returning("torch.rand(3)", "return None"),
        TaskError,
        ["returns no tensor", "let Model.forward"],
    ),
    "draws_random_numbers": (
        task_returning(
            "now = torch.Generator().manual_seed(__import__('time').time_ns() % 2**40)",
            "return self.linear(x) + torch.rand(4, 16, generator=now)",  # a single one is near the next now and then
        ),
        TaskError,
        ["draws random numbers", "--mode eval"],
    ),
    "needs_too_much_memory": (
        task_returning("return self.linear(x) + torch.empty(10**15)[:16]"),
        crucible.JudgeError,
        ["out of memory"],
    ),
}


def run_cli(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    """The command line's exit code, in this process."""
    monkeypatch.setattr(sys, "argv", ["crucible", *arguments])
    with pytest.raises(SystemExit) as end:
        cli.main()
    return int(end.value.code or 0)


@pytest.mark.parametrize("name", STATIC_TASKS)
def test_a_task_that_cannot_be_read_is_named_with_its_fault(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source, words = STATIC_TASKS[name]
    file = write(tmp_path / f"{name}.py", source)
    with pytest.raises(TaskError) as error:
        crucible.judge(file, [PLAIN], device="cpu")
    for word in [str(file), *words]:
        assert word in str(error.value)
    assert run_cli(["judge", str(file), str(PLAIN)], monkeypatch) == 2
    assert str(error.value) in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNNING_TASKS)
def test_a_task_that_fails_when_run_is_named_with_its_fault(name: str, tmp_path: Path) -> None:
    source, kind, words = RUNNING_TASKS[name]
    file = write(tmp_path / f"{name}.py", source)
    with pytest.raises(kind) as error:
        crucible.judge(file, [PLAIN], device="cpu")
    for word in words if kind is crucible.JudgeError else [str(file), *words]:
        assert word in str(error.value)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "code"), [("raises_in_forward", 2), ("needs_too_much_memory", 3)])
def test_exit_codes_tell_the_task_from_the_judge(
    name: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source, _, words = RUNNING_TASKS[name]
    file = write(tmp_path / f"{name}.py", source)
    assert run_cli(["judge", str(file), str(PLAIN), "--device", "cpu"], monkeypatch) == code
    shown = capsys.readouterr().err
    assert all(word in shown for word in words)
    assert ("the judge failed" in shown) == (code == 3)
    assert "Traceback" not in shown


def test_dropout_is_fine_in_eval_mode(tmp_path: Path, judge_source: Judge) -> None:
    file = write(tmp_path / "dropout.py", task_returning("return F.dropout(self.linear(x), 0.5, self.training)"))
    plain = returning("return self.linear(x)")
    assert judge_source(plain, task=file, mode="eval").evaluation
    assert not judge_source(plain, task=file, name="in_training").evaluation


def test_a_folder_without_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "empty/notes.py", "a = 1\n")
    with pytest.raises(TaskError, match=r"give a reference file, or a folder with a reference\.py"):
        crucible.judge(tmp_path / "empty", [PLAIN])
    for missing in (tmp_path / "empty", tmp_path / "nowhere"):
        assert run_cli(["judge", str(missing), str(PLAIN)], monkeypatch) == 2
        assert str(missing) in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"contract": "exact"}, "choose one of fp32"),
        ({"mode": "test"}, "choose one of train, eval"),
        ({"scale": "tiny"}, "choose full or small"),
        ({"scale": "small"}, "no small size"),
        ({"device": "tpu"}, "choose auto, cuda, cpu or emulator"),
    ],
)
def test_unknown_settings_say_what_there_is(options: dict[str, str], words: str) -> None:
    with pytest.raises(crucible.MisuseError, match=words):
        crucible.judge(SMALL_TASK, [PLAIN], **{"device": "cpu", **options})


def test_two_candidates_of_one_name(tmp_path: Path) -> None:
    files = [write(tmp_path / folder / "same.py", PLAIN_SOURCE) for folder in ("a", "b")]
    with pytest.raises(CandidateError, match="two candidates are named 'same'") as error:
        crucible.judge(SMALL_TASK, files, device="cpu")
    assert all(str(file) in str(error.value) for file in files)


def test_no_candidates_at_all(tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    with pytest.raises(CandidateError, match="no candidate in"):
        crucible.judge(SMALL_TASK, [tmp_path / "none"], device="cpu")
    with pytest.raises(CandidateError, match="no candidate at"):
        crucible.judge(SMALL_TASK, [tmp_path / "missing.py"], device="cpu")


# --- candidates that need no limit

ODD_NAME = """it's "odd" [bold] name"""
CANDIDATES: dict[str, tuple[str | bytes, str, str, str]] = {
    # name: source, kind, what (where the outcome has one), words
    "syntax_error": (importing("def broken(:"), "does-not-import", "", "syntax error, line 1"),
    "no_model_new": (PLAIN_SOURCE.replace("ModelNew", "Model"), "does-not-import", "", "defines no class ModelNew"),
    "model_new_makes_no_module": (
        PLAIN_SOURCE.replace("class ModelNew", "class Other") + "\ndef ModelNew(*a):\n    return Other\n",
        "does-not-import",
        "",
        "ModelNew(...) is a type, not a torch.nn.Module",
    ),
    "not_a_module": ("class ModelNew:\n    def __init__(self, *a): pass\n", "does-not-import", "", "torch.nn.Module"),
    "other_signature": (
        PLAIN_SOURCE.replace("out_features, negative_slope):", "out_features):", 1),
        "does-not-import",
        "",
        "construction",
    ),
    "raises_at_import": (importing("raise ValueError('not today')"), "does-not-import", "", "line 1: ValueError"),
    "empty_file": ("", "does-not-import", "", "the file is empty"),
    "only_a_comment": ("# nothing here\n", "does-not-import", "", "defines no ModelNew"),
    "binary_garbage": (bytes(range(1, 256)) * 40, "does-not-import", "", ""),
    "null_bytes": (PLAIN_SOURCE.encode() + b"\0\0", "does-not-import", "", "null bytes"),
    "byte_order_mark": (b"\xef\xbb\xbf" + PLAIN_SOURCE.replace("\n", "\r\n").encode(), "passed", "", ""),
    "returns_tuple": (returning("return (self.linear(x), x)"), "wrong", "structure", "(tensor, tensor)"),
    "returns_none": (returning("return None"), "wrong", "structure", "None"),
    "returns_numpy": (returning("return self.linear(x).detach().numpy()"), "wrong", "structure", "ndarray"),
    "wrong_shape": (returning("return self.linear(x).t()"), "wrong", "shape", "[16, 4], should be [4, 16]"),
    "wrong_dtype": (returning("return self.linear(x).double()"), "wrong", "dtype", "float64, should be float32"),
    "huge_shape": (returning("return torch.zeros(1).expand(10**12, 16)"), "wrong", "shape", "1000000000000"),
    "gives_nan": (returning("return self.linear(x) / 0 * 0"), "wrong", "nan", "NaN"),
    "gives_infinity": (returning("return self.linear(x) / 0"), "wrong", "forward", ""),
    "segfaults": (
        returning("import ctypes", "return ctypes.string_at(0)"),
        "crashed",
        "",
        "SIGSEGV",
    ),
    "aborts": (returning("import os", "os.abort()"), "crashed", "", "SIGABRT"),
    "exits_with_an_error": (returning("import os", "os._exit(7)"), "crashed", "", "exit code 7"),
    "recurses_without_end": (returning("return self.forward(x)"), "raises", "", "RecursionError"),
    "raises_in_forward": (returning("raise KeyError('weights')"), "raises", "", "line 17: KeyError"),
    "raises_without_words": (returning("raise ValueError"), "raises", "", "ValueError"),
    "raises_a_long_message": (returning("raise ValueError('long ' * 10**7)"), "raises", "", "long"),
    "raises_what_cannot_be_shown": (
        returning(
            "class Hidden(Exception):",
            "    def __str__(self):",
            "        raise ValueError('no words')",
            "raise Hidden",
        ),
        "raises",
        "",
        "no words",
    ),
    "prints_without_end": (
        importing("import os", "for _ in range(1024):", "    os.write(1, b'chatter ' * (1 << 17))"),
        "passed",
        "",
        "",
    ),
    ODD_NAME: (PLAIN_SOURCE, "passed", "", ""),
}


@pytest.fixture(scope="module")
def bad_candidates(
    judge_batch: Callable[..., crucible.Run], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, crucible.Verdict]:
    folder = tmp_path_factory.mktemp("bad")
    for name, (source, *_) in CANDIDATES.items():
        (folder / f"{name}.py").write_bytes(source if isinstance(source, bytes) else source.encode())
    run = judge_batch(SMALL_TASK, [folder])
    return {verdict.candidate: verdict for verdict in run.verdicts}


@pytest.mark.slow
@pytest.mark.parametrize("name", CANDIDATES)
def test_a_bad_candidate_gets_its_own_verdict(name: str, bad_candidates: dict[str, crucible.Verdict]) -> None:
    _, kind, what, words = CANDIDATES[name]
    outcome = bad_candidates[name].outcome
    assert outcome.kind == kind, outcome.words
    assert getattr(outcome, "what", "") == what, outcome.words
    assert words in outcome.words
    assert len(outcome.words) < 1000


def test_endless_output_is_kept_in_part(bad_candidates: dict[str, crucible.Verdict]) -> None:
    log = bad_candidates["prints_without_end"].log
    assert "bytes left out" in log
    assert len(log) < 200_000


# --- candidates that run into a limit

FORK_BOMB_SLEEP = "31415.926"
LIMITS = crucible.Limits(build_s=6, run_s=5, race_s=0.05, memory_bytes=2 << 30, processes=24)
PATIENT = replace(LIMITS, build_s=120, run_s=120)
"""Of those that another limit ends: a busy machine gives a process 2 GB of memory in 6 s."""
ENDLESS_BUILD = '''
from torch.utils.cpp_extension import load_inline
SOURCE = """
#include <utility>
template <unsigned n> struct Slow { static constexpr unsigned value = Slow<n - 1>::value + Slow<n - 1>::value; };
template <> struct Slow<0> { static constexpr unsigned value = 1; };
constexpr unsigned long turn(unsigned long n) { unsigned long s = 0; while (n--) s += n; return s; }
constexpr unsigned long never = turn(1ul << 60);
"""
load_inline(
    "endless", [SOURCE], no_implicit_headers=True,
    extra_cflags=["-fconstexpr-ops-limit=9000000000000000000", "-fconstexpr-loop-limit=2147483647"],
)
'''
LIMITED = {
    "endless_import": (
        importing("import time", "while True: time.sleep(1)"),
        "timed-out",
        "import or build took over 6 s",
    ),
    "endless_build": (importing(ENDLESS_BUILD), "timed-out", "import or build took over 6 s"),
    "never_returns": (returning("while True: pass"), "timed-out", "forward took over 5 s"),
    "sleeping_backward": (
        importing("import time")
        + "\n\nclass Slow(torch.autograd.Function):\n"
        + "    @staticmethod\n    def forward(ctx, y):\n        return y.clone()\n\n"
        + "    @staticmethod\n    def backward(ctx, g):\n        time.sleep(1000)\n        return g\n",
        "timed-out",
        "backward took over 5 s",
    ),
    "fork_bomb": (
        importing(
            "import subprocess",
            f"children = [subprocess.Popen(['sleep', '{FORK_BOMB_SLEEP}']) for _ in range(400)]",
        ),
        "cheated",
        "the limit is 24",
    ),
    "orphan_maker": (
        importing("import os", f"os.system('setsid sh -c \"sleep {FORK_BOMB_SLEEP} &\" &')"),
        "passed",
        "",
    ),
    "memory_hog": (
        returning("hoard = [torch.ones(64 << 20) for _ in range(40)]", "return hoard[0]"),
        "out-of-memory",
        "the limit is 2048",
    ),
    "one_huge_allocation": (returning("return torch.empty(10**14)"), "out-of-memory", ""),
}
SLOW_BACKWARD = LIMITED["sleeping_backward"][0].replace(
    RETURNS, f"        return Slow.apply({RETURNS.split('return ')[1]})"
)
LIMITED["sleeping_backward"] = (SLOW_BACKWARD, *LIMITED["sleeping_backward"][1:])


@pytest.fixture(scope="module")
def limited(
    judge_batch: Callable[..., crucible.Run], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, crucible.Verdict]:
    folder = tmp_path_factory.mktemp("limited")
    for name, (source, *_) in LIMITED.items():
        write(folder / f"{name}.py", source)
    found: dict[str, crucible.Verdict] = {}
    for limits in (LIMITS, PATIENT):
        named = [name for name, (_, kind, _) in LIMITED.items() if (kind == "timed-out") == (limits is LIMITS)]
        run = judge_batch(SMALL_TASK, [folder / f"{name}.py" for name in named], limits=limits)
        found.update({verdict.candidate: verdict for verdict in run.verdicts})
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", LIMITED)
def test_a_limit_ends_what_passes_it(name: str, limited: dict[str, crucible.Verdict]) -> None:
    _, kind, words = LIMITED[name]
    assert limited[name].outcome.kind == kind, limited[name].outcome.words
    assert words in limited[name].outcome.words


@pytest.mark.slow
def test_no_process_of_a_candidate_outlives_its_judgement(limited: dict[str, crucible.Verdict]) -> None:
    assert len(limited) == len(LIMITED)
    assert wait_until_gone(FORK_BOMB_SLEEP) == []


# --- disks

CLI = [sys.executable, "-m", "crucible"]
QUICKLY = ["--device", "cpu", "--baselines", "none", "--race-limit", "0.05"]


def temporary_of(home: Path) -> Path:
    return home.with_name(f"{home.name}-tmp")


def start_cli(
    home: Path, *arguments: str | Path, first: Callable[[], None] = lambda: None, **options: object
) -> subprocess.Popen[str]:
    """The command line in a process of its own, which does something `first`, its temporary files beside `home`."""

    def prepare() -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # jobs in a shell's background ignore it
        first()

    temporary = temporary_of(home)
    temporary.mkdir(exist_ok=True)
    own = {name: value for name, value in os.environ.items() if not name.startswith("COV")}  # its writes would fail too
    return subprocess.Popen(
        [*CLI, "judge", *map(str, arguments), *QUICKLY],
        env={**own, "CRUCIBLE_HOME": str(home), "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=prepare,
        **options,  # type: ignore[call-overload]
    )


@pytest.mark.slow
def test_a_full_disk_costs_no_verdict_of_a_cached_run(crucible_home: Path) -> None:
    out, _ = (first := start_cli(crucible_home, SMALL_TASK, PLAIN)).communicate(timeout=120)
    assert first.returncode == 0
    runs = set((crucible_home / "runs").iterdir())

    def no_space() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))

    out, trouble = (again := start_cli(crucible_home, SMALL_TASK, PLAIN, first=no_space)).communicate(timeout=120)
    assert again.returncode == 0, trouble
    assert "best: plain" in out
    assert "cannot write" in trouble and "free some space" in trouble
    assert "Traceback" not in trouble
    for folder in set((crucible_home / "runs").iterdir()) - runs:
        assert [file for file in folder.rglob("*") if file.is_file()] == []  # nothing half-written


@pytest.mark.slow
def test_a_home_that_cannot_be_written_costs_no_verdict(tmp_path: Path) -> None:
    (tmp_path / "a_file").write_text("in the way")
    home = tmp_path / "a_file" / "home"
    process = subprocess.Popen(
        [*CLI, "judge", str(SMALL_TASK), str(PLAIN), *QUICKLY],
        env={**os.environ, "CRUCIBLE_HOME": str(home)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    out, trouble = process.communicate(timeout=120)
    assert process.returncode == 0, trouble
    assert "best: plain" in out
    assert "cannot write" in trouble and "CRUCIBLE_HOME" in trouble
    assert "Traceback" not in trouble
    assert "kept in" not in trouble


# --- Ctrl-C


@pytest.mark.slow
def test_an_interrupted_run_keeps_what_it_has(crucible_home: Path, tmp_path: Path) -> None:
    sleeper = write(tmp_path / "sleeper.py", returning("import time", "time.sleep(1000)"))
    process = start_cli(crucible_home, SMALL_TASK, PLAIN, sleeper)
    deadline = time.monotonic() + 90
    while not (kept := list(crucible_home.glob("runs/*/candidates/000-plain.json"))):
        assert process.poll() is None and time.monotonic() < deadline, process.communicate()
        time.sleep(0.05)
    time.sleep(1)
    assert processes_mentioning(str(tmp_path))
    process.send_signal(signal.SIGINT)
    out, trouble = process.communicate(timeout=30)
    assert process.returncode == 130, trouble
    assert json.loads(kept[0].read_text())["evaluation"] is True
    assert "best: plain" in out and "True" in out
    assert "judged 1 of 2 candidates" in trouble
    assert "Traceback" not in trouble
    assert json.loads((kept[0].parents[1] / "run.json").read_text())["best"] == "plain"
    assert wait_until_gone(str(tmp_path)) == []
    assert list(temporary_of(crucible_home).glob("crucible-*")) == []


@pytest.mark.slow
def test_a_killed_judge_leaves_no_process(crucible_home: Path, tmp_path: Path) -> None:
    sleeper = write(tmp_path / "sleeper.py", importing("import time", "time.sleep(1000)"))
    process = start_cli(crucible_home, SMALL_TASK, sleeper)
    own = str(temporary_of(crucible_home))
    deadline = time.monotonic() + 30
    while len(processes_mentioning(own)) < 4 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert len(processes_mentioning(own)) >= 4  # the judge's, its server's, the oracle's, the candidate's
    process.kill()
    process.communicate(timeout=30)
    assert wait_until_gone(own, 15) == []
