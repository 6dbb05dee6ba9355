"""A written file is run once before it is handed over: over tensors that have a shape, strides and no elements.

Each call of PyTorch checks there what it is given (a view whose strides do not allow it, two shapes that do not fit,
a name that nothing bears), forward and backward, at full size and in a second, without a kernel being built. With a
GPU the tensors are those of a GPU.

Then forward is run once more, and whatever PyTorch makes lies otherwise, its last dim outermost: kernels of another
device, or another release, lay their results as they like (attention in batch, heads, places or in batch, places,
heads), and no view behind them may raise for that. Tensors of a GPU would show one such layout, and not without one:
autograd asks for the device and ends the process.
"""

from __future__ import annotations

import inspect
import os
import traceback
import types
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from itertools import count
from typing import Any, NoReturn

import torch
from torch import nn
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily
from torch.overrides import TorchFunctionMode

from crucible.capture.autocast import RECURRENT
from crucible.copies import duplicate
from crucible.errors import KernelError

_NUMBERS = count()
"""Of trials: each registers operators under a name of its own."""
_FILE = "<trial>"
_AS_ASKED = frozenset({"contiguous", "reshape", "clone", "copy_", "empty_strided", "new_empty_strided"})
"""Functions that say how their results lie."""


def check_runs(text: str, module: nn.Module, inputs: Sequence[Any]) -> list[torch.Tensor]:
    """The outputs, without elements, of a written file in the stead of `module`, called with tensors like `inputs`;
    neither of them is changed. Raises KernelError where it raises, in forward or in backward."""
    names = types.ModuleType(f"trial_{next(_NUMBERS)}")
    # No module's: else each operator that is registered has it looked for among all modules, 3 ms.
    inspect.modulesbyfile[os.path.abspath(_FILE)] = _FILE
    try:
        exec(compile(_unbuilt(text), _FILE, "exec"), names.__dict__)
        forward = names.ModelNew.forward if "ModelNew" in names.__dict__ else names.forward
        with FakeTensorMode(allow_non_fake_inputs=True), torch.enable_grad(), _Decomposed():
            found = _run(forward, module, inputs)
            with _Otherwise():
                forward(*_given_all(module, inputs))
            return found
    except Exception as error:
        raise KernelError(_words(text, error)) from error
    finally:
        if "library" in names.__dict__:
            names.library._destroy()


def _unbuilt(text: str) -> str:
    """The file with a loader of extensions that builds none."""
    imports = "from crucible.trial import load_inline"
    return "\n".join(imports if line.endswith(" import load_inline") else line for line in text.split("\n"))


def load_inline(**given: Any) -> Any:
    """In the stead of PyTorch's: functions that nobody may call, and nobody does, as tensors without elements go
    through operators."""

    def call(*_: Any) -> NoReturn:
        raise RuntimeError("a kernel was called on a tensor that has no elements")

    return types.SimpleNamespace(**{**dict.fromkeys(given["functions"], call), "are_plain": lambda tensors: False})


def _run(forward: Any, module: nn.Module, inputs: Sequence[Any]) -> list[torch.Tensor]:
    ours, *given = _given_all(module, inputs)
    made = list(_tensors(forward(ours, *given)))
    outputs = [each for each in made if each.requires_grad]
    wanted = [each for each in (*given, *ours.parameters()) if isinstance(each, torch.Tensor) and each.requires_grad]
    if outputs and wanted:
        torch.autograd.grad(outputs, wanted, [torch.empty_like(each) for each in outputs], allow_unused=True)
    return made


class _Decomposed(TorchFunctionMode):
    """Recurrent layers are cells: cuDNN's, without elements, keep nothing of their weights for backward, and raise."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        is_recurrent = getattr(func, "__name__", "").split(".")[0] in RECURRENT
        with enable_python_dispatcher() if is_recurrent else nullcontext():
            return func(*args, **(kwargs or {}))


class _Otherwise(TorchFunctionMode):
    """Lays whatever PyTorch computes with its last dim outermost; views of it are views of that."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made, named = func(*args, **(kwargs or {})), kwargs or {}
        is_ours = str(getattr(func, "__module__", "")).startswith("torch._ops.crucible")
        if is_ours or getattr(func, "__name__", "") in _AS_ASKED:
            return made
        before = {each.untyped_storage()._cdata for each in _tensors((*args, *named.values()))}
        relaid = [self._relaid(each, before) for each in (made if isinstance(made, tuple | list) else [made])]
        return type(made)(relaid) if isinstance(made, tuple | list) else relaid[0]

    def _relaid(self, made: Any, before: set[int]) -> Any:
        if not isinstance(made, torch.Tensor) or not before or made.untyped_storage()._cdata in before:
            return made
        order = list(range(made.dim()))[::-1]
        return made.permute(order).contiguous().permute(order)


def _given_all(module: nn.Module, inputs: Sequence[Any]) -> list[Any]:
    """The arguments of a written forward."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return [
        _without_elements(module, device),
        *(_given(each, device) if isinstance(each, torch.Tensor) else each for each in inputs),
    ]


def _without_elements(module: nn.Module, device: str) -> nn.Module:
    """A copy of a module, whose parameters and buffers have no elements; one that is tied stays so."""
    memo: dict[int, Any] = {}
    for each in module.parameters():
        memo[id(each)] = nn.Parameter(_given(each, device), each.requires_grad)
    for buffer in module.buffers():
        memo[id(buffer)] = _given(buffer, device).requires_grad_(False)
    with unset_fake_temporarily():  # a tensor that is neither parameter nor buffer is copied as it is
        return duplicate(module, memo)


def _given(tensor: torch.Tensor, device: str) -> torch.Tensor:
    """One that lies the same; it takes a gradient where it can."""
    made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device)
    return made.requires_grad_(tensor.is_floating_point())


def _tensors(outputs: Any) -> Iterator[torch.Tensor]:
    if isinstance(outputs, torch.Tensor):
        yield outputs
    elif isinstance(outputs, tuple | list | dict):
        for each in outputs.values() if isinstance(outputs, dict) else outputs:
            yield from _tensors(each)


def _words(text: str, error: Exception) -> str:
    """What raised, and the line of the written file that did."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == _FILE]
    at = text.split("\n")[lines[-1] - 1].strip() if lines and lines[-1] else "backward"
    first = (str(error).strip() or "no words").splitlines()[0]
    return f"what was written raises {type(error).__name__}: {first} ({at}). That is a fault of Crucible's"
