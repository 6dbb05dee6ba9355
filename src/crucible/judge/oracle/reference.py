"""The reference as it runs inside the oracle's process: loaded, built, evaluated at a precision.

Only the oracle imports this; a candidate's process never holds the reference.
"""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from crucible import tf32
from crucible.copies import duplicate
from crucible.errors import CrucibleError, TaskError
from crucible.judge.boundary.bundles import Leaf, NotPlain, numbers_to_tensors, put_together, take_apart
from crucible.judge.boundary.modules import (
    call,
    construct,
    gradients_of,
    materialise,
    pulled_back,
    seed_all,
    share_memory,
)
from crucible.judge.oracle.draws import KeepingDraws, TakingDraws
from crucible.judge.oracle.gaps import (
    MANTISSA_BITS,
    OnCpu,
    asks_for_cuda,
    lacking_dtype,
    out_of_place,
    overwrites,
    remedy,
)
from crucible.judge.oracle.noise import RoundedOperands
from crucible.judge.oracle.recorded import Recording, record
from crucible.memory_errors import is_out_of_memory
from crucible.roofline import Work
from crucible.shapes import set_in
from crucible.syntax import tree_of


@dataclass(frozen=True)
class Answer:
    """What one evaluation gives."""

    structure: Any
    outputs: list[Leaf]
    gradients: dict[str, torch.Tensor]
    """By name: `input[0]`, `conv.weight`; absent where autograd gives none."""
    state: dict[str, torch.Tensor] = field(default_factory=dict)
    """Parameters and buffers after a forward that was watched."""
    changed: frozenset[str] = frozenset()
    """Those that it changed."""


class Reference:
    """A task's module, ready to be evaluated in any precision."""

    def __init__(
        self, source: str, path: str, sizes: dict[str, Any], *, mode: str, seed: int, device: torch.device
    ) -> None:
        self.device = device
        self.path = path
        self.source = source
        self.seed = seed
        self._elsewhere = asks_for_cuda(source)
        self.gaps: list[str] = []
        """What was worked round, in words."""
        self.lacks: torch.dtype | None = None
        """A 16-bit dtype that the CPU lacks an operation for: then its results are float32's, rounded."""
        self.takes_draws = False
        """Whether in float64, which draws others, it takes what it draws at random in float32."""
        with self._here():
            self._names = execute(source, path, sizes)
        with self._blamed("get_init_inputs()"):
            seed_all(seed)
            self.init_inputs = self._names["get_init_inputs"]()
        with self._blamed("Model(...)"):
            seed_all(seed)
            self.model: torch.nn.Module = construct(self._names["Model"], self.init_inputs).to(device)
        self.model.train(mode == "train")
        self._materialise()
        self._state: dict[str, torch.Tensor] | None = None
        self._models: dict[torch.dtype | None, torch.nn.Module] = {}
        """Copies that are run; the module itself never is, since some keep tensors of their last call."""

    def cast(self, dtype: torch.dtype) -> None:
        """Makes `dtype` the module's own floating dtype."""
        self.model.to(dtype)
        self._state = None
        self._models.clear()  # copies that ran before, to see whether it takes these sizes, have the old one

    def inputs(self, seed: int, sizes: Mapping[str, Any] = MappingProxyType({})) -> Any:
        """`get_inputs()` under a seed, perhaps with other sizes; on the CPU, as KernelBench does it."""
        own = {name: self._names[name] for name in sizes}
        self._names.update(sizes)
        try:
            with self._blamed("get_inputs()"):
                seed_all(seed)
                return self._names["get_inputs"]()
        finally:
            self._names.update(own)

    def takes(self, seed: int, sizes: Mapping[str, Any] = MappingProxyType({})) -> bool:
        """Whether it has a forward at these sizes."""
        with contextlib.suppress(TaskError), blamed_on_task(self.path, "Model.forward"):
            self.evaluate(self.state(), self.inputs(seed, sizes))
            return True
        return False

    def state(self) -> dict[str, torch.Tensor]:
        """Parameters and buffers, on the CPU; the same tensors each time, which nobody may write to."""
        if self._state is None:
            self._state = {name: value.detach().cpu().clone() for name, value in self.model.state_dict().items()}
        return dict(self._state)

    def weights(self) -> list[list[Any]]:
        """Of each entry of the state: its name, whether it is a parameter, the first name of what it is tied to."""
        named = [
            *self.model.named_parameters(remove_duplicate=False),
            *self.model.named_buffers(remove_duplicate=False),
        ]
        first: dict[int, str] = {}
        tied_to = {name: first.setdefault(id(tensor), name) for name, tensor in named}
        learned = {name for name, _ in self.model.named_parameters(remove_duplicate=False)}
        return [[name, name in learned, tied_to.get(name, name)] for name in self.model.state_dict()]

    def parameter_names(self) -> list[str]:
        return [name for name, parameter in self.model.named_parameters() if parameter.requires_grad]

    def evaluate(
        self,
        state: dict[str, torch.Tensor],
        inputs: Any,
        cotangents: list[torch.Tensor] | None = None,
        *,
        dtype: torch.dtype | None = None,
        within: contextlib.AbstractContextManager[Any] | None = None,
        **how: Any,
    ) -> Answer:
        """As `_evaluated` does, round what this machine's PyTorch lacks where it lacks something."""
        try:
            if self.lacks is not None and dtype is None:
                return self._rounded(self.lacks, state, inputs, cotangents, how)
            return self._evaluated(state, inputs, cotangents, dtype=dtype, within=within, **how)
        except RuntimeError as error:
            if not self._works_round(error, dtype):
                raise
        return self.evaluate(state, inputs, cotangents, dtype=dtype, within=within, **how)

    def _works_round(self, error: RuntimeError, dtype: torch.dtype | None) -> bool:
        """Whether there is a way that was not tried."""
        everyone = (self.model, *self._models.values())
        if overwrites(error) and any([out_of_place(model) for model in everyone]):  # noqa: C419 - all of them
            self.gaps.append("modules that overwrite their input left it alone: PyTorch has no gradient otherwise")
            return True
        lacking = lacking_dtype(error)
        if lacking is None or self.lacks is not None or dtype is not None or self.device.type != "cpu":
            return False
        self.lacks = lacking
        words = (str(error).splitlines() or ["?"])[0]
        self.gaps.append(f"{str(lacking)[6:]} as float32, every result rounded: on a CPU {words}")
        return True

    def _rounded(
        self, lacking: torch.dtype, state: dict[str, torch.Tensor], inputs: Any, cotangents: Any, how: dict[str, Any]
    ) -> Answer:
        """What a dtype would give that this CPU lacks an operation for."""
        mode = RoundedOperands(MANTISSA_BITS[lacking], results=True)
        answer = self._evaluated(state, inputs, cotangents, dtype=torch.float32, within=mode, **how)
        narrow = [t.to(lacking) if t.is_floating_point() else t for t in (leaf.tensor for leaf in answer.outputs)]
        outputs = [Leaf(leaf.name, tensor) for leaf, tensor in zip(answer.outputs, narrow, strict=True)]
        return replace(answer, outputs=outputs)

    def _evaluated(
        self,
        state: dict[str, torch.Tensor],
        inputs: Any,
        cotangents: list[torch.Tensor] | None = None,
        *,
        dtype: torch.dtype | None = None,
        allow_tf32: tuple[bool, bool] = (False, False),
        seed: int | None = None,
        within: contextlib.AbstractContextManager[Any] | None = None,
        watched: bool = False,
    ) -> Answer:
        """One forward, and one backward where cotangents (one per floating output) are given.

        `dtype` casts module and floating inputs (None: as they are); `allow_tf32` is for convolutions and
        matrix products; `within` is active during the whole evaluation; `watched`: with what forward does to
        the module's state. The module's state is `state` on
        entry, whatever an earlier evaluation did to its buffers.
        """
        if self.takes_draws and dtype == torch.float64:
            within = TakingDraws(self._drawn(state, inputs, seed).kept)
        model = self._model(dtype)
        model.load_state_dict(state)
        structure, leaves = take_apart(inputs, "input")
        tensors = [_leaf(leaf.tensor, self.device, dtype, grad=cotangents is not None) for leaf in leaves]
        with (
            tf32.allowed(*allow_tf32),
            within or contextlib.nullcontext(),
            torch.set_grad_enabled(cotangents is not None),
            self._here(),
        ):
            seed_all(self.seed if seed is None else seed)
            given = [t.clone() for t in tensors] if cotangents is not None else tensors  # it may write to them
            before = _copied(model) if watched else {}
            out = call(model, put_together(structure, given))
            after = _copied(model) if watched else {}
            out_structure, outputs = take_apart(numbers_to_tensors(out), "output")
            gradients = {}
            if cotangents is not None:
                wanted = {leaf.name: t for leaf, t in zip(leaves, tensors, strict=True) if t.requires_grad}
                wanted.update({n: p for n, p in model.named_parameters() if p.requires_grad})
                gradients = pulled_back([leaf.tensor for leaf in outputs], wanted, cotangents)
        changed = frozenset(name for name, value in before.items() if not torch.equal(value, after[name]))
        plain = [Leaf(leaf.name, leaf.tensor.detach()) for leaf in outputs]
        return Answer(out_structure, plain, gradients, after, changed)

    def take_draws(self, state: dict[str, torch.Tensor], inputs: Any) -> bool:
        """Has float64 take what float32 draws from the same seed; False where it cannot."""
        with contextlib.suppress(Exception):  # a reference may refuse float64 in any way
            self.takes_draws = self._drawn(state, inputs, None).knows_all
            if self.takes_draws:
                self._evaluated(state, inputs, dtype=torch.float64)
                return True
        self.takes_draws = False
        return False

    def _drawn(self, state: dict[str, torch.Tensor], inputs: Any, seed: int | None) -> KeepingDraws:
        keeping = KeepingDraws()
        self._evaluated(state, inputs, dtype=torch.float32, seed=seed, within=keeping)
        return keeping

    def answer_to(self, state: dict[str, torch.Tensor], inputs: Any) -> list[torch.Tensor]:
        """The outputs for inputs as they lie on the device, strides and all; nothing is copied."""
        model = self._model(None)
        model.load_state_dict(state)
        seed_all(self.seed)
        with tf32.allowed(False, False), torch.no_grad():
            out = call(model, inputs)
        return [leaf.tensor for leaf in take_apart(numbers_to_tensors(out), "output")[1]]

    def shapes_on_meta(self, inputs: Any) -> list[tuple[int, ...]] | None:
        """The outputs' shapes for these inputs, worked out without computing; None where PyTorch cannot."""
        structure, leaves = take_apart(inputs, "input")
        try:
            model = duplicate(self.model).to("meta")
            with torch.no_grad():
                out = call(model, put_together(structure, [leaf.tensor.to("meta") for leaf in leaves]))
            return [tuple(leaf.tensor.shape) for leaf in take_apart(numbers_to_tensors(out), "output")[1]]
        except Exception:  # noqa: BLE001 - an aid only: not every operation has a meta implementation
            return None

    def work(self, inputs: Any, *, backward: bool) -> tuple[Work, ...]:
        """What forward, and forward+backward, cannot avoid doing; traced on shapes alone, so nothing is computed.

        Raises whatever the reference or PyTorch raises for tensors without values.
        """
        from crucible.work import count  # brings Triton (0.1 s), and candidates' processes read this file too

        model = duplicate(self.model).to("meta")
        structure, leaves = take_apart(inputs, "input")
        meta = torch.device("meta")
        tensors = [_leaf(leaf.tensor, meta, None, grad=backward) for leaf in leaves]
        wanted = {str(i): t for i, t in enumerate(tensors) if t.requires_grad}
        wanted.update({name: p for name, p in model.named_parameters() if p.requires_grad})
        shapes = [t for t in self._meta_outputs(model, structure, tensors) if t.is_floating_point()] if backward else []
        cotangents = [torch.empty_like(t) for t in shapes]

        def forward() -> list[torch.Tensor]:
            return self._meta_outputs(model, structure, tensors)

        def pull(outputs: list[torch.Tensor]) -> list[torch.Tensor]:
            return list(gradients_of(outputs, wanted, cotangents).values())

        with torch.set_grad_enabled(backward):
            sources = [*tensors, *model.parameters(), *model.buffers()]
            return count(forward, sources, pull if backward else None)

    def recorded(self, state: dict[str, torch.Tensor], inputs: Any, dtype: torch.dtype) -> Recording:
        """One forward as `evaluate` runs it, operation by operation. Raises what the reference or PyTorch raises."""
        model = self._model(dtype)
        model.load_state_dict(state)
        structure, leaves = take_apart(inputs, "input")
        tensors = [_leaf(leaf.tensor, self.device, dtype, grad=False) for leaf in leaves]
        sources = {leaf.name: t for leaf, t in zip(leaves, tensors, strict=True)}
        sources.update({**dict(model.named_parameters()), **dict(model.named_buffers())})

        def forward() -> list[torch.Tensor]:
            out = call(model, put_together(structure, tensors))
            return [leaf.tensor for leaf in take_apart(numbers_to_tensors(out), "output")[1]]

        with tf32.allowed(False, False):
            seed_all(self.seed)
            return record(forward, sources, self.path)

    def _meta_outputs(self, model: torch.nn.Module, structure: Any, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        out = call(model, put_together(structure, tensors))
        return [leaf.tensor for leaf in take_apart(numbers_to_tensors(out), "output")[1]]

    def side_effects(self, state: dict[str, torch.Tensor], inputs: Any) -> tuple[list[list[int]], list[int]]:
        """Pairs (output, input) that share memory, and the inputs that forward writes to."""
        dtype = torch.float32 if self.lacks is not None else None
        model = self._model(dtype)
        model.load_state_dict(state)
        structure, leaves = take_apart(inputs, "input")
        tensors = [_leaf(leaf.tensor, self.device, dtype, grad=False) for leaf in leaves]
        given = [tensor.clone() for tensor in tensors] if dtype is not None else [leaf.tensor for leaf in leaves]
        with torch.no_grad(), self._here():
            out = call(model, put_together(structure, tensors))
        outputs = [leaf.tensor for leaf in take_apart(numbers_to_tensors(out), "output")[1]]
        shared = [[o, i] for o, out in enumerate(outputs) for i, t in enumerate(tensors) if share_memory(out, t)]
        written = [
            i
            for i, (before, t) in enumerate(zip(given, tensors, strict=True))
            if not torch.equal(before.to(t.device), t)
        ]
        return shared, written

    def _materialise(self) -> None:
        """Lazy modules get their weights as a candidate's do: by a first call on the device, under the seed."""
        if any(is_lazy(weight) for weight in (*self.model.parameters(), *self.model.buffers())):
            structure, leaves = take_apart(self.inputs(self.seed + 1), "input")
            tensors = [leaf.tensor.to(self.device) for leaf in leaves]
            with self._blamed("Model.forward"), self._here():
                materialise(self.model, put_together(structure, tensors), self.seed)

    def _model(self, dtype: torch.dtype | None) -> torch.nn.Module:
        if dtype not in self._models:
            own = duplicate(self.model)
            self._models[dtype] = own if dtype is None else own.to(dtype)
        return self._models[dtype]

    @contextlib.contextmanager
    def _blamed(self, what: str) -> Iterator[None]:
        with blamed_on_task(self.path, what), self._here():
            yield

    def _here(self) -> contextlib.AbstractContextManager[Any]:
        """Where the task's own code runs: what asks for a GPU that is not there gets the CPU."""
        return OnCpu() if self._elsewhere else contextlib.nullcontext()


@contextlib.contextmanager
def blamed_on_task(path: str, what: str) -> Iterator[None]:
    """Turns an exception of the task's own code into a TaskError that names file and line.

    Memory errors pass through: they are the judge's business.
    """
    try:
        yield
    except (CrucibleError, NotPlain):
        raise
    except (Exception, SystemExit) as error:
        if is_out_of_memory(error):
            raise
        line = _line_in(path, error)
        raise TaskError(
            f"{path}{f', line {line}' if line else ''}: {what} raises {type(error).__name__}: {error}{remedy(error)}"
        ) from error


def execute(source: str, path: str, sizes: Mapping[str, Any]) -> dict[str, Any]:
    """The names of a reference's module, with other sizes than its own and all that it makes of these."""
    module = types.ModuleType("reference")
    module.__file__ = path
    sys.modules["reference"] = module
    with blamed_on_task(path, "importing it"):
        exec(compile(set_in(tree_of(source, path), sizes), path, "exec"), module.__dict__)
    module.__dict__.update(sizes)
    return module.__dict__


def _copied(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def _leaf(tensor: torch.Tensor, device: torch.device, dtype: torch.dtype | None, grad: bool) -> torch.Tensor:
    moved = tensor.to(device, copy=True)  # a reference may write to its inputs
    if moved.is_floating_point():
        moved = moved.to(dtype or moved.dtype)
        moved = moved.detach().requires_grad_(grad) if grad else moved
    return moved


def _line_in(path: str, error: BaseException) -> int | None:
    line = None
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == path:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
