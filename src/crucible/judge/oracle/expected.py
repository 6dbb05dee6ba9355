"""Answers: the reference evaluated exactly, and less exactly, so that the distance between the two is known.

A large batch of independent items is evaluated in parts, so that the judge needs little memory of its own.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from crucible.contract import Contract
from crucible.errors import JudgeError, TaskError
from crucible.judge.boundary.bundles import put_together, take_apart
from crucible.judge.boundary.modules import generators_moved
from crucible.judge.oracle.batches import batch, batch_size, items_of_part
from crucible.judge.oracle.compare import Difference, Expected, benchmark_rule, pieces, rounding
from crucible.judge.oracle.footprint import footprint, is_worth_tracing, most_items, room_bytes
from crucible.judge.oracle.kinks import are_exceptions, kinks, positions, reach_of
from crucible.judge.oracle.noise import (
    CUT,
    Probe,
    by_default_on_a_gpu,
    cutting,
    further_probes,
    is_unsteady,
    perturbed,
    probes,
)
from crucible.judge.oracle.reference import Answer, Reference, blamed_on_task
from crucible.judge.oracle.sealed import SealedStore
from crucible.judge.verdict.evidence import Finding

ROUNDINGS = 4.0
"""Times its own distance from the exact answer that the reference in float32 may be missed by."""
EXACT_BYTES = 256 << 20
"""Expected tensors above this are kept as float32: rounding adds 3e-8, below any contract's noise."""

_BY_CUDNN = re.compile(r"conv|LSTM|GRU|RNN", re.IGNORECASE)
"""A reference that may convolve or has recurrent layers: another evaluation of others would tell nothing."""
WATCHED_BYTES = 256 << 20
"""Of parameters and buffers, of which each evaluation that watches them keeps two copies."""


@dataclass
class Case:
    """One set of inputs and weights, and the answer to it."""

    label: str
    inputs: Any
    state: dict[str, torch.Tensor]
    backward: bool
    sizes: dict[str, Any] = field(default_factory=dict)
    """What differs from the task's own sizes."""
    wide: bool = False
    """Whether its inputs are wider than the task's own."""
    shapes: list[tuple[int, ...]] = field(default_factory=list)
    """The outputs'; empty until they are known to differ from the first case's."""
    cotangents: list[torch.Tensor] = field(default_factory=list)
    silent: list[torch.Tensor] = field(default_factory=list)
    """Flat positions, of each floating output, through which nothing is pulled back."""
    outputs: list[Expected] = field(default_factory=list)
    gradients: dict[str, Expected] = field(default_factory=dict)
    written: bool = False
    """What candidates are given is on disk."""
    new_weights: bool = False
    """Whether they are other than those it was constructed with."""
    rule: list[Expected] = field(default_factory=list)
    """The first outputs under the other rule: eager PyTorch's values under the benchmark's, or the oracle's under its
    own where the benchmark's decides."""
    nan: bool = False
    """Whether the answer may hold NaN."""
    moved: bool = True
    """Whether what moving inputs by a roundoff does is noise."""
    watched: bool = False
    """Whether what forward does to parameters and buffers is part of the answer."""
    buffers: dict[str, Expected] = field(default_factory=dict)
    """What forward leaves of those that it changes, by name."""
    draws: int | None = None
    """The seed that forward is run under; None is the one that modules are constructed under."""

    @property
    def answers(self) -> list[Expected]:
        """All tensors of the answer."""
        return [*self.outputs, *self.gradients.values(), *self.buffers.values()]


class Answers:
    """A reference's answers under one contract, with what a candidate's may differ by."""

    def __init__(
        self, reference: Reference, contract: Contract, vault: SealedStore, seed: int, limit_bytes: int = 0
    ) -> None:
        """`limit_bytes`: what this process may hold; 0 for what the machine has free."""
        self.reference = reference
        self.contract = contract
        self.vault = vault
        self.seed = seed
        self.findings: list[Finding] = []
        self.exact: torch.dtype = torch.float64
        self.structure: Any = None
        self.dtypes: list[torch.dtype] = []
        self.shapes: list[tuple[int, ...]] = []
        self.aliases: list[list[int]] = []
        """Pairs (output, input) that share memory in the reference itself."""
        self.mutated: list[int] = []
        """Inputs that the reference writes to."""
        self.limit_bytes = limit_bytes
        self._held: dict[torch.dtype | None, int | None] = {}
        """What evaluating a whole case takes of memory in each dtype; empty for what is small."""
        self._room = 0
        self.cut_down = False
        """Whether sizes are other than the task's own."""
        self.by_rule_alone = False
        """Whether the benchmark's rule is all, with nothing of the oracle's own beside it."""
        self.part_items = 0
        """Batch items to evaluate at a time; 0 for all at once."""
        self.draws = False
        """Whether the reference draws random numbers, from a seed that is set before each call."""

    def look_at_outputs(self, case: Case) -> None:
        """Structure, shapes, dtypes, aliases; whether the reference draws random numbers. Raises TaskError."""
        path, total = self.reference.path, batch_size(case.inputs) or 0
        with blamed_on_task(path, "Model.forward"):
            most = 0 if self._fits(self.exact) else self._most_items(case)
            self.part_items = items_of_part(self.reference, case.state, case.inputs, self.exact, most)
        if not self.part_items:
            self._take_less(case)
        with blamed_on_task(path, "Model.forward"):
            part, _ = next(self._parts(case))
            one = self.reference.evaluate(case.state, part, seed=self.seed)
            has_drawn = generators_moved(self.seed)
            two = self.reference.evaluate(case.state, part, seed=self.seed + 1)
            self.aliases, self.mutated = self.reference.side_effects(case.state, part)
        self.structure = one.structure
        self.dtypes = [leaf.tensor.dtype for leaf in one.outputs]
        shapes = [tuple(leaf.tensor.shape) for leaf in one.outputs]
        self.shapes = [(total, *shape[1:]) for shape in shapes] if self.part_items else shapes
        if not one.outputs:
            raise TaskError(f"{path}: the reference returns no tensor: let Model.forward return what is to be compared")
        for a in one.outputs:
            if torch.isnan(a.tensor).any():
                raise TaskError(f"{path}: the reference's {a.name} has NaN on its own inputs")
        drawn = _differing(one, two)
        if drawn:
            self._take_draws(case, drawn)
        elif has_drawn and not self._why_no_draws(case):
            self._take_draws(case, one.outputs[0].name)  # of few numbers, or zeros, two seeds may give the same
        if not any(dtype.is_floating_point for dtype in self.dtypes):
            case.backward = False

    def _take_draws(self, case: Case, drawn: str) -> None:
        """Of a reference that draws random numbers, whose output of that name they show in: right is what PyTorch draws
        from the same seed in float32, since it draws others in other dtypes, and for the whole batch at once. float64
        takes these, where what draws them uses them for nothing else. Raises TaskError where that says nothing."""
        why = self._why_no_draws(case)
        if why:
            raise TaskError(
                f"{self.reference.path}: the reference draws random numbers ({drawn} differs between two seeds), and "
                f"{why}, so there is no one right answer; judge it with --mode eval, or take the randomness out"
            )
        self.draws, self.part_items = True, 0
        wide = self.exact == torch.float64 and self._fits(torch.float64)
        self.exact = torch.float64 if wide and self.reference.take_draws(case.state, case.inputs) else torch.float32
        self.findings.append(
            Finding(
                "the reference draws random numbers: a seed is set before each call",
                f"right is who draws PyTorch's, in its order, as {drawn} has them; others are not judged",
            )
        )

    def _why_no_draws(self, case: Case) -> str:
        if self.contract.allclose:
            return "under the benchmark's rule both draw from one generator, one after the other"
        if self.contract.bfloat16_tensors:
            return "in bfloat16 PyTorch draws others than in float32"
        if not self._fits(torch.float32):
            return "the whole batch does not fit, whose parts draw others"
        with blamed_on_task(self.reference.path, "Model.forward"):
            pair = [self.reference.evaluate(case.state, case.inputs, dtype=torch.float32) for _ in range(2)]
        return "a seed does not fix them" if _differing(*pair) else ""

    def answer_first(self, case: Case, *, training: bool) -> None:
        """As `answer`; where the reference has no backward and nobody asked for one, its forward alone. Raises
        TaskError."""
        is_whole = not any(dtype.is_floating_point for dtype in self.dtypes)
        try:
            self.answer(case)
            why = "" if case.gradients or not case.backward else "no gradient reaches its inputs or parameters"
            why = "its outputs are whole numbers" if is_whole and training else why
        except TaskError as error:
            if not case.backward:
                raise
            why, case.outputs, case.gradients = str(error).partition("raises ")[2] or str(error), [], {}
        if why and training:
            raise TaskError(f"{self.reference.path}: training is asked for, and the reference has no backward ({why})")
        if why:
            case.backward = False
            self.findings.append(Finding("gradients are not compared: the reference has no backward", why))
        if not case.outputs:
            self.answer(case)

    def can_watch(self, case: Case) -> bool:
        """Whether what forward does to parameters and buffers can be told of a whole case: parts of a batch would each
        leave their own, and a copy of large weights would take the room of the answer."""
        return not self.part_items and sum(value.nbytes for value in case.state.values()) <= WATCHED_BYTES

    def look_at_shapes(self, case: Case) -> None:
        """The outputs' shapes of a case whose inputs have other sizes. Raises TaskError."""
        with blamed_on_task(self.reference.path, f"Model.forward ({case.label})"):
            leaves = self.reference.evaluate(case.state, case.inputs, seed=self.seed).outputs
        if len(leaves) != len(self.dtypes) or any(torch.isnan(leaf.tensor).any() for leaf in leaves):
            raise TaskError(
                f"{self.reference.path}: the reference's outputs are NaN, or another number of tensors, "
                f"on {case.label}: choose another --shape"
            )
        case.shapes = [tuple(leaf.tensor.shape) for leaf in leaves]

    def choose_precision(self, case: Case) -> None:
        """float64 where the reference runs in it, else strict float32, and says so."""
        self._size(case)
        failure: Exception | None = None
        for inputs in (batch(case.inputs, 0, 2), case.inputs):  # some references take their own batch size only
            try:
                if inputs is not None and (inputs is not case.inputs or self._fits(torch.float64)):
                    self.reference.evaluate(case.state, inputs, dtype=torch.float64)
                    return
            except Exception as error:  # noqa: BLE001 - a reference may refuse a dtype in any way
                failure = error
        if not self._fits(torch.float64):
            return  # what runs in parts, and what does not, is found out with the outputs
        with blamed_on_task(self.reference.path, "Model.forward"):
            self.reference.evaluate(case.state, case.inputs)
        self.exact = torch.float32
        claim = "the oracle computed in strict float32: the reference does not run in float64"
        self.findings.append(Finding(claim, (str(failure).splitlines() or ["?"])[0]))

    def _size(self, case: Case) -> None:
        """How much memory a whole case takes, traced without values where it could be much."""
        if not is_worth_tracing(self.reference, case.inputs):
            return
        self._room = room_bytes(self.reference.device, self.limit_bytes)
        for dtype in (torch.float64, torch.float32):
            self._held[dtype] = footprint(self.reference, case.inputs, dtype, backward=case.backward)

    def _fits(self, dtype: torch.dtype) -> bool:
        held = self._held.get(dtype)
        return held is None or held <= self._room

    def _most_items(self, case: Case) -> int:
        return most_items(self.reference, case.inputs, self.exact, self._room, backward=case.backward)

    def _take_less(self, case: Case) -> None:
        """Where a whole case does not fit and cannot be divided: strict float32, or nothing is begun. Raises
        JudgeError."""
        if self._fits(self.exact):
            return
        exact, single = (_gib(self._held.get(dtype)) for dtype in (torch.float64, torch.float32))
        free = _gib(max(0, self._room))
        if self.exact == torch.float32 or not self._fits(torch.float32):
            remedy = "judge at --scale small or at smaller sizes (--shape), or raise --memory-limit"
            needed = f"the oracle would need {single} in float32 ({exact} in float64), {free} are free for it"
            raise JudgeError(f"{needed}, and the batch cannot be divided: {remedy}")
        self.exact = torch.float32
        claim = "the oracle computed in strict float32: float64 does not fit, and the batch cannot be divided"
        self.findings.append(Finding(claim, f"{exact} would be needed, {free} are free for it"))

    def answer(self, case: Case) -> None:
        """Fills in outputs and gradients, exact."""
        probe = Probe(self.exact, (False, False))
        gradients: dict[str, list[torch.Tensor]] = {}
        for offset, answer in self._evaluate(case, probe):
            if not case.outputs:
                case.outputs = self._allocate(case, answer)
            for expected, leaf in zip(case.outputs, answer.outputs, strict=True):
                values = _flat(leaf.tensor)
                if not case.nan and torch.isnan(values).any():
                    raise TaskError(f"{self.reference.path}: the reference's {leaf.name} has NaN on {case.label}")
                expected.values[offset[leaf.name] :][: values.numel()] = values.cpu()
            for name, gradient in answer.gradients.items():
                gradients.setdefault(name, []).append(gradient)
            case.buffers.update(self._buffers(answer))
        dtypes = _gradient_dtypes(self.reference, case)
        for name, parts in gradients.items():
            joined = torch.cat(parts) if name.startswith("input[") else sum(parts[1:], parts[0])
            values = self.vault.empty(joined.numel(), self._stored(joined.numel()))
            values[:] = _flat(joined).cpu()
            case.gradients[name] = Expected(f"gradient of {name}", values, dtypes[name], tuple(joined.shape))
        for expected in case.answers:
            expected.scale = rms(expected.values)
        _free(self.reference.device)

    def measure_noise(self, case: Case) -> None:
        """Tolerances: the contract's multiple of what rounding does to the reference itself.

        Afterwards the case's tensors are on disk only, until they are read again.
        """
        self._measure(case)
        for expected in [*case.answers, *case.rule]:
            self.vault.release(expected.values)
        _free(self.reference.device)

    def borrow_noise(self, case: Case, likes: Sequence[Case]) -> None:
        """Tolerances for a forward whose inputs are of the same kind: twice the largest of other cases, which
        saves the probes (H200, 1.76 GB of output: 9 s). What can jump, integers and gradients, is measured."""
        if self.contract.allclose or case.backward or not all(e.dtype.is_floating_point for e in case.outputs):
            self.measure_noise(case)
            return
        for i, expected in enumerate(case.outputs):
            expected.relative_l2_allowed = 2 * max(like.outputs[i].relative_l2_allowed for like in likes)
            expected.peak_allowed = 2 * max(like.outputs[i].peak_allowed for like in likes)
            self.vault.release(expected.values)
        _free(self.reference.device)

    def _measure(self, case: Case) -> None:
        if self.contract.allclose and (self.by_rule_alone or case.label != "its own inputs"):
            case.outputs = self._eager(case)
            return
        worst = self._noise(case)
        gradients = {each.name for each in case.gradients.values()}
        for expected in case.answers:
            expected.allow(*worst[expected.name], self.contract.multiple, may_cancel=expected.name in gradients)
        if case.label == "its own inputs":
            case.rule = self._eager(case)
        if self.contract.allclose:
            case.outputs, case.rule = case.rule, case.outputs

    def _noise(self, case: Case) -> dict[str, tuple[float, float]]:
        """The largest errors, in the mean and at the peak, of what probes make of each tensor; of more probes until
        two agree. Raises TaskError."""
        tried = [self._errors(case, probe) for probe in probes(self.contract) if case.moved or not probe.moved]
        for probe in further_probes(self.contract) if case.moved else ():
            apart = [(each, [errors[each.name][0] for errors in tried[-2:]]) for each in case.answers]
            if not any(is_unsteady(errors, each.values.numel()) for each, errors in apart):
                break
            tried.append(self._errors(case, probe))
        if any(len(places) for places in case.silent) and self.contract.allow_tf32:
            # Without its kinks a bias's gradient is nearer than what all rows have in common when operands are cut off:
            # in task 98, simulated, 0.8 to 1.8 times what four roundings would allow.
            cut = self._errors(case, cutting(self.contract))
            tried.append({name: (CUT * l2, CUT * peak) for name, (l2, peak) in cut.items()})
        return {
            each.name: (max(errors[each.name][0] for errors in tried), max(errors[each.name][1] for errors in tried))
            for each in case.answers
        }

    def _errors(self, case: Case, probe: Probe) -> dict[str, tuple[float, float]]:
        """How far off a probe's tensors are, in the mean and at the peak. Raises TaskError."""
        errors = {}
        for name, difference in self._differences(case, probe).items():
            error = difference.result(0)
            if error.relative_l2 >= sys.float_info.max or error.nan:
                raise TaskError(
                    f"{self.reference.path}: the reference's {name} overflows at the contract's precision "
                    f"on {case.label}, where the exact answer is finite"
                )
            errors[name] = error.relative_l2, error.peak
        return errors

    def _eager(self, case: Case) -> list[Expected]:
        """Eager PyTorch's outputs with its default flags, held to the benchmark's rule."""
        rules = self._rules(case, Probe(None, (True, False)))
        first = self.contract.allclose and case.label == "its own inputs"
        if first and self.reference.device.type == "cpu" and _BY_CUDNN.search(self.reference.source):
            self._tell_of_tf32(rules, self._rules(case, by_default_on_a_gpu()))
        return self._no_less_than_rounding(rules, case) if self.cut_down and self.contract.allclose else rules

    def _rules(self, case: Case, probe: Probe) -> list[Expected]:
        """The outputs that a probe gives, held to the benchmark's rule."""
        rules = [
            benchmark_rule(e, self.vault.empty(e.values.numel(), e.values.dtype), self.contract.tolerance)
            for e in case.outputs
        ]
        for offset, answer in self._evaluate(replace(case, backward=False), probe):
            for rule, leaf in zip(rules, answer.outputs, strict=True):
                values = _flat(leaf.tensor)
                rule.values[offset[leaf.name] :][: values.numel()] = values.to(rule.values.dtype).cpu()
        return rules

    def _tell_of_tf32(self, rules: list[Expected], rounded: list[Expected]) -> None:
        """Where the rule, on a GPU, would refuse what is exact."""
        pairs = [pair for pair in zip(rules, rounded, strict=True) if pair[0].dtype.is_floating_point]
        off, name = max(((rounding(theirs, ours.values), ours.name) for ours, theirs in pairs), default=(0.0, ""))
        if off > 1:
            claim = "on a GPU this rule may refuse what is exact: it compares with eager PyTorch, which rounds there"
            words = (
                f"by PyTorch's defaults cuDNN takes TF32, with which {name} is off by {off:.2g} times the tolerance; "
                "here nothing is rounded"
            )
            self.findings.append(Finding(claim, words))

    def _no_less_than_rounding(self, rules: list[Expected], case: Case) -> list[Expected]:
        """The benchmark's tolerance is for the task's own sizes: cut down, a norm over few elements can make more of a
        rounding than that, and it would tell one right order of sums from another."""
        wider = []
        for rule, exact in zip(rules, case.outputs, strict=True):
            off = rounding(rule, exact.values) if rule.dtype.is_floating_point else 0.0
            times = max(1.0, ROUNDINGS * off)
            wider.append(replace(rule, absolute=times * (rule.absolute or 0.0), relative=times * rule.relative))
            if times > 1:
                claim = "the benchmark's tolerance is below what rounding does at sizes cut down so far"
                words = (
                    f"{rule.name} of the reference itself is off by {off:.2g} times it; {times:.2g} times are allowed"
                )
                self.findings += [] if any(f.claim == claim for f in self.findings) else [Finding(claim, words)]
        return wider

    def _differences(self, case: Case, probe: Probe) -> dict[str, Difference]:
        """How far a probe's outputs and gradients are from the answer."""
        found = {e.name: Difference(e) for e in case.answers}
        summed: dict[str, torch.Tensor] = {}
        for _, answer in self._evaluate(case, probe):
            for leaf in answer.outputs:
                found[leaf.name].add(_flat(leaf.tensor))
            for name in case.buffers:
                found[f"buffer {name}"].add(_flat(answer.state[name]))
            for name, gradient in answer.gradients.items():
                if name.startswith("input["):
                    found[f"gradient of {name}"].add(_flat(gradient))
                else:
                    summed[name] = summed[name] + gradient if name in summed else gradient
        for name, gradient in summed.items():
            found[f"gradient of {name}"].add(_flat(gradient))
        return found

    def _evaluate(self, case: Case, probe: Probe) -> Iterator[tuple[dict[str, int], Answer]]:
        """Answers for consecutive parts of the batch (one part for most tasks), with each output's offset."""
        generator = torch.Generator(self.reference.device).manual_seed(self.seed + 501 + probe.seed)
        state = case.state
        reach = self.contract.unit_roundoff * probe.moved
        if reach:
            state = {name: perturbed(value, reach, generator) for name, value in state.items()}
        offset: dict[str, int] = {}
        for inputs, cotangents in self._parts(case):
            if reach:
                structure, leaves = take_apart(inputs, "input")
                moved = [perturbed(leaf.tensor, reach, generator) for leaf in leaves]
                if probe.dtype is None:
                    moved = [m.to(leaf.tensor.dtype) for m, leaf in zip(moved, leaves, strict=True)]
                inputs = put_together(structure, moved)
            with blamed_on_task(self.reference.path, f"Model.forward ({case.label})"):
                answer = self.reference.evaluate(
                    state,
                    inputs,
                    cotangents if case.backward else None,
                    dtype=probe.dtype,
                    allow_tf32=probe.allow_tf32,
                    seed=case.draws,
                    within=probe.within(probe.seed),
                    watched=case.watched,
                )
            yield {leaf.name: offset.get(leaf.name, 0) for leaf in answer.outputs}, answer
            for leaf in answer.outputs:
                offset[leaf.name] = offset.get(leaf.name, 0) + leaf.tensor.numel()

    def _parts(self, case: Case) -> Iterator[tuple[Any, list[torch.Tensor]]]:
        items, total = self.part_items, batch_size(case.inputs) or 0
        if not items or case.shapes:
            yield case.inputs, case.cotangents
            return
        for start in range(0, total, items):
            yield batch(case.inputs, start, items), [c[start : start + items] for c in case.cotangents]

    def cotangents(self, case: Case) -> list[torch.Tensor]:
        """Random gradients to pull back, one for each floating output, in the outputs' dtype."""
        generator = torch.Generator().manual_seed(self.seed + 777)
        made = [
            torch.randn(shape, generator=generator).to(dtype)
            for shape, dtype in zip(case.shapes or self.shapes, self.dtypes, strict=True)
            if dtype.is_floating_point
        ]
        for cotangent, silent in zip(made, case.silent, strict=False):
            cotangent.view(-1)[silent] = 0
        return made

    def keep_off_kinks(self, case: Case, others: Iterable[tuple[dict[str, torch.Tensor], Any]] = ()) -> None:
        """Finds where the contract leaves open which side of a kink is right, with the case's own weights and inputs or
        with any of the others, and pulls nothing back through there. Roundings of operands may cross so many that these
        are in the noise: then all is pulled back."""
        bits, floating = self.contract.operand_bits, [dtype.is_floating_point for dtype in self.dtypes]
        shapes = [torch.Size(shape) for shape, kept in zip(case.shapes or self.shapes, floating, strict=True) if kept]
        if self.exact != torch.float64 or not any(are_exceptions(shape.numel(), bits) for shape in shapes):
            return
        masks = [self._kinks(case)]
        for state, inputs in others:
            with contextlib.suppress(TaskError):  # said where it counts: a reference may not take these
                masks.append(self._kinks(replace(case, state=state, inputs=inputs)))
        case.silent = [positions(of_output, bits) for of_output in zip(*masks, strict=True)]

    def _kinks(self, case: Case) -> list[torch.Tensor]:
        parts = (part for part, _ in self._parts(replace(case, cotangents=[])))
        with blamed_on_task(self.reference.path, f"Model.forward ({case.label})"):
            return kinks(
                self.reference, case.state, parts, reach_of(self.contract.operand_bits), self.seed + 601, case.draws
            )

    def _allocate(self, case: Case, answer: Answer) -> list[Expected]:
        """Room for a case's outputs, whole batch."""
        expected = []
        for leaf, dtype, shape in zip(answer.outputs, self.dtypes, case.shapes or self.shapes, strict=True):
            elements = torch.Size(shape).numel()
            stored = self._stored(elements) if dtype.is_floating_point else dtype
            expected.append(Expected(leaf.name, self.vault.empty(elements, stored), dtype, shape))
        return expected

    def _buffers(self, answer: Answer) -> dict[str, Expected]:
        """What forward left of the parameters and buffers that it changed."""
        own = self.reference.model.state_dict()
        return {
            name: Expected(f"buffer {name}", _flat(value).cpu(), own[name].dtype, tuple(value.shape))
            for name, value in answer.state.items()
            if name in answer.changed
        }

    def _stored(self, elements: int) -> torch.dtype:
        return self.exact if elements * 4 <= EXACT_BYTES else torch.float32


def _differing(one: Answer, two: Answer) -> str:
    """The first output that is another one in another run; "" where all are alike."""
    pairs = [(a.name, a.tensor, b.tensor) for a, b in zip(one.outputs, two.outputs, strict=True)]
    return next((name for name, a, b in pairs if a.shape != b.shape or not _alike(a, b)), "")


def _gib(held: int | None) -> str:
    return "an unknown amount" if held is None else f"{held / 2**30:.3g} GiB"


def _gradient_dtypes(reference: Reference, case: Case) -> dict[str, torch.dtype]:
    """The dtype that each gradient has for a candidate: its input's or parameter's."""
    dtypes = {leaf.name: leaf.tensor.dtype for leaf in take_apart(case.inputs, "input")[1]}
    return {**dtypes, **{name: p.dtype for name, p in reference.model.named_parameters()}}


def _alike(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal within what nondeterministic summation does; looked at a part at a time."""
    if not a.is_floating_point() or not a.numel():
        return torch.equal(a, b)
    parts = [(one.float(), two.float()) for one, two in zip(pieces(_flat(a)), pieces(_flat(b)), strict=True)]
    near = 1e-2 * sum(float(one.abs().sum(dtype=torch.float64)) for one, _ in parts) / a.numel()
    return all(torch.allclose(one, two, rtol=1e-2, atol=near, equal_nan=True) for one, two in parts)


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().flatten()


def rms(values: torch.Tensor) -> float:
    """Root mean square of the finite values, 1.0 when that is zero; read a part at a time."""
    total = 0.0
    for part in pieces(_flat(values)):
        wide = part.to(torch.float64)
        total += float(torch.where(torch.isfinite(wide), wide * wide, 0.0).sum())
    return (total / max(1, values.numel())) ** 0.5 or 1.0


def _free(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.empty_cache()
