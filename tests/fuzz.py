"""A fuzzer for the front door: tasks, candidates, options and what processes answer, mutated at random.

    python tests/fuzz.py --count 10000 [--seed 1] [--judged 100] [--answered 1000]

Each input is tried where it is read first, in this process: a task, a candidate, a command line, a reply, a record. Of
`--judged` runs with mutated candidates every one goes through the whole judge, several candidates at a time, beside one
that is right; of `--answered` mutated tasks every one goes through the oracle (`fuzz_tasks.py`). What must hold: exit
codes are 0, 1, 2 and 3; what is said names its cause in a line; no traceback; the candidate beside them passes; nothing
is left running. Prints what does not hold, with what reproduces it.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import random
import re
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parent
sys.path[:0] = [str(TESTS), str(TESTS.parent / "src")]

import crucible  # noqa: E402
import fuzz_tasks  # noqa: E402
from crucible import cli, legible, shapes  # noqa: E402
from crucible.candidate import Candidate  # noqa: E402
from crucible.errors import CrucibleError, MisuseError  # noqa: E402
from crucible.explain.findings import findings  # noqa: E402
from crucible.judge.process.replies import _FORMS, is_reply  # noqa: E402
from crucible.judge.verdict.compiler_messages import first_error, line_in  # noqa: E402
from crucible.judge.verdict.stop import Stop, stop_if_raised  # noqa: E402
from crucible.report.markdown import markdown  # noqa: E402
from crucible.request import request_from_json  # noqa: E402
from crucible.run import run_from_json  # noqa: E402
from support import PLAIN, SMALL_TASK, wait_until_gone  # noqa: E402

TASK, GOOD = (SMALL_TASK / "reference.py").read_text(), PLAIN.read_text()
ODD: tuple[Any, ...] = (
    0, -1, 1, 2**31, 2**63, 10**30, 10**400, 0.0, -0.0, 5e-324, 1e308, float("inf"), float("nan"), True, None, "", "no",
    "\0", "\x1b[31m", "\ud800", "\u202e", "x" * 5000, [], {}, (), [[]], {"kind": "passed"},
)  # fmt: skip
PIECES = (
    "(", ")", "'", "\"", "\\", "#", "\n", "\t", "    ", "\u0000", "\ufeff", "\r", "\u00e9", "\ud800", "=", ":", "@",
    "lambda:", "del x\n", "1/0\n", "raise SystemExit\n", "import einops\n", "SMALL = {}\n", "TRAINING = 'no'\n",
    "batch_size = 10**30\n", "batch_size = -1\n", "None", "float('nan')", "[" * 300, "-" * 300, "0x", "async ",
    "yield ", "\u001b[2J",
)  # fmt: skip
OPTIONS = (
    "--contract", "--mode", "--scale", "--device", "--shape", "--gpu", "--seed", "--baselines", "--json", "--page",
    "--build-limit", "--run-limit", "--oracle-limit", "--race-limit", "--shrink-limit", "--memory-limit",
    "--resume", "--training", "--fresh", "--sanitize", "--nothing",
)  # fmt: skip
VALUES = (
    "", "nan", "inf", "-1", "0", "1e999", "9" * 400, "cuda", "emulator", "none", "full", "batch_size=0",
    "batch_size=" + "9" * 30, "=,=", "\udc80", "\u001b[31m", "/dev/full", "/", "/proc/version", "x" * 300, "../..",
    "\u00e9", "\u0663", "1_0", "0x10", "True", "latest",
)  # fmt: skip


def mutated(text: str, chance: random.Random) -> str:
    """A text with a few lines, characters or pieces added, taken away, doubled or exchanged."""
    for _ in range(chance.choice((1, 1, 2, 3, 8))):
        lines = text.split("\n")
        here = chance.randrange(len(lines))
        match chance.randrange(7):
            case 0:
                del lines[here]
            case 1:
                lines.insert(here, chance.choice(lines))
            case 2:
                there = chance.randrange(len(lines))
                lines[here], lines[there] = lines[there], lines[here]
            case 3:
                lines.insert(here, chance.choice(PIECES))
            case 4 if lines[here]:
                at = chance.randrange(len(lines[here]))
                lines[here] = lines[here][:at] + chance.choice(PIECES) + lines[here][at + chance.randrange(3) :]
            case 5:
                words = re.findall(r"\w+", text) or ["x"]
                word = chance.choice(words)
                lines[here] = re.sub(r"\w+", lambda _, word=word: word, lines[here], count=1)  # type: ignore[misc]
            case _:
                lines[here] = re.sub(
                    r"\d+", lambda _: str(chance.choice((0, -1, 3, 10**9, 2**63))), lines[here], count=1
                )
        text = "\n".join(lines) or "\n"
    return text


def deranged(value: Any, chance: random.Random, depth: int = 0) -> Any:
    """JSON data with one thing in it exchanged for something odd."""
    if depth > 6 or not value or not isinstance(value, dict | list) or chance.random() < 0.15:
        return chance.choice(ODD)
    if isinstance(value, dict):
        key = chance.choice(list(value))
        changed = {**value, key: deranged(value[key], chance, depth + 1)}
        if chance.random() < 0.1:
            del changed[key]
        return changed
    at = chance.randrange(len(value))
    return [*value[:at], deranged(value[at], chance, depth + 1), *value[at + 1 :]] * chance.choice((1, 1, 2))


def sample_of(form: Any, chance: random.Random) -> Any:
    """Data of a reply's form."""
    if isinstance(form, dict) and str in form:
        return {f"n{i}": sample_of(form[str], chance) for i in range(chance.randrange(3))}
    if isinstance(form, dict):
        return {name: sample_of(one, chance) for name, one in form.items()}
    if isinstance(form, tuple):
        return [sample_of(one, chance) for one in form]
    if isinstance(form, list):
        return [sample_of(form[0], chance) for _ in range(chance.randrange(3))]
    return {str: "text", int: 3, float: 0.5, bool: False, dict: {}}[form]


# --- what is tried: each raises nothing but the errors that are meant


def try_task(chance: random.Random, folder: Path) -> str:
    text = mutated(TASK, chance)
    file = folder / "task.py"
    file.write_bytes(text.encode(errors="surrogatepass"))
    with contextlib.suppress(MisuseError):
        task = crucible.Task.load(file)
        task = task.at(
            scale=chance.choice((None, "full", "small")), training=False, mode="train", small_by_default=True
        )
        task = task.shaped(chance.choice(([], ["batch_size=3"], [chance.choice(VALUES)]))).cut_down(own=False)
        assert isinstance(task.digest, str) and shapes.own_numbers(task.source) is not None
    return text


def try_candidate(chance: random.Random, folder: Path) -> str:
    text = mutated(GOOD, chance)
    name = chance.choice(("plain", "\x1b[31mred", "new\nline", "\udc80", "a b"))
    file = folder / f"{name}.py"
    file.write_bytes(text.encode(errors="surrogatepass"))
    candidate = Candidate.load(file)
    said = candidate.fault() or ""
    assert isinstance(candidate.digest + candidate.language, str) and len(legible.line(said).splitlines()) <= 1
    line_in(candidate.source, first_error(mutated("Error building extension 'x'\ncuda.cu(3): error: no\n", chance)))
    file.unlink()
    return text


def try_options(chance: random.Random, folder: Path) -> str:
    """A command line with something in it that cannot be; nothing is judged, since there is no such candidate."""
    arguments = ["judge", str(SMALL_TASK), str(folder / "missing.py")]
    for _ in range(chance.randrange(1, 4)):
        option = chance.choice(OPTIONS)
        value = chance.choice(VALUES)
        if option in ("--json", "--page") and value not in ("", "/", "/dev/full", "/proc/version", "../.."):
            value = str(folder / "out")
        arguments += [option] if option in ("--training", "--fresh", "--sanitize") else [option, value]
    code, said = run_cli(arguments)
    assert code in (1, 2, 3), f"exit {code}: {said}"
    assert "Traceback" not in said and said.strip(), said
    return repr(arguments)


def try_reply(chance: random.Random, _: Path) -> str:
    verb = chance.choice([*_FORMS, "trace", "odd"])
    form = _FORMS.get(verb, {})
    reply = {"done": verb, "forked": False, **sample_of(form, chance)}
    if chance.random() < 0.3:
        reply = {"raised": "E", "message": "m", "line": 1, "build_failure": False, "compiled_only": False,
                 "out_of_memory": False, "forked": False}  # fmt: skip
    reply = deranged(reply, chance)
    with contextlib.suppress(ValueError, UnicodeError):
        text = json.dumps(reply)
        again = json.loads(text)
        if isinstance(again, dict) and is_reply(verb, again):
            with contextlib.suppress(Stop):
                stop_if_raised(again, "forward")
    return repr(reply)[:2000]


def try_record(chance: random.Random, _: Path) -> str:
    """A run's record, as somebody else may have written it: it is refused in a line, or shown."""
    data = deranged(_record(), chance)
    with contextlib.suppress(CrucibleError):
        run = run_from_json(data)
        findings(run)
        markdown(run)
    return repr(data)[:2000]


def try_request(chance: random.Random, _: Path) -> str:
    task = {"name": "'a'", "path": "'b'", "source": "''", "small": "{}"}
    whole = {"schema": "crucible.request/1", "task": task, "contract": "tf32", "versions": {}, "code": "", "gpu": ""}
    whole |= {"device": {"kind": "cpu", "name": "a", "driver": "b"}, "seed": 0, "limits": {}, "baselines": ["eager"]}
    whole |= {"sanitize": False, "candidates": [{"name": "a", "path": "b", "source": "c"}]}
    data = deranged(whole, chance)
    with contextlib.suppress(CrucibleError):
        request_from_json(data)
    return repr(data)[:2000]


TRIED: tuple[Callable[[random.Random, Path], str], ...] = (
    try_task, try_candidate, try_options, try_reply, try_reply, try_record, try_request,
)  # fmt: skip


def run_cli(arguments: list[str]) -> tuple[int, str]:
    """Exit code and what was said on both streams."""
    before, out = sys.argv, io.StringIO()
    sys.argv = ["crucible", *arguments]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            cli.main()
    except SystemExit as end:
        return int(end.code or 0) if isinstance(end.code, int | None) else 1, out.getvalue()
    finally:
        sys.argv = before
    return 0, out.getvalue()


_kept: list[Any] = []


def _record() -> Any:
    if not _kept:
        sys.path.append(str(TESTS / "report"))
        from recorded import whole_run

        _kept.append(json.loads(json.dumps(whole_run("x").to_json())))
    return _kept[0]


def judged(chance: random.Random, folder: Path, mutants: int) -> Iterator[str]:
    """One run of the whole judge: mutated candidates beside a right one. Yields what does not hold."""
    files = [folder / "right.py"]
    files[0].write_text(GOOD)
    for i in range(mutants):
        files.append(folder / f"mutant{i}.py")
        files[-1].write_bytes(mutated(GOOD, chance).encode(errors="surrogatepass"))
    told = folder / "run.json"
    limits = ["--run-limit", "20", "--build-limit", "60", "--memory-limit", "3"]
    quick = ["--device", "cpu", "--baselines", "none", "--race-limit", "0.05", "--shrink-limit", "0"]
    code, said = run_cli(["judge", str(SMALL_TASK), *map(str, files), *quick, *limits, "--json", str(told)])
    if code != 0 or "Traceback" in said:
        yield f"exit {code}: {said[-2000:]}"
        return
    entries = {entry["name"]: entry["verdict"] for entry in json.loads(told.read_text())["candidates"]}
    if entries["right"]["kind"] != "passed":
        yield f"the right one: {entries['right']['words']}"
    for name, verdict in entries.items():
        if verdict.get("failed") or not verdict["words"].strip() or len(verdict["words"]) > 3000:
            yield f"{name}: {verdict['words'][:500]}\n{(folder / f'{name}.py').read_text(errors='replace')}"


def fuzz(count: int, seed: int, runs: int, mutants: int = 6, tasks: int = 0) -> list[str]:
    """What does not hold of `count` inputs, of `runs` whole runs and of `tasks` that the oracle answers, in words that
    reproduce it."""
    trouble = []
    with tempfile.TemporaryDirectory(prefix="crucible-fuzz-") as temporary:
        folder = Path(temporary)
        os.environ["CRUCIBLE_HOME"] = str(folder / "home")
        for number in range(count):
            chance = random.Random(f"{seed}/{number}")
            attempt = TRIED[number % len(TRIED)]
            try:
                attempt(chance, folder)
            except Exception:  # noqa: BLE001 - that is what is looked for
                trouble.append(f"{attempt.__name__}, {seed}/{number}: {traceback.format_exc()[-1500:]}")
        for number in range(runs):
            own = folder / f"run{number}"
            own.mkdir()
            trouble += [
                f"run {seed}/{number}: {one}" for one in judged(random.Random(f"{seed}/run/{number}"), own, mutants)
            ]
            trouble += [f"run {seed}/{number} left: {left}" for left in wait_until_gone(str(own))]
        if tasks:
            trouble += fuzz_tasks.answered(tasks, seed, folder, lambda chance: mutated(TASK, chance))
    return trouble


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10_000, help="inputs tried where they are read")
    parser.add_argument("--judged", type=int, default=0, help="whole runs of six mutated candidates and a right one")
    parser.add_argument("--answered", type=int, default=0, help="mutated tasks that the oracle answers")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    asked = parser.parse_args()
    start = time.monotonic()
    trouble = fuzz(asked.count, asked.seed, asked.judged, tasks=asked.answered)
    for one in trouble:
        print(one, end="\n\n")
    took = time.monotonic() - start
    tried = f"{asked.count} inputs, {asked.judged} runs and {asked.answered} tasks by seed {asked.seed}"
    print(f"{tried} in {took:.0f} s: {len(trouble)} do not hold")
    sys.exit(1 if trouble else 0)


if __name__ == "__main__":
    main()
