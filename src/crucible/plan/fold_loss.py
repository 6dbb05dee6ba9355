"""Losses by their formulas, in kernels that write no more than what is left of them.

Cross entropy: of each row the logarithm of a sum of exponentials, less the target's element. PyTorch writes logarithms
of probabilities, and takes the loss of these: with gradients it moves six times as much as the rows hold, where a
kernel that reads them once, and one that reads them again and writes their gradient, move three. Which element is the
target's is asked of each, by numbers that float32 holds. A target beyond the row, for which eager PyTorch ends the
process, makes a loss that is no number.

Of pairs: PyTorch writes the loss of each element, or several steps towards that of a row, and reads them to add them
up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from crucible.graph import Argument, Operation
from crucible.plan.rewriting import Maker, Rewriting
from crucible.schedule import pays

_MEAN, _SUM = 1, 2
_DTYPES = frozenset({"float32", "bfloat16"})
"""Not float16: a sum over rows may leave its range."""
_EXACT = 1 << 24
"""Up to which float32 holds each integer."""


def cross_entropy(work: Rewriting, operation: Operation) -> tuple[str, str] | None:
    """Of rows of scores and targets that are numbers of classes, all of the same weight."""
    if operation.kind != "cross_entropy_loss" or len(operation.inputs) != 2:
        return None
    scores, target = operation.inputs
    tensor, asked = work.values[scores].tensor, work.values[target].tensor
    if len(tensor.shape) != 2 or asked.shape != tensor.shape[:1] or asked.is_floating or tensor.dtype not in _DTYPES:
        return None
    if not pays.writing_less_pays(work.machine, tensor.bytes) or not 0 < tensor.shape[1] <= _EXACT:
        return None
    smoothing, ignored = operation.args["label_smoothing"], operation.args["ignore_index"]
    assert isinstance(smoothing, float) and isinstance(ignored, int)
    if abs(ignored) > _EXACT:
        return None
    make, exact = Maker(work, tensor.dtype), Maker(work, "float32")
    number = exact.cast(target)
    counted = make.compared("ne", number, float(ignored))
    found = make.chosen_of(counted, _of_rows(make, exact, scores, number, smoothing), 0.0)
    if operation.args["reduction"] == _MEAN:
        found = make.binary("div", make.whole(found), make.whole(make.cast(counted)))
    elif operation.args["reduction"] == _SUM:
        found = make.whole(found)
    return found, "cross entropy by its formula"


def _of_rows(make: Maker, exact: Maker, scores: str, number: str, smoothing: float) -> str:
    rows, classes = make.shape(scores)
    hit = make.compared("eq", exact.numbers(classes), exact.reshape(number, (rows, 1)))
    own = make.rows_total(make.chosen_of(hit, scores, 0.0))
    if smoothing:
        mean = make.binary("mul", make.rows_total(scores), smoothing / classes)
        own = make.binary("add", make.binary("mul", own, 1 - smoothing), mean)
    loss = make.binary("sub", make.log_total(scores), own)
    within = make.both(make.compared("ge", number, 0.0), make.compared("lt", number, float(classes)))
    return make.chosen_of(within, loss, math.nan)


# of pairs


def of_pairs(work: Rewriting, operation: Operation) -> tuple[str, str] | None:
    """Of tensors of one shape and dtype, without weights; each element's, or each row's."""
    formula = _FORMULAS.get(operation.kind)
    tensors = [work.values[name].tensor for name in operation.inputs]
    given = sum(name in operation.args for name in ("self", "target", "anchor", "positive", "negative"))
    if formula is None or len(tensors) != given or len({(each.shape, each.dtype) for each in tensors}) > 1:
        return None
    if tensors[0].dtype not in _DTYPES or not pays.writing_less_pays(work.machine, tensors[0].bytes):
        return None
    make = Maker(work, tensors[0].dtype)
    found = formula(make, operation.inputs, operation.args)
    if found is None:
        return None
    if operation.args["reduction"] in (_MEAN, _SUM):
        found = make.whole(found, "mean" if operation.args["reduction"] == _MEAN else "sum")
    return found, f"{operation.kind} by its formula"


_Formula = Callable[[Maker, tuple[str, ...], Mapping[str, Argument]], str | None]


def _squared(make: Maker, pair: tuple[str, ...], _: Mapping[str, Argument]) -> str:
    off = make.binary("sub", *pair)
    return make.binary("mul", off, off)


def _absolute(make: Maker, pair: tuple[str, ...], _: Mapping[str, Argument]) -> str:
    return make.unary("abs", make.binary("sub", *pair))


def _huber(make: Maker, pair: tuple[str, ...], args: Mapping[str, Argument]) -> str:
    """a (|x| - a / 2), where a is |x|, or delta where that is less."""
    off = _absolute(make, pair, args)
    least = make.bounded("max", off, _number(args, "delta"))
    return make.binary("mul", least, make.binary("sub", off, make.binary("mul", least, 0.5)))


def _smooth(make: Maker, pair: tuple[str, ...], args: Mapping[str, Argument]) -> str | None:
    beta = _number(args, "beta")
    return make.binary("mul", _huber(make, pair, {"delta": beta}), 1 / beta) if beta else None


def _logistic(make: Maker, pair: tuple[str, ...], _: Mapping[str, Argument]) -> str:
    score, target = pair
    rest = make.binary("sub", score, make.binary("mul", score, target))
    return make.binary("sub", rest, make.unary("log_sigmoid", score))


def _divergence(make: Maker, pair: tuple[str, ...], args: Mapping[str, Argument]) -> str:
    """Of what has no probability, none."""
    logs, target = pair
    if args["log_target"]:
        return make.binary("mul", make.unary("exp", target), make.binary("sub", target, logs))
    entropy = make.binary("mul", target, make.unary("log", target))
    entropy = make.chosen_of(make.compared("ne", target, 0.0), entropy, 0.0)
    return make.binary("sub", entropy, make.binary("mul", target, logs))


def _triplet(make: Maker, three: tuple[str, ...], args: Mapping[str, Argument]) -> str | None:
    if args["swap"] or args["p"] != 2 or len(make.shape(three[0])) != 2:
        return None
    near, far = (_distance(make, three[0], other, _number(args, "eps")) for other in three[1:])
    return make.bounded("min", make.binary("add", make.binary("sub", near, far), _number(args, "margin")), 0.0)


def _distance(make: Maker, a: str, b: str, eps: float) -> str:
    return make.rows_norm(make.binary("add", make.binary("sub", a, b), eps))


def _number(args: Mapping[str, Argument], name: str) -> float:
    value = args[name]
    assert isinstance(value, int | float)
    return float(value)


_FORMULAS: dict[str, _Formula] = {
    "mse_loss": _squared,
    "l1_loss": _absolute,
    "huber_loss": _huber,
    "smooth_l1_loss": _smooth,
    "binary_cross_entropy_with_logits": _logistic,
    "kl_div": _divergence,
    "triplet_margin_loss": _triplet,
}
