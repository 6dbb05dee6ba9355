"""Mutated tasks for the fuzzer, answered by the real oracle in one process.

What must hold: whatever a task's file holds, the oracle answers, or refuses it as the task's fault in a line that says
why, or for its means (memory, time); its process ends for nothing that a task does, memory and time aside.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import crucible
from crucible import legible
from crucible.errors import JudgeError, MisuseError, TaskError
from crucible.judge.process.oracle_process import OracleProcess

LIMITS = crucible.Limits(memory_bytes=2 << 30)
ANSWER_S = 20.0
_OF_MEANS = re.compile(r"memory|took over \d|would take")
"""Of a refusal for what an answer takes; the process may be over then."""
Mutated = Callable[[random.Random], str]


def answered(count: int, seed: int, folder: Path, mutated: Mutated) -> Iterator[str]:
    """Yields what does not hold of `count` tasks that are read, in words that reproduce it."""
    oracle, tried = _started(folder, 0), 0
    try:
        for number in range(count * 20):
            request = _request(folder, mutated(random.Random(f"{seed}/task/{number}")))
            if request is None:
                continue
            trouble, lost = _answer(oracle, request)
            if trouble:
                yield f"task {seed}/{number}: {trouble}\n{request['source']}"
            if lost:
                oracle.kill()
                oracle = _started(folder, number + 1)
            tried += 1
            if tried == count:
                return
    finally:
        oracle.kill()


def _started(folder: Path, number: int) -> OracleProcess:
    work = folder / f"oracle{number}"
    (work / "inputs").mkdir(parents=True)
    return OracleProcess(work, LIMITS)


def _request(folder: Path, text: str) -> dict[str, Any] | None:
    """What the judge asks for a task; None for a file that it refuses to read."""
    file = folder / "mutated.py"
    file.write_bytes(text.encode(errors="surrogatepass"))
    try:
        task = crucible.Task.load(file).at(scale=None, training=False, mode="train", small_by_default=True)
    except MisuseError:
        return None
    sizes = {"sizes": task.sizes, "first": task.first, "further": task.further, "asked": bool(task.asked)}
    smaller = {"smaller": task.how_to_make_it_smaller, "smaller_weights": task.smaller_weights}
    how = {"mode": task.mode, "training": task.training, "contract": "tf32", "device": "cpu", "seed": 5}
    return {"source": task.source, "path": str(file), **sizes, **smaller, **how, "secrets": [[7], [8]]}


def _answer(oracle: OracleProcess, request: dict[str, Any]) -> tuple[str, bool]:
    """What does not hold, and whether the process is of no more use."""
    try:
        oracle.prepare(request, lambda text: None, lambda: None, ANSWER_S)
        said = ""
    except TaskError as error:
        said = str(error)
    except JudgeError as error:
        return ("" if _OF_MEANS.search(str(error)) else f"{type(error).__name__}: {error}"), not oracle.is_well(5.0)
    if said and (not said.strip() or len(said) > 3000 or len(legible.line(said).splitlines()) > 1):
        return f"its refusal: {said[:500]!r}", False
    return "", not oracle.is_well(5.0)
