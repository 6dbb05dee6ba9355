"""The candidate's process and the oracle's, as the judge sees them."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import Any

from crucible.errors import JudgeError, ProcessLostError
from crucible.judge.process import reach, sandbox
from crucible.judge.process.channel import BadMessage, Channel, ChannelClosed, ChannelTimeout, pair
from crucible.judge.process.handing import files_for, opened
from crucible.judge.process.launcher import START_S
from crucible.judge.process.limits import Limits
from crucible.judge.process.replies import is_reply
from crucible.judge.process.supervised import FIRST, SupervisedProcess, exit_in_words, private_environment
from crucible.judge.process.tree_clock import Spent
from crucible.judge.verdict.verdict import Cheated, Crashed, Outcome, OutOfMemory, TimedOut

PIPE_BYTES = 1 << 20
"""What Linux gives an unprivileged pipe at most; the default is a sixteenth."""


class Ended(Exception):
    """A candidate's process is over, with this outcome."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.words)
        self.outcome = outcome


class CandidateProcess:
    """A candidate's process: asked, timed, and ended at the first sign of trouble."""

    def __init__(self, settings: dict[str, Any], folder: Path, readable: list[str], limits: Limits) -> None:
        """Starts it in `folder`, the only place it may write; the files below `settings["inputs"]` are handed over
        with the requests that need them. Raises JudgeError when it does not come up."""
        self.limits = limits
        self.stages_s: dict[str, float] = {}
        """Seconds waited for each stage's answers."""
        ours, theirs = pair()
        self.channel = Channel(ours, most_descriptors=0)
        self._inputs = Path(settings["inputs"])
        results, stream = os.pipe()
        fcntl.fcntl(stream, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        self.results = os.fdopen(results, "rb", buffering=0)
        for name in ("home", "tmp", "extensions"):
            (folder / name).mkdir(parents=True)
        settings = {
            **settings,
            "inputs": "",
            "channel": FIRST,
            "stream": FIRST + 1,
            "held_by": asdict(sandbox.layers()),
            "readable": [*reach.readable(), *reach.python(), *readable],
            "writable": [str(folder)],
            "usable": reach.usable(),
            "file_bytes": limits.file_bytes,
        }
        self._process = SupervisedProcess(
            "process.confined",
            json.dumps(settings),
            folder=folder,
            passed=[theirs.fileno(), stream],
            environment=private_environment(folder, settings["header"]),
            limits=limits,
        )
        theirs.close()
        os.close(stream)
        secret = secrets.token_hex(16)
        with contextlib.suppress(ChannelClosed):
            self.channel.send({"secret": secret})
        self.channel.secret = secret
        self._await_start()

    @property
    def log(self) -> str:
        """Both ends of what it and its compiler printed."""
        return self._process.log.text

    def spent(self) -> Spent:
        """What it and all that it has started have taken of the processors."""
        return self._process.spent()

    @property
    def is_over(self) -> bool:
        """Whether it ended and that was heard, or it was ended."""
        return self._process.is_over

    def kill(self) -> None:
        """Ends the whole tree; safe to call twice and from another thread."""
        self._process.kill()

    def ask(
        self, request: dict[str, Any], stage: str, limit_s: float, further: Mapping[str, int] = MappingProxyType({})
    ) -> dict[str, Any]:
        """Sends a request and waits for its answer. Raises Ended when the process is over or was ended."""
        self.start(request, further)
        return self.answer(request["do"], stage, limit_s)

    def start(self, request: dict[str, Any], further: Mapping[str, int] = MappingProxyType({})) -> None:
        """Sends a request without waiting; a dead process is noticed at `answer`. `further` are descriptors beside the
        files that it is answered from, by the names under which they are handed over."""
        files = files_for(request, self._inputs)
        names = [*(file.name for file in files), *further]
        with contextlib.suppress(ChannelClosed), opened(files) as descriptors:
            self.channel.send({**request, "files": names}, (*descriptors, *further.values()))

    def answer(self, verb: str, stage: str, limit_s: float) -> dict[str, Any]:
        """The answer to `verb`, in its form. Raises Ended."""
        start = time.monotonic()
        try:
            reply = self.channel.receive(limit_s)
            if reply.get("forked") is True and "done" not in reply and "raised" not in reply:
                self.kill()
                raise Ended(Cheated("forked", f"a copy of its process answered in {stage}"))
            if not is_reply(verb, reply):
                raise BadMessage(f"no answer to {verb!r}: {str(reply)[:80]}")
            return reply
        except ChannelTimeout:
            self.kill()
            raise Ended(TimedOut(stage, limit_s)) from None
        except BadMessage as error:
            self.kill()
            raise Ended(Cheated("forged message", str(error))) from None
        except ChannelClosed:
            raise Ended(self._how_it_ended(stage)) from None
        finally:
            self.stages_s[stage] = self.stages_s.get(stage, 0.0) + time.monotonic() - start

    def _await_start(self) -> None:
        """Waits until the worker is up; what fails before it has read the candidate is the judge's failure."""
        try:
            self.answer("start", "start", START_S)
        except Ended as ended:
            self.kill()
            words = f"{ended.outcome.words}: {self._process.last_words}"
            raise JudgeError(f"a candidate's process could not start ({words})") from ended

    def _how_it_ended(self, stage: str) -> Outcome:
        """What the supervisor says of a process that hung up."""
        end = self._process.end()
        if end.get("end") == "lost":
            raise ProcessLostError(f"the process that watches the candidate's ended in {stage}", stage)
        if end.get("end") == "memory":
            held, limit = end["bytes"] >> 20, self._process.memory_bytes >> 20
            return OutOfMemory(f"its processes held {held} MiB in {stage}; the limit is {limit}")
        if end.get("end") == "no memory":
            return OutOfMemory(f"the machine ran out of memory in {stage}, and Linux killed its process")
        if end.get("end") == "processes":
            return Cheated("forked", f"{end['count']} processes in {stage}; the limit is {self.limits.processes}")
        if end.get("code") == 0:
            return Cheated("early exit", f"its process ended itself in {stage}, exit code 0, before it was judged")
        return Crashed(stage, exit_in_words(end.get("code")))
