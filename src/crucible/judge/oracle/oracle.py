"""The oracle: what the answer is. In its own process, which no candidate can see into.

It runs the reference in float64 (strict float32 where that is impossible), measures the noise that the contract
allows, makes sure that the check has power, and compares what candidates send. Expected values live in files
without a name (unlinked at once) and never leave this process.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, astuple, replace
from pathlib import Path
from typing import Any

import torch

from crucible.contract import CONTRACTS, Contract, Tolerance
from crucible.errors import TaskError
from crucible.judge.boundary.bundles import link_bundle, take_apart, write_bundle
from crucible.judge.boundary.influence import can_be_moved, reached
from crucible.judge.diagnosis.gradient_variants import look_up_gradients
from crucible.judge.diagnosis.mapping import Mapper
from crucible.judge.diagnosis.variants import look_up
from crucible.judge.oracle import power
from crucible.judge.oracle.cases import CaseMaker
from crucible.judge.oracle.compare import Expected, Heads, hand_out, read_stream
from crucible.judge.oracle.expected import Answers, Case
from crucible.judge.oracle.gaps import asks_for_cuda
from crucible.judge.oracle.reference import Reference
from crucible.judge.oracle.sealed import SealedStore
from crucible.judge.oracle.sizing import ENOUGH, Survey, choices, in_order
from crucible.judge.oracle.stress_cases import Stress, StressMaker
from crucible.judge.oracle.timed_cases import TimedCases, unchanged
from crucible.judge.process.channel import ChannelTimeout
from crucible.judge.verdict.evidence import Finding, NoVariant, Variant
from crucible.judge.verdict.verdict import to_json
from crucible.legible import counted
from crucible.rates import measure
from crucible.roofline import Rates, floor
from crucible.seeds import construction, derived
from crucible.shapes import Sizes, free_sizes, words

STREAM_TIMEOUT_S = 120.0
_TOLD = ("rule", "how", "layout", "cotangent", "factor", "forward", "needed")
"""Of a stress case, to the judge, beside its forms."""
FIRST_STRESS = 10_000
"""The number of the first stress case: they are made late, and others come after them."""
FEW_TRIALS = 2
"""Inputs, in place of the benchmark's five, where the emulator has much to do for each: for VGG19, at two images of
224 x 224, the oracle took 100 s of a processor."""
PROBED = 8.0
"""Times as long where noise is measured: 54 of 69 s for an output of 268 M elements, without gradients."""
RATES_S = 1.0
"""Seconds for measuring what the device can do."""


class Oracle:
    """The reference's answers under one contract."""

    def __init__(
        self,
        settings: dict[str, Any],
        say: Callable[[str], None],
        say_written: Callable[[], None] = lambda: None,
    ) -> None:
        """`say` hears of progress, `say_written` once that there are inputs to run on."""
        self.contract: Contract = CONTRACTS[settings["contract"]]
        if settings.get("tolerance"):
            self.contract = replace(self.contract, tolerance=Tolerance(**settings["tolerance"]))
        self.device = torch.device(settings["device"])
        self.folder = Path(settings["folder"])
        self.seed: int = settings["seed"]
        self.source: str = settings["source"]
        self.training: bool = settings["training"]
        self.say = say
        self.say_written = say_written
        self.survey = Survey(
            settings["source"], settings["path"], settings["sizes"], mode=settings["mode"], seed=self.seed
        )
        own = settings["sizes"] if settings["asked"] else {}
        self.full = Survey(settings["source"], settings["path"], own, mode=settings["mode"], seed=self.seed)
        """At the file's own sizes, or those that the user asked for."""
        self.is_much_work = False
        """Whether a forward is, even at sizes cut down."""
        reference, cut, found = self._cut_down(settings)
        if self.contract.bfloat16_tensors:
            reference.cast(torch.bfloat16)
        self.reference = reference
        self.answers = Answers(reference, self.contract, SealedStore(Path(settings["vault"])),
                               derived(self.seed, "answers"), settings.get("memory_bytes", 0))  # fmt: skip
        self.answers.findings += found
        self.answers.cut_down = bool(cut)
        self.one_case: bool = settings.get("one_case", False)
        """Whether the first case is all, which somebody has been judged by at other sizes."""
        self.answers.by_rule_alone = self.one_case
        self.cases: list[Case] = []
        self._states: dict[int, dict[str, torch.Tensor]] = {}
        """What is written of weights, by the number of a case."""
        self.further: list[list[Sizes]] = settings["further"]
        """Other shapes, each as what to try."""
        self.beyond: list[Sizes] = settings.get("beyond", [])
        """Where a size is above a block's threads, as it is of the task's own."""
        self.asked: bool = settings["asked"]
        """Whether the user chose these: then one that the reference refuses is an error."""
        self.make = CaseMaker(reference, self.contract, self.seed, self.survey)
        self.make.sizes = cut
        self.heads = Heads()
        """Of what was compared last and whole."""
        self.heads_of: dict[str, Any] = {}
        """The request that it was compared by."""
        self.timed = TimedCases(self.make, self.answers, settings["secrets"], self.device)
        self.own: Sizes = {**free_sizes(settings["source"]), **settings["sizes"]}
        """The sizes that inputs alone have, and those that were set."""
        self.stressed: dict[int, Case] = {}
        """Those beyond the task's own inputs, by number; made when they are first asked for."""
        self.stress_answer: dict[str, Any] = {}
        """What the judge was told of them."""
        self.tried: list[Case] = []
        """The one case, if any, at which a candidate that fails is tried now."""
        self._started = time.monotonic()
        self._limit_s: float = settings.get("oracle_s", 0.0)
        self._longest_s = 0.0
        """That a case has taken."""

    def prepare(self) -> None:
        """Builds the cases, their answers and their tolerances. Raises TaskError or JudgeError."""
        first = self.make.case("its own inputs", 0, backward=not self.contract.allclose)
        self.answers.choose_precision(first)
        self.answers.look_at_outputs(first)
        second = self.make.case("its own inputs, another seed", 1)
        third = self.make.case("its own inputs, new weights", 2, weights=True, backward=first.backward)
        third.watched = self.answers.can_watch(third)
        self.timed.weights = [0] if self.contract.allclose else [0, 2]
        self.timed.open(first.inputs, self._compared_bytes(first))
        if self.timed.recipe:
            self.timed.recipe.write(self.folder / "timed.json")
        for index, case in enumerate((first, second)):
            self._write(index, case, [first, second, third])
        self.say_written()
        self._add(first)
        if self.one_case:
            return
        self._add(second)
        for number in range(2, FEW_TRIALS if self.is_much_work else self.contract.trials):
            self._add(self.make.case(f"its own inputs, seed {number + 1}", number))
        if self.contract.allclose or not self._try(third):
            self.timed.weights = [0]
        self._ensure_power()
        own = self.contract.allclose and not self.asked  # the benchmark knows one shape
        self._add_shapes([] if own else self.further)
        for sizes in self.beyond:
            self._add_shapes([[sizes]], needed=False)
        self._add_timed()

    def description(self) -> dict[str, Any]:
        """What the judge and the workers may know: names, shapes and dtypes, never values."""
        first = self.cases[0]
        return {
            "structure": self.answers.structure,
            "inputs": [leaf.name for leaf in take_apart(first.inputs, "input")[1]],
            "device": self.device.type,
            "cast": "bfloat16" if self.contract.bfloat16_tensors else "",
            "weights": [name for name, value in first.state.items() if can_be_moved(value)],
            "aliases": self.answers.aliases,
            "mutated": self.answers.mutated,
            "multiple": self.contract.multiple,
            "draws": self.answers.draws,
            "cases": [self._described(i, case) for i, case in enumerate(self.cases)],
            "sizes": self.make.sizes,
            "timed": self._timed_numbers(),
            "weights_of": self.timed.weights,
            "late": self.timed.answers_late,
            "inside": self.timed.recipe is not None,
            "precision": str(self.answers.exact)[6:],
            "findings": [to_json(finding) for finding in (*self.answers.findings, *self._gaps())],
        }

    def _gaps(self) -> list[Finding]:
        """What the reference needs and this machine's PyTorch lacks."""
        claim = "the reference was run in another way than it is written"
        own = ["what asks for a GPU ran on the CPU"] if asks_for_cuda(self.reference.source) else []
        return [Finding(claim, words) for words in dict.fromkeys((*own, *self.reference.gaps))]

    def _described(self, index: int, case: Case) -> dict[str, Any]:
        return {
            "label": case.label,
            "index": index,
            "backward": case.backward,
            "moved": self._moved_weights(case),
            "sizes": case.sizes,
            "outputs": [_describe(e, d) for e, d in zip(case.outputs, self.answers.dtypes, strict=True)],
            "gradients": {name: _describe(e, e.dtype) for name, e in case.gradients.items()},
            "watched": case.watched,
            "buffers": sorted(case.buffers),
        }

    def floors(self, race_s: float, known: dict[str, Any] | None, *, measured: bool) -> dict[str, Any]:
        """`floors`: the least time of the task on this device, by rates that are known, or the best of them and what is
        measured now, so nobody else should use it; where races are shorter than that usually takes, in a race's time.
        `rates` of a CPU: of a GPU they change as it warms."""
        try:
            works = self.reference.work(self.cases[0].inputs, backward=self.training)
        except Exception as error:  # noqa: BLE001 - a reference may refuse tensors without values in any way
            reason = f"{type(error).__name__}: {(str(error).splitlines() or ['?'])[0]}"
            finding = Finding("no floor is known: the reference cannot be traced on shapes alone", reason)
            return {"floors": [to_json(finding)]}
        rates = [Rates(**known)] if known else []
        if not (known and measured):
            rates.append(measure(self.device, min(RATES_S, race_s or RATES_S)))
        best = Rates(*(max(each) for each in zip(*map(astuple, rates), strict=True)))
        found = {"floors": [to_json(floor(work, best, self.contract)) for work in works]}
        return {**found, "rates": asdict(best)} if self.device.type == "cpu" else found

    def growth(self) -> list[float]:
        """How many times as many bytes and operations a forward is at the task's full size as in the first case: the
        reference runs on tensors without values. Empty where it refuses."""
        try:
            full = self.full.work()
            here = self.reference.work(self.cases[0].inputs, backward=False)[0]
        except Exception:  # noqa: BLE001 - an aid only, and a reference may refuse such tensors in any way
            return []
        flops = [work.matrix_flops if here.matrix_flops else work.other_flops for work in (full, here)]
        return [full.bytes_moved / max(1, here.bytes_moved), flops[0] / max(1, flops[1])]

    def compare(self, request: dict[str, Any], stream: int) -> dict[str, Any]:
        """Reads one part of a candidate's answer from `stream` and says how far it is."""
        numbered = [*self.cases, *self.timed.cases, *self.tried, *self.timed.late]
        case = self.stressed.get(request["case"]) or numbered[request["case"]]
        expected = [e.times(request.get("factor", 1.0)) for e in _expected(case, request["part"], request["names"])]
        rule = case.rule if request["part"] == "forward" else []
        most, start = request["part_of"]["most"], request["part_of"]["start"]
        expected, rule = ([e.part(most, start) for e in given] for given in (expected, rule))
        self.heads, self.heads_of = Heads(), request
        try:
            found = read_stream(stream, expected, rule, self.device, STREAM_TIMEOUT_S, None if most else self.heads)
        except (ChannelTimeout, EOFError) as error:
            return {"missing": str(error) or "nothing arrived"}
        return {
            "tensors": [to_json(difference.result(request["case"])) for difference, _ in found],
            "fingerprint": [difference.fingerprint for difference, _ in found],
            "rule": [
                {
                    "name": r.expected.name,
                    "beyond": r.beyond,
                    "elements": r.index,
                    "nan": r.nan,
                    "stricter": to_json(r.result(request["case"])) if self.contract.allclose else None,
                }
                for _, r in found
                if r is not None
            ],
        }

    def map(self, request: dict[str, Any], stream: int) -> dict[str, Any]:
        """A second look at what a candidate sent and was wrong: the error maps of the tensors in `wrong`, as pairs
        of position and map; what cannot be mapped is left out, and `failed` says why."""
        case = self.cases[request["case"]]
        forward = request["part"] == "forward"
        expected = case.outputs if forward else [case.gradients[name] for name in request["names"]]
        looked_at = {i: Mapper(expected[i], tuple(worst), peak) for i, worst, peak in request["wrong"]}
        takers = [[looked_at[i]] if i in looked_at else [] for i in range(len(expected))]
        try:
            hand_out(stream, expected, takers, self.device, STREAM_TIMEOUT_S)
            maps = [(i, mapper.result()) for i, mapper in looked_at.items()]
        except (ChannelTimeout, EOFError, RuntimeError, MemoryError) as error:  # of a diagnosis no verdict hangs
            return {"maps": [], "failed": (str(error).splitlines() or [type(error).__name__])[0]}
        return {"maps": [[i, to_json(found)] for i, found in maps if found is not None], "failed": ""}

    def trial(self, like: int, sizes: Sizes, number: int, at_most: float) -> dict[str, Any]:
        """A case as that one is, with its weights and fresh inputs of these sizes, in the place of the last trial's;
        `refused` says why there is none. `at_most`: how many times little work it may be."""
        model = self.cases[like]
        try:
            if not self.make.is_affordable(model, sizes, at_most):
                return {"refused": "more work than a look at it is worth"}
            case = self.make.case(f"other sizes: {words(sizes)}", number, wide=model.wide, backward=model.backward,
                              sizes={**model.sizes, **sizes})  # fmt: skip
            case.state = model.state
            self.answers.look_at_shapes(case)
            self.tried, index = [case], len(self.cases) + len(self.timed.cases)
            self._write(index, case)
            self._answer(case)
        except Exception as error:  # noqa: BLE001 - an aid only, and a reference may refuse sizes in any way
            return {"refused": (str(error).splitlines() or [type(error).__name__])[0]}
        return {"case": self._described(index, case)}

    def _moved_weights(self, case: Case) -> list[str]:
        """Which weights are other than those that the reference was constructed with."""
        if not case.new_weights:
            return []
        seeded = self.cases[0].state
        return [name for name, value in case.state.items() if not torch.equal(value, seeded[name])]

    def older_weights(self, like: int, names: list[str]) -> dict[str, Any]:
        """A case as that one is, these weights still as constructed, in the place of the last trial; `refused`
        says why there is none."""
        model = self.cases[like]
        try:
            state = {**model.state, **{name: self.cases[0].state[name] for name in names}}
            case = Case(model.label, model.inputs, state, False, model.sizes, model.wide, model.shapes)
            self.answers.answer(case)
            self.answers.borrow_noise(case, [model])
        except Exception as error:  # noqa: BLE001 - a reference may refuse a mixture of weights in any way
            return {"refused": (str(error).splitlines() or [type(error).__name__])[0]}
        self.tried = [case]
        return {"index": len(self.cases) + len(self.timed.cases)}

    def stress(self, limit_s: float) -> dict[str, Any]:
        """`cases` beyond the task's own inputs, as many as there are answers to in that time, and `left_out`: why not
        others, by rule. Made once."""
        if not self.stress_answer:
            free = {name: {**self.own, **self.make.sizes}[name] for name in free_sizes(self.source)}
            maker = StressMaker(self.make, self.answers, self.cases[0], free, derived(self.seed, "stress"))
            cases = [self._described_stress(stress) for stress in maker.cases(limit_s)]
            self.stress_answer = {"cases": cases, "left_out": maker.left_out}
        return self.stress_answer

    def _described_stress(self, stress: Stress) -> dict[str, Any]:
        return {
            **{name: getattr(stress, name) for name in _TOLD},
            "case": self._described(self._numbered(stress.case), stress.case),
            "before": self._described(self._numbered(stress.before), stress.before) if stress.before else None,
            "watched": stress.case.watched and stress.forward,
        }

    def _numbered(self, case: Case) -> int:
        """The number of a stress case, of which candidates are given what they need."""
        number = next((n for n, known in self.stressed.items() if known is case), FIRST_STRESS + len(self.stressed))
        self.stressed[number] = case
        self._write(number, case)
        return number

    def influence(self, weight: str) -> list[int]:
        """Where in the first output of case 0 one element of a weight shows."""
        case = self.cases[0]

        def answer(value: torch.Tensor) -> torch.Tensor:
            return self.reference.evaluate({**case.state, weight: value}, case.inputs).outputs[0].tensor

        return reached(answer, case.state[weight])

    def variant(self, case: int, part: str) -> Variant | NoVariant:
        """What the part (`forward`, `gradient`) that was compared last, in this case, is the answer of."""
        if (self.heads_of.get("case"), self.heads_of.get("part")) != (case, part):
            return NoVariant("it was never compared")
        try:
            if part == "forward":
                return look_up(self.answers, self.cases[case], self.heads.tensors)
            return look_up_gradients(self.answers, self.cases[case], self.heads_of["names"], self.heads.tensors)
        except Exception as error:  # noqa: BLE001 - an aid only, and the reference runs in a way it may not allow
            return NoVariant(f"{type(error).__name__}: {(str(error).splitlines() or ['?'])[0]}")

    # --- cases

    def _cut_down(self, settings: dict[str, Any]) -> tuple[Reference, Sizes, list[Finding]]:
        """The reference at sizes in place of the task's own, where an emulator is to run at them; what those are, and
        what there is to say of them."""

        def at(sizes: Sizes) -> Reference:
            given = {**settings["sizes"], **sizes}
            return Reference(settings["source"], settings["path"], given, mode=settings["mode"],
                             seed=construction(self.seed, self.contract.seed), device=self.device)  # fmt: skip

        cut: list[Sizes] = settings["first"]
        cut = self.survey.with_long_sums(cut) if self.contract.allclose else cut
        tries = [{}, *cut] if cut else []
        if settings.get("share"):  # of what it would be otherwise
            usual = next(choices(tries, settings["smaller_weights"], self.survey.rate), None)
            self.survey.little = settings["share"] * (min(1.0, usual.cost) if usual else 1.0)
        for rated in choices(tries, settings["smaller_weights"], self.survey.rate):
            with contextlib.suppress(TaskError):
                reference = at(rated.sizes)
                if reference.takes(self.seed):
                    self.is_much_work = rated.cost > ENOUGH
                    if not rated.sizes:
                        return reference, {}, [] if rated.is_little else _at_full_size(cut)
                    found = [Finding("judged at sizes cut down for the emulator", words(rated.sizes))]
                    if rated.collapsed:
                        found.append(Finding("the check is weak at sizes cut down so far", rated.collapsed))
                    return reference, rated.sizes, found
        if "within_s" in settings and self._seconds() > settings["within_s"]:
            raise TaskError("a forward at the task's own sizes takes too long here")
        return at({}), {}, _at_full_size(cut)

    def _seconds(self) -> float:
        """What a forward at the task's own sizes takes, with its share of what is measured of it."""
        return self.survey.seconds() * (1.0 if self.contract.allclose else PROBED)

    def _add_shapes(self, shapes: list[list[Sizes]], *, needed: bool = True) -> None:
        """Of each of these shapes the first sizes that the reference answers; where it answers none, that is told if
        they are `needed`. Raises TaskError when it refuses what the user asked for."""
        taken: list[Finding] = []
        refused: list[Sizes] = []
        for tries in shapes:
            ordered = tries if self.asked else (rated.sizes for rated in in_order(tries, self.make.rate))
            chosen = next((sizes for sizes in ordered if self._add_shape(sizes)), None)
            refused += [] if chosen else tries
            taken += [Finding("judged at another shape too", words(chosen))] if chosen else []
        if needed and refused and not taken:
            claim = "judged at one shape only: the reference takes no other of those that were tried"
            taken = [Finding(claim, "; ".join(words(sizes) for sizes in refused))]
        self.answers.findings += taken

    def _add_shape(self, sizes: Sizes) -> bool:
        """Adds a case at these sizes, unless the reference has no answer there and nobody asked for it."""
        try:
            label = f"other sizes: {words(sizes)}"
            if not (self.asked or self._has_time(label)):
                return False
            backward = self.training and self.cases[0].backward
            case = self.make.case(label, len(self.cases), backward=backward, sizes=sizes)
            self.answers.look_at_shapes(case)
            self._add(case)
        except TaskError:
            if self.asked:
                raise
            return False
        return True

    def _add(self, case: Case) -> None:
        """Writes what candidates need, answers a case, measures its noise, keeps it."""
        index = len(self.cases)
        self.say(f"oracle: case {index}, {case.label}")
        start = time.monotonic()
        self._write(index, case)
        self._answer(case)
        self.cases.append(case)
        self._longest_s = max(self._longest_s, time.monotonic() - start)

    def _answer(self, case: Case) -> None:
        if self.cases:
            self.answers.answer(case)
        else:
            self.answers.answer_first(case, training=self.training)
        self.answers.measure_noise(case)
        case.cotangents = []  # as large as the outputs, and needed no more

    def _add_timed(self) -> None:
        """Answers what is compared while candidates are timed: inputs that nobody has seen, on verified weights."""
        try:
            self.timed.add(self.cases)
        except TaskError as error:
            claim = "timed on the same contents each time: the reference does not take its inputs under another seed"
            self.answers.findings.append(Finding(claim, str(error)))
            self.timed.numbered = []

    def answered_late(self, seed: int, weights: int, draws: int | None) -> int:
        """The number of the case that contents under that seed have become; -1 where the reference has no answer."""
        try:
            self.timed.answer_late(self.cases, seed, weights, draws)
        except TaskError:
            return -1
        return len(self.cases) + len(self.timed.cases) + len(self.tried)

    def _compared_bytes(self, case: Case) -> tuple[int, int]:
        """Of a forward on a case, and of one with its backward, where all has a gradient that can have one."""
        pairs = zip(self.answers.shapes, self.answers.dtypes, strict=True)
        outputs = sum(torch.Size(shape).numel() * dtype.itemsize for shape, dtype in pairs)
        inputs = [leaf.tensor for leaf in take_apart(case.inputs, "input")[1]]
        learned = [case.state[name] for name in self.reference.parameter_names()]
        return outputs, outputs + sum(t.nbytes for t in (*inputs, *learned) if t.is_floating_point())

    def _timed_inputs(self, cases: list[Case]) -> list[tuple[dict[str, torch.Tensor], Any]]:
        """Weights and inputs that the first case's cotangents are pulled back with too, while candidates are timed."""
        planned = self.timed.planned(True) if self.training else []
        return [(cases[weights].state, self.timed.inputs(seed)) for seed, weights in planned]

    def _timed_numbers(self) -> list[list[list[int]]]:
        """Seed, weights and number of each timed case, of forward and of forward+backward; none where contents stay."""
        numbered = [
            (seed, weights, len(self.cases) + i, case) for i, (seed, weights, case) in enumerate(self.timed.numbered)
        ]
        return [
            [[seed, weights, number] for seed, weights, number, case in numbered if case.backward is backward]
            for backward in (False, True)
        ]

    def _write(self, index: int, case: Case, planned: Sequence[Case] = ()) -> None:
        """What candidates are given in this case; the first two are written before they are answered, with the planned
        ones known by then."""
        if case.written:
            return
        case.written = True
        write_bundle(self.folder / f"case{index}.inputs", case.inputs)
        self._write_state(index, case.state)
        if case.backward:
            if not case.cotangents:
                self.answers.keep_off_kinks(case, self._timed_inputs(list(planned)) if index == 0 and planned else ())
                case.cotangents = self.answers.cotangents(case)
            write_bundle(self.folder / f"case{index}.cotangents", case.cotangents)

    def _write_state(self, index: int, state: dict[str, torch.Tensor]) -> None:
        """Weights that most cases share are written once: of 2^30 of them that is 4 GiB a case."""
        known = next((i for i, other in self._states.items() if i != index and _is_same(state, other)), None)
        path = self.folder / f"case{index}.state"
        if known is None:
            write_bundle(path, state)
        else:
            link_bundle(path, self.folder / f"case{known}.state")
        self._states[index] = state

    def _has_time(self, label: str) -> bool:
        """Whether one more case that is the judge's own wish ends within the limit; says so where it would not."""
        left = self._limit_s - (time.monotonic() - self._started)
        if not self._limit_s or 1.5 * self._longest_s <= left:
            return True
        claim = f"left out for want of time: {label}"
        evidence = f"a case takes {self._longest_s:.3g} s, {max(0.0, left):.3g} s are left of {self._limit_s:g}"
        self.answers.findings.append(Finding(claim, evidence))
        return False

    def _try(self, case: Case) -> bool:
        """Adds a case beyond the task's own distribution unless the reference has no answer there, or not in time."""
        if not self._has_time(case.label):
            return False
        try:
            self._add(case)
        except TaskError:
            return False
        return True

    # --- power

    def _ensure_power(self) -> None:
        """Adds inputs until plainly wrong answers would be refused, or says so. The benchmark's rule has its own."""
        wider: list[tuple[str, dict[str, Any]]] = [
            ("wider inputs", {"wide": True}),
            ("wider inputs, new weights", {"wide": True, "weights": True}),
        ]
        while passing := power.unrefused([case.outputs for case in self.cases], self.device):
            if not wider or self.contract.allclose:
                claim = f"the check is weak here: {', '.join(passing)} would pass"
                evidence = f"on {counted(len(self.cases), 'case')} ({'; '.join(case.label for case in self.cases)})"
                self.answers.findings += [*self._vacuous(evidence), Finding(claim, evidence)]
                return
            label, how = wider.pop(0)
            self._try(self.make.case(label, len(self.cases), **how))

    def _vacuous(self, where: str) -> list[Finding]:
        """That the output depends on nothing, where it does not."""
        if not power.is_vacuous([case.outputs for case in self.cases]):
            return []
        first = self.cases[0].outputs[0].values
        constant = first.numel() and bool((first == first[0]).all())
        what = f"every element is {float(first[0]) + 0.0:g}" if constant else "it is the same"
        return [Finding("the task is vacuous: its output does not depend on its inputs", f"{what} {where}")]


def _is_same(state: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    """Whether these are the same tensors: nobody writes to any."""
    return state.keys() == other.keys() and all(value is other[name] for name, value in state.items())


def _at_full_size(tried: list[Sizes]) -> list[Finding]:
    claim = "judged at its full size: of the smaller ones that were tried the reference takes none that shows as much"
    return [Finding(claim, "; ".join(words(sizes) for sizes in tried[:8]))] if tried else []


def _expected(case: Case, part: str, names: list[str]) -> list[Expected]:
    """What a part of a candidate's answer is held against: `earlier` is a forward that was to stay as it was."""
    if part == "inputs":
        return unchanged(case.inputs, names)
    if part in ("forward", "earlier"):
        return case.outputs
    named = case.buffers if part == "buffers" else case.gradients
    return [named[name] for name in names]


def _describe(expected: Expected, dtype: torch.dtype) -> dict[str, Any]:
    return {"name": expected.name, "dtype": str(dtype)[6:], "shape": list(expected.shape)}
