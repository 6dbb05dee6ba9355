"""The oracle's process, as the judge sees it."""

from __future__ import annotations

import contextlib
import itertools
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from crucible.errors import JudgeError, ProcessLostError, TaskError
from crucible.judge.process.channel import BadMessage, Channel, ChannelClosed, ChannelTimeout, pair
from crucible.judge.process.limits import Limits
from crucible.judge.process.log import SILENT
from crucible.judge.process.supervised import FIRST, WAITING, SupervisedProcess, exit_in_words

RATES_KEPT_S = 600.0
"""What a CPU was measured to do holds for later runs of this process: 3 s of a processor each, 0.2 where races are
short."""
RATES_FROM = 2
"""Runs in that time whose measurements' best it is: one may have been taken beside somebody's work."""
_rates: dict[tuple[float, str], tuple[float, int, Any]] = {}
"""By the time that they were given and the number of threads: when they were measured first, how often, the best."""


class OracleProcess:
    """The oracle, as the judge sees it."""

    def __init__(self, work: Path, limits: Limits) -> None:
        """Starts it; `work` holds `inputs`, which candidates may read, and its `vault`, which they may not."""
        ours, theirs = pair()
        self._channel = Channel(ours)
        self._inputs = work / "inputs"
        self._vault = Path(tempfile.mkdtemp(prefix="vault", dir=work))  # of its own: another may have had one here
        self._pings = itertools.count(1)
        self._asked = "start"
        self.waits_s: dict[str, float] = {}
        """Seconds waited for each kind of answer."""
        self._smaller = "judge at smaller sizes (--shape)"
        """What to do where its memory or time is too little."""
        self._process = SupervisedProcess(
            "oracle.server",
            str(FIRST),
            folder=work,
            passed=[theirs.fileno()],
            environment={**WAITING, **os.environ},
            limits=limits,
        )
        theirs.close()

    def is_well(self, within_s: float = 20.0) -> bool:
        """Whether it answers, and its device does; what it had yet to say of an earlier request is thrown away."""
        number = next(self._pings)
        with contextlib.suppress(JudgeError):
            self._send({"do": "ping", "number": number})
            deadline = time.monotonic() + within_s
            while (left := deadline - time.monotonic()) > 0:
                reply = self._receive(left, "an answer of the oracle's")
                if reply.get("pong") == number:
                    return bool(reply["well"])
        return False

    def prepare(
        self, request: dict[str, Any], say: Callable[[str], None], written: Callable[[], Any], limit_s: float
    ) -> dict[str, Any]:
        """The description of the task's cases; `written` is called when the first inputs are there, well before.

        Raises TaskError or JudgeError.
        """
        self._smaller = request.get("smaller", self._smaller)
        folders = {"vault": str(self._vault), "folder": str(self._inputs)}
        means = {"memory_bytes": self._process.memory_bytes, "oracle_s": limit_s}
        self._send({"do": "prepare", **folders, **means, **request})
        deadline = time.monotonic() + limit_s
        while True:
            reply = self._receive(
                max(0.0, deadline - time.monotonic()), f"the reference's answers took over {limit_s:g} s"
            )
            if "progress" in reply:
                say(reply["progress"])
            elif "written" in reply:
                written()
            elif "error" in reply:
                error = reply["error"]
                raise (TaskError if error["kind"] == "task" else JudgeError)(error["message"])
            else:
                return dict(reply["ready"])

    def floors(self, race_s: float, limit_s: float) -> Any:
        """The task's floors on this device, whose rates are measured now in at most `race_s` seconds where that is not
        0, or were lately on a CPU; or a finding that says why there is none."""
        key = race_s, os.environ.get("OMP_NUM_THREADS", "")
        now = time.monotonic()
        when, times, rates = _rates.get(key, (now, 0, None))
        if now - when >= RATES_KEPT_S:
            when, times, rates = now, 0, None
        self._send({"do": "floors", "race_s": race_s, "rates": rates, "measure": times < RATES_FROM})
        reply = self._receive(limit_s, f"measuring the device's rates took over {limit_s:g} s")
        if times < RATES_FROM and "rates" in reply:
            _rates[key] = when, times + 1, reply["rates"]
        return reply["floors"]

    def growth(self, limit_s: float) -> list[float]:
        """How many times as many bytes and operations a forward is at the task's full size as in the first case; empty
        where that is not known."""
        self._send({"do": "growth"})
        return list(self._receive(limit_s, f"the reference's work took over {limit_s:g} s")["growth"])

    def influence(self, weight: str, limit_s: float) -> list[int]:
        """For each dimension of the first output the index that one element of a weight reaches, -1 for none."""
        self._send({"do": "influence", "weight": weight})
        return list(self._receive(limit_s, f"the reach of a weight took over {limit_s:g} s")["reached"])

    def trial(
        self, like: int, sizes: dict[str, int], number: int, limit_s: float, at_most: float = 1.0
    ) -> dict[str, Any]:
        """`case`: a description of one more case, which is like that one and has these sizes; or `refused`, with why
        there is none; it is none where it would be more than `at_most` times little work. The next trial takes its
        place."""
        self._send({"do": "trial", "like": like, "sizes": sizes, "number": number, "at_most": at_most})
        return self._receive(limit_s, f"an answer at other sizes took over {limit_s:g} s")

    def older_weights(self, like: int, names: list[str], limit_s: float) -> dict[str, Any]:
        """`index`: the number of a case like that one, where these weights still are as constructed; or `refused`. The
        next trial takes its place."""
        self._send({"do": "older_weights", "case": like, "names": names})
        return self._receive(limit_s, f"an answer with older weights took over {limit_s:g} s")

    def variant(self, case: int, part: str, limit_s: float) -> Any:
        """What the part that was compared last, in this case, is the answer of: Variant or NoVariant, as JSON."""
        self._send({"do": "variant", "case": case, "part": part})
        return self._receive(limit_s, f"the search for a variant took over {limit_s:g} s")["variant"]

    def draw(self, seed: int, limit_s: float) -> int:
        """Inputs under that seed, in a sealed file of their own: its descriptor, which the caller closes."""
        self._send({"do": "draw", "seed": seed})
        self._receive(limit_s, f"drawing inputs took over {limit_s:g} s")
        *late, drawn = self._channel.take_descriptors()
        for descriptor in late:  # of draws that were given up
            os.close(descriptor)
        return drawn

    def answered_late(self, seed: int, weights: int, draws: int | None, limit_s: float) -> int:
        """The case that the inputs under that seed have become, on the weights of another."""
        self._send({"do": "late", "seed": seed, "weights": weights, "draws": draws})
        return int(self._receive(limit_s, f"an answer to timed contents took over {limit_s:g} s")["case"])

    def stress(self, stress_s: float, limit_s: float) -> dict[str, Any]:
        """`cases` beyond the task's own inputs, of which the first call makes as many as it can in `stress_s`, and
        `left_out`, why not others, by rule."""
        self._send({"do": "stress", "limit_s": stress_s})
        return self._receive(limit_s, f"the answers beyond the task's own inputs took over {limit_s:g} s")

    def attach(self, results: int) -> None:
        """Hands the oracle the reading end of a candidate's stream."""
        self._send({"do": "attach"}, (results,))

    def detach(self) -> None:
        self._send({"do": "detach"})

    def start_compare(
        self, case: int, part: str, names: list[str], part_of: dict[str, Any], factor: float = 1.0
    ) -> None:
        """Asks for the comparison of what comes through the stream with the answer, times `factor`."""
        request = {"do": "compare", "case": case, "part": part, "names": names, "part_of": part_of}
        self._send({**request, "factor": factor})

    def start_map(self, case: int, part: str, names: list[str], wrong: list[tuple[int, list[int], float]]) -> None:
        """Asks for error maps of tensors by position, worst index and peak; `compared` has the result."""
        self._send({"do": "map", "case": case, "part": part, "names": names, "wrong": wrong})

    def compared(self, limit_s: float) -> dict[str, Any]:
        """The result of the comparison that was started. Raises JudgeError."""
        return self._receive(limit_s, f"a comparison took over {limit_s:g} s")

    def kill(self) -> None:
        self._process.kill()

    def _send(self, request: dict[str, Any], descriptors: tuple[int, ...] = ()) -> None:
        self._asked = str(request["do"])
        try:
            self._channel.send(request, descriptors)
        except ChannelClosed as error:
            raise self._lost() from error

    def _receive(self, limit_s: float, late: str) -> dict[str, Any]:
        start = time.monotonic()
        try:
            reply = self._channel.receive(limit_s)
        except ChannelTimeout:
            raise JudgeError(f"{late}: raise the limit (--oracle-limit), or {self._smaller}") from None
        except (ChannelClosed, BadMessage) as error:
            raise self._lost() from error
        finally:
            self.waits_s[self._asked] = self.waits_s.get(self._asked, 0.0) + time.monotonic() - start
        if "failed" in reply and "maps" not in reply:
            raise JudgeError(f"the oracle failed: {reply['failed']}")
        return reply

    def _lost(self) -> JudgeError:
        """Why it is no more."""
        end = self._process.end()
        if end.get("end") == "memory":
            held, limit = end["bytes"] >> 20, self._process.memory_bytes >> 20
            words = f"it held {held} MiB and the limit is {limit}; {self._smaller}, or raise --memory-limit"
            return JudgeError(f"the oracle ran out of memory: {words}")
        if end.get("end") == "no memory":
            words = "the machine ran out of memory, and Linux killed the oracle's process"
            return JudgeError(f"{words}: {self._smaller}, or judge fewer candidates at once")
        how = exit_in_words(end.get("code"))
        if how == "killed by SIGKILL":
            how += ", as the system does where memory ends"
        said = self._process.last_words
        return ProcessLostError(f"the oracle's process ended ({how}{'' if said == SILENT else f': {said}'})")
