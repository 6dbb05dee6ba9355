"""Forward and gradients of one candidate, case by case, against the oracle."""

from __future__ import annotations

import contextlib
import random
from dataclasses import replace
from typing import Any

from crucible.emulator.faults import Fault
from crucible.emulator.trace import Trace
from crucible.judge.older_weights import Unmoved, older_weights, uncopied_words
from crucible.judge.process.candidate_process import CandidateProcess, Ended
from crucible.judge.process.limits import Limits
from crucible.judge.process.oracle_process import OracleProcess
from crucible.judge.process.replies import faults_of
from crucible.judge.timing.contents import Placed
from crucible.judge.timing.modelling import OperatorUse
from crucible.judge.verdict.evidence import RAISES, NotMeasured, TensorError, Variant
from crucible.judge.verdict.stop import Stop, one_line, stop_if_raised
from crucible.judge.verdict.structure import check_form
from crucible.judge.verdict.verdict import (
    Cheated,
    Crashed,
    Faulty,
    IllegalAccess,
    Incomplete,
    InferenceOnly,
    LaunchError,
    NotJudged,
    Outcome,
    Passed,
    Wrong,
    from_json,
)
from crucible.judge.verdict.verification import Verification, wrong_tensor
from crucible.judge.watched import left_as_before
from crucible.shapes import Sizes

_REFUSED_KINDS = ("launch-limits", "runaway-loop", "deadlock", "divergent-barrier")
TIMED_ELEMENTS = 1 << 20
"""Compared of each tensor of a timed call: what is lazy shows in any part, and 1.76 GB would take 2 s (H200)."""
MOST_WEIGHTS = 4
"""Whose order of reading is looked at: two forwards each."""
MOST_MAPS = 4
"""Of wrong tensors of one part of an answer."""
ALL: dict[str, Any] = {"most": 0, "start": 0.0}
_chance = random.SystemRandom()


class Verifier:
    """Runs one candidate through the oracle's cases."""

    def __init__(
        self,
        process: CandidateProcess,
        oracle: OracleProcess,
        description: dict[str, Any],
        *,
        training: bool,
        emulated: bool = False,
        limits: Limits | None = None,
        maps: bool = True,
    ) -> None:
        """`limits` in place of the process's; without `maps` nobody takes a second look at what is wrong."""
        self.process = process
        self.oracle = oracle
        self.description = description
        self.training = training
        self.emulated = emulated
        self.faults: dict[str, Fault] = {}
        """What the emulator found, by its words."""
        self.limits = limits or process.limits
        self.maps = maps
        self.judged: list[int] = []
        """Cases that it was right in."""
        self.timed_errors: tuple[TensorError, ...] = ()
        """Of all that was compared while it was timed."""
        self.case: dict[str, Any] = {}
        """The one that runs, or ran last."""
        self.way, self.ways = 0, 1
        """Of pairing its weights with the reference's, where nothing but their order tells some of them apart."""
        self.gradients = tuple(description["cases"][0]["gradients"])
        """Those that can be compared, as the first case showed."""
        self.left_before: tuple[str, ...] = ()
        """Buffers that its forward does not update though the reference's does."""
        self.found = self._nothing_found()

    def verify(self) -> Outcome:
        """Every case, the first one twice; the outcome is what stopped it, or a pass."""
        self.oracle.attach(self.process.results.fileno())
        try:
            self._cases()
            return self._conclusion()
        except Stop as stop:
            self._look_for_variant(stop.outcome)
            self._look_at_weights(stop.outcome)
            return self._explained(stop.outcome)
        except Ended as ended:
            return self._explained(ended.outcome)
        finally:
            self.oracle.detach()
            for words, fault in self.faults.items():
                self.found.note(f"the emulator found: {fault.kind}", words)

    def _nothing_found(self) -> Verification:
        labels = tuple(case["label"] for case in self.description["cases"])
        return Verification(multiple=self.description["multiple"], cases=labels)

    def _cases(self) -> None:
        """All cases, with each way of pairing weights until one is right. Raises Stop with what the first gave."""
        first: tuple[Stop, Verification] | None = None
        while True:
            self.judged = []  # under another pairing the weights of a case may be none of the candidate's
            try:
                for case in self.description["cases"]:
                    self._case(case)
                return
            except Stop as stop:
                first = first or (stop, self.found)
                if self.way + 1 >= self._ways_to_try() or not isinstance(stop.outcome, Wrong):
                    stop, self.found = first
                    raise stop from None
                self.way, self.found = self.way + 1, self._nothing_found()

    def _ways_to_try(self) -> int:
        """The last way leaves weights unpaired that shape and order pair, which is for those that are wrong as they are
        constructed: under new weights it would excuse whoever ignores one."""
        return self.ways - 1 if self.case.get("moved") else self.ways

    def outcome_of(self, case: dict[str, Any]) -> Outcome:
        """What one case that is none of the judge's comes to. Raises Ended."""
        self.oracle.attach(self.process.results.fileno())
        try:
            self._case(case)
            return Passed()
        except Stop as stop:
            return self._explained(stop.outcome)
        finally:
            self.oracle.detach()

    @property
    def sizes(self) -> Sizes:
        """What the case that runs, or ran last, has of its own."""
        return dict(self.case.get("sizes", {}))

    def _explained(self, outcome: Outcome) -> Outcome:
        """A wrong answer by the fault that stands behind it."""
        if isinstance(outcome, IllegalAccess | LaunchError):
            wanted = _REFUSED_KINDS if isinstance(outcome, LaunchError) else ()
            words = next((w for w, fault in self.faults.items() if not wanted or fault.kind in wanted), "")
            return replace(outcome, message=f"{words} [{outcome.message}]") if words else outcome
        if isinstance(outcome, Wrong) and outcome.what == "nan":
            kinds = ((words, fault.kind) for words, fault in self.faults.items())
            unwritten = next((words for words, kind in kinds if kind.startswith("uninitialised")), "")
            if unwritten:
                return Incomplete(unwritten)
        return outcome

    def _look_for_variant(self, outcome: Outcome) -> None:
        """A wrong forward, or wrong gradients, are looked up among the variants of the reference."""
        if not isinstance(outcome, Wrong) or outcome.what not in ("forward", "gradient"):
            return
        case = self.found.forward[-1].case
        self.found.variant = from_json(self.oracle.variant(case, outcome.what, self.limits.oracle_s))
        if isinstance(self.found.variant, Variant):
            what = "computes another function than the reference"
            claim = f"it {what}" if outcome.what == "forward" else f"its backward {what}'s"
            self.found.note(claim, self.found.variant.evidence)

    def _look_at_weights(self, outcome: Outcome) -> None:
        """On the emulator a wrong forward is asked whether it reads a weight in another order than the reference."""
        if not self.emulated or not isinstance(outcome, Wrong) or outcome.what != "forward":
            return
        with contextlib.suppress(Ended):
            for name in self.description["weights"][:MOST_WEIGHTS]:
                self._look_at_weight(name)

    def _look_at_weight(self, name: str) -> None:
        limit_s = 3 * self.limits.run_s  # for three forwards
        reply = self.process.ask({"do": "influence", "weight": name}, "a look at its weights", limit_s)
        if "raised" in reply:
            return
        wanted, seen = self.oracle.influence(name, self.limits.oracle_s), reply["reached"]
        if len(seen) != len(wanted) or all(-1 in pair or pair[0] == pair[1] for pair in zip(wanted, seen, strict=True)):
            return
        dim = next(i for i, pair in enumerate(zip(wanted, seen, strict=True)) if -1 not in pair and pair[0] != pair[1])
        where = f"; it is read in {'; '.join(reply['read_by'][:3])}" if reply["read_by"] else ""
        self.found.note(
            f"{name} is read in another order than the reference reads it",
            f"a change of {name}[0, 1] should show at index {wanted[dim]} of the output's dimension {dim} "
            f"and shows at {seen[dim]}{where}",
        )

    def _note_faults(self, reply: dict[str, Any]) -> None:
        if self.emulated:
            self.faults.update({fault.words: fault for fault in faults_of(reply)})

    def _case(self, case: dict[str, Any]) -> None:
        self.case = case
        reply = self._run(case, poison=True)
        self.ways = reply["weights"]["ways"]
        if case["index"] == 0:
            self.found.note_run(reply)
        try:
            seen = self._forward(case)
        except Stop as stop:
            self._excuse(case, reply["weights"], stop)
            return
        if case["watched"]:
            self._look_at_state(case, reply)
        if case["backward"]:
            self._backward(case)
        if case["index"] == 0:
            self._repeat(case, seen)
        self.judged.append(case["index"])

    def _look_at_state(self, case: dict[str, Any], reply: dict[str, Any]) -> None:
        """Parameters and buffers after the forward that was compared. Raises Stop."""

        def compare(names: list[str]) -> list[TensorError]:
            return [from_json(tensor) for tensor in self._stream(case, "buffers", names)["tensors"]]

        self.left_before = tuple(left_as_before(case, reply, compare, training=self.training))

    def _excuse(self, case: dict[str, Any], weights: dict[str, Any], stop: Stop) -> None:
        """A wrong forward that weights explain which the candidate was never given is none. Raises Stop otherwise, with
        what is known of its weights."""
        outcome = stop.outcome
        if not isinstance(outcome, Wrong) or outcome.what != "forward":
            raise stop
        found = older_weights(case.get("moved", []), weights, lambda names: self._explains(case, names))
        if isinstance(found, Unmoved):
            claim = "not judged with new weights: what holds them in the candidate is not known"
            self.found.note(claim, ", ".join(found.names))
            self.found.forward = [error for error in self.found.forward if error.ok]
            return
        raise Stop(found or replace(outcome, detail=outcome.detail + uncopied_words(weights))) from None

    def _explains(self, case: dict[str, Any], names: list[str]) -> bool:
        """Whether what it answered is right where these weights are as constructed."""
        older = self.oracle.older_weights(case["index"], names, self.limits.oracle_s)
        if "refused" in older:
            return False
        seen = self._stream(older, "forward", [])
        return all(from_json(tensor).ok for tensor in seen["tensors"])

    def _run(self, case: dict[str, Any], *, poison: bool, schedule: str = "forward") -> dict[str, Any]:
        request = {**self.request(case, poison=poison), "schedule": schedule}
        reply = self.process.ask(request, "forward", self.limits.run_s)
        self._note_faults(reply)
        stop_if_raised(reply, "forward")
        check_form(self.description, case, reply)
        if reply["overwritten"] and not self.description["aliases"]:
            raise Stop(Wrong("overwritten", "right, and another after one more call, which writes to the same memory"))
        return reply

    def request(self, case: dict[str, Any], *, poison: bool = False) -> dict[str, Any]:
        """What a candidate's process is asked for to run a case."""
        return {
            "do": "run",
            "case": case["index"],
            "poison": poison,
            "backward": case["backward"],
            "outputs": case["outputs"],
            "clone": bool(self.description["mutated"]),
            "watched": case["watched"],
            "way": self.way,
            "draws": self.description["draws"],
        }

    def is_right(self, case: dict[str, Any], reply: dict[str, Any]) -> bool:
        """Whether what the process answered to a case is of its form and right. Raises Ended or Stop."""
        check_form(self.description, case, reply)
        seen = self._stream(case, "forward", [])
        return all(from_json(tensor).ok for tensor in seen["tensors"])

    def trace(self) -> tuple[Trace | NotMeasured, tuple[OperatorUse, ...]]:
        """What the kernels ask of memory in one more run of the first case, and what PyTorch's operators do beside it:
        facts beside the verdict, which whatever goes wrong here does not change, short of a forged answer. Raises
        Ended."""
        case = self.description["cases"][0]
        request = {**self.request(case, poison=False), "do": "trace", "inputs": self.description["inputs"]}
        request["backward"] = self.training and case["backward"]
        try:
            reply = self.process.ask(request, "trace", self.limits.run_s)
        except Ended as ended:
            if isinstance(ended.outcome, Cheated):
                raise
            return NotMeasured(ended.outcome.words), ()
        if "raised" in reply:
            return NotMeasured(one_line(reply["message"])), ()
        return Trace.from_json(reply["trace"]), tuple(OperatorUse(*use) for use in reply["operators"])

    def _forward(self, case: dict[str, Any]) -> dict[str, Any]:
        """Compares the outputs that the worker holds. Raises Stop when they are not right."""
        seen, errors = self._compared(case, "forward", [])
        self.found.forward += errors
        for error in errors:
            if not error.ok:
                self.found.note_rule(seen, passes=False)
                raise Stop(wrong_tensor(error, "forward", case["label"]))
        return seen

    def _repeat(self, case: dict[str, Any], first: dict[str, Any]) -> None:
        """The same case again, without poison: another result is reported, a wrong one is a verdict."""
        # On the emulator the second run takes blocks and threads in reverse: a race that matters shows.
        self._run(case, poison=False, schedule="reverse" if self.emulated else "forward")
        again, errors = self._compared(case, "forward", [])
        for error in errors:
            if not error.ok:
                self.found.forward.append(error)
                raise Stop(
                    Wrong(
                        "not reproducible",
                        f"right once, then {wrong_tensor(error, 'forward', 'a second run').words}",
                    )
                )
        if again["fingerprint"] != first["fingerprint"]:
            claim = "not bitwise reproducible"
            self.found.note(claim, "two runs on the same inputs differ, both within the tolerance")
        self.found.note_rule(again, passes=True)

    def check_timed(self, backward: bool, placed: Placed, what: str) -> Placed:
        """Compares what the last sample gave with the answer to its contents, and whether it left these alone; of large
        tensors a part, spread evenly from a random start. `what` may be `earlier`: then what has become of the outputs
        of the sample before. Returns what was placed, with the case that it is. Raises Stop."""
        if placed.case < 0:
            case = self.oracle.answered_late(placed.seed, placed.weights, placed.draws, self.limits.oracle_s)
            placed = replace(placed, case=case)
            backward = False  # late answers have no gradients
        if placed.case < 0 or (what == "earlier" and self.description["aliases"]):
            return placed
        part_of = {"most": TIMED_ELEMENTS, "start": _chance.random()}
        streams = {}
        self.oracle.attach(self.process.results.fileno())
        try:
            for part, names in [("earlier", [])] if what == "earlier" else self._timed_parts(backward):
                streams[part] = self._stream({"index": placed.case}, part, names, part_of)
        finally:
            self.oracle.detach()
        for part, seen in streams.items():
            errors = tuple(from_json(tensor) for tensor in seen["tensors"])
            wrong = [error for error in errors if not error.ok]
            if wrong:
                raise Stop(_wrong_when_timed(part, wrong[0]))
            self.timed_errors += errors if part in ("forward", "gradient") else ()
        return placed

    def _timed_parts(self, backward: bool) -> list[tuple[str, list[str]]]:
        untouched = [str(i) for i in range(len(self.description["inputs"])) if i not in self.description["mutated"]]
        parts: list[tuple[str, list[str]]] = [("forward", []), ("inputs", untouched)]
        return parts + ([("gradient", list(self.gradients))] if backward and self.gradients else [])

    def _backward(self, case: dict[str, Any]) -> None:
        specs = case["gradients"]
        request = {"do": "backward", "case": case["index"], "inputs": self.description["inputs"]}
        reply = self.process.ask(request, "backward", self.limits.run_s)
        self._note_faults(reply)
        if "raised" in reply and not self.training:
            self.found.backward_failed = f"{RAISES}{one_line(reply['message'])}"
            self.found.note("inference only: its backward raises", one_line(reply["message"]))
            return
        stop_if_raised(reply, "backward")
        if set(reply["mutated"]) - set(self.description["mutated"]):
            raise Stop(Cheated("mutated input", f"backward changed input {reply['mutated'][0]}"))
        got, unknown = reply["gradients"], sorted(set(reply["not_comparable"]) & set(specs))
        if unknown and self.training:
            reason = "it computes them from other tensors, or holds them in a form that is not known"
            raise Stop(NotJudged(f"gradients of {', '.join(unknown)} cannot be told: {reason}"))
        if unknown and case["index"] == 0:
            self.found.note("gradients not compared: of what they are is not known", ", ".join(unknown))
        self.found.missing = tuple(sorted(set(self.found.missing) | (set(specs) - set(got) - set(unknown))))
        names = [name for name in specs if name in got and name not in unknown]
        if case["index"] == 0:  # of what a parametrization computes, a timed step tells no gradient
            self.gradients = tuple(name for name in names if name not in reply["computed"])
        for name in names:
            if got[name]["shape"] != specs[name]["shape"]:
                detail = f"gradient of {name} has shape {got[name]['shape']}, not {specs[name]['shape']}"
                raise Stop(Wrong("gradient", detail))
        if names:
            self._compare_gradients(case, names)

    def _compare_gradients(self, case: dict[str, Any], names: list[str]) -> None:
        """Wrong ones convict where the task asks for training; otherwise they are told."""
        _, errors = self._compared(case, "gradient", names)
        self.found.gradients += errors
        wrong = [error for error in errors if not error.ok]
        if not wrong:
            return
        worst = max(wrong, key=lambda error: error.ratio)
        outcome = wrong_tensor(worst, "gradient", case["label"], others=[e.name for e in wrong if e is not worst])
        if self.training:
            raise Stop(outcome)
        self.found.note("wrong gradients, which were not asked for", outcome.words)

    def _compared(self, case: dict[str, Any], part: str, names: list[str]) -> tuple[dict[str, Any], list[TensorError]]:
        """The comparison's result and its tensors, with maps of the wrong ones."""
        seen = self._stream(case, part, names)
        return seen, self._mapped(case, part, names, [from_json(tensor) for tensor in seen["tensors"]])

    def _stream(
        self, case: dict[str, Any], part: str, names: list[str], part_of: dict[str, Any] = ALL, factor: float = 1.0
    ) -> dict[str, Any]:
        """Worker to oracle, raw bytes; the comparison's result. Missing bytes are a failure."""
        self.oracle.start_compare(case["index"], part, names, part_of, factor)
        try:
            reply = self._send(part, names, part_of, f"results of {part}")
        except Ended:
            self.oracle.compared(self.limits.oracle_s)
            raise
        seen = self.oracle.compared(self.limits.oracle_s)
        stop_if_raised(reply, part)
        if "missing" in seen:
            raise Stop(Crashed(part, f"its results never arrived whole: {seen['missing']}"))
        return seen

    def _send(self, part: str, names: list[str], part_of: dict[str, Any], stage: str) -> dict[str, Any]:
        """What the process says once it has sent its results, or failed to."""
        self.process.start({"do": "send", "part": part, "names": names, "part_of": part_of})
        reply = self.process.answer("send", stage, self.limits.run_s)
        if "raised" in reply:
            self.process.kill()  # closes the stream, so that the oracle stops waiting
        return reply

    def _mapped(
        self, case: dict[str, Any], part: str, names: list[str], errors: list[TensorError]
    ) -> list[TensorError]:
        """The same with error maps of the worst that are wrong: the process is asked to send once more. Whatever goes
        wrong with that changes no verdict."""
        most = MOST_MAPS if self.maps else 0
        wrong = sorted((i for i, e in enumerate(errors) if not e.ok), key=lambda i: -errors[i].ratio)[:most]
        if not wrong:
            return errors
        self.oracle.start_map(
            case["index"], part, names, [(i, list(e.worst_index), e.peak) for i, e in enumerate(errors) if i in wrong]
        )
        with contextlib.suppress(Ended):  # the verdict is known
            self._send(part, names, ALL, f"another look at {part}")
        seen = self.oracle.compared(self.limits.oracle_s)
        if seen["failed"]:
            self.found.note("no error map: a second look at what is wrong failed", seen["failed"])
        maps = {i: from_json(found) for i, found in seen["maps"]}
        return [replace(error, map=maps[i]) if i in maps else error for i, error in enumerate(errors)]

    def _conclusion(self) -> Outcome:
        if self.found.missing:
            if self.training:
                return InferenceOnly(self.found.missing)
            self.found.note("inference only: gradients are missing", ", ".join(self.found.missing))
        convicting = next((words for words, fault in self.faults.items() if fault.convicts), "")
        return Faulty(convicting) if convicting else Passed()


def _wrong_when_timed(part: str, error: TensorError) -> Outcome:
    """What it is when a timed call's answer is not right, though all were that it was checked on."""
    words = wrong_tensor(error, error.part, "the timed contents").words
    if part == "inputs":
        return Cheated("mutated input", f"while it was timed, it changed {error.name}")
    if part == "earlier":
        return Wrong("overwritten", f"right, and after one more call, while it was timed, {words}")
    return Wrong("not reproducible", f"right when checked, then, while it was timed, {words}")
