"""The oracle: what the answer is. Its own process, which no candidate can see into.

It runs the reference in float64 (strict float32 where that is impossible), measures the noise that the contract
allows, makes sure that the check has power, and compares what candidates send. Expected values live in files
without a name (unlinked at once) and never leave this process.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from crucible.contract import CONTRACTS, Contract, benchmark_tolerance
from crucible.errors import CrucibleError, JudgeError, TaskError
from crucible.judge import power
from crucible.judge.channel import Channel, ChannelClosed, ChannelTimeout
from crucible.judge.compare import Difference, Expected, benchmark_rule, read_stream
from crucible.judge.noise import RoundedOperands, perturbed
from crucible.judge.reference import Answer, Reference, blamed_on_task, seed_all
from crucible.judge.tree import NotPlain, put_together, take_apart, write_bundle
from crucible.judge.verdict import Finding, to_json

EXACT_BYTES = 256 << 20
"""Expected tensors above this are kept as float32: rounding adds 3e-8, below any contract's noise."""
PART_BYTES = 128 << 20
"""Where a task's outputs are larger and its batch items independent, they are evaluated in parts of this size."""
STREAM_TIMEOUT_S = 120.0


@dataclass
class Case:
    """One set of inputs and weights, and the answer to it."""

    label: str
    inputs: Any
    state: dict[str, torch.Tensor]
    backward: bool
    cotangents: list[torch.Tensor] = field(default_factory=list)
    outputs: list[Expected] = field(default_factory=list)
    gradients: dict[str, Expected] = field(default_factory=dict)
    rule: list[Expected] = field(default_factory=list)
    """The first outputs under the benchmark's rule: eager PyTorch's values."""


@dataclass(frozen=True)
class Probe:
    """One way to evaluate the reference less exactly; its distance from the oracle is noise."""

    dtype: torch.dtype | None
    allow_tf32: tuple[bool, bool]
    within: Callable[[], contextlib.AbstractContextManager[Any]]
    moved: float = 0.0
    """Inputs and weights are first moved by up to this many unit roundoffs."""
    seed: int = 0


class Vault:
    """Large tensors in files that nobody can open: unlinked the moment they exist."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._numbers = itertools.count()

    def empty(self, elements: int, dtype: torch.dtype) -> torch.Tensor:
        if elements == 0:
            return torch.empty(0, dtype=dtype)
        size = elements * dtype.itemsize
        free = shutil.disk_usage(self.folder).free
        if size > free:
            raise JudgeError(f"the oracle needs {size >> 20} MiB in {self.folder} and {free >> 20} are free: set TMPDIR")
        path = self.folder / f"expected{next(self._numbers)}"
        values = torch.from_file(str(path), shared=True, size=elements, dtype=dtype)
        path.unlink()
        return values


class Oracle:
    """The reference's answers under one contract."""

    def __init__(self, settings: dict[str, Any], say: Callable[[str], None]) -> None:
        self.contract: Contract = CONTRACTS[settings["contract"]]
        self.device = torch.device(settings["device"])
        self.folder = Path(settings["folder"])
        self.vault = Vault(Path(settings["vault"]))
        self.seed: int = settings["seed"]
        self.training: bool = settings["training"]
        self.say = say
        self.findings: list[Finding] = []
        self.reference = Reference(
            settings["source"],
            settings["path"],
            settings["sizes"],
            mode=settings["mode"],
            seed=self.seed,
            device=self.device,
        )
        if self.contract.bfloat16_tensors:
            self.reference.cast(torch.bfloat16)
        self.exact: torch.dtype = torch.float64
        self.cases: list[Case] = []
        self.structure: Any = None
        self.dtypes: list[torch.dtype] = []
        self.shapes: list[tuple[int, ...]] = []
        self.aliases: list[list[int]] = []
        self.mutated: list[int] = []
        self.part_items = 0
        """Batch items to evaluate at a time; 0 for all at once."""

    def prepare(self) -> None:
        """Builds the cases, their answers and their tolerances. Raises TaskError or JudgeError."""
        first = self._case("its own inputs", 0, backward=not self.contract.allclose)
        self._choose_precision(first)
        self._look_at_outputs(first)
        self._add(first)
        self._add(self._case("its own inputs, another seed", 1))
        if not self.contract.allclose:
            self._try(self._case("its own inputs, new weights", 2, weights=True, backward=self.training))
        self._ensure_power()

    def description(self) -> dict[str, Any]:
        """What the judge and the workers may know: names, shapes and dtypes, never values."""
        first = self.cases[0]
        return {
            "structure": self.structure,
            "outputs": [_describe(e, d) for e, d in zip(first.outputs, self.dtypes, strict=True)],
            "inputs": [leaf.name for leaf in take_apart(first.inputs, "input")[1]],
            "device": self.device.type,
            "gradients": {name: _describe(e, e.dtype) for name, e in first.gradients.items()},
            "aliases": self.aliases,
            "mutated": self.mutated,
            "multiple": self.contract.multiple,
            "cases": [
                {"label": case.label, "index": i, "backward": case.backward} for i, case in enumerate(self.cases)
            ],
            "precision": str(self.exact)[6:],
            "findings": [to_json(finding) for finding in self.findings],
        }

    def compare(self, request: dict[str, Any], stream: int) -> dict[str, Any]:
        """Reads one part of a candidate's answer from `stream` and says how far it is."""
        case = self.cases[request["case"]]
        forward = request["part"] == "forward"
        expected = case.outputs if forward else [case.gradients[name] for name in request["names"]]
        rule = case.rule if forward else []
        try:
            found = read_stream(stream, expected, rule, self.device, STREAM_TIMEOUT_S)
        except (ChannelTimeout, EOFError) as error:
            return {"missing": str(error) or "nothing arrived"}
        return {
            "tensors": [to_json(difference.result(request["case"])) for difference, _ in found],
            "fingerprint": [difference.fingerprint for difference, _ in found],
            "rule": [
                {"name": r.expected.name, "beyond": r.beyond_rule, "elements": r.index, "nan": r.nan}
                for _, r in found
                if r is not None
            ],
        }

    # --- cases

    def _case(self, label: str, number: int, *, weights: bool = False, wide: bool = False, backward: bool = False) -> Case:
        inputs = self.reference.inputs(self.seed + 1 + number)
        seed_all(self.seed + 101 + number)
        structure, leaves = take_apart(inputs, "input")
        tensors = [_widened(leaf.tensor) if wide else leaf.tensor for leaf in leaves]
        if self.contract.bfloat16_tensors:
            tensors = [t.to(torch.bfloat16) if t.is_floating_point() else t for t in tensors]
        state = self.reference.state()
        if weights:
            learned = set(self.reference.parameter_names())
            state = {name: _moved_weights(v) if name in learned else v for name, v in state.items()}
        return Case(label, put_together(structure, tensors), state, backward)

    def _add(self, case: Case) -> None:
        """Answers a case, measures its noise, writes what candidates need, keeps it."""
        index = len(self.cases)
        self.say(f"oracle: case {index}, {case.label}")
        self._answer(case)
        self._measure_noise(case)
        write_bundle(self.folder / f"case{index}.inputs", case.inputs)
        write_bundle(self.folder / f"case{index}.state", case.state)
        if case.backward:
            write_bundle(self.folder / f"case{index}.cotangents", case.cotangents)
        self.cases.append(case)

    def _try(self, case: Case) -> bool:
        """Adds a case beyond the task's own distribution unless the reference has no answer there."""
        try:
            self._add(case)
        except TaskError:
            return False
        return True

    # --- answers

    def _look_at_outputs(self, case: Case) -> None:
        """Structure, shapes, dtypes, aliases; whether the reference draws random numbers."""
        path, total = self.reference.path, _batch_size(case.inputs) or 0
        with blamed_on_task(path, "Model.forward"):
            self.part_items = self._find_part(case)
            part, _ = next(self._parts(case))
            one = self.reference.evaluate(case.state, part, seed=self.seed)
            two = self.reference.evaluate(case.state, part, seed=self.seed + 1)
            self.aliases, self.mutated = self.reference.side_effects(case.state, part)
        self.structure = one.structure
        self.dtypes = [leaf.tensor.dtype for leaf in one.outputs]
        shapes = [tuple(leaf.tensor.shape) for leaf in one.outputs]
        self.shapes = [(total, *shape[1:]) for shape in shapes] if self.part_items else shapes
        for a, b in zip(one.outputs, two.outputs, strict=True):
            if torch.isnan(a.tensor).any():
                raise TaskError(f"{path}: the reference's {a.name} has NaN on its own inputs")
            if a.tensor.shape != b.tensor.shape or not _alike(a.tensor, b.tensor):
                raise TaskError(
                    f"{path}: the reference draws random numbers ({a.name} differs between two runs), so there "
                    "is no one right answer; judge it with --mode eval, or take the randomness out"
                )
        if not any(dtype.is_floating_point for dtype in self.dtypes):
            case.backward = False

    def _choose_precision(self, case: Case) -> None:
        """float64 where the reference runs in it, else strict float32, and says so."""
        sample = Case(case.label, _batch(case.inputs, 0, 1) or case.inputs, case.state, False)
        try:
            self.reference.evaluate(sample.state, sample.inputs, dtype=torch.float64)
        except (RuntimeError, TypeError, ValueError, AssertionError) as error:
            with blamed_on_task(self.reference.path, "Model.forward"):
                self.reference.evaluate(sample.state, sample.inputs)
            self.exact = torch.float32
            claim = "the oracle computed in strict float32: the reference does not run in float64"
            self.findings.append(Finding(claim, str(error).splitlines()[0]))

    def _answer(self, case: Case) -> None:
        """Fills in outputs and gradients, exact."""
        probe = Probe(self.exact, (False, False), contextlib.nullcontext)
        gradients: dict[str, list[torch.Tensor]] = {}
        if case.backward:
            case.cotangents = self._cotangents()
        for offset, answer in self._evaluate(case, probe):
            if not case.outputs:
                case.outputs = self._allocate(answer)
            for expected, leaf in zip(case.outputs, answer.outputs, strict=True):
                values = _flat(leaf.tensor)
                if torch.isnan(values).any():
                    raise TaskError(f"{self.reference.path}: the reference's {leaf.name} has NaN on {case.label}")
                expected.values[offset[leaf.name] :][: values.numel()] = values.cpu()
            for name, gradient in answer.gradients.items():
                gradients.setdefault(name, []).append(gradient)
        dtypes = _gradient_dtypes(self.reference, case)
        for name, parts in gradients.items():
            joined = torch.cat(parts) if name.startswith("input[") else sum(parts[1:], parts[0])
            values = self.vault.empty(joined.numel(), self._stored(joined.numel()))
            values[:] = _flat(joined).cpu()
            case.gradients[name] = Expected(f"gradient of {name}", values, dtypes[name], tuple(joined.shape))
        for expected in [*case.outputs, *case.gradients.values()]:
            expected.scale = _rms(expected.values)
        _free(self.device)

    def _measure_noise(self, case: Case) -> None:
        """Tolerances: the contract's multiple of what rounding does to the reference itself."""
        if self.contract.allclose:
            case.outputs = self._eager(case)
            return
        worst: dict[str, tuple[float, float]] = {}
        for probe in self._probes():
            for name, difference in self._differences(case, probe).items():
                error = difference.result(0)
                if error.relative_l2 == float("inf") or error.nan:
                    raise TaskError(
                        f"{self.reference.path}: the reference's {name} overflows at the contract's precision "
                        f"on {case.label}, where the exact answer is finite"
                    )
                l2, peak = worst.get(name, (0.0, 0.0))
                worst[name] = max(l2, error.relative_l2), max(peak, error.peak)
        for expected in [*case.outputs, *case.gradients.values()]:
            _allow(expected, *worst.get(expected.name, (0.0, 0.0)), self.contract.multiple)
        if case.label == "its own inputs":
            case.rule = self._eager(case)
        _free(self.device)

    def _eager(self, case: Case) -> list[Expected]:
        """Eager PyTorch's outputs with its default flags, held to the benchmark's rule."""
        rules = [benchmark_rule(e, self.vault.empty(e.values.numel(), e.values.dtype)) for e in case.outputs]
        for offset, answer in self._evaluate(replace(case, backward=False), Probe(None, (True, False), contextlib.nullcontext)):
            for rule, leaf in zip(rules, answer.outputs, strict=True):
                values = _flat(leaf.tensor)
                rule.values[offset[leaf.name] :][: values.numel()] = values.to(rule.values.dtype).cpu()
        return rules

    def _differences(self, case: Case, probe: Probe) -> dict[str, Difference]:
        """How far a probe's outputs and gradients are from the answer."""
        found = {e.name: Difference(e) for e in [*case.outputs, *case.gradients.values()]}
        summed: dict[str, torch.Tensor] = {}
        for _, answer in self._evaluate(case, probe):
            for leaf in answer.outputs:
                found[leaf.name].add(_flat(leaf.tensor))
            for name, gradient in answer.gradients.items():
                if name.startswith("input["):
                    found[f"gradient of {name}"].add(_flat(gradient))
                else:
                    summed[name] = summed[name] + gradient if name in summed else gradient
        for name, gradient in summed.items():
            found[f"gradient of {name}"].add(_flat(gradient))
        return found

    def _probes(self) -> list[Probe]:
        """The library as the contract lets it run, and rounding done here, once with everything moved a little."""
        bits = self.contract.operand_bits
        if self.contract.bfloat16_tensors:
            rounding = Probe(torch.float32, (False, False), lambda: RoundedOperands(bits, results=True))
            return [Probe(None, (True, True), contextlib.nullcontext), rounding, replace(rounding, moved=0.5)]
        library = Probe(None, (self.contract.allow_tf32,) * 2, contextlib.nullcontext)
        if bits == 23:
            # Moves below one unit in the last place would round away, hence 2.
            return [library, replace(library, moved=2.0), replace(library, moved=2.0, seed=1)]
        rounding = Probe(None, (False, False), lambda: RoundedOperands(bits))
        return [library, rounding, replace(rounding, moved=0.5)]

    # --- evaluation, in parts where the batch allows

    def _evaluate(self, case: Case, probe: Probe) -> Iterator[tuple[dict[str, int], Answer]]:
        """Answers for consecutive parts of the batch (one part for most tasks), with each output's offset."""
        generator = torch.Generator().manual_seed(self.seed + 501 + probe.seed)
        state = case.state
        reach = self.contract.unit_roundoff * probe.moved
        if reach:
            state = {name: perturbed(value, reach, generator) for name, value in state.items()}
        offset: dict[str, int] = {}
        for inputs, cotangents in self._parts(case):
            if reach:
                structure, leaves = take_apart(inputs, "input")
                inputs = put_together(structure, [perturbed(leaf.tensor, reach, generator) for leaf in leaves])
            with blamed_on_task(self.reference.path, f"Model.forward ({case.label})"):
                answer = self.reference.evaluate(
                    state,
                    inputs,
                    cotangents if case.backward else None,
                    dtype=probe.dtype,
                    allow_tf32=probe.allow_tf32,
                    within=probe.within(),
                )
            yield {leaf.name: offset.get(leaf.name, 0) for leaf in answer.outputs}, answer
            for leaf in answer.outputs:
                offset[leaf.name] = offset.get(leaf.name, 0) + leaf.tensor.numel()

    def _parts(self, case: Case) -> Iterator[tuple[Any, list[torch.Tensor]]]:
        items, total = self.part_items, _batch_size(case.inputs) or 0
        if not items:
            yield case.inputs, case.cotangents
            return
        for start in range(0, total, items):
            yield _batch(case.inputs, start, items), [c[start : start + items] for c in case.cotangents]

    def _find_part(self, case: Case) -> int:
        """Batch items a part, by trying: 0 when the outputs are small or the items depend on one another."""
        total = _batch_size(case.inputs) or 0
        if total < 4:
            return 0
        two, one = _batch(case.inputs, 0, 2), _batch(case.inputs, 1, 1)
        try:
            pair = self.reference.evaluate(case.state, two, dtype=self.exact).outputs
            single = self.reference.evaluate(case.state, one, dtype=self.exact).outputs
        except RuntimeError:
            return 0  # the reference takes this batch size only
        bytes_of_one = 0
        for a, b in zip(pair, single, strict=True):
            if a.tensor.shape[:1] != (2,) or not torch.allclose(a.tensor[1:], b.tensor, rtol=1e-9, atol=1e-12):
                return 0  # batch items are not independent (batch norm in training, a mean over the batch)
            bytes_of_one += b.tensor.numel() * 4
        return 0 if bytes_of_one * total <= PART_BYTES else max(1, PART_BYTES // bytes_of_one)

    # --- power

    def _ensure_power(self) -> None:
        """Adds inputs until plainly wrong answers would be refused, else scales the rule, else says so."""
        wider: list[tuple[str, dict[str, bool]]] = [
            ("wider inputs", {"wide": True}),
            ("wider inputs, new weights", {"wide": True, "weights": True}),
        ]
        while passing := power.unrefused([case.outputs for case in self.cases], self.device):
            if wider and not self.contract.allclose:
                label, how = wider.pop(0)
                self._try(self._case(label, len(self.cases), **how))
            elif self.contract.allclose and self._scale_rule():
                continue
            else:
                claim = f"the check is weak here: {', '.join(passing)} would pass"
                evidence = f"on {len(self.cases)} cases ({'; '.join(case.label for case in self.cases)})"
                self.findings.append(Finding(claim, evidence))
                return

    def _scale_rule(self) -> bool:
        """Brings the benchmark's absolute tolerance to the outputs' own size; False when that was done before."""
        done = False
        for case in self.cases:
            for expected in case.outputs:
                if expected.dtype.is_floating_point and expected.absolute == benchmark_tolerance(str(expected.dtype)[6:]):
                    expected.absolute *= min(1.0, expected.scale)
                    done = done or expected.scale < 1.0
        if done:
            claim = "the benchmark's absolute tolerance cannot tell this task's answer from plainly wrong ones"
            scales = max(e.scale for e in self.cases[0].outputs)
            evidence = f"outputs have an rms of {scales:.2g}; the tolerance was scaled by it"
            self.findings.append(Finding(claim, evidence))
        return done

    # --- small parts

    def _cotangents(self) -> list[torch.Tensor]:
        """Random gradients to pull back, one for each floating output, in the outputs' dtype."""
        generator = torch.Generator().manual_seed(self.seed + 777)
        return [
            torch.randn(shape, generator=generator).to(dtype)
            for shape, dtype in zip(self.shapes, self.dtypes, strict=True)
            if dtype.is_floating_point
        ]

    def _allocate(self, answer: Answer) -> list[Expected]:
        """Room for a case's outputs, whole batch."""
        expected = []
        for leaf, dtype, shape in zip(answer.outputs, self.dtypes, self.shapes, strict=True):
            elements = torch.Size(shape).numel()
            stored = self._stored(elements) if dtype.is_floating_point else dtype
            expected.append(Expected(leaf.name, self.vault.empty(elements, stored), dtype, shape))
        return expected

    def _stored(self, elements: int) -> torch.dtype:
        return self.exact if elements * 4 <= EXACT_BYTES else torch.float32


def _allow(expected: Expected, l2: float, peak: float, multiple: float) -> None:
    if expected.dtype.is_floating_point:
        roundoff = torch.finfo(expected.dtype).eps / 2
        expected.relative_l2_allowed = multiple * max(l2, roundoff)
        expected.peak_allowed = multiple * max(peak, 2 * roundoff)
    else:
        expected.relative_l2_allowed = max(multiple * l2, 0.5 / max(1, expected.values.numel()))
        expected.peak_allowed = 1.0


def _describe(expected: Expected, dtype: torch.dtype) -> dict[str, Any]:
    return {"name": expected.name, "dtype": str(dtype)[6:], "shape": list(expected.shape)}


def _gradient_dtypes(reference: Reference, case: Case) -> dict[str, torch.dtype]:
    """The dtype that each gradient has for a candidate: its input's or parameter's."""
    dtypes = {leaf.name: leaf.tensor.dtype for leaf in take_apart(case.inputs, "input")[1]}
    return {**dtypes, **{name: p.dtype for name, p in reference.model.named_parameters()}}


def _alike(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal within what nondeterministic summation does."""
    if not a.is_floating_point():
        return torch.equal(a, b)
    return torch.allclose(a.float(), b.float(), rtol=1e-2, atol=1e-2 * float(a.float().abs().mean()), equal_nan=True)


def _batch_size(inputs: Any) -> int | None:
    """The leading size that all input tensors share, None when they share none."""
    sizes = {leaf.tensor.shape[0] if leaf.tensor.dim() else 0 for leaf in take_apart(inputs, "input")[1]}
    return sizes.pop() if len(sizes) == 1 else None


def _batch(inputs: Any, start: int, items: int) -> Any:
    if not _batch_size(inputs):
        return None
    structure, leaves = take_apart(inputs, "input")
    return put_together(structure, [leaf.tensor[start : start + items] for leaf in leaves])


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().flatten()


def _rms(values: torch.Tensor) -> float:
    """Root mean square of the finite values, 1.0 when that is zero; read a part at a time."""
    total = 0.0
    for part in values.split(4 << 20):
        wide = part.to(torch.float64)
        total += float(torch.where(torch.isfinite(wide), wide * wide, 0.0).sum())
    return (total / max(1, values.numel())) ** 0.5 or 1.0


def _widened(tensor: torch.Tensor) -> torch.Tensor:
    """Normal values, three times as wide, in place of the task's own floats."""
    return (torch.randn(tensor.shape) * 3).to(tensor.dtype) if tensor.is_floating_point() else tensor


def _moved_weights(value: torch.Tensor) -> torch.Tensor:
    """A weight that is neither its initial value nor far from it; constants (a scale of ones) come alive."""
    if not value.is_floating_point():
        return value
    spread = 0.3 * float(value.float().pow(2).mean()) ** 0.5 + 0.05
    return value + (torch.randn(value.shape) * spread).to(value.dtype)


def _free(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.empty_cache()


def serve(channel: Channel) -> None:
    """Answers the judge's requests until it hangs up."""
    oracle: Oracle | None = None
    stream = -1
    while True:
        request = channel.receive()
        if request["do"] == "prepare":
            try:
                oracle = Oracle(request, lambda text: channel.send({"progress": text}))
                write_bundle(oracle.folder / "init", oracle.reference.init_inputs)
                oracle.prepare()
                channel.send({"ready": oracle.description()})
            except (CrucibleError, MemoryError, RuntimeError, OSError, NotPlain, ValueError) as error:
                channel.send({"error": _as_error(error), "trace": traceback.format_exc()})
        elif request["do"] == "attach":
            stream = channel.take_descriptor()
        elif request["do"] == "detach":
            os.close(stream)
        elif oracle is not None:
            channel.send(oracle.compare(request, stream))


def _as_error(error: BaseException) -> dict[str, str]:
    """Kind and words of a failure: the task's, or the judge's own."""
    if isinstance(error, TaskError | NotPlain):
        return {"kind": "task", "message": str(error)}
    memory = isinstance(error, MemoryError | torch.OutOfMemoryError) or "allocate memory" in str(error)
    reason = "the oracle ran out of memory: " if memory else "the oracle failed: "
    return {"kind": "judge", "message": reason + (str(error).splitlines() or [type(error).__name__])[0]}


def main() -> None:
    with contextlib.suppress(ChannelClosed):
        serve(Channel.from_descriptor(int(sys.argv[1])))


if __name__ == "__main__":
    main()
