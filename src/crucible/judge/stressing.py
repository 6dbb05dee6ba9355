"""One candidate beyond its task's own inputs: what the reference stands, rule by rule."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from crucible.judge.process.candidate_process import Ended
from crucible.judge.verdict.evidence import Finding, TensorError
from crucible.judge.verdict.stop import Stop, stop_if_raised
from crucible.judge.verdict.stressed import NOT_TRIED, RAISES, RIGHT, WRONG, Stressed, failures
from crucible.judge.verdict.structure import check_form
from crucible.judge.verdict.verdict import (
    Cheated,
    Fragile,
    InferenceOnly,
    NotJudged,
    Outcome,
    OutOfMemory,
    Passed,
    Raises,
    TimedOut,
    Wrong,
    from_json,
)
from crucible.judge.verdict.verification import wrong_tensor
from crucible.judge.verify import Verifier
from crucible.judge.watched import in_words, left_as_before
from crucible.legible import counted

AT_NEW_WEIGHTS = "gradients at new weights"
_OF_COTANGENTS = ("scaled cotangent", "strided cotangent", "expanded cotangent", "a step of SGD")
_OF_GRADIENTS = (AT_NEW_WEIGHTS, *_OF_COTANGENTS, "boundary indices")
"""Rules of training: where the task asks for that they decide."""
_SHOWN = 4
"""Rules in words; records have all."""
REMEDIES = {
    "transposed input": "call .contiguous() on inputs, or read their strides",
    "strided input": "call .contiguous() on inputs, or read their strides",
    "expanded input": "call .contiguous() on inputs, or read their strides",
    "misaligned input": "load vectors only where the address is a multiple of them",
    "strided cotangent": "call .contiguous() on gradients before kernels read them",
    "expanded cotangent": "call .contiguous() on gradients before kernels read them",
    "NaN": "compare so that NaN stays (x < 0 ? 0 : x, where fmaxf(x, 0) drops it)",
    "large values": "take the maximum out before exp",
    "another shape": "take sizes from the tensors, and send others to PyTorch",
    "buffers": "update running statistics as the reference does in train mode",
    "a step of SGD": "read weights at each call: an optimizer changes them in place",
}


@dataclass
class Stood:
    """What came of it."""

    stress: tuple[Stressed, ...]
    outcome: Outcome
    findings: tuple[Finding, ...]


class StressVerifier(Verifier):
    """Runs one candidate through the oracle's stress cases, with findings of its own."""

    specialised = ""
    """The words for a candidate's being written for the task's own sizes."""
    no_gradients = ""
    """Why its gradients are not looked at: they are known to be wrong, or not to be there."""

    def look_at(self, cases: Sequence[dict[str, Any]]) -> tuple[list[Stressed], list[tuple[str, Outcome]]]:
        """Each rule in turn, for at most `limits.stress_s` seconds; and, by rule, the outcomes that failures stand
        for. A process that ends takes the rest of the rules along."""
        end = time.monotonic() + self.limits.stress_s
        self.stress: list[Stressed] = []
        self.outcomes: list[tuple[str, Outcome]] = []
        why_not = ""
        self.oracle.attach(self.process.results.fileno())
        try:
            for asked in cases:
                late = f"the others took over {self.limits.stress_s:g} s" if time.monotonic() > end else ""
                useless = self.no_gradients if asked["rule"] in _OF_COTANGENTS else ""
                if why_not or late or useless:
                    self._note(asked["rule"], asked["how"], NOT_TRIED, why_not or late or useless)
                    continue
                why_not = self._try(asked)
                if asked["needed"] and self.stress[-1].came != RIGHT:
                    why_not = why_not or "the others are of that shape too"
        finally:
            self.oracle.detach()
        return self.stress, self.outcomes

    def _try(self, asked: dict[str, Any]) -> str:
        """Tests one rule; why no other can be tested after it, or nothing."""
        try:
            self._test(asked)
            self._note(asked["rule"], asked["how"], RIGHT)
            return ""
        except Stop as stop:
            self._fails(asked["rule"], asked["how"], stop.outcome)
            if asked["rule"] == AT_NEW_WEIGHTS:
                self.no_gradients = self.no_gradients or f"it fails {AT_NEW_WEIGHTS}"
            return ""
        except Ended as ended:
            self._fails(asked["rule"], asked["how"], ended.outcome)
            return f"its process ended in an earlier one ({ended.outcome.kind})"

    def _fails(self, rule: str, how: str, outcome: Outcome) -> None:
        if rule == "another shape" and self.specialised:
            self._note(rule, how, NOT_TRIED, f"size-specialised: {self.specialised}")
            return
        if isinstance(outcome, NotJudged | OutOfMemory) or (isinstance(outcome, TimedOut) and self.emulated):
            self._note(rule, how, NOT_TRIED, outcome.words)
            return
        came = RAISES if isinstance(outcome, Raises | InferenceOnly) else WRONG
        self._note(rule, how, came, outcome.words)
        self.outcomes.append((rule, outcome))

    def _note(self, rule: str, how: str, came: str, words: str = "") -> None:
        self.stress.append(Stressed(rule, how, came, words))

    # --- one rule

    def _test(self, asked: dict[str, Any]) -> None:
        """Raises Stop with what is wrong, Ended."""
        case = asked["before"] or asked["case"]
        self.case = case
        watched = asked["watched"] and not asked["before"]
        case = {**case, "backward": case["backward"] and not self.no_gradients}
        request = {**self.request(case), "poison": True, "layout": asked["layout"], "watched": watched}
        reply = self._answered(request, "forward")
        check_form(self.description, case, reply)
        if asked["forward"] and not asked["before"]:
            self._raise_if_wrong(case, "forward", [])
        if watched:
            self._look_at_buffers(asked, reply)
        if asked["before"]:
            self._step(asked)
        elif case["backward"]:
            self._pull(asked, case)

    def _answered(self, request: dict[str, Any], stage: str) -> dict[str, Any]:
        reply = self.process.ask(request, stage, self.limits.run_s)
        self._note_faults(reply)
        stop_if_raised(reply, stage)
        return reply

    def _look_at_buffers(self, asked: dict[str, Any], reply: dict[str, Any]) -> None:
        """Parameters and buffers after a forward: what the reference leaves alone stays, what it changes follows."""
        case, how = asked["case"], "parameters and buffers after a forward"
        try:
            left = left_as_before(
                case, reply, lambda names: self._errors(case, "buffers", names), training=self.training
            )
        except Stop as stop:
            self._fails("buffers", how, stop.outcome)
            return
        if left or self.left_before:
            at = "" if left else " at the task's own size"
            self._note("buffers", how, WRONG, in_words(left or self.left_before) + at)
        elif case["buffers"]:
            self._note("buffers", how, RIGHT)

    def _pull(self, asked: dict[str, Any], case: dict[str, Any]) -> None:
        request = {"do": "backward", "case": case["index"], "inputs": self.description["inputs"]}
        request |= {"cotangent": asked["cotangent"], "factor": asked["factor"]}
        got = self._answered(request, "backward")["gradients"]
        self._compare_named(case, got, list(case["gradients"]), asked["factor"])

    def _step(self, asked: dict[str, Any]) -> None:
        before, after = asked["before"], asked["case"]
        request = {"do": "step", "case": before["index"], "after": after["index"]}
        request |= {"draws": self.description["draws"]}
        reply = self._answered(request, "a step of SGD")
        forms = [(list(o["shape"]), o["dtype"]) for o in after["outputs"]]
        if [*zip(reply["outputs"], reply["dtypes"], strict=False)] != forms:
            raise Stop(Wrong("shape", "its outputs have another form after a step of SGD"))
        self._compare_named(before, reply["gradients"], list(before["gradients"]), 1.0)
        self._raise_if_wrong(after, "forward", [])

    def _compare_named(self, case: dict[str, Any], got: dict[str, Any], names: list[str], factor: float) -> None:
        """The gradients that are there; which are missing is known from the task's own inputs."""
        there = [name for name in names if name in got]
        for name in there:
            want = case["gradients"][name]
            if (got[name]["shape"], got[name]["dtype"]) != (want["shape"], want["dtype"]):
                raise Stop(Wrong("gradient", f"gradient of {name} is {got[name]}, not {want}"))
        if there:
            self._raise_if_wrong(case, "gradient", there, factor)

    def _raise_if_wrong(self, case: dict[str, Any], part: str, names: list[str], factor: float = 1.0) -> None:
        wrong = [error for error in self._errors(case, part, names, factor) if not error.ok]
        if wrong:
            raise Stop(_wrong(max(wrong, key=lambda error: error.ratio), part, "these"))

    def _errors(
        self, case: dict[str, Any], part: str, names: list[str], factor: float = 1.0
    ) -> tuple[TensorError, ...]:
        return tuple(from_json(tensor) for tensor in self._stream(case, part, names, factor=factor)["tensors"])


def _wrong(error: TensorError, part: str, case: str) -> Outcome:
    if error.nan and not error.unwritten:
        what = "are NaN where the reference's are not, or are not where they are"
        return Wrong("nan", f"{error.nan} of {counted(error.elements, 'element')} of {error.name} {what}")
    return wrong_tensor(error, part, case)


def stood(verifier: StressVerifier, outcome: Outcome, *, strict: bool = False) -> Stood:
    """What a candidate that passed does beyond its task's own inputs, and what it comes to then: wrong where it spoils
    buffers, or where it fails what training needs and the task asks for that; fragile where `strict` asks for all."""
    told = verifier.oracle.stress(verifier.limits.stress_s, verifier.limits.oracle_s)
    stress, outcomes = verifier.look_at(told["cases"])
    deciding = [o for rule, o in outcomes if _decides(rule, o, verifier.training)]
    found = tuple(stress)
    failed = failures(found)
    if deciding:
        outcome = deciding[0]
    elif strict and failed and isinstance(outcome, Passed):
        outcome = Fragile(tuple(one.rule for one in failed), f"{failed[0].rule}: {failed[0].words}")
    return Stood(found, outcome, tuple(_findings(failed, len(found))))


def _decides(rule: str, outcome: Outcome, training: bool) -> bool:
    if isinstance(outcome, Cheated):
        return outcome.how in ("forged message", "forked", "early exit")
    return rule == "buffers" or (training and rule in _OF_GRADIENTS)


def _findings(failed: Sequence[Stressed], tried: int) -> list[Finding]:
    if not failed:
        return []
    rules = [one.rule for one in failed]
    claim = f"fragile: {len(failed)} of {tried} rules beyond the task's own inputs: {', '.join(rules)}"
    evidence = "; ".join(f"{one.rule} ({one.how}): {one.words}" for one in failed[:_SHOWN])
    remedies = dict.fromkeys(REMEDIES[rule] for rule in rules if rule in REMEDIES)
    return [Finding(claim, evidence, "; ".join(remedies))]
