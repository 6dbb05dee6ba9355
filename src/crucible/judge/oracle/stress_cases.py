"""Stress cases: what the reference itself has an answer to, beyond its task's own inputs.

A case counts only where the reference takes it, in float64 and in the contract's own precision, and both agree on
where the answer is NaN or infinite. All are small, whatever the task's own size.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

import torch

from crucible.copies import duplicate
from crucible.judge.boundary.bundles import put_together, take_apart
from crucible.judge.boundary.layouts import (
    CONTIGUOUS,
    EXPANDED,
    MISALIGNED,
    STRIDED,
    TRANSPOSED,
    laid_out,
)
from crucible.judge.boundary.modules import call
from crucible.judge.oracle.batches import batch, batch_size
from crucible.judge.oracle.cases import CaseMaker
from crucible.judge.oracle.compare import Expected
from crucible.judge.oracle.expected import Answers, Case
from crucible.judge.oracle.stress import CONTENTS, at_boundaries, changed, repeated
from crucible.shapes import Sizes, words

LITTLE_BYTES = 8 << 20
"""Of inputs and outputs of a case: what is larger is cut."""
NUMBER = 300
"""Of the inputs of the first stress case, which no other case has."""
TRIES = 8
"""Random shapes that are offered to the reference, and inputs that are drawn to find some without a kink."""
FACTORS = (1024.0, 32.0, 2.0)
"""Times which cotangents are pulled back, the first at which nothing overflows: gradients must follow, and a power of
two rounds nothing. Float16 ends at 65504, which 1024 times a gradient passed in 5 of the first 20 tasks of KernelBench
level 2: an exact copy of the reference was convicted."""
HEADROOM = 4.0
"""Times as many, at which the reference's own gradients are finite, too: others add up in another order."""
MOST_SPACE, MOST_BATCH = 67, 9
"""Of a random shape."""
LAYOUTS = {
    TRANSPOSED: "a transposed matrix, images with channels last",
    STRIDED: "every other element of a larger tensor",
    MISALIGNED: "contiguous, from the second element of its memory on",
}


@dataclass(frozen=True)
class Stress:
    """One rule, and the case that it is tested with."""

    rule: str
    how: str
    case: Case
    layout: str = CONTIGUOUS
    """Of the inputs."""
    cotangent: str = CONTIGUOUS
    """The layout of the cotangents."""
    factor: float = 1.0
    """Times the case's own cotangents."""
    forward: bool = True
    """Whether outputs are looked at, or gradients alone."""
    needed: bool = False
    """Whether who is not right here is asked no further."""
    before: Case | None = None
    """Where `case` is what comes after a step of SGD: the case that it starts from."""


class StressMaker:
    """Makes the stress cases of one task under one contract."""

    def __init__(self, make: CaseMaker, answers: Answers, first: Case, free: Sizes, seed: int) -> None:
        """`first` is the task's own first case, answered; `free` are the sizes that inputs alone have."""
        self.make = make
        self.answers = answers
        self.first = first
        self.free = free
        self.seed = seed
        self.left_out: dict[str, str] = {}
        """Why, by rule."""
        self._random = random.Random(seed + NUMBER)

    def cases(self, limit_s: float) -> list[Stress]:
        """As many as there is time for, those of gradients first."""
        if self.answers.contract.allclose:
            return []
        end = time.monotonic() + limit_s
        found: list[Stress] = []
        for stress in self._all():
            found.append(stress)
            if time.monotonic() > end:
                self.left_out["others"] = f"the reference's answers took over {limit_s:g} s"
                break
        return found

    def _all(self) -> Iterator[Stress]:
        base = self._base()
        if base is None:
            return
        if base.label:
            yield Stress("another shape", base.label, base, needed=True)
        yield from self._of_gradients(base)
        yield from self._each(("boundary indices", self._boundaries), ("another shape", self._another_shape), base=base)
        for number, contents in enumerate(CONTENTS):
            tensors = changed(_tensors(base.inputs), contents, self.seed + NUMBER + number)
            if tensors is not None:
                case = self._like(base, tensors, nan=contents.nan, moved=contents.moved)
                yield from self._answered(contents.rule, contents.how, case)
        yield from self._each(("expanded input", self._expanded), base=base)
        for layout, how in LAYOUTS.items():
            if self._takes(base, layout):
                yield Stress(f"{layout} input", how, base, layout)

    # --- the inputs that all others are made from

    def _base(self) -> Case | None:
        """Fresh inputs, cut down where they are large; its label says how. Its answer is known."""
        case = self.make.case("", NUMBER, sizes=self.first.sizes)
        known = sum(expected.nbytes for expected in self.first.outputs)
        tries: list[tuple[str, Any]] = [("", case.inputs)]
        if known + _bytes(case.inputs) > LITTLE_BYTES:
            total = batch_size(case.inputs) or 0
            share = (known + _bytes(case.inputs)) // max(1, total)
            items = max(1, min(total - 1, LITTLE_BYTES // max(1, share)))
            fitting = total > 1 and items * share <= 2 * LITTLE_BYTES
            tries = [(f"{items} of its {total} batch items", batch(case.inputs, 0, items))] if fitting else []
        for label, inputs in tries:
            smaller = replace(case, label=label, inputs=inputs)
            if self._answer("another shape", smaller):
                return smaller
        self.left_out.setdefault("all", "no inputs are small enough that the reference takes")
        return None

    def _another_shape(self, base: Case) -> Stress | None:
        """A batch and a space drawn at random, so that nothing can be written for them."""
        for _ in range(TRIES):
            sizes = {name: self._drawn(name, size) for name, size in self.free.items()}
            if not sizes or self.make.is_affordable(base, sizes, 1.0):
                case = self.make.case("", NUMBER + 1, sizes={**self.first.sizes, **sizes})
                how = words(sizes)
                if not sizes:
                    total = batch_size(case.inputs) or 0
                    items = self._random.randint(1, min(total - 1, MOST_BATCH)) if total > 1 else 0
                    case, how = replace(case, inputs=batch(case.inputs, 0, items)), f"{items} of its {total} items"
                if case.inputs is not None and how and self._answer("another shape", case):
                    self.left_out.pop("another shape", None)
                    return Stress("another shape", how, case)
        return None

    def _drawn(self, name: str, size: int) -> int:
        is_batch = name.lower().startswith(("batch", "bs"))
        most = max(1, min(size, MOST_BATCH if is_batch else MOST_SPACE))
        least = 1 if is_batch else max(1, most // 3)
        return self._random.choice([n for n in range(least, most + 1) if n != size] or [size])  # the own shows nothing

    # --- gradients

    def _of_gradients(self, base: Case) -> Iterator[Stress]:
        """New weights, with what forward does to buffers; cotangents of other sizes and strides; a step of SGD."""
        case = self._without_kinks(base)
        if case is None:
            return
        yield Stress("gradients at new weights" if case.backward else "new weights", "every parameter moved", case)
        if case.backward:
            yield from self._of_cotangents(case)
            yield from self._each(("a step of SGD", self._step), base=case)

    def _of_cotangents(self, case: Case) -> Iterator[Stress]:
        """Cotangents of another size and other strides."""
        yield from self._each(("scaled cotangent", self._scaled), base=case)
        yield from self._each(("strided cotangent", self._strided), base=case)
        ones = [_expanded(c, s) for c, s in zip_longest(case.cotangents, case.silent, fillvalue=torch.empty(0))]
        if not any(c.any() for c in ones):
            self.left_out["expanded cotangent"] = "every output that an item has is near a kink in one of them"
            return
        expanded = self._case(case, cotangents=_as_they_lie(case, ones, EXPANDED), watched=False)
        if self._answer("expanded cotangent", expanded, like=case):
            how = "one number for every element, stride 0, as the gradient of a sum is"
            if not all(c.all() for c in ones):
                how = "one item for the whole batch, stride 0, with nothing where any is near a kink"
            yield Stress("expanded cotangent", how, expanded, cotangent=EXPANDED, forward=False)

    def _scaled(self, case: Case) -> Stress | None:
        """A case's own cotangents, times as much as its dtypes hold."""
        for factor in FACTORS:
            larger = [c * (factor * HEADROOM) for c in case.cotangents]
            found = self.make.reference.evaluate(case.state, case.inputs, larger, seed=case.draws).gradients
            overflowing = [name for name, gradient in found.items() if not gradient.isfinite().all()]
            if all(not case.gradients[name].values.isfinite().all() for name in overflowing):
                return Stress(
                    "scaled cotangent", f"cotangents {factor:g} times as large", case, factor=factor, forward=False
                )
        self.left_out["scaled cotangent"] = f"gradients overflow {factor * HEADROOM:g} times as large"
        return None

    def _strided(self, case: Case) -> Stress | None:
        """A case's own cotangents, laid out otherwise."""
        if not any(c.dim() > 1 for c in case.cotangents):
            return None
        laid = _as_they_lie(case, case.cotangents, TRANSPOSED)
        if laid is not case.cotangents:
            like, case = case, self._case(case, cotangents=laid, watched=False)
            if not self._answer("strided cotangent", case, like=like):
                return None
        return Stress("strided cotangent", LAYOUTS[TRANSPOSED], case, cotangent=TRANSPOSED, forward=False)

    def _step(self, case: Case) -> Stress | None:
        """The weights of another case, where an optimizer's step brings them."""
        learned = set(self.make.reference.parameter_names())
        other = self.make.case("", NUMBER + 2, weights=True, sizes=self.first.sizes).state
        state = {**case.state, **{name: value for name, value in other.items() if name in learned}}
        after = self._case(case, state=state, backward=False, watched=False)
        if not learned or not self._answer("a step of SGD", after):
            return None
        how = "weights moved in place by an optimizer's step, after forward and backward"
        return Stress("a step of SGD", how, after, before=case)

    def _without_kinks(self, base: Case) -> Case | None:
        """The base at new weights, with gradients where the task has some; other inputs where these are near kinks."""
        for number in range(TRIES):
            made = self.make.case("", NUMBER + 10 + number, weights=True, sizes=self.first.sizes)
            inputs = base.inputs if number == 0 else batch(made.inputs, 0, batch_size(base.inputs) or 0)
            if inputs is None:
                return None
            case = self._case(base, inputs=inputs, state=made.state, backward=self.first.backward, watched=True)
            if not self._answer("gradients at new weights", case):
                return None
            if self.answers.contract.operand_bits < 23 or not any(len(places) for places in case.silent):
                break  # rounded operands are near kinks of most inputs: those are spared
        return case

    # --- contents and layouts

    def _boundaries(self, base: Case) -> Stress | None:
        """Integer inputs at the first, the last and the padding index."""
        tensors = _tensors(base.inputs)
        limits = self._limits(base, tensors)
        if not limits:
            return None
        new = [at_boundaries(t, *limits[i]) if i in limits else t for i, t in enumerate(tensors)]
        case = self._like(base, new)
        case.backward = self.first.backward
        padding = ", padding" if any(special for _, special in limits.values()) else ""
        found = [*self._answered("boundary indices", f"indices 0, the last{padding}", case)]
        return found[0] if found else None

    def _limits(self, base: Case, tensors: list[torch.Tensor]) -> dict[int, tuple[int, list[int]]]:
        """How many rows each integer input may index (the first index that the reference refuses), and which of the
        special ones it takes. Tried on the CPU, since a GPU's context does not outlive an index out of bounds."""
        integers = [i for i, t in enumerate(tensors) if t.dtype in (torch.int32, torch.int64) and t.numel()]
        if not integers:
            return {}
        model = duplicate(self.make.reference.model).cpu()
        sizes = {s for t in [*self.first.state.values(), *tensors] for s in t.shape}
        structure, _ = take_apart(base.inputs, "input")

        def takes(which: int, value: int) -> bool:
            tried = [t.clone() for t in tensors]
            tried[which].view(-1)[0] = value
            with contextlib.suppress(Exception), torch.no_grad():
                call(model, put_together(structure, tried))
                return True
            return False

        def limit(which: int) -> int | None:
            above = sorted(s for s in sizes if s > int(tensors[which].max()))
            return next((s for s in above if takes(which, s - 1) and not takes(which, s)), None)

        paddings = sorted(_paddings(model))
        found = {i: limit(i) for i in integers}
        return {i: (rows, [p for p in paddings if takes(i, p)]) for i, rows in found.items() if rows and takes(i, 0)}

    def _expanded(self, base: Case) -> Stress | None:
        """Inputs that are one item, as often as the batch has items."""
        tensors = _tensors(base.inputs)
        if not any(t.dim() and t.shape[0] > 1 for t in tensors):
            return None
        case = self._like(base, [repeated(t) for t in tensors])
        if not self._takes(case, EXPANDED) or not self._answer("expanded input", case):
            return None
        return Stress("expanded input", "one item for the whole batch, stride 0", case, EXPANDED)

    def _takes(self, case: Case, layout: str) -> bool:
        """Whether the reference's answer is the same for inputs in that layout, and any input has one."""
        reference = self.make.reference
        structure, leaves = take_apart(case.inputs, "input")
        tensors = [laid_out(leaf.tensor.to(reference.device), layout) for leaf in leaves]
        if layout != MISALIGNED and all(t.is_contiguous() for t in tensors):
            return False
        try:
            plain = reference.evaluate(case.state, case.inputs).outputs
            other = reference.answer_to(case.state, put_together(structure, tensors))
        except Exception as error:  # noqa: BLE001 - a reference may refuse strides in any way
            self.left_out[f"{layout} input"] = f"the reference raises: {_first_line(error)}"
            return False
        return all(
            torch.allclose(a.tensor.double(), b.double(), 1e-2, 1e-2 * float(a.tensor.double().abs().mean()))
            for a, b in zip(plain, other, strict=True)
        )

    # --- answers

    def _like(self, base: Case, tensors: list[torch.Tensor], *, nan: bool = False, moved: bool = True) -> Case:
        structure, _ = take_apart(base.inputs, "input")
        return self._case(base, inputs=put_together(structure, tensors), nan=nan, moved=moved)

    def _case(self, base: Case, **changes: Any) -> Case:
        """A case like that one, without its answer."""
        blank: dict[str, Any] = {"outputs": [], "gradients": {}, "buffers": {}, "rule": [], "written": False}
        return replace(base, **{**blank, "cotangents": [], "label": "", **changes})

    def _answered(self, rule: str, how: str, case: Case) -> Iterator[Stress]:
        if self._answer(rule, case):
            yield Stress(rule, how, case)

    def _each(self, *makers: tuple[str, Callable[[Case], Stress | None]], base: Case) -> Iterator[Stress]:
        for rule, make in makers:
            try:
                stress = make(base)
            except Exception as error:  # noqa: BLE001 - a reference may refuse what is beyond its task in any way
                self.left_out[rule] = _first_line(error)
                continue
            if stress is not None:
                yield stress

    def _answer(self, rule: str, case: Case, like: Case | None = None) -> bool:
        """Answers a case, with its tolerances; whether the reference can. Its gradients may be as far off as those of a
        case that is like it: they are sums of terms of that size, though these may cancel."""
        try:
            if not case.shapes:
                self.answers.look_at_shapes(case)
            if case.backward and not case.cotangents:
                self.answers.keep_off_kinks(case)
                case.cotangents = self.answers.cotangents(case)
            self.answers.answer(case)
            pairs = [(each, like.gradients[name]) for name, each in case.gradients.items()] if like else []
            for each, other in pairs:
                own = _size(each)
                each.scale = max(own, _size(other)) or 1.0
                each.share = own / each.scale
            self.answers.measure_noise(case)
            for each, other in pairs:
                each.allow_as(other)
            if not case.moved:
                self._borrow(case)
        except Exception as error:  # noqa: BLE001 - a reference may refuse what is beyond its task in any way
            self.left_out[rule] = _first_line(error)
            return False
        return True

    def _borrow(self, case: Case) -> None:
        """The noise of moving inputs from the task's own first case: what breaks ties counts against integers alone."""
        for expected, like in zip(case.outputs, self.first.outputs, strict=True):
            if expected.dtype.is_floating_point:
                expected.relative_l2_allowed = max(expected.relative_l2_allowed, 2 * like.relative_l2_allowed)
                expected.peak_allowed = max(expected.peak_allowed, 2 * like.peak_allowed)


def _expanded(cotangent: torch.Tensor, silent: torch.Tensor) -> torch.Tensor:
    """Ones; where any is silent the same for each item: nothing at what is silent in one of them."""
    ones = torch.ones_like(cotangent)
    if len(silent):
        item = ones[:1].numel() if ones.dim() else 1
        ones.view(-1, item)[:, silent % item] = 0
    return ones


def _as_they_lie(case: Case, cotangents: list[torch.Tensor], layout: str) -> list[torch.Tensor]:
    """In 16 bits what is allowed is measured of cotangents as they lie: where channels are last or one number is all of
    them, PyTorch's batch norm on a CPU leaves 15 times as much of the gradient of a bias in front of it."""
    if all(gradient.dtype.itemsize >= 4 for gradient in case.gradients.values()):
        return cotangents
    return [laid_out(c, layout) for c in cotangents]


def _size(expected: Expected) -> float:
    """Its scale, which is 1 where all is 0."""
    return expected.scale if expected.values.any() else 0.0


def _tensors(inputs: Any) -> list[torch.Tensor]:
    return [leaf.tensor for leaf in take_apart(inputs, "input")[1]]


def _bytes(inputs: Any) -> int:
    return sum(t.nbytes for t in _tensors(inputs))


def _paddings(model: torch.nn.Module) -> set[int]:
    named = [getattr(module, name, None) for module in model.modules() for name in ("padding_idx", "ignore_index")]
    return {value for value in named if isinstance(value, int)}


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
