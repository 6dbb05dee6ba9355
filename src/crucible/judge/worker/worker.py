"""The candidate's process: imports it, runs it on what the judge sends, and hands out raw bytes.

Nothing decided here counts: the judge outside compares, times out and concludes. What this file needs of Python and
PyTorch is bound before the candidate is imported.
"""

from __future__ import annotations

import contextlib
import sys
import time
import types
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from crucible import tf32
from crucible.candidate import ORDERS_ITSELF
from crucible.gpus import DEFAULT, known_gpu
from crucible.judge.boundary.bits import INTEGER_VIEWS, POISON
from crucible.judge.boundary.bundles import (
    Handed,
    NotPlain,
    numbers_to_tensors,
    put_together,
    read_bundle,
    spread_part,
    take_apart,
)
from crucible.judge.boundary.influence import PLACE, can_be_moved, reached
from crucible.judge.boundary.layouts import CONTIGUOUS, laid_out
from crucible.judge.boundary.modules import (
    call,
    construct,
    materialise,
    pulled_back,
    seed_all,
    share_memory,
)
from crucible.judge.boundary.recipe import Recipe, read_recipe
from crucible.judge.boundary.slot import take
from crucible.judge.process.channel import Channel
from crucible.judge.process.handing import SLOT
from crucible.judge.worker import building, on_emulator, tripwires
from crucible.judge.worker.outputs import described, finish, mutated, subclass_in, write
from crucible.judge.worker.poison import Poison, poison_free_memory, uncompiled
from crucible.judge.worker.profile import profile_call
from crucible.judge.worker.readiness import start_libraries, taken_back
from crucible.judge.worker.stressed import changed, copied, trained
from crucible.judge.worker.timed import Fill, TimedStep
from crucible.judge.worker.weights import NOTHING_COPIED, Weights, added_up, apart

MOST_LAUNCHED = 64
"""Kernels that are told by name."""
_now = time.perf_counter


class Worker:
    """One candidate, from import to the last sample."""

    def __init__(self, settings: dict[str, Any], channel: Channel | None) -> None:
        self.file: str = settings["file"]
        self.handed = Handed()
        self.inputs_folder: Path | Handed = Path(settings["inputs"]) if settings["inputs"] else self.handed
        self.device = torch.device(settings["device"])
        self.allow_tf32: tuple[bool, bool] = tuple(settings["allow_tf32"])
        self.stream: int = settings["stream"]
        self.mode: str = settings["mode"]
        self.bfloat16: bool = settings["bfloat16"]
        self.copies_weights: bool = settings.get("copies_weights", True)
        """Whether it is given the reference's; the public benchmark leaves a candidate's as they are seeded."""
        self.seed = 0
        """Of its construction."""
        self.channel = channel
        gpu = known_gpu(settings.get("gpu") or DEFAULT)
        self.emulated = on_emulator.start(settings.get("emulator", ""), gpu, settings.get("triton_program_s", 0.0))
        self.watcher = building.Watcher(settings["compile_only"], self.emulated.emulator, gpu.architecture)
        self.watch = tripwires.Watch()
        self.replaced = tripwires.snapshot()
        self.model: torch.nn.Module | None = None
        self.weights: Weights | None = None
        """Known from the first case on."""
        self.module: types.ModuleType | None = None
        self.storage: list[torch.Tensor] = []
        """Input tensors of the first case: later cases are copied into them, so that an answer kept by address
        is a stale one."""
        self.outputs: list[torch.Tensor] = []
        self.gradients: dict[str, torch.Tensor] = {}
        self.earlier: list[torch.Tensor] = []
        """Outputs of the call before, which the next one may not change; looked at where no call is timed."""
        self.timed: dict[bool, TimedStep] = {}
        """What is timed: forward (False) and forward+backward (True)."""
        self.recipe: Recipe | None = None
        """By which large contents of timed calls are drawn here."""
        self.loaded = -1
        """The case whose weights are in the model; -1 when nobody has noted."""
        self.buffers: list[tuple[torch.Tensor, torch.Tensor]] = []
        """Each of the model's that the reference has too, with its value in that case."""
        self.sampled: TimedStep | None = None
        """The one that the last sample was of."""
        self.first_call_s = 0.0
        self.beside: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
        """Around the candidate's own work, where that is traced."""
        self.made: dict[str, list[torch.Tensor]] = {}
        """What weights that the model computes (a parametrization) were computed to in the last forward."""

    def import_(self, request: dict[str, Any]) -> dict[str, Any]:
        """Runs the candidate's file as module `candidate`."""
        self.module = types.ModuleType("candidate")
        self.module.__file__ = self.file
        sys.modules["candidate"] = self.module
        source = Path(self.file).read_text(encoding="utf-8", errors="replace")
        self.emulated.written_in(source)
        if ORDERS_ITSELF.search(source):
            start_libraries(self.device)
        exec(compile(source, self.file, "exec"), self.module.__dict__)
        made = self.module.__dict__.get("ModelNew")
        if isinstance(made, torch.nn.Module):
            raise TypeError(f"ModelNew is a {type(made).__name__}, not a class or function that makes one")
        if not callable(made):
            raise AttributeError("it defines no class ModelNew, nor a function of that name that makes a module")
        return {"flags": self._changed_flags()}

    def construct(self, request: dict[str, Any]) -> dict[str, Any]:
        """`ModelNew(*init_inputs)` under the reference's seed, on the device."""
        assert self.module is not None
        init_inputs = read_bundle(self.inputs_folder / "init")
        self.seed = request["seed"]
        seed_all(self.seed)
        self.loaded = -1
        with self.emulated.constructing():
            self.model = construct(self.module.ModelNew, init_inputs)
        if not isinstance(self.model, torch.nn.Module):
            raise TypeError(f"ModelNew(...) is a {type(self.model).__name__}, not a torch.nn.Module")
        self.model.to(self.device)
        if self.bfloat16:
            self.model.to(torch.bfloat16)
        self.model.train(self.mode == "train")
        self.weights = None
        return {}

    def run(self, request: dict[str, Any]) -> dict[str, Any]:
        """One forward (and backward) on a case; describes the outputs, keeps them for `stream`."""
        case = f"case{request['case']}"
        state = read_bundle(self.inputs_folder / f"{case}.state")
        structure, tensors, given = self._place(read_bundle(self.inputs_folder / f"{case}.inputs"))
        materialise(self.model, put_together(structure, [t.clone() for t in tensors]), self.seed)  # type: ignore[arg-type]
        weights = self._load(state, request.get("way", 0))
        layout = request.get("layout", CONTIGUOUS)
        tensors = tensors if layout == CONTIGUOUS else [laid_out(tensor, layout) for tensor in tensors]
        for tensor in tensors:
            if tensor.is_floating_point() and request["backward"]:
                tensor.requires_grad_(True)
        self.outputs, self.gradients = [], {}
        given_away = [t.clone() for t in tensors] if request["clone"] else tensors
        # In other layouts elements may share their place.
        write_again = taken_back(self.device, given_away if layout == CONTIGUOUS else [])
        poison_free_memory(self.device, request["outputs"])
        self.emulated.begin(request.get("schedule", "forward"))
        names = self._names_of(state) if request.get("watched") else {}
        before = copied(self.model, {own: state[name] for name, own in names.items()})  # type: ignore[arg-type]
        poison = Poison()
        swallowed = tripwires.Swallowed(self.file)
        write_again()
        with (
            tf32.allowed(*self.allow_tf32),
            torch.set_grad_enabled(request["backward"]),
            contextlib.ExitStack() as stack,
        ):
            if request["poison"]:
                stack.enter_context(swallowed)
                stack.enter_context(uncompiled())
                stack.enter_context(poison)
            if request["backward"] and self.weights:
                self.made = stack.enter_context(self.weights.noting())
            earlier = [out.detach().clone() for out in self.earlier]
            start = _now()
            self._seed(request)
            with self.beside, self.emulated.called_with(given_away):
                out = call(self.model, put_together(structure, given_away))  # type: ignore[arg-type]
                finish(self.device)
            self.first_call_s = self.first_call_s or _now() - start
        subclass = subclass_in(out)
        if subclass:
            return {"cheat": ["tensor subclass", f"the output is a {subclass}, not a torch.Tensor"]}
        try:
            out_structure, leaves = take_apart(numbers_to_tensors(out), "output")
        except NotPlain as error:
            return {"not_plain": str(error)}
        self.outputs = [leaf.tensor for leaf in leaves]
        moved = changed(self.model, before)  # type: ignore[arg-type]
        report: dict[str, Any] = {
            "structure": out_structure,
            "outputs": described(leaves),
            "aliases": [
                [o, i] for o, out in enumerate(self.outputs) for i, t in enumerate(tensors) if share_memory(out, t)
            ],
            "mutated": mutated(tensors, given),
            "overwritten": mutated(self.earlier, earlier),
            "swallowed": swallowed.seen,
            "operations": sorted(poison.operations),
            "weights": weights,
            "watched": sorted(name for name, own in names.items() if own in before),
            "changed": sorted(name for name, own in names.items() if own in moved),
            "faults": self.faults(),
        }
        if request["backward"]:
            self._kept_for_backward = (structure, tensors, given)
        self.earlier = self.outputs if self.emulated.emulator is not None else []
        return report

    def backward(self, request: dict[str, Any]) -> dict[str, Any]:
        """Pulls the judge's cotangents back through the last forward; names the gradients there are."""
        assert self.model is not None
        _, tensors, given = self._kept_for_backward
        cotangents = self._cotangents(request)
        wanted = {name: t for name, t in zip(request["inputs"], tensors, strict=True) if t.requires_grad}
        wanted.update({name: p for name, p in self.model.named_parameters() if p.requires_grad})
        wanted.update(apart(self.made))
        with tf32.allowed(*self.allow_tf32), self.beside:
            self.gradients = self._by_reference(added_up(pulled_back(self.outputs, wanted, cotangents)))
            finish(self.device)
        self.outputs, self.made = [], {}
        return {
            "not_comparable": self.weights.not_comparable(self.gradients) if self.weights else [],
            "computed": self.weights.computed() if self.weights else [],
            "gradients": {
                name: {"dtype": str(g.dtype)[6:], "shape": list(g.shape)} for name, g in self.gradients.items()
            },
            "mutated": mutated(tensors, given),
            "faults": self.faults(),
        }

    def step(self, request: dict[str, Any]) -> dict[str, Any]:
        """After a forward: backward into `.grad`, whose values are kept as gradients, and a step of SGD to the weights
        of the case `after`; then a forward with these."""
        assert self.model is not None
        structure, tensors, _ = self._kept_for_backward
        after = read_bundle(self.inputs_folder / f"case{request['after']}.state")
        after = self.weights.in_own(after) if self.weights else after
        with tf32.allowed(*self.allow_tf32):
            found = trained(self.model, self.outputs, self._cotangents(request), after)
            self._seed(request)
            with torch.no_grad():
                out = call(self.model, put_together(structure, [t.detach().clone() for t in tensors]))
            finish(self.device)
        self.gradients = found = self._by_reference(found)
        self.outputs = [leaf.tensor for leaf in take_apart(numbers_to_tensors(out), "output")[1]]
        return {
            "gradients": {name: {"dtype": str(g.dtype)[6:], "shape": list(g.shape)} for name, g in found.items()},
            "outputs": [list(t.shape) for t in self.outputs],
            "dtypes": [str(t.dtype)[6:] for t in self.outputs],
            "faults": self.faults(),
        }

    def _cotangents(self, request: dict[str, Any]) -> list[torch.Tensor]:
        """A case's cotangents on the device, as large and laid out as asked for."""
        kept = read_bundle(self.inputs_folder / f"case{request['case']}.cotangents")
        layout, factor = request.get("cotangent", CONTIGUOUS), request.get("factor", 1.0)
        return [laid_out(c.to(self.device) * factor, layout) for c in kept]

    def trace(self, request: dict[str, Any]) -> dict[str, Any]:
        """Once more forward (and backward), on the emulator, with what it asks of memory counted, and what PyTorch's
        operators do beside it."""
        from crucible.judge.worker.operators import Operators  # brings Triton: 0.1 s that only this is worth

        self.beside = operators = Operators()

        def once() -> None:
            self.run(request)
            if request["backward"]:
                self.backward(request)

        try:
            found = self.emulated.traced(once)
        finally:
            self.beside = contextlib.nullcontext()
        self.outputs, self.gradients = [], {}
        return {"trace": found, "operators": operators.uses()}

    def send(self, request: dict[str, Any]) -> dict[str, Any]:
        """Writes the last outputs, or the named gradients, to the stream as raw bytes."""
        tensors = self._part(request["part"], request["names"])
        part_of = request["part_of"]
        for tensor in tensors:
            whole = not part_of["most"] or tensor.numel() <= part_of["most"]
            chosen = tensor if whole else spread_part(tensor.flatten(), part_of["most"], part_of["start"])
            write(self.stream, chosen.detach())
        return {}

    def _part(self, part: str, names: list[str]) -> list[torch.Tensor]:
        """What the judge may ask for: `forward`, `gradient` and `buffers` of the last call, of a timed one its `inputs`
        too, and what has become of the outputs `earlier`."""
        if part == "gradient":
            return [self.gradients[name] for name in names]
        if part == "buffers":
            assert self.model is not None
            own = self.model.state_dict()
            held = self._names_of(own)
            return [own[held[name]] for name in names]
        if part == "forward":
            return self.outputs
        assert self.sampled is not None
        return self.sampled.earlier if part == "earlier" else [self.sampled.given[int(name)] for name in names]

    def set_up(self, request: dict[str, Any]) -> dict[str, Any]:
        """Makes a step that is to be timed: forward, or forward+backward, on contents like a case's."""
        assert self.model is not None
        with contextlib.suppress(FileNotFoundError):
            self.recipe = read_recipe(self.inputs_folder / "timed.json")
        structure, leaves = take_apart(read_bundle(self.inputs_folder / f"case{request['case']}.inputs"), "input")
        self.outputs, self.gradients, self.storage = [], {}, []
        cotangents = None
        if request["backward"]:
            bundle = read_bundle(self.inputs_folder / f"case{request['case']}.cotangents")
            cotangents = [c.to(self.device) for c in bundle]
        names = [leaf.name for leaf in leaves]
        like = [leaf.tensor for leaf in leaves]
        step = TimedStep(self.model, structure, like, names, cotangents, self.device)
        self.timed[request["backward"]] = step
        return {}

    def sample(self, request: dict[str, Any]) -> dict[str, Any]:
        """One call of a step that was set up; what came of it is there for `send`, should the judge ask for it."""
        self.outputs, self.gradients = [], {}
        self._take_weights(request["weights"])
        with self._timing(request) as timed:
            fill = self._fill(request["own"], request.pop("seed"))
            draws = request["draws"]
            seed = self.seed if draws is not None and draws < 0 else draws  # below 0: that of construction
            sample = timed.sample(fill, request["replay"], seed)
            if request.get("hurried"):
                self._take_weights(request["weights"])
                timed.hurry(fill, request["replay"], seed)
            self.sampled = timed
        self.outputs, self.gradients = timed.kept, self._by_reference(timed.kept_gradients)
        self.first_call_s = self.first_call_s or timed.first_call_s
        return {"device_ms": sample.device_ms, "wall_ms": sample.wall_ms}

    def capture_graph(self, request: dict[str, Any]) -> dict[str, Any]:
        """The same step as a CUDA graph."""
        with self._timing(request) as timed:
            timed.capture()
        return {}

    def profile(self, request: dict[str, Any]) -> dict[str, Any]:
        """What a call of the step takes beside time."""
        with self._timing(request) as timed:
            return {**profile_call(timed.once(), self.device), "first_call_s": self.first_call_s}

    def influence(self, request: dict[str, Any]) -> dict[str, Any]:
        """Where in the first output of case 0 one element of a weight shows, and the emulator's words for whoever
        reads that element."""
        assert self.model is not None
        self._load(read_bundle(self.inputs_folder / "case0.state"))
        structure, tensors, _ = self._place(read_bundle(self.inputs_folder / "case0.inputs"))
        name = self.weights.own_name(request["weight"]) if self.weights else request["weight"]
        weight = self.model.state_dict().get(name)
        if weight is None or not can_be_moved(weight):
            return {"reached": [], "read_by": []}
        own = weight.clone()

        def answer(value: torch.Tensor) -> torch.Tensor:
            weight.copy_(value)
            out = call(self.model, put_together(structure, [t.clone() for t in tensors]))  # type: ignore[arg-type]
            return take_apart(numbers_to_tensors(out), "output")[1][0].tensor

        with tf32.allowed(*self.allow_tf32), torch.no_grad():
            places = reached(answer, own)
            unwritten = own.clone()
            unwritten[PLACE].view(INTEGER_VIEWS[own.element_size()]).fill_(POISON[own.dtype])
            self.emulated.begin()
            answer(unwritten)
            weight.copy_(own)
        readers = [f for f in self.emulated.faults() if f.kind == "uninitialised-global" and "read" in f.detail]
        return {"reached": places, "read_by": [fault.where for fault in readers]}

    def audit(self, request: dict[str, Any]) -> dict[str, Any]:
        """What the tripwires saw."""
        return {
            "replaced": self.replaced(),
            "hunts": sorted(self.watch.hunts),
            "flags": self._changed_flags(),
            "builds": [asdict(build) for build in self.watcher.builds],
            "never_ran": [fault.to_json() for fault in self.emulated.never_ran()],
            "never_reached": [fault.to_json() for fault in self.emulated.never_reached()],
            "launched": self.emulated.launched()[:MOST_LAUNCHED],
            "resources": self._resources(),
        }

    @property
    def not_covered(self) -> str:
        """What the emulator does not know of the candidate's kernels."""
        return self.watcher.not_covered or self.emulated.not_covered

    def faults(self) -> list[dict[str, Any]]:
        """Each that the emulator saw since the last run began."""
        return [fault.to_json() for fault in self.emulated.faults()]

    def _resources(self) -> list[list[Any]]:
        """What nvcc says of each kernel that was launched, with how it was."""
        launched = self.watcher.resources.launched() if self.watcher.resources else []
        return [
            [
                one.kernel,
                one.threads,
                one.compiled.registers,
                one.compiled.spill_load_bytes,
                one.compiled.spill_store_bytes,
                one.compiled.stack_bytes,
                one.compiled.static_shared_bytes,
                one.dynamic_shared_bytes,
            ]
            for one in launched
        ]

    @contextlib.contextmanager
    def _timing(self, request: dict[str, Any]) -> Iterator[TimedStep]:
        """The step asked for, at the contract's precision, with no more of autograd than it needs."""
        with tf32.allowed(*self.allow_tf32), torch.set_grad_enabled(request["backward"]):
            yield self.timed[request["backward"]]

    def _seed(self, request: dict[str, Any]) -> None:
        """Where the reference draws random numbers, what it is run under: that of construction. No other run has a
        seed, so that who draws where the reference does not shows it."""
        if request.get("draws"):
            seed_all(self.seed)

    def _fill(self, own: int, seed: int) -> Fill:
        """Contents from the slot; where `own` is a case's number, that case's; with a seed drawn here."""

        def fill(tensors: list[torch.Tensor]) -> None:
            if own < 0 and seed < 0:
                take(self.handed.descriptor(SLOT), tensors)
                return
            if seed >= 0:
                assert self.recipe is not None
                contents = self.recipe.drawn(seed, self.device)
            else:
                bundle = read_bundle(self.inputs_folder / f"case{own}.inputs")
                contents = [leaf.tensor for leaf in take_apart(bundle, "input")[1]]
            for tensor, content in zip(tensors, contents, strict=True):
                tensor.copy_(content)

        return fill

    def _take_weights(self, case: int) -> None:
        """That case's weights; of the same as before only the buffers, to which calls may write."""
        assert self.model is not None
        if case != self.loaded:
            state = read_bundle(self.inputs_folder / f"case{case}.state")
            self._load(state)
            own = dict(self.model.named_buffers())
            pairs = self._names_of(self.model.state_dict()).items()
            shared = [(own[held], state[name]) for name, held in pairs if held in own and name in state]
            self.buffers = [(buffer, value) for buffer, value in shared if buffer.shape == value.shape]
            self.loaded = case
            return
        with torch.no_grad():
            for buffer, value in self.buffers:
                buffer.copy_(value)

    def _load(self, state: dict[str, torch.Tensor], way: int | None = None) -> dict[str, Any]:
        """Gives the module the reference's state, paired in that way (None: the last one's); says what was not."""
        assert self.model is not None
        self.loaded = -1
        if not self.copies_weights:
            return dict(NOTHING_COPIED)
        if self.weights is None or self.weights.names != tuple(self.model.state_dict()):
            seeded = read_bundle(self.inputs_folder / "case0.state")
            self.weights = Weights(self.model, seeded, read_bundle(self.inputs_folder / "weights"))
        return self.weights.load(state, way)

    def _names_of(self, state: dict[str, torch.Tensor]) -> dict[str, str]:
        """The module's names for the reference's, where it holds a tensor as the reference does."""
        return self.weights.whole() if self.weights else {name: name for name in state}

    def _by_reference(self, gradients: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Gradients by the names that the reference has for what they are of."""
        return self.weights.gradients(gradients) if self.weights else gradients

    def _place(self, inputs: Any) -> tuple[Any, list[torch.Tensor], list[torch.Tensor]]:
        """Inputs on the device: fresh contents in the same memory as before where shapes allow."""
        structure, leaves = take_apart(inputs, "input")
        given = [leaf.tensor for leaf in leaves]
        same = len(self.storage) == len(given) and all(
            a.shape == b.shape and a.dtype == b.dtype for a, b in zip(self.storage, given, strict=True)
        )
        if same:
            for kept, fresh in zip(self.storage, given, strict=True):
                kept.copy_(fresh)
        else:
            self.storage = [t.to(self.device, copy=True) for t in given]
        return structure, [t.detach() for t in self.storage], given

    def _changed_flags(self) -> dict[str, str]:
        return {k: f"{FLAGS[k]} -> {v}" for k, v in tripwires.precision_flags().items() if v != FLAGS[k]}


FLAGS = tripwires.precision_flags()
