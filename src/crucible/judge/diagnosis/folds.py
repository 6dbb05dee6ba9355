"""What kernels are known to mistake in operations over a dimension: softmax, sums, scans, normalisation."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F

from crucible.judge.diagnosis.edits import (
    LIKELY,
    POSSIBLE,
    Around,
    Edit,
    around,
    first,
    operands,
    through,
    with_arguments,
)
from crucible.judge.oracle.recorded import Call, Recording, Run, Slot, Step

MOST_DIMENSIONS = 12
"""Of other sets of dimensions to reduce over."""


def softmax(recording: Recording, index: int, step: Step) -> Iterator[Edit]:
    """Its dimension, its logarithm, its sum, its base."""
    name, rank = step.name, operands(recording, step)["self"].dim()
    own = step.args["dim"] % max(1, rank)
    for dim in range(rank):
        if dim != own:
            words = f"{name} over dimension {dim} in place of {own}"
            yield around(index, words, _viewed(operands(recording, step)["self"].shape, dim))
    log = name == "log_softmax"
    other = F.softmax if log else F.log_softmax
    words = f"{'softmax' if log else 'log_softmax'} in place of {name}"
    yield around(index, words, lambda call, run: other(call["self"], call["dim"]))
    yield around(index, f"{name} without its sum", _unnormalised(log))
    yield around(index, f"{name} in powers of 2", through(_by_ln2, "self"), POSSIBLE)
    yield from _softmax_before_view(recording, index, step, own)


def _by_ln2(x: torch.Tensor) -> torch.Tensor:
    return x * math.log(2)


def _unnormalised(log: bool) -> Around:
    def change(call: Call, run: Run) -> torch.Tensor:
        shifted: torch.Tensor = call["self"] - call["self"].amax(call["dim"], keepdim=True)
        return shifted if log else shifted.exp()

    return change


def _softmax_before_view(recording: Recording, index: int, step: Step, own: int) -> Iterator[Edit]:
    """Over one dimension of those that were flattened for it, or over all that belongs to a batch item."""
    shape = operands(recording, step)["self"].shape
    shapes: dict[str, tuple[tuple[int, ...], int]] = {}
    if len(shape) > 2:
        shapes[f"the {shape[1:].numel()} elements of a batch item"] = ((shape[0], -1), 1)
    maker = next((s for s in recording.steps if step.args["self"].index in s.results), None)
    before = operands(recording, maker).get("self") if maker is not None and maker.moves_only else None
    if before is not None and before.dim() > len(shape):
        of = "x".join(map(str, before.shape))
        shapes |= {f"dimension {d} of {of}": (tuple(before.shape), d) for d in range(before.dim())}
    for words, (view, dim) in shapes.items():
        yield around(index, f"{step.name} over {words} in place of dimension {own}", _viewed(view, dim))


def _viewed(view: tuple[int, ...], dim: int) -> Around:
    def change(call: Call, run: Run) -> Any:
        x = call["self"]
        return run({**call, "self": x.reshape(view), "dim": dim}).reshape(x.shape)

    return change


Fold = Callable[[torch.Tensor, Any, bool], torch.Tensor]
_FOLDS: dict[str, Fold] = {
    "sum": lambda x, dim, keep: x.sum(dim, keepdim=keep),
    "mean": lambda x, dim, keep: x.mean(dim, keepdim=keep),
    "amax": lambda x, dim, keep: x.amax(dim, keepdim=keep),
    "amin": lambda x, dim, keep: x.amin(dim, keepdim=keep),
    "logsumexp": lambda x, dim, keep: x.logsumexp(dim, keepdim=keep),
    "the sum of squares": lambda x, dim, keep: (x * x).sum(dim, keepdim=keep),
    "linalg_vector_norm": lambda x, dim, keep: torch.linalg.vector_norm(x, dim=dim, keepdim=keep),
}
_SAME_FOLD = {"max": "amax", "min": "amin"}


def reduction(recording: Recording, index: int, step: Step) -> Iterator[Edit]:
    """A mean for a sum and the like, other dimensions."""
    given = operands(recording, step)["self"]
    if "other" in step.args or not given.dim():
        return
    dims = _dims(step.args.get("dim"), given.dim())
    for name, fold in _FOLDS.items():
        if name != _SAME_FOLD.get(step.name, step.name):
            rank = LIKELY if {step.name, name} == {"sum", "mean"} else POSSIBLE
            change = _folding(fold, dims, bool(step.args.get("keepdim", False)))
            yield around(index, f"{name} in place of {step.name}", change, rank)
    if "dim" in step.args and len(dims) < given.dim():
        for other in itertools.islice(itertools.combinations(range(given.dim()), len(dims)), MOST_DIMENSIONS):
            if list(other) != sorted(dims):
                changed = {"dim": list(other) if isinstance(step.args["dim"], list) else other[0]}
                yield with_arguments(index, step, changed, POSSIBLE)


def _dims(dim: Any, rank: int) -> list[int]:
    if dim is None or dim == []:
        return list(range(rank))
    return [d % rank for d in (dim if isinstance(dim, list) else [dim])]


def _folding(fold: Fold, dims: list[int], keep: bool) -> Around:
    return lambda call, run: fold(call["self"], dims, keep)


def spread(recording: Recording, index: int, step: Step) -> Iterator[Edit]:
    """Variance for standard deviation, and the other way round."""
    if step.name == "var":
        yield around(index, "std in place of var", lambda call, run: run(call).sqrt(), POSSIBLE)
    else:
        yield around(index, "var in place of std", lambda call, run: run(call).square(), POSSIBLE)


def scan(recording: Recording, index: int, step: Step) -> Iterator[Edit]:
    """Its direction, its first element, its dimension."""
    rank = operands(recording, step)["self"].dim()
    own = step.args["dim"] % max(1, rank)
    yield around(index, f"{step.name} from the end", _backwards(own))
    if step.name == "cumsum":
        yield around(index, "cumsum without the element itself", lambda call, run: run(call) - call["self"])
    for dim in range(rank):
        if dim != own:
            yield with_arguments(index, step, {"dim": dim})


def _backwards(dim: int) -> Around:
    return lambda call, run: first(run({**call, "self": call["self"].flip(dim)})).flip(dim)


def normalisation(recording: Recording, index: int, step: Step) -> Iterator[Edit]:
    """Weight, bias, groups, which variance, where eps goes."""
    name, x = step.name, operands(recording, step).get("input")
    if x is None:
        return
    for argument in ("weight", "bias"):
        if isinstance(step.args.get(argument), Slot):
            yield around(index, f"the {argument} of {name} left out", _without(argument))
    dims = _norm_dims(step, x.dim())
    if dims:
        yield from _other_statistics(index, step, dims)
    if "group" in step.args:
        for groups in {1, x.shape[1]} - {step.args["group"]}:
            yield with_arguments(index, step, {"group": groups})
    if name == "layer_norm":
        for dim in set(range(x.dim())) - {d % x.dim() for d in dims}:
            yield around(index, f"{name} over dimension {dim}", _normalising(step, [dim]), POSSIBLE)


def _without(argument: str) -> Around:
    return lambda call, run: run({**call, argument: None})


def _norm_dims(step: Step, rank: int) -> list[int]:
    """The dimensions over which statistics are taken (for groups: of `[batch, group, rest]`); none where given."""
    if step.name == "layer_norm":
        return [-i for i in range(1, len(step.args["normalized_shape"]) + 1)]
    if step.name == "batch_norm":
        return [d for d in range(rank) if d != 1] if step.args.get("training", True) else []
    return [-1] if step.name == "group_norm" else []


def _other_statistics(index: int, step: Step, dims: list[int]) -> Iterator[Edit]:
    name = step.name
    yield around(index, f"the sample variance (n - 1) in {name}", _normalising(step, dims, correction=1))
    yield around(index, f"the mean left where it is in {name}", _normalising(step, dims, centred=False))
    yield around(index, f"eps added to the standard deviation in {name}", _normalising(step, dims, outside=True))


def _normalising(step: Step, dims: list[int], **how: Any) -> Around:
    """The normalisation written out, over other dimensions or with other statistics."""
    eps = float(step.args.get("eps") or step.args.get("epsilon") or 0.0)

    def change(call: Call, run: Run) -> torch.Tensor:
        x: torch.Tensor = call["input"]
        grouped = x.reshape(x.shape[0], call["group"], -1) if step.name == "group_norm" else x
        normal = _normalised(grouped, dims, eps, **how).reshape(x.shape)
        return _affine(normal, call, last=step.name == "layer_norm")

    return change


def _normalised(
    x: torch.Tensor, dims: list[int], eps: float, correction: int = 0, centred: bool = True, outside: bool = False
) -> torch.Tensor:
    middle = x.mean(dims, keepdim=True)
    variance = x.var(dims, correction=correction, keepdim=True) if centred else x.square().mean(dims, keepdim=True)
    deviation = variance.sqrt() + eps if outside else (variance + eps).sqrt()
    return (x - middle if centred else x) / deviation


def _affine(x: torch.Tensor, call: Call, last: bool) -> torch.Tensor:
    """Weight and bias along the last dimensions, or along the channels."""
    for argument, apply in (("weight", torch.mul), ("bias", torch.add)):
        value = call.get(argument)
        if value is not None:
            x = apply(x, value if last else value.view(-1, *[1] * (x.dim() - 2)))
    return x
