"""Mistakes: what kernels are known to do in place of one operation of PyTorch or another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F

from crucible.judge.diagnosis import folds, windows
from crucible.judge.diagnosis.edits import POSSIBLE, SELDOM, Around, Edit, around, called, operands, with_arguments
from crucible.judge.oracle.recorded import Recording, Slot, Step

EPSILONS = (0.0, 1e-3, 1e-5, 1e-6, 1e-8, 1e-12)
_MODES: dict[str, tuple[Any, ...]] = {
    "approximate": ("none", "tanh"),
    "count_include_pad": (True, False),
    "ceil_mode": (True, False),
    "align_corners": (True, False),
    "is_causal": (True, False),
    "unbiased": (True, False),
    "correction": (0, 1),
    "divisor_override": (None, 1),
    "negative_slope": (0.01, 0.0),
    "threshold": (0,),
    "training": (True, False),
    "eps": EPSILONS,
    "epsilon": EPSILONS,
}
"""Arguments with the values that they are often given by mistake, whatever the operation."""
_PLAIN_NUMBERS = ("number", "float", "bool", "str")
"""What an argument's type is called whose default is worth a try: sizes and dimensions are not."""


def edits_of(recording: Recording, index: int) -> Iterator[Edit]:
    """What can be mistaken in one step, for all that its operation is known for."""
    step = recording.steps[index]
    base = step.op._schema.name.split("::")[1].strip("_")
    yield from _other_arguments(index, step)
    for names, mistakes in _OF:
        if any(base.startswith(name) if name.endswith("_") else base == name for name in names):
            yield from mistakes(recording, index, step)


def _other_arguments(index: int, step: Step) -> Iterator[Edit]:
    """Each argument at its default, and in its other modes."""
    for argument in step.op._schema.arguments:
        name, value = argument.name, step.args[argument.name]
        if not isinstance(value, bool | str | int | float | None):
            continue
        wanted = list(_MODES.get(name, ()))
        default = argument.default_value if argument.has_default_value() else None
        if isinstance(default, bool | str | int | float) and str(argument.type) in _PLAIN_NUMBERS:
            wanted.append(default)
        if name == "training" and not isinstance(step.args.get("running_mean"), Slot):
            continue  # there is nothing else to normalise by
        for other in dict.fromkeys(wanted):
            if other != value:
                yield with_arguments(index, step, {name: other})


_ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu": torch.relu,
    "leaky_relu": F.leaky_relu,
    "elu": F.elu,
    "selu": F.selu,
    "gelu": F.gelu,
    "silu": F.silu,
    "mish": F.mish,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "hardtanh": F.hardtanh,
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "softplus": F.softplus,
    "exp": torch.exp,
    "abs": torch.abs,
    "neg": torch.neg,
}


def _activation(recording: Recording, index: int, step: Step) -> Iterator[Edit]:
    if step.name == "gelu":
        words = "x * sigmoid(1.702 x) in place of gelu"
        yield around(index, words, lambda call, run: call["self"] * torch.sigmoid(1.702 * call["self"]), POSSIBLE)
    for name, function in _ACTIVATIONS.items():
        if name != step.name:
            yield around(index, f"{name} in place of {step.name}", _applying(function), SELDOM)


def _applying(function: Callable[[torch.Tensor], torch.Tensor]) -> Around:
    return lambda call, run: function(call["self"])


def _clamp(recording: Recording, index: int, step: Step) -> Iterator[Edit]:
    low, high = ("min", "max") if "min" in step.args else ("min_val", "max_val")
    if step.args[low] is not None and step.args[high] is not None:
        name = step.name
        yield around(index, f"{name} without its upper bound", lambda c, run: torch.clamp(c["self"], min=c[low]))
        yield around(index, f"{name} without its lower bound", lambda c, run: torch.clamp(c["self"], max=c[high]))


_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
}


def _arithmetic(recording: Recording, index: int, step: Step) -> Iterator[Edit]:
    if step.name in ("sub", "div"):
        words = f"the operands of {step.name} exchanged"
        yield around(index, words, _on_two(_ARITHMETIC[step.name], "other", "self"), POSSIBLE)
    for name, function in _ARITHMETIC.items():
        if name != step.name:
            yield around(index, f"{name} in place of {step.name}", _on_two(function), SELDOM)


def _on_two(function: Callable[[Any, Any], Any], left: str = "self", right: str = "other") -> Around:
    return lambda call, run: function(call[left], call[right])


def _joined(recording: Recording, index: int, step: Step) -> Iterator[Edit]:
    words = f"the operands of {step.name} in the other order"
    yield around(index, words, lambda call, run: run({**call, "tensors": call["tensors"][::-1]}), POSSIBLE)


def _parts(recording: Recording, index: int, step: Step) -> Iterator[Edit]:
    words = f"the parts of {step.name} in the other order"
    yield around(index, words, lambda call, run: list(run(call))[::-1], POSSIBLE)


def _triangle(recording: Recording, index: int, step: Step) -> Iterator[Edit]:
    for by in (-1, 1):
        yield with_arguments(index, step, {"diagonal": step.args["diagonal"] + by})
    other = torch.triu if step.name == "tril" else torch.tril
    words = f"{'triu' if step.name == 'tril' else 'tril'} in place of {step.name}"
    yield around(index, words, lambda call, run: other(call["self"], call["diagonal"]))


def _choice(recording: Recording, index: int, step: Step) -> Iterator[Edit]:
    if len(operands(recording, step)) == 3:
        words = "the branches of where exchanged"
        yield around(index, words, lambda c, run: torch.where(c["condition"], c["other"], c["self"]), POSSIBLE)


def _root(recording: Recording, index: int, step: Step) -> Iterator[Edit]:
    words = f"{'sqrt' if step.name == 'rsqrt' else 'rsqrt'} in place of {step.name}"
    yield around(index, words, lambda call, run: run(call).reciprocal(), POSSIBLE)


def _power(recording: Recording, index: int, step: Step) -> Iterator[Edit]:
    exponent = step.args.get("exponent")
    if isinstance(exponent, Slot):
        return
    for other in (1, 2, 3, 0.5):
        if other != exponent:
            words = called(step.name, step.args, {"exponent": other})
            yield around(index, words, _to_the_power(other), POSSIBLE)


def _to_the_power(exponent: float) -> Around:
    return lambda call, run: call["self"].pow(exponent)


_POOLS = tuple(f"{pool}_pool{d}d{end}" for pool in ("avg", "max") for d in (1, 2, 3) for end in ("", "_with_indices"))
Mistakes = Callable[[Recording, int, Step], Iterator[Edit]]
_OF: tuple[tuple[tuple[str, ...], Mistakes], ...] = (
    (("convolution", "convolution_overrideable"), windows.convolution),
    (("constant_pad_nd", "reflection_", "replication_"), windows.padding),
    (("mm", "addmm", "bmm", "baddbmm"), windows.product),
    (("scaled_dot_",), windows.attention),
    (_POOLS, windows.pool),
    (("upsample_",), windows.interpolation),
    (("softmax", "log_softmax"), folds.softmax),
    (("sum", "mean", "amax", "amin", "max", "min", "logsumexp", "linalg_vector_norm"), folds.reduction),
    (("var", "std"), folds.spread),
    (("cumsum", "cumprod", "cummax", "cummin", "logcumsumexp"), folds.scan),
    (("native_", "cudnn_", "miopen_"), folds.normalisation),
    (tuple(_ACTIVATIONS), _activation),
    (("clamp", "hardtanh"), _clamp),
    (tuple(_ARITHMETIC), _arithmetic),
    (("cat", "stack"), _joined),
    (("split", "split_with_sizes", "unsafe_split", "unbind", "chunk"), _parts),
    (("tril", "triu"), _triangle),
    (("where",), _choice),
    (("sqrt", "rsqrt"), _root),
    (("pow",), _power),
)
"""By the name that PyTorch dispatches to, without underscores around it; with one at the end, by how it begins."""
