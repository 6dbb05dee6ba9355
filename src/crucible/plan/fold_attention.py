"""Attention that is written out, softmax(q k' s + m) v, becomes PyTorch's `scaled_dot_product_attention`.

Its kernels write no scores, read heads as they lie between places, and lay their results so: the copies before and
behind the products go with the scores. float32 is kept there whatever may round (an error of 5e-7, H100). A row whose
scores are all masked is 0 there, or no number, as PyTorch's release has it; written out it is no number.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from crucible.algebra.program import contiguous
from crucible.graph import Graph, Operation, TensorType
from crucible.plan.rewriting import Maker, Rewriting
from crucible.plan.rules import ATTENTION, turns_matrices
from crucible.schedule import pays

_VIEWS = frozenset({"view", "reshape"})
_CASTS = frozenset({"to", "_to_copy"})
_HEADS_AND_PLACES = 4
"""Dims of what its kernels take: batch, heads, places, features."""
_AS_GPUS_LAY = {3: (1, 0, 2), 4: (0, 2, 1, 3)}
"""The order of its results' dims in memory: heads between places, in every kernel that a GPU has for it. Of three dims
the first is a head of all batches."""
_MOST_BLOCKS = 65_535
"""Heads, and items, that its kernels can take: each is a block along a dim of the grid."""
_PRODUCTS = frozenset({"matmul", "bmm"})
_MADE_CONTIGUOUS = frozenset({"contiguous", "reshape", "clone"})


@dataclass(frozen=True)
class _Scores:
    """What a softmax is taken of: the product of query and key, times numbers, and what masks it."""

    query: str
    turned: str
    """The key's transpose."""
    scale: float
    of_rows: tuple[str, ...]
    """Tensors that scores are multiplied by, the same for all keys."""
    added: tuple[tuple[str, tuple[int, ...]], ...]
    """Tensors that are added, and the shape in which the scores are seen then: a batch may be one of windows."""
    left_out: str | None
    """A condition: scores for which it holds are minus infinity."""


def attention(work: Rewriting, operation: Operation) -> tuple[str, str] | None:
    """A product of matrices whose left factor is a softmax of scores that nobody else reads."""
    shape, dtype = operation.outputs[0].tensor.shape, operation.outputs[0].tensor.dtype
    if operation.kind not in _PRODUCTS or len(shape) not in _AS_GPUS_LAY:
        return None
    if not pays.attention_pays(work.machine, dtype, shape[-1]):
        return None
    weights, value = operation.inputs
    softmax = _alone(work, weights)
    scores = _scores(work, softmax, len(shape)) if softmax is not None else None
    if scores is None:
        return None
    make = Maker(work, dtype)
    query, by_query = _unscaled(work, scores.query)
    key, by_key = _key(make, scores.turned)
    if not _fit(work, query, key, value):
        return None
    for factor in scores.of_rows:
        query = make.binary("mul", query, make.cast(factor))
    if make.shape(query) != work.shape(scores.query):
        return None
    mask = _mask(make, scores, len(shape))
    query, key, value = (_in_four(make, name) for name in (query, key, value))
    mask = mask and _in_four(make, mask)
    scale = scores.scale * by_query * by_key
    made = make.attention(query, key, value, mask, scale, _as_gpus_lay(make.shape(query)))
    output = operation.output
    work.values[output.name] = replace(output, tensor=replace(output.tensor, strides=_as_gpus_lay(shape)))
    return make.reshape(made, shape), f"softmax between two products, taken as {ATTENTION}"


def laid(graph: Graph) -> Graph:
    """The graph with what follows attention as it is seen in the layout of its results: where that is made contiguous
    nothing is moved."""
    types: dict[str, TensorType] = {}
    operations = []
    for each in graph.operations:
        given = types.get(each.inputs[0]) if each.inputs else None
        if each.kind == ATTENTION or (given is not None and _drops_one(each, given)):
            types[each.output.name] = each.output.tensor
        elif given is not None and each.kind in ("transpose", "permute"):
            types[each.output.name] = seen = _seen(each, given)
            each = replace(each, outputs=(replace(each.output, tensor=seen),))
        elif given is not None and each.kind in _MADE_CONTIGUOUS and given.strides == contiguous(given.shape):
            each = replace(each, bytes_moved=0)
        operations.append(each)
    return replace(graph, operations=tuple(operations))


def _drops_one(operation: Operation, given: TensorType) -> bool:
    """Whether it leaves out a batch of one."""
    return operation.kind == "reshape" and (1, *operation.output.tensor.shape) == given.shape


def _alone(work: Rewriting, name: str) -> Operation | None:
    """What makes a value that nobody else reads, before it is cast; None where it is computed in more than float32."""
    source = work.alone(name)
    while source is not None and source.kind in _CASTS and work.values[source.inputs[0]].tensor.is_floating:
        source = None if source.output.tensor.dtype == "float64" else work.alone(source.inputs[0])
    return source


def _scores(work: Rewriting, softmax: Operation, rank: int) -> _Scores | None:
    """What a softmax over the last dim is taken of; None where it is of something else."""
    if softmax.kind != "softmax" or softmax.args["dim"] not in (-1, len(softmax.output.tensor.shape) - 1):
        return None
    scale, left_out = 1.0, None
    of_rows: list[str] = []
    added: list[tuple[str, tuple[int, ...]]] = []
    source = _alone(work, softmax.inputs[0])
    while source is not None and source.kind not in _PRODUCTS:
        name, factor = _factor(source)
        shape = source.output.tensor.shape
        if factor is not None:
            scale *= factor
        elif source.kind in _VIEWS:
            if not _splits_batch(shape, work.shape(name), rank):
                return None
        elif source.kind == "mul" and len(source.inputs) == 2 and len(shape) == rank:
            name, factor_of_rows = _term(work, source)
            if work.shape(factor_of_rows)[-1:] not in ((), (1,)):
                return None
            of_rows.append(factor_of_rows)
        elif scale != 1.0 or of_rows:  # a mask that would be scaled
            return None
        elif source.kind == "baddbmm":
            if (source.args["alpha"], source.args["beta"]) != (1, 1):
                return None
            added.append((source.inputs[0], shape))
            break
        elif source.kind == "masked_fill":
            if source.args["value"] != -math.inf or left_out or added or len(shape) != rank:
                return None
            left_out = source.inputs[1]
        elif source.kind == "add" and len(source.inputs) == 2 and source.args["alpha"] == 1:
            name, term = _term(work, source)
            added.append((term, shape))
        else:
            return None
        source = None if not name else _alone(work, name)
    if source is None:
        return None
    query, turned = source.inputs[-2:]
    return _Scores(query, turned, scale, tuple(of_rows), tuple(added), left_out)


def _splits_batch(one: Sequence[int], other: Sequence[int], rank: int) -> bool:
    """Whether one shape is the other, whose batch is one of windows, or of items and heads."""
    few, many = sorted((tuple(one), tuple(other)), key=len)
    return len(few) == rank and len(many) == rank + 1 and few[1:] == many[2:]


def _term(work: Rewriting, source: Operation) -> tuple[str, str]:
    """Of a sum or product, what is as large as it, and made for it alone, and the other; the first is empty where there
    is none."""
    one, other = source.inputs
    if _alone(work, one) is None or work.shape(one) != source.output.tensor.shape:
        one, other = other, one
    return (one, other) if work.shape(one) == source.output.tensor.shape else ("", other)


def _factor(source: Operation) -> tuple[str, float | None]:
    """What is read, and the number that it is multiplied by; None where that is no number."""
    other = source.args.get("other")
    if source.kind in ("mul", "div") and isinstance(other, int | float) and source.args.get("rounding_mode") is None:
        factor = float(other) if source.kind == "mul" else 1 / other if other else math.inf
        return source.inputs[0], factor if math.isfinite(factor) and factor > 0 else None
    return source.inputs[0] if source.inputs else "", None


def _unscaled(work: Rewriting, name: str) -> tuple[str, float]:
    """A factor of the scores, without the number that it alone was multiplied by."""
    source = work.alone(name)
    read, factor = _factor(source) if source is not None else ("", None)
    return (name, 1.0) if factor is None else (read, factor)


def _key(make: Maker, turned: str) -> tuple[str, float]:
    """The key, of which the scores' product has the transpose, and the number that it alone was multiplied by."""
    source = make.work.graph.producers.get(turned)
    tensor = make.work.values[turned].tensor
    before = [*range(len(tensor.shape) - 2)]
    if source is not None and turns_matrices(source, len(tensor.shape)):
        return _unscaled(make.work, source.inputs[0])
    strides = (*tensor.strides[:-2], tensor.strides[-1], tensor.strides[-2])
    return make.permute(turned, (*before, len(before) + 1, len(before)), strides), 1.0


def _fit(work: Rewriting, query: str, key: str, value: str) -> bool:
    """Whether all lie in heads, places and features, of one dtype, features side by side."""
    tensors = [work.values[name].tensor for name in (query, key, value)]
    shapes = [tensor.shape for tensor in tensors]
    if any(tensor.strides[-1] != 1 for tensor in tensors):
        return False
    alike = len({(*shape[:-2], shape[-1]) for shape in shapes}) == 1 and shapes[1] == shapes[2]
    few = all(n <= _MOST_BLOCKS for n in shapes[0][:-2])
    return alike and few and len({tensor.dtype for tensor in tensors}) == 1


def _mask(make: Maker, scores: _Scores, rank: int) -> str | None:
    """What is added to the scores, in their dtype and seen as they are."""
    terms = [_in_batch(make, name, shape, rank) for name, shape in scores.added]
    if scores.left_out is not None:
        terms.append(make.chosen(scores.left_out, -math.inf, 0.0))
    if not terms:
        return None
    found = functools.reduce(lambda one, other: make.binary("add", one, other), map(make.cast, terms))
    own = make.shape(found)
    return found if len(own) > 1 else make.reshape(found, (1,) * (2 - len(own)) + own)


def _in_batch(make: Maker, term: str, seen: Sequence[int], rank: int) -> str:
    """A tensor that is added to scores of this shape, for those whose batch is one."""
    own = make.shape(term)
    if len(seen) == rank or len(own) < rank:
        return term
    lifted = (1,) * (len(seen) - len(own)) + own
    if lifted[:2] == (1, 1):
        return make.reshape(term, lifted[1:])
    whole = make.expand(make.reshape(term, lifted), (*seen[:2], *lifted[2:]))
    return make.reshape(whole, (seen[0] * seen[1], *lifted[2:]))


def _in_four(make: Maker, name: str) -> str:
    """Of three dims, seen as a batch of one."""
    tensor = make.work.values[name].tensor
    if len(tensor.shape) != _HEADS_AND_PLACES - 1:
        return name
    return make.reshape(name, (1, *tensor.shape), (tensor.shape[0] * tensor.strides[0], *tensor.strides))


def _as_gpus_lay(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of what attention makes."""
    order = _AS_GPUS_LAY[len(shape)]
    strides = dict(zip(order, contiguous([shape[d] for d in order]), strict=True))
    return tuple(strides[d] for d in range(len(order)))


def _seen(view: Operation, given: TensorType) -> TensorType:
    """What a view that exchanges dims makes of a tensor that lies so."""
    rank = len(given.shape)
    order = [*range(rank)]
    if view.kind == "permute":
        dims = view.args["dims"]
        assert isinstance(dims, tuple)
        order = [int(d) % rank for d in dims if isinstance(d, int)]
    else:
        a, b = (int(view.args[word]) % rank for word in ("dim0", "dim1"))  # type: ignore[arg-type]
        order[a], order[b] = order[b], order[a]
    return replace(view.output.tensor, strides=tuple(given.strides[d] for d in order))
