"""The writer's front door: from a module, or a task, to its fused replacement."""

from __future__ import annotations

import ast
import contextlib
import copy
import hashlib
import importlib.util
import inspect
import os
import sys
import types
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from crucible import store, tf32
from crucible.capture import trace
from crucible.capture.autocast import around, autocast
from crucible.copies import duplicate
from crucible.emission.file import emit
from crucible.emission.handing import Beside
from crucible.errors import CaptureError, DeviceError
from crucible.gpus import H200, Gpu, closest_gpu
from crucible.graph import Graph
from crucible.graphed import Graphed
from crucible.judge.surface import Reference
from crucible.plan.planner import fuse as plan
from crucible.plan.steps import Plan
from crucible.syntax import tree_of
from crucible.task import Task
from crucible.tf32 import allowed as allowed_tf32
from crucible.trial import check_runs
from crucible.tuning.bench import gpu_bench
from crucible.tuning.cache import cache_of
from crucible.tuning.rival import beside_compile, check_can_race, rivals_of
from crucible.tuning.search import Search, check_gpu

_LOADERS = {False: "torch.utils.cpp_extension", True: "crucible.emulator"}
_BY_PLACE = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_Key = tuple[Any, ...]
MOST_FORMS = 8
"""Shapes, dtypes and modes for which a fused module is written as they come: as many as torch.compile builds."""
_MANY_FORMS = (
    "{name} was written for {most} forms of inputs: others go through its own forward, unfused. Pad inputs to a few "
    "sizes, or give crucible.fuse() a form that shall be written as well"
)


def write(
    task: Task,
    seed: int = 0,
    *,
    tf32: bool = True,
    gpu: Gpu = H200,
    tune: bool = False,
    race: bool | str = False,
    check: bool = True,
    say: Callable[[str], None] = lambda text: None,
) -> str:
    """A Python file with `ModelNew` for a task, at its sizes and in its mode: CUDA C++ and operators of PyTorch.

    With tf32=False convolutions of float32 tensors keep float32's precision: where kernels of ours compute them, by
    several products of fewer bits, else as `torch.backends.cudnn.allow_tf32` says. Products of matrices (linear layers
    among them) are ours then where warpgroup instructions are estimated faster than cuBLAS without tensor cores.
    Kernels are laid out for `gpu`; on one of less shared memory some may not start. With `tune` the few divisions of
    each convolution that are estimated best are verified and timed here, and the fastest taken (see
    `crucible.tuning`); `say` hears how far it is. With `race` the file is built and timed beside torch.compile of the
    module, forward and with gradients, and hands over to torch.compile what that does faster; with race="max-autotune"
    beside its mode that times what it chooses as well, minutes more. With `check` the file is
    run once over tensors without elements (`crucible.trial`): KernelError where it raises. Runs the reference's text in
    this process to trace its module. It raises CaptureError for what cannot be traced or written, TaskError for a
    reference that fails; tuning and races, DeviceError where this machine has no such GPU; tuning, TuningError for a
    division that is wrong.
    """
    if tune:
        check_gpu(gpu, _gpu_here())
    if race:
        check_can_race(race)
    reference = Reference(
        task.source, str(task.path), task.sizes, mode=task.mode, seed=seed, device=torch.device("cpu")
    )
    given = reference.inputs(seed)
    graph = trace(reference.model, given, drops=True)
    planned = plan(graph, tf32=tf32, gpu=gpu)
    planned = _tuned(planned, say) if tune else planned
    in_both = _is_same_in_other_mode(reference.model, given, graph)
    text = emit(planned, task.name, task.source, in_both_modes=in_both)
    if check:
        check_runs(text, reference.model, given)
    if not race:
        return text
    beside = _raced(text, reference.model, given, race, rounds=tf32)
    say(beside.words)
    return emit(planned, task.name, task.source, in_both_modes=in_both, beside=beside)


def _raced(text: str, module: nn.Module, inputs: Sequence[Any], race: bool | str, *, rounds: bool) -> Beside:
    """A file beside torch.compile, both with TF32 allowed or not."""
    given = [each.cuda() if isinstance(each, torch.Tensor) else each for each in inputs]
    with allowed_tf32(rounds, rounds):
        return beside_compile(_imported(text).ModelNew.forward, module.cuda(), given, rivals=rivals_of(race))


def _gpu_here() -> str:
    """Its name; empty without one."""
    return torch.cuda.get_device_name() if torch.cuda.is_available() else ""


def _tuned(planned: Plan, say: Callable[[str], None]) -> Plan:
    """With each convolution divided as measured on this machine's GPU, or found in what was kept of that."""
    return Search(gpu_bench(), cache_of(_gpu_here(), say), say).plan(planned)


def _is_same_in_other_mode(module: nn.Module, inputs: Sequence[Any], graph: Graph) -> bool:
    """Whether train() and eval() make no difference: no batch norm, no dropout."""
    other = duplicate(module).train(not graph.training)
    try:
        found = trace(other, inputs, drops=True)
    except CaptureError:
        return False
    return (found.operations, found.mutations) == (graph.operations, graph.mutations)


def plan_of(text: str) -> str:
    """The plan in words, from a written file."""
    return ast.get_docstring(tree_of(text)) or ""


def fuse(
    module: nn.Module,
    *inputs: Any,
    emulate: bool = False,
    tune: bool = False,
    race: bool | str = False,
    cuda_graph: bool = False,
    check: bool = True,
) -> nn.Module:
    """A module that computes the same with fused kernels; a drop-in for `module`, with whose parameters it works.

    It is written for these inputs (their shapes, dtypes and layouts) and the module's mode at once; for other
    shapes, dtypes or modes when they come, up to MOST_FORMS. Inputs of another layout are copied. Kernels need a
    GPU, or `emulate=True`: then they run on the CPU, slowly, with every fault named. Convolutions of float32
    tensors round their operands to TF32 if `torch.backends.cudnn.allow_tf32` says so now, else they keep float32's
    precision. Linear layers do as `torch.backends.cuda.matmul.allow_tf32` says: those of few features are fused and
    others PyTorch's if so, else large ones are kernels of ours, in float32's precision by tensor cores. With `tune`
    convolutions are divided as measured, which takes minutes the first time; progress goes to stderr. With `race`
    what is written is timed beside torch.compile of the module, forward and with gradients, and calls that
    torch.compile does faster go to that; with race="max-autotune" beside that mode as well. With `cuda_graph` a
    call's kernels are one CUDA graph: it copies its inputs, and its results, gradients among them, are overwritten
    by the next call. With `check` what is written is run once over tensors without elements first: KernelError
    where that raises. Raises CaptureError for what cannot be traced or written, DeviceError where inputs are not on
    a GPU, TuningError for a division that is wrong.
    """
    if isinstance(module, _Fused):
        module._write(inputs)
        return module
    fused = copy.copy(module)
    kind = type(f"Fused{type(module).__name__}", (_Fused, type(module)), {})
    options = {"emulate": emulate, "tune": tune, "race": race, "cuda_graph": cuda_graph, "check": check}
    own = {"_options": {**options, **_rounding()}, "_written": {}}
    fused.__dict__ = {**module.__dict__, **own}
    fused.__class__ = kind
    fused._write(inputs)  # type: ignore[operator]
    return fused


class _Fused(nn.Module):
    """What a fused module is beside its own class."""

    _options: dict[str, Any]
    """How it is written: keywords of `written_forward`."""
    _written: dict[_Key, Callable[..., Any]]

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """What the module computes. Inputs of another form than seen before take a build, tens of seconds; once it
        was written for MOST_FORMS, other forms go through the module's own forward."""
        if named:
            inputs = self._in_order(inputs, named)
        written = self._written.get(_key(self.training, inputs))
        if written is None and len(self._written) >= MOST_FORMS:
            warnings.warn(_MANY_FORMS.format(name=_plain(self).__name__, most=MOST_FORMS), stacklevel=2)
            return _plain(self).forward(self, *inputs)
        written = written or self._write(inputs)
        return written(self, *inputs)

    def _in_order(self, inputs: Sequence[Any], named: Mapping[str, Any]) -> tuple[Any, ...]:
        """Arguments by name in their places; what follows the last that was given is left out."""
        plain = _plain(self)
        bound = inspect.signature(plain.forward).bind(self, *inputs, **named)
        places = [name for name, each in bound.signature.parameters.items() if each.kind in _BY_PLACE]
        alone = [name for name in named if name not in places]
        if alone:
            raise TypeError(f"a fused module's forward has no arguments by name alone: {', '.join(alone)}")
        given = max(number for number, name in enumerate(places) if name in bound.arguments)
        bound.apply_defaults()
        return bound.args[1 : given + 1]

    def _write(self, inputs: Sequence[Any]) -> Callable[..., Any]:
        plain: nn.Module = copy.copy(self)
        plain.__class__ = _plain(self)
        written = written_forward(plain, inputs, **self._options)
        self._written[_key(self.training, inputs)] = written
        return written

    def __deepcopy__(self, memo: dict[int, Any]) -> nn.Module:
        """Parameters are copied, what was written for them is shared."""
        new = self.__class__.__new__(self.__class__)
        memo[id(self)] = new
        own = {name: value for name, value in self.__dict__.items() if name != "_written"}
        new.__dict__ = {**copy.deepcopy(own, memo), "_written": dict(self._written)}
        return new


def _plain(fused: _Fused) -> type[nn.Module]:
    """The class of the module that was fused, whatever has been put in front of it since (FSDP's)."""
    classes = type(fused).__mro__
    return classes[classes.index(_Fused) + 1]


def written_forward(
    module: nn.Module,
    inputs: Sequence[Any],
    *,
    emulate: bool = False,
    tune: bool = False,
    race: bool | str = False,
    cuda_graph: bool = False,
    check: bool = True,
    tf32: bool | None = None,
    tf32_linear: bool | None = None,
) -> Callable[..., Any]:
    """A function `forward(self, *inputs)` for these inputs and the module's mode, as `fuse` says. What may round to
    TF32 is what PyTorch's flags say now, unless it is given."""
    for word, asked in (("tune", tune), ("race", race), ("cuda_graph", cuda_graph)):
        if asked and emulate:
            raise DeviceError(f"fuse: {word} needs a GPU, which emulate=True does without: leave one of them out")
    _check_device(inputs, emulate)
    rivals, casts = rivals_of(race) if race else {}, around()
    with torch.enable_grad():
        graph = trace(module, inputs, drops=True)
    with autocast({}):
        gpu = H200 if emulate else closest_gpu(torch.cuda.get_device_name(_device(inputs)))
        planned = plan(graph, gpu=gpu, **_rounding(tf32, tf32_linear))
        planned = _tuned(planned, _tell) if tune else planned
        text = emit(planned, type(module).__name__.lower(), loader=_LOADERS[emulate])
        if check:
            check_runs(text, module, inputs)
    written: Callable[..., Any] = _imported(text).forward
    written = Graphed(written) if cuda_graph else written
    written = _with_casts_inside(written, casts) if casts else written
    if not race:
        return written
    beside = beside_compile(written, module, inputs, rivals=rivals)
    _tell(beside.words)
    compiled = {mode: torch.compile(type(module).forward, mode=mode or None) for mode in beside.modes}
    return handing(beside, written, compiled) if compiled else written


def _with_casts_inside(written: Callable[..., Any], kinds: Iterable[str]) -> Callable[..., Any]:
    """What is written casts by itself as autocast did around it; nothing else shall."""
    off = [(kind, torch.get_autocast_dtype(kind)) for kind in kinds]

    def forward(self: Any, *inputs: Any) -> Any:
        with contextlib.ExitStack() as stack:
            for kind, dtype in off:
                stack.enter_context(torch.autocast(kind, dtype, enabled=False))
            return written(self, *inputs)

    return forward


def _tell(text: str) -> None:
    print(f"crucible: {text}", file=sys.stderr, flush=True)


def _rounding(convolutions: bool | None = None, linear: bool | None = None) -> dict[str, bool]:
    """Arguments of the planner: what is None is as PyTorch's flags say now."""
    return {
        "tf32": tf32.in_convolutions() if convolutions is None else convolutions,
        "tf32_linear": tf32.in_products() if linear is None else linear,
    }


def handing(
    beside: Beside, written: Callable[..., Any], compiled: Mapping[str, Callable[..., Any]]
) -> Callable[..., Any]:
    """What is written, or what torch.compile made of the same in one of its modes, each where it is the fastest."""
    with_gradients, without = (beside.mode(each) for each in (True, False))

    def forward(self: Any, *inputs: Any) -> Any:
        mode = with_gradients if torch.is_grad_enabled() else without
        return (written if mode is None else compiled[mode])(self, *inputs)

    return forward


def _key(training: bool, inputs: Sequence[Any]) -> _Key:
    each = ((tuple(x.shape), x.dtype) if isinstance(x, torch.Tensor) else (type(x).__name__, x) for x in inputs)
    return (training, *around().items(), *each)


def _check_device(inputs: Sequence[Any], emulate: bool) -> None:
    wanted = "cpu" if emulate else "cuda"
    for place, given in enumerate(inputs):
        if isinstance(given, torch.Tensor) and given.device.type != wanted:
            how = "is for tensors on the CPU" if emulate else "on the CPU needs emulate=True; else move it to a GPU"
            raise DeviceError(f"fuse: input {place} is on {given.device}: emulate={emulate} {how}")


def _device(inputs: Sequence[Any]) -> torch.device | None:
    """The first input's; None where there is none."""
    return next((given.device for given in inputs if isinstance(given, torch.Tensor)), None)


def _imported(text: str) -> types.ModuleType:
    """The written file as a module, once for each text; it stays on disk for who wants to read it."""
    name = f"fused_{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    path = Path(store.home()) / "fused" / f"{name}.py"
    store.write_text(path, text)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    inspect.modulesbyfile[os.path.abspath(path)] = name  # PyTorch asks for each operator, and looks through all modules
    spec.loader.exec_module(module)
    sys.modules[name] = module  # torch.compile looks functions up there
    return module
