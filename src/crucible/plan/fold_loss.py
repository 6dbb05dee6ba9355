"""Cross entropy by its formula: of each row the logarithm of a sum of exponentials, less the target's element.

PyTorch writes logarithms of probabilities, and takes the loss of these: with gradients it moves six times as much as
the rows hold, where a kernel that reads them once, and one that reads them again and writes their gradient, move three.
Which element is the target's is asked of each, by numbers that float32 holds. A target beyond the row, for which eager
PyTorch ends the process, makes a loss that is no number.
"""

from __future__ import annotations

import math

from crucible.graph import Operation
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
