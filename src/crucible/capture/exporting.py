"""torch.export as capture needs it: gradients everywhere, and what it cannot take said in the user's terms."""

from __future__ import annotations

import contextlib
import io
import logging
import random
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn
from torch.export import ExportedProgram
from torch.fx.traceback import annotate, preserve_node_meta
from torch.overrides import TorchFunctionMode

from crucible.capture.chances import Chances
from crucible.capture.lines import LINE, calling_line, is_standing_in, line_of, refusal
from crucible.errors import CaptureError
from crucible.products import tensors_in

NO_NUMBERS = "Use torch.where, clamp or masks, so that the same operations run for all values"
NO_DRAWS = "Draw with torch.rand, or make the number an input"
NO_BLOCKS = "Use .detach() where gradients shall stop, and put what needs none outside of forward"
RETURNABLE = (
    "Return a tensor, or tuples, lists and dicts of tensors, numbers and None, or objects with such fields, "
    "of a class that can be imported"
)
_NO_CACHE = "a model of transformers does with config.use_cache = False"
_UNKNOWN = re.compile(r"Found <class '(?P<name>[^']+)'> in output, which is not a known type")
_FAKE_CONSTANT = "fake tensor in the exported program constant's list"
_ATTRIBUTES = (
    "device",
    "dtype",
    "is_leaf",
    "is_mkldnn",
    "is_nested",
    "is_quantized",
    "is_sparse",
    "layout",
    "requires_grad",
)
_METHODS = ("_is_view", "dim", "is_conj", "is_inference", "is_neg", "numel", "size", "storage_offset", "stride")
_ASKED = frozenset({
    *(getattr(torch.Tensor, name).__get__ for name in _ATTRIBUTES),
    *(getattr(torch.Tensor, name) for name in _METHODS),
})  # fmt: skip
"""What tells of a tensor and computes nothing: four fifths of all that PyTorch calls meanwhile."""
_SWITCH = torch._C._set_grad_enabled
_DEPENDENT = frozenset({"GuardOnDataDependentSymNode", "DataDependentOutputException", "DynamicOutputShapeException"})


def export(module: nn.Module, inputs: Sequence[Any]) -> ExportedProgram:
    """The module's operations as users wrote them, in PyTorch's training form; nothing is computed.

    Raises CaptureError.
    """
    _check(module, inputs)
    before = _states()
    try:
        with _quiet(), torch.inference_mode(False), torch.enable_grad(), preserve_node_meta(), _Watch():
            program = torch.export.export(module, tuple(map(_itself, inputs)), strict=False)
    except CaptureError:
        raise
    except Exception as error:
        raise _refused(error) from error
    if _states() != before:
        raise refusal("", "it draws random numbers in Python (random, or numpy.random), once for all calls", NO_DRAWS)
    return program


def _states() -> tuple[Any, ...]:
    """Of the generators that Python's code draws from."""
    numpy = sys.modules.get("numpy")
    state = () if numpy is None else numpy.random.get_state()
    return random.getstate(), *(each if isinstance(each, str | int | float) else each.tobytes() for each in state)


def _itself(given: Any) -> Any:
    """A view as a tensor of its own over the same memory: PyTorch would take the sizes of what it is a view of, and so
    its own, for symbols."""
    if not isinstance(given, torch.Tensor) or not given._is_view():
        return given
    alone = torch.empty(0, dtype=given.dtype, device=given.device)
    with torch.no_grad():
        alone.set_(given.untyped_storage(), given.storage_offset(), given.shape, given.stride())
    return alone.requires_grad_(given.requires_grad)


def _check(module: nn.Module, inputs: Sequence[Any]) -> None:
    plain = (torch.Tensor, int, float, bool, type(None))
    for place, value in enumerate(inputs):
        if not isinstance(value, plain):
            raise CaptureError(
                f"input {place} is a {type(value).__name__}: give tensors, numbers or None, one for each argument"
            )
    if not any(isinstance(value, torch.Tensor) for value in inputs):
        raise CaptureError("no tensor is among the inputs: give at least one")
    for name, part in module.named_modules():
        if part._backward_hooks or part._backward_pre_hooks:
            raise CaptureError(f"{name or 'the module'} has backward hooks, which a graph would lose: remove them")


def _refused(error: Exception) -> CaptureError:
    where = line_of(error)
    if isinstance(error, _Hidden):
        return refusal(where, "gradients are off here (inference_mode or an autograd.Function)", NO_BLOCKS)
    if {kind.__name__ for kind in type(error).__mro__} & _DEPENDENT:
        return refusal(where, "what runs depends on the values in a tensor", NO_NUMBERS)
    if _FAKE_CONSTANT in str(error):
        return refusal(where, "it takes a tensor's .data, or its values, into Python", f"{NO_BLOCKS}; {NO_NUMBERS}")
    if (found := _UNKNOWN.search(str(error))) is not None:
        return refusal(where, f"it returns a {found['name'].rpartition('.')[2]}", f"{RETURNABLE}; {_NO_CACHE}")
    first = (str(error).strip() or type(error).__name__).splitlines()[0]
    return refusal(
        where,
        f"torch.export cannot follow this ({type(error).__name__}: {first.rstrip('.')})",
        "Write it with PyTorch's operations on tensors alone, and see that forward runs on these inputs",
    )


class _Watch(TorchFunctionMode):
    """Notes each operation's line, and refuses what is computed where autograd does not look: a graph would give it
    gradients. A block under no_grad is one in the graph. `contiguous` is called as an operator: of what is contiguous
    here Python's method would tell nobody, and it may lie otherwise on another device."""

    _asked_for = True
    """Gradients, by whoever switched them last in Python."""

    def __init__(self) -> None:
        super().__init__()
        self._chances = Chances()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _ASKED:
            return func(*args, **(kwargs or {}))
        hidden = self._is_off() and not is_standing_in()
        if func is _SWITCH:
            if hidden:
                raise _Hidden
            self._asked_for = bool(args[0])
            return func(*args)
        if (answer := self._chances.answer(func, args)) is not None:
            return answer
        func = torch.ops.aten.contiguous.default if func is torch.Tensor.contiguous else func
        with annotate({LINE: calling_line()}):
            result = func(*args, **(kwargs or {}))
        self._chances.note(func, args, result)
        if hidden and next(tensors_in(result), None) is not None:
            raise _Hidden
        return result

    def _is_off(self) -> bool:
        return torch.is_inference_mode_enabled() or (self._asked_for and not torch.is_grad_enabled())


class _Hidden(Exception):
    """Gradients are off."""


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """torch.export logs and prints at length what it then raises."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.disable(before)
