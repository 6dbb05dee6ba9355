"""The process that a slot's candidates are judged in: reads batches, one a line, writes what comes of them, one a line.

Started as `python -m crucible.fleet.workers`. What it is told comes on stdin, and the end of that is the end of its
work: whoever started it may have been killed. Events go to stdout:

    {"event": "ready", "process": ..., "device": {"kind": ..., "name": ..., "driver": ...}, "judge": ...,
     "trouble": ...}                                       what is wrong with the device, or nothing
    {"event": "said", "text": ...}
    {"event": "judged", "number": ..., "run": {...}}       a verdict, as a run that holds it alone
    {"event": "failed", "number": ..., "reason": ...}      the judge failed on this one
    {"event": "ended", "reason": ..., "final": ...}        of the batch; with a reason, of what is left of it
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

from crucible import hardware, legible, pipeline, store
from crucible.candidate import Candidate
from crucible.errors import CrucibleError, DeviceError, MisuseError, own_error
from crucible.fleet.submission import Submission, submission_from_json
from crucible.hardware import Device
from crucible.judge.attempts import answers, is_own_failure
from crucible.judge.process.folders import temporary
from crucible.judge.process.limits import Limits
from crucible.judge.verdict.verdict import NotJudged
from crucible.listening import Listener
from crucible.run import Run

Tell = Callable[[dict[str, Any]], None]
IN_ORDER_S = 20.0
"""For what is being judged to end, once nobody listens any more."""


def judge_batch(batch: Sequence[Submission], fresh: bool, tell: Tell) -> None:
    """Judges submissions of one batch in one run of the pipeline; tells of each as it comes, and of the end."""
    reason, final = "", False
    try:
        with temporary("crucible-fleet-") as folder:
            reason = _judge(batch, fresh, tell, folder)
    except MisuseError as error:
        reason, final = str(error), not isinstance(error, DeviceError)
    except CrucibleError as error:
        reason = str(error)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is nobody's verdict
        reason = str(own_error(error))
    tell({"event": "ended", "reason": reason, "final": final})


def _judge(batch: Sequence[Submission], fresh: bool, tell: Tell, folder: Path) -> str:
    """Why the run ended before its time, or nothing."""
    candidates = _of_different_names([one.candidate for one in batch])

    def say(text: str) -> None:
        tell({"event": "said", "text": legible.line(text)})

    task = batch[0].task(folder)
    options = {**batch[0].arguments, "fresh": fresh, "root": folder}  # the ledger keeps what is in the run's folder
    run = pipeline.judge(task, candidates, **options, say=say, listener=_Telling(batch, candidates, tell))
    return run.trouble.partition(f"; {len(run.verdicts)} of ")[0] or "it was cut short" if run.cut_short else ""


class _Telling(Listener):
    """Tells of each verdict as it comes."""

    def __init__(self, batch: Sequence[Submission], candidates: Sequence[Candidate], tell: Tell) -> None:
        self._names = [one.candidate_name for one in batch]
        self._numbers = {candidate.name: i for i, candidate in enumerate(candidates)}
        self._tell = tell

    def reached(self, run: Run) -> None:
        (verdict,) = run.verdicts
        number = self._numbers[verdict.candidate]
        if is_own_failure(verdict):
            reason = verdict.outcome.reason if isinstance(verdict.outcome, NotJudged) else ""
            self._tell({"event": "failed", "number": number, "reason": reason})
        else:
            run = _named(run, self._names[number])
            self._tell({"event": "judged", "number": number, "run": run.to_json()})


def _of_different_names(candidates: Sequence[Candidate]) -> list[Candidate]:
    """The pipeline tells them by name; a ledger tells them by content."""
    found: dict[str, Candidate] = {}
    for candidate in candidates:
        name, more = candidate.name, 1
        while name in found:
            more += 1
            name = f"{candidate.name}~{more}"
        found[name] = dataclasses.replace(candidate, name=name, path=candidate.path.with_name(f"{name}.py"))
    return list(found.values())


def _named(run: Run, name: str) -> Run:
    verdict = run.verdicts[0]
    sources = {name: run.sources[verdict.candidate]}
    return dataclasses.replace(run, verdicts=(dataclasses.replace(verdict, candidate=name),), sources=sources)


def main() -> None:
    """Until stdin ends."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)  # what anything prints here is no event
    telling = threading.Lock()

    def tell(event: dict[str, Any]) -> None:
        with telling:
            out.write(json.dumps(event, allow_nan=False) + "\n")
            out.flush()

    try:
        told = json.loads(sys.stdin.readline() or "null")
        if told is None:
            return
        _keep_to(told["cores"])
        ready = {"event": "ready", "process": os.getpid(), "judge": store.code_digest()}
        tell({**ready, **_looked_at(told["device"], told["probe"])})
        batches: queue.Queue[Any] = queue.Queue()
        threading.Thread(target=_read, args=(sys.stdin, batches), daemon=True).start()
        while (line := batches.get()) is not None:
            judge_batch([submission_from_json(one) for one in line["batch"]], line["fresh"], tell)
    except (KeyboardInterrupt, BrokenPipeError):
        os._exit(0)  # nobody listens; what was judged in part has ended in order


def _keep_to(cores: Sequence[int]) -> None:
    """To its cores, and at everybody's priority: Ray's own is the lowest but a few, at which a busy machine let the
    judge's processes not come up in two minutes."""
    if cores:
        os.sched_setaffinity(0, cores)
    if os.getpriority(os.PRIO_PROCESS, 0) > 0:
        with contextlib.suppress(PermissionError):  # not root: `RAY_worker_niceness=0 ray start` is for that
            os.setpriority(os.PRIO_PROCESS, 0, 0)


def _looked_at(kind: str, probe: bool) -> dict[str, Any]:
    """What device there is, and what is wrong with it."""
    try:
        device = hardware.find_device(kind)
    except DeviceError as error:
        return {"device": vars(Device("", "", "")), "trouble": str(error)}
    return {"device": vars(device), "trouble": _trouble(device) if probe else ""}


def _trouble(device: Device) -> str:
    with temporary("crucible-fleet-") as folder:
        well = answers(device.kind, folder, Limits())
    return "" if well else f"a fresh process cannot compute on {device.name}: reset it (nvidia-smi --gpu-reset)"


def _read(stream: IO[str], batches: queue.Queue[Any]) -> None:
    """Lines as they come; at the end of them, ends what the main thread does."""
    for line in stream:
        batches.put(json.loads(line))
    batches.put(None)
    main_thread = threading.main_thread().ident
    if main_thread is not None:
        signal.pthread_kill(main_thread, signal.SIGINT)
    time.sleep(IN_ORDER_S)
    os._exit(1)


if __name__ == "__main__":
    main()
