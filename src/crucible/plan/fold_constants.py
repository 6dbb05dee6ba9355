"""What is one number for all finite inputs, and reductions of one element, which is their value.

Where everything is finite, a value whose interval is one point is that number, and so is the difference of a value to
itself. Gradients are 0, which each tensor that it came from gets: it stays a part of what is computed, with none of its
elements.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from crucible.algebra.expression import Expr, tensor
from crucible.algebra.interval import NUMBERS, Interval
from crucible.algebra.ranges import interval
from crucible.graph import Argument, Operation, Ref
from crucible.plan.lazy import NotCovered
from crucible.plan.rewriting import Maker, Rewriting
from crucible.plan.vocabulary import CONDITIONS, POINTWISE

OF_ONE = frozenset({"sum", "mean", "amax", "amin", "max", "min", "logsumexp"})
"""Reductions that give the only element that they see."""
ZERO = Interval(0.0, 0.0)


def constant(work: Rewriting, operation: Operation) -> tuple[str, str] | None:
    """What stands for the operation's output, and words; None where it has to be computed."""
    output = operation.outputs[0]
    rest = operation.outputs[1:]
    if any(each.name in work.graph.outputs or work.graph.readers(each.name) for each in rest):
        return None
    if operation.kind in OF_ONE and (given := _only_element(work, operation)):
        make = Maker(work, output.tensor.dtype)
        return make.reshape(given, output.tensor.shape), f"{operation.kind} of one element, which is its value"
    found = _number(work, operation)
    if found is None or not output.tensor.is_floating or not output.tensor.elements:
        return None
    readers = work.graph.readers(output.name)
    if readers and output.name not in work.graph.outputs and all(_number(work, each) is not None for each in readers):
        return None  # they are numbers as well
    made = _made(work, operation, found)
    return None if made is None else (made, f"{operation.kind} gives {found:g} for all finite inputs")


def _only_element(work: Rewriting, operation: Operation) -> str | None:
    """What a reduction reads, if all of the dims that it goes over have one element."""
    given, asked = operation.args["self"], operation.args.get("dim")
    if not isinstance(given, Ref) or "other" in operation.args or operation.args.get("dtype") is not None:
        return None
    shape = work.shape(given.name)
    several: Any = asked if isinstance(asked, tuple) else None if asked is None else (asked,)
    dims = several or range(len(shape))
    same = work.values[given.name].tensor.dtype == operation.outputs[0].tensor.dtype
    return given.name if same and all(shape[d] == 1 for d in dims) else None


def _number(work: Rewriting, operation: Operation) -> float | None:
    """The value that all elements have; None where they differ, or may."""
    found = _value(work, operation.outputs[0].name)
    point = found.low == found.high and not found.nan and math.isfinite(found.low)
    return found.low if point else None


def _value(work: Rewriting, name: str) -> Interval:
    """Where a value's elements lie. Of all values up to it, each after what it reads: asked one by one, those behind a
    fork were worked out twice for each fork before them, and a chain of forty operations took hours."""
    if name not in work.graph.producers:
        return _written_down(work, name)
    while name not in work.intervals:
        each = work.graph.operations[work.enclosed]
        work.intervals.update(dict.fromkeys((output.name for output in each.outputs), _interval(work, each)))
        work.enclosed += 1
    return work.intervals[name]


def _interval(work: Rewriting, operation: Operation) -> Interval:
    """Where the outputs' elements lie."""
    known: dict[str, Interval] = {}

    def given(argument: Argument) -> Any:
        if not isinstance(argument, Ref):
            return argument
        found = work.intervals.get(argument.name)
        known[argument.name] = _written_down(work, argument.name) if found is None else found
        return tensor(argument.name, "float32")

    args = operation.args
    if operation.kind == "sub" and args["self"] == args["other"] and args["alpha"] == 1:
        return ZERO
    if operation.kind in ("dropout", "feature_dropout"):
        given(args["input"])
        return ZERO if [*known.values()] == [ZERO] else NUMBERS
    build: Callable[..., Expr] | None = POINTWISE.get(operation.kind)
    if build is None or operation.kind in CONDITIONS or not operation.outputs[0].tensor.is_floating:
        return NUMBERS
    try:
        expr = build(**{name: given(argument) for name, argument in args.items()})
    except NotCovered:
        return NUMBERS
    found = interval(expr, known)
    return Interval(found.low, found.high)  # NaN comes of what is not finite alone


def _written_down(work: Rewriting, name: str) -> Interval:
    """Of a number that forward makes a tensor of; anywhere else."""
    held = next((each.number for each in work.graph.constants if each.value.name == name), None)
    return NUMBERS if held is None else Interval(held, held)


def _made(work: Rewriting, operation: Operation, number: float) -> str | None:
    """The number, as a tensor of which everything it came from has a gradient; None where nothing takes one."""
    make = Maker(work, operation.outputs[0].tensor.dtype)
    shape = operation.outputs[0].tensor.shape
    nothing = [
        make.cast(Maker(work, work.values[leaf].tensor.dtype).nothing(leaf)) for leaf in _leaves(work, operation)
    ]
    if not nothing:
        return None
    found = nothing[0]
    for each in nothing[1:]:
        found = make.binary("add", found, each)
    return make.expand(make.binary("add", found, number), shape)


def _leaves(work: Rewriting, operation: Operation) -> list[str]:
    """Inputs and parameters that take a gradient, on which it depends."""
    wanted = {value.name for value in work.graph.inputs if value.tensor.is_floating}
    wanted |= {each.value.name for each in work.graph.parameters if each.trainable}
    pending, seen = [operation], set[str]()
    while pending:
        for name in pending.pop().inputs:
            if name not in seen:
                seen.add(name)
                pending += [work.graph.producers[name]] if name in work.graph.producers else []
    return [name for name in work.values if name in wanted & seen]
