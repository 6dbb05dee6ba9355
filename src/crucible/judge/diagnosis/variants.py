"""Which variant of the reference a wrong answer is the answer of: the reference with an edit or two.

The answer was compared already and stays wrong whatever is found here. A variant counts when the answer is within the
contract's tolerance of it, the reference is not, and at least half of the error is gone.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from crucible.judge.diagnosis.edits import Edit, general_edits
from crucible.judge.diagnosis.mistakes import edits_of
from crucible.judge.oracle.batches import batch, batch_size
from crucible.judge.oracle.compare import Difference, Expected
from crucible.judge.oracle.expected import Answers, Case, rms
from crucible.judge.oracle.recorded import Change, Recording, Values
from crucible.judge.verdict.evidence import NoVariant, TensorError, Variant

MOST_ELEMENTS = {"cpu": 1 << 19, "cuda": 1 << 22}
"""Of an answer, by the oracle's device: of a larger one its leading batch items are looked at, one at least."""
SINGLES_S, PAIRS_S = 5.0, 2.0
"""Seconds of this thread, however busy the machine, for single edits, of which all should be tried (the three tasks at
their small sizes: 0.1 to 0.4 s), and for pairs."""
EXPLAINED = 0.5
"""Of the error (L2), what may be left against a variant."""
EXPLAINED_BY_ROUNDING = 0.3
"""The same for a variant that only rounds. Values within float32's roundoff of a rounding edge go either way, so the
tolerance, which knows of no edges, need not be met."""
WORST, ANYWHERE = 1024, 3072
"""Elements looked at first: where the answer is worst, and at random."""
PLAINLY = 4
"""Times of what is allowed: a variant this far from the reference at one of these places is told apart from it."""
NOT_REPEATED = NoVariant("the reference gives another answer when it is run operation by operation")
MOST_ALIKE = 8
"""Variants that are named beside the first."""


def look_up(answers: Answers, case: Case, heads: list[torch.Tensor]) -> Variant | NoVariant:
    """The variant of the reference whose answer, in a case, begins with `heads`. Raises what the reference raises."""
    found: Variant | NoVariant = NoVariant("one batch item of it is too large to look at")
    for items in _items(case, heads, MOST_ELEMENTS[answers.reference.device.type]):
        recording, expected, mine, part = _leading(answers, case, heads, items)
        found = Search(recording, expected, mine, Path(answers.reference.path).name).run()
        if isinstance(found, Variant):
            return replace(found, part=part)
        if found is not NOT_REPEATED:
            break
    return found


def _items(case: Case, heads: list[torch.Tensor], most: int) -> list[int]:
    """How many leading batch items to look at, and at how many if these do not stand for themselves; 0 is all."""
    total = batch_size(case.inputs) or 0
    whole = [0] if all(h.numel() == e.values.numel() for h, e in zip(heads, case.outputs, strict=True)) else []
    elements = sum(e.values.numel() for e in case.outputs)
    if not total or (whole and elements <= most) or any(e.shape[:1] != (total,) for e in case.outputs):
        return whole
    fit = min(h.numel() * total // max(1, e.values.numel()) for h, e in zip(heads, case.outputs, strict=True))
    items = min(fit, max(1, most * total // elements))
    return [items, *whole] if items else whole


def _leading(
    answers: Answers, case: Case, heads: list[torch.Tensor], items: int
) -> tuple[Recording, list[Expected], list[torch.Tensor], str]:
    """The reference's run on so many batch items, its outputs as the oracle has them, and the candidate's."""
    reference, total = answers.reference, batch_size(case.inputs) or 0
    inputs = batch(case.inputs, 0, items) if items else case.inputs
    recording = reference.recorded(case.state, inputs, answers.exact)
    expected, mine = [], []
    for whole, head in zip(case.outputs, heads, strict=True):
        count = whole.values.numel() * items // total if items else whole.values.numel()
        shape = (items, *whole.shape[1:]) if items else whole.shape
        expected.append(replace(whole, values=whole.values[:count], shape=shape))
        mine.append(head[:count].to(reference.device))
    part = f"the first of {total} batch items" if items == 1 else f"the first {items} of {total} batch items"
    return recording, expected, mine, part if items else ""


@dataclass(frozen=True)
class Match:
    """A variant that the answer is the answer of."""

    edits: tuple[Edit, ...]
    error: float
    """What is left of the error, L2."""
    worst: TensorError

    @property
    def order(self) -> tuple[float, int]:
        """The least error first; what is alike in that, by how likely it is."""
        return float(f"{self.error:.0e}"), sum(edit.rank for edit in self.edits)


class Search:
    """One wrong answer, or its leading batch items, against the variants of a recorded run."""

    what = "the reference"
    """Whose variants are tried."""

    def __init__(
        self, recording: Recording, expected: Sequence[Expected], answers: Sequence[torch.Tensor], path: str
    ) -> None:
        """`expected` are the oracle's outputs for that run, `answers` the candidate's: flat, on one device."""
        self.recording = recording
        self.base = self._base()
        """What a replay without edits gives."""
        self.expected = expected
        self.answers = answers
        self.path = path
        self.tried = 0
        self.complete = True
        self.wrong, self.error = distance(expected, answers)
        self.places = [_places(e, a) for e, a in zip(expected, answers, strict=True)]
        """The elements that are looked at first: where the answer is worst, and some at random."""
        self.answered = self._at_places(answers)
        self.right = self._at_places([e.values for e in expected])
        self.allowed = torch.cat([_allowed(e, where) for e, where in zip(expected, self.places, strict=True)])
        """Of the reference, at the places that are looked at first."""
        self.deadline = 0.0

    def run(self) -> Variant | NoVariant:
        """The variant, with all others that the answer cannot be told apart from."""
        if self.wrong.nan:
            return NoVariant("the answer has NaN")
        if self.wrong.ok:
            return NoVariant("what was looked at of the answer is right")
        if all(bool((answer == answer[0]).all()) for answer in self.answers if answer.numel()):
            return NoVariant("the answer is one value everywhere")
        replayed, _ = distance(self.expected, self._outputs(self.base))
        if not replayed.ok:
            return NOT_REPEATED
        with _one_thread():
            matches, useful = self._singles()
            singles = self.tried
            matches = matches or self._pairs(useful)
        if matches:
            return self._variant(sorted(matches, key=lambda match: match.order))
        end = "" if self.complete else ", when the time was up"
        tried = f"{singles} variants with one edit, and none of {self.tried - singles} with two"
        return NoVariant(f"none of {tried}, is what it computes{end}")

    # --- the search

    def _singles(self) -> tuple[list[Match], list[Edit]]:
        """The edits after which the answer is right, and those that change the result at all."""
        self.deadline = time.thread_time() + SINGLES_S
        matches, useful, seen = [], [], set[bytes]()
        for edit in sorted(self._edits(), key=lambda edit: edit.rank):
            if self._is_late():
                break
            values = self._replayed((edit,), self.base, edit)
            if values is None:
                continue
            sample = self._sampled(values)
            if match := self._match((edit,), values, sample):
                matches.append(match)
            key = sample.numpy().tobytes()
            if key not in seen and self._is_told_apart(values, sample):
                seen.add(key)
                useful.append(edit)
        return matches, useful

    def _pairs(self, useful: list[Edit]) -> list[Match]:
        """Pairs of edits after which the answer is right, the likely ones first; the search ends with a rank in which
        there are some."""
        self.deadline = time.thread_time() + PAIRS_S
        for rank in sorted({one.rank + other.rank for one in useful for other in useful}):
            matches: list[Match] = []
            for one, others in _partners(useful, rank):
                first = self._replayed((one,), self.base, one)
                for other in others if first is not None else ():
                    if self._is_late():
                        return matches
                    values = self._replayed((one, other), first or [], other)
                    match = values and self._match((one, other), values, self._sampled(values))
                    if match:
                        matches.append(match)
            if matches:
                return matches
        return []

    def _is_late(self) -> bool:
        if time.thread_time() > self.deadline:
            self.complete = False
        return not self.complete

    def _replayed(self, edits: tuple[Edit, ...], known: Values, new: Edit) -> Values | None:
        """The run with these edits, of which `known` lacks the last; None where it cannot be."""
        self.tried += 1
        changes: dict[int, list[Change]] = {}
        for edit in edits:
            for index, change in edit.changes.items():
                changes.setdefault(index, []).append(change)
        try:
            return self._replay(changes, known, frozenset(new.changes))
        except Exception:  # noqa: BLE001 - an edit may fit neither shapes nor dtypes, and PyTorch raises anything then
            return None

    # --- what is compared: outputs here, gradients in another kind of search

    def _base(self) -> Values:
        return self.recording.values

    def _edits(self) -> Iterator[Edit]:
        yield from general_edits(self.recording)
        for index in range(len(self.recording.steps)):
            yield from edits_of(self.recording, index)

    def _replay(self, changes: dict[int, list[Change]], known: Values, anew: frozenset[int]) -> Values:
        with torch.no_grad():
            return self.recording.replay(changes, known, anew)

    def _results(self, values: Values) -> list[Any]:
        return [values[slot] for slot in self.recording.outputs]

    # --- comparison

    def _outputs(self, values: Values) -> list[torch.Tensor]:
        return [result.reshape(-1) for result in self._results(values)]

    def _sampled(self, values: Values) -> torch.Tensor:
        """The outputs at the places that are looked at first."""
        return self._at_places(self._outputs(values))

    def _at_places(self, flat: Sequence[torch.Tensor]) -> torch.Tensor:
        picked = [t.index_select(0, where.to(t.device)) for t, where in zip(flat, self.places, strict=True)]
        return torch.cat([values.to("cpu", torch.float64) for values in picked])

    def _match(self, edits: tuple[Edit, ...], values: Values, sample: torch.Tensor) -> Match | None:
        rounds = len(edits) == 1 and edits[0].rounds
        share = EXPLAINED_BY_ROUNDING if rounds else EXPLAINED
        if not float((sample - self.answered).norm()) <= share * float((self.right - self.answered).norm()):
            return None
        worst, error = distance(self._against(values), self.answers)
        if worst.nan or not math.isfinite(error) or error > share * self.error or not (worst.ok or rounds):
            return None
        return Match(edits, error, worst) if self._is_told_apart(values, sample) else None

    def _is_told_apart(self, values: Values, sample: torch.Tensor) -> bool:
        """Whether the reference's own output would be refused if the variant were the reference."""
        if float(((sample - self.right).abs() / self.allowed).max()) > PLAINLY:
            return True
        difference, _ = distance(self._against(values), self._outputs(self.base))
        return not difference.ok

    def _against(self, values: Values) -> list[Expected]:
        """The variant's outputs in place of the oracle's, under the same tolerance."""
        flat = self._outputs(values)
        return [replace(e, values=v, scale=rms(v)) for e, v in zip(self.expected, flat, strict=True)]

    # --- in words

    def _variant(self, matches: list[Match]) -> Variant:
        best = matches[0]
        measure, before, allowed = _measure(self.wrong)
        after = best.worst.relative_l2 if measure == "relative L2" else best.worst.peak
        steps = sorted({index for edit in best.edits for index in edit.changes})
        return Variant(
            words=self._words(best),
            edits=tuple(edit.words for edit in best.edits),
            lines=tuple(dict.fromkeys(line for i in steps if (line := self.recording.steps[i].line))),
            measure=measure,
            error_to_reference=before,
            error_to_variant=after,
            allowed=allowed,
            alike=tuple(self._words(match) for match in matches[1 : 1 + MOST_ALIKE]),
        )

    def _words(self, match: Match) -> str:
        places = [self._at(edit) for edit in match.edits]
        if len(set(places)) == 1:
            places[:-1] = [""] * (len(places) - 1)
        parts = [f"{edit.words}{place}" for edit, place in zip(match.edits, places, strict=True)]
        return f"{self.what} with {' and '.join(parts)}"

    def _at(self, edit: Edit) -> str:
        lines = dict.fromkeys(line for i in sorted(edit.changes) if (line := self.recording.steps[i].line))
        return f" ({self.path}:{', '.join(map(str, lines))})" if lines else ""


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """The tensors are small: on two cores two threads took 3 to 10 times one thread's time for the three tasks."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _partners(edits: list[Edit], rank: int) -> Iterator[tuple[Edit, list[Edit]]]:
    """Each edit with those after it that it makes a pair of this rank with. What is nearest to the inputs comes first
    in a pair: the other one then costs only what follows it."""
    order = sorted(edits, key=lambda edit: min(edit.changes))
    for i, one in enumerate(order):
        others = [other for other in order[i + 1 :] if one.rank + other.rank == rank and one.goes_with(other)]
        if others:
            yield one, others


def distance(expected: Sequence[Expected], answers: Sequence[torch.Tensor]) -> tuple[TensorError, float]:
    """The worst tensor, and the L2 distance of all."""
    found = [Difference(e) for e in expected]
    for difference, answer in zip(found, answers, strict=True):
        difference.add(answer)
    worst = max((difference.result(0) for difference in found), key=lambda error: error.ratio)
    return worst, sum(difference.squares for difference in found) ** 0.5


def _places(expected: Expected, answer: torch.Tensor) -> torch.Tensor:
    """The elements that are looked at first."""
    wide = answer.to(torch.float64) - expected.values.to(answer.device, torch.float64)
    worst = wide.abs().nan_to_num(0.0).topk(min(WORST, wide.numel())).indices
    anywhere = torch.randint(max(1, wide.numel()), (min(ANYWHERE, wide.numel()),))
    return torch.cat([worst.cpu(), anywhere])


def _allowed(expected: Expected, where: torch.Tensor) -> torch.Tensor:
    """What an element may differ by (peak; the benchmark's rule; half of one for integers)."""
    magnitude = expected.values[where].to(torch.float64).abs()
    if not expected.dtype.is_floating_point:
        return torch.full_like(magnitude, 0.5)
    if expected.absolute is not None:
        return expected.absolute + expected.relative * magnitude
    return expected.peak_allowed * (magnitude + expected.scale)


def _measure(error: TensorError) -> tuple[str, float, float]:
    """In which of the two measures the answer is further off."""
    if error.relative_l2 / error.relative_l2_allowed >= error.peak / error.peak_allowed:
        return "relative L2", error.relative_l2, error.relative_l2_allowed
    return "peak", error.peak, error.peak_allowed
