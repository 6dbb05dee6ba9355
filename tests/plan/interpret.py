"""Plans carried out by PyTorch and numpy in float64: what their kernels must compute."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from crucible.algebra.convolution.correlation import Correlation
from crucible.algebra.convolution.fused import GIVEN, PRODUCT, Convolution
from crucible.algebra.convolution.reducing import ReducingConvolution
from crucible.algebra.convolution.windows import Windows
from crucible.algebra.evaluate import evaluate, evaluate_program
from crucible.algebra.expression import name_of
from crucible.algebra.moments import Moments, without_elements
from crucible.algebra.pool import POOLED, Pool
from crucible.algebra.product import Product
from crucible.algebra.program import Operand, Program
from crucible.capture import trace
from crucible.graph import Argument, Ref, TensorType
from crucible.kinds.convolution.moments import near
from crucible.plan.layouts import packed
from crucible.plan.planner import fuse
from crucible.plan.steps import Call, Fused, Part, Plan

Tensors = dict[str, torch.Tensor]
Array = np.ndarray[Any, Any]


def planned(module: nn.Module, *inputs: torch.Tensor) -> Plan:
    return fuse(trace(module, inputs, drops=True))


def fused_steps(plan: Plan) -> list[Fused]:
    return [step for step in plan.steps if isinstance(step, Fused)]


def check(module: nn.Module, *inputs: torch.Tensor, gradients: bool = True, unused: bool = False) -> Plan:
    """The plan, after it was found to compute what the module does, in float64, gradients included; `unused` says that
    some take no part."""
    plan = planned(module.float(), *(t.float() for t in inputs))
    module, inputs = module.double(), tuple(t.double().requires_grad_(gradients) for t in inputs)
    state = {**dict(module.named_parameters()), **{name: each.clone() for name, each in module.named_buffers()}}
    torch.manual_seed(3)
    expected = module(*inputs)
    outputs = expected if isinstance(expected, tuple) else (expected,)
    tensors = {value.name: t for value, t in zip(plan.graph.inputs, inputs, strict=True)}
    tensors |= {p.value.name: state[p.names[0]] for p in plan.graph.parameters}
    tensors |= {c.value.name: c.tensor.double() for c in plan.graph.constants}
    torch.manual_seed(3)
    found = run(plan, tensors)
    for one, other in zip(found, outputs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11)
    for parameter in plan.graph.parameters:
        after = module.get_buffer(parameter.names[0]) if parameter.is_buffer else state[parameter.names[0]]
        torch.testing.assert_close(tensors[parameter.value.name], after, rtol=1e-12, atol=1e-12)
    if gradients:
        cotangents = [torch.randn_like(each) for each in outputs]
        wanted = [t for t in (*inputs, *module.parameters()) if t.requires_grad]
        theirs = torch.autograd.grad(outputs, wanted, cotangents, retain_graph=True, allow_unused=unused)
        ours = torch.autograd.grad(found, wanted, cotangents, allow_unused=unused)
        for one, other, of in zip(ours, theirs, wanted, strict=True):
            pair = (torch.zeros_like(of) if each is None else each for each in (one, other))
            torch.testing.assert_close(*pair, rtol=1e-8, atol=1e-10)
    return plan


def run(plan: Plan, tensors: Tensors) -> list[torch.Tensor]:
    """The outputs, from inputs, parameters, buffers and constants by name; `tensors` has the new values of buffers
    then. Gradients flow through programs alone."""
    known = dict(tensors)
    for step in plan.steps:
        if isinstance(step, Call):  # what it makes lies as it comes
            known.update(zip(step.results, _call(step, known), strict=True))
            continue
        given = {name: _laid(known[name], plan.types[name].strides) for name in step.reads}
        names = (*step.readable, *step.measured, *step.updates.values())
        laid = [_laid(t, plan.types[n].strides) for n, t in zip(names, _fused(step, {**known, **given}), strict=True)]
        known.update(zip(names, laid, strict=True))
    tensors |= {name: known[name] for name in tensors} | {m.buffer: known[m.value] for m in plan.graph.mutations}
    return [known[name] for name in plan.graph.outputs]


def _call(step: Call, known: Tensors) -> list[torch.Tensor]:
    namespace, name, overload = step.operation.target.split(".")
    op = getattr(getattr(getattr(torch.ops, namespace), name), overload)
    given = {name: _given(argument, known) for name, argument in step.operation.args.items()}
    positional = [given.pop(a.name) for a in op._schema.arguments if not a.kwarg_only and a.name in given]
    found = op(*positional, **given)
    return list(found) if isinstance(found, tuple | list) else [found]


def _given(argument: Argument, known: Tensors) -> Any:
    if isinstance(argument, Ref):
        return known[argument.name]
    if isinstance(argument, tuple):
        return [_given(item, known) for item in argument]
    dtype = getattr(torch, argument, None) if isinstance(argument, str) else None
    if not isinstance(dtype, torch.dtype):
        return argument
    return torch.float64 if dtype.is_floating_point else dtype


class _Step(torch.autograd.Function):
    """A program with the gradient that the plan gives it."""

    @staticmethod
    def forward(ctx: Any, step: Fused, *given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        compute = step.compute
        assert isinstance(compute, Program)
        laid = {name: TensorType(t.shape, t.stride(), "float64") for name, t in zip(step.reads, given, strict=True)}
        storages = {
            name: _from(_storage(given[step.reads.index(held)]), step.parts.get(name), laid[held])
            for name, held in step.operands.items()
        }
        results = _evaluated(step, compute, storages)
        if step.joined:
            results[step.result] = _whole({step.parts[name]: results[name] for name in step.joined}, step.type)
        ctx.step, ctx.storages, ctx.shapes = step, {**storages, **results}, [(t.shape, t.stride()) for t in given]
        updates = [torch.from_numpy(results[name]) for name in step.updates]
        made = [
            torch.from_numpy(results[step.again.get(n, n)].copy()).as_strided(t.shape, t.strides)
            for n, t in step.readable.items()
        ]
        learns = step.is_copy or step.backward is not None
        ctx.mark_non_differentiable(*(updates if learns else (*made, *updates)))
        return *made, *updates

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        step: Fused = ctx.step
        if step.is_copy:
            return None, gradients[0]
        upstream = {}
        for (name, type_), gradient in zip(step.upstream.items(), gradients, strict=False):
            laid = torch.empty_strided(type_.shape, type_.strides, dtype=gradient.dtype).copy_(gradient)
            upstream[name] = _storage(laid)
        assert step.backward is not None
        upstream |= {
            f"grad_{name}": _from(upstream[f"grad_{step.result}"], step.parts[name], step.type) for name in step.joined
        }
        results = upstream | evaluate_program(step.backward, {**ctx.storages, **upstream})
        sums: list[torch.Tensor | None] = [None] * len(step.reads)
        whole = {step.operands[name] for name in step.wanted if name in step.parts}
        for held in whole:
            type_ = packed(TensorType(*map(tuple, ctx.shapes[step.reads.index(held)]), "float64"))
            mine = {step.parts[n]: results[f"grad_{n}"] for n, of in step.operands.items() if of == held}
            found = torch.from_numpy(_whole(mine, type_))
            sums[step.reads.index(held)] = found.as_strided(type_.shape, type_.strides)
        for name in (each for each in step.wanted if each not in step.parts):
            place = step.reads.index(step.operands[name])
            found = torch.zeros(ctx.shapes[place][0], dtype=torch.float64)
            source = step.passed.get(name, f"grad_{name}")
            if source.removeprefix("grad_") in step.joined:
                part = step.parts[source.removeprefix("grad_")]
                of = part.of(step.type)
                found = torch.from_numpy(results[source]).as_strided(of.shape, of.strides)
            elif source in results:
                given_type = TensorType(*map(tuple, ctx.shapes[place]), "float64")
                found = torch.from_numpy(results[source]).as_strided(given_type.shape, packed(given_type).strides)
            before = sums[place]
            sums[place] = found if before is None else before + found
        return None, *sums


def _evaluated(step: Fused, compute: Program, storages: dict[str, Array]) -> dict[str, Array]:
    """A program's results; of one that takes moments by these, and by elements in its rest alone."""
    if step.given is None:
        return evaluate_program(compute, storages)
    known = dict(storages)
    for each in without_elements(compute, step.given)[0]:
        known |= evaluate_program(each, known)
    return known


def _from(storage: Array, part: Part | None, whole: TensorType) -> Array:
    """A tensor in memory from where a part of it begins."""
    return storage if part is None else storage[part.begin(whole) :]


def _whole(parts: dict[Part, Array], whole: TensorType) -> Array:
    """Where parts were written into it."""
    storage = np.zeros(whole.elements)
    for part, made in parts.items():
        storage[part.begin(whole) :][: len(made)] += made
    return storage


def _fused(step: Fused, known: Tensors) -> list[torch.Tensor]:
    """The step's result, then its updates."""
    if isinstance(step.compute, Convolution):
        made = _convolution(step, step.compute, known)
        return [made, *_moments(step, step.compute, known, made)]
    if isinstance(step.compute, ReducingConvolution):
        return [_reducing(step, step.compute, known)]
    if isinstance(step.compute, Product):
        return [_matrices(step, step.compute, known)]
    if not isinstance(step.compute, Pool):
        return list(_Step.apply(step, *(known[name] for name in step.reads)))
    storages = {name: _storage(known[held]) for name, held in step.operands.items()}
    if step.statistics is not None:
        storages |= evaluate_program(step.statistics, storages)
    pooled = _pool(step.compute, storages).reshape(step.type.shape)
    return [pooled, *(torch.from_numpy(storages[name]) for name in step.updates)]


def _matrices(step: Fused, compute: Product, known: Tensors) -> torch.Tensor:
    laid = [(compute.left, compute.left_shape), (compute.right, compute.right_shape)]
    left, right = (known[step.operands[each.name]].as_strided(shape, each.strides) for each, shape in laid)
    return torch.einsum("bik,bjk->bij", left, right).reshape(step.type.shape)


def _reducing(step: Fused, compute: ReducingConvolution, known: Tensors) -> torch.Tensor:
    product = _product(step, compute.conv, known)
    storages = {operand.name: _storage(known[step.operands[operand.name]]) for operand in compute.operands}
    results = evaluate_program(compute.program, {PRODUCT: product.reshape(-1), **storages})
    return torch.from_numpy(results[step.result]).as_strided(step.type.shape, step.type.strides)


def _seen(step: Fused, conv: Convolution, operand: Operand, known: Tensors) -> np.ndarray[Any, Any]:
    storage = _storage(known[step.operands[operand.name]])
    strides = tuple(stride * storage.itemsize for stride in operand.strides)
    return np.lib.stride_tricks.as_strided(storage, conv.space(operand), strides)


def _product(step: Fused, conv: Convolution, known: Tensors) -> np.ndarray[Any, Any]:
    x, weight = (torch.from_numpy(_seen(step, conv, each, known).copy()) for each in (conv.source, conv.weight))
    if conv.front is not None:
        x = torch.from_numpy(evaluate(conv.front, {name_of(GIVEN): x.numpy()}))
    return correlated(conv.correlation, x, weight).numpy()


def _convolution(step: Fused, conv: Convolution, known: Tensors) -> torch.Tensor:
    product = _product(step, conv, known)
    (result,) = conv.results
    values = {o.name: _seen(step, conv, o, known) for o in conv.operands}
    left = product if conv.pool is None else _left(conv.pool, product, values)
    value = evaluate(result.expr, {PRODUCT: left, **values})
    made = torch.empty(step.type.elements, dtype=torch.float64)
    made.as_strided(conv.made_shape, result.strides).copy_(torch.from_numpy(np.asarray(value)))
    return made.as_strided(step.type.shape, step.type.strides)


def _moments(step: Fused, conv: Convolution, known: Tensors, made: torch.Tensor) -> list[torch.Tensor]:
    """What it takes of its result."""
    if not isinstance(step.aside, Moments):
        return []
    program = near(conv, step.aside)
    storages = {each.name: _storage(known[step.operands[each.name]]) for each in program.operands}
    around = torch.from_numpy(evaluate_program(program, storages)[step.aside.names[0]])
    space = tuple(range(2, made.dim()))
    off = made.detach() - around.reshape(-1, *(1 for _ in space))
    return [around, off.sum(space), off.square().sum(space)][: len(step.aside.names)]


def _left(pool: Windows, product: Array, values: dict[str, Array]) -> Array:
    """What a pool leaves of each window of a product."""
    shape = pool.outputs(product.shape)
    inside = product[tuple(slice(0, n * size) for n, size in zip(shape, (1, 1, *pool.sizes), strict=True))]
    split = inside.reshape(*shape[:2], *itertools.chain(*zip(shape[2:], pool.sizes, strict=True)))
    rank = len(pool.sizes)
    order = [0, 1, *(2 + 2 * d for d in range(rank)), *(3 + 2 * d for d in range(rank))]
    elements = split.transpose(order).reshape(*shape, -1)
    if pool.kind == "avg":
        return np.asarray(elements.mean(-1))
    compared = evaluate(pool.before, {PRODUCT: elements, **{name: each[..., None] for name, each in values.items()}})
    return np.take_along_axis(elements, np.asarray(compared).argmax(-1)[..., None], -1)[..., 0]


def correlated(of: Correlation, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """A correlation, tap by tap: each at all the positions where it lies inside."""
    of = of.apart
    out = torch.zeros(of.out_shape, dtype=x.dtype)
    group, made, read = of.weight_strides
    for g, product in itertools.product(range(of.groups), of.products):
        taps = weight.reshape(-1).as_strided(
            (of.out_channels, of.in_channels), (made, read), g * group + product.weight
        )
        phase = np.unravel_index(product.phase, of.phases)
        at, to = [], []
        for axis, s, p, phases in zip(of.axes, product.shift, map(int, phase), of.phases, strict=True):
            steps = [q for q in range(axis.steps) if 0 <= q * axis.in_stride + s < axis.extent]
            steps = [q for q in steps if q * phases + p < axis.outputs]
            at.append([q * axis.in_stride + s for q in steps])
            to.append([q * phases + p for q in steps])
        given = x[:, g * of.in_channels : (g + 1) * of.in_channels]
        made_here = out[:, g * of.out_channels : (g + 1) * of.out_channels]
        found = torch.einsum("bi...,oi->bo...", given[(..., *np.ix_(*at))], taps)
        made_here[(..., *np.ix_(*to))] += found
    return out


def _laid(tensor: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
    """In the order that the plan expects, which PyTorch's convolutions in double precision on the CPU do not keep; and
    a view that kernels get a copy of."""
    if tensor.stride() == strides and not tensor.storage_offset():
        return tensor
    return torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype).copy_(tensor)


def _pool(pool: Pool, storages: dict[str, np.ndarray[Any, Any]]) -> torch.Tensor:
    def seen(operand: Operand, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        storage = storages[operand.name]
        strides = tuple(stride * storage.itemsize for stride in operand.strides)
        return np.lib.stride_tricks.as_strided(storage, shape, strides)

    inside = torch.from_numpy(
        np.broadcast_to(
            evaluate(pool.before, {o.name: seen(o, pool.input_shape) for o in pool.operands}), pool.input_shape
        ).copy()
    )
    pooled = _windows(pool, inside.reshape(1, -1, *pool.input_shape[len(pool.outer) :]))
    shape = (*pool.outer, *(w.outputs for w in pool.windows))
    after = {o.name: seen(o, shape) for o in pool.after_operands}
    value = evaluate(pool.result.expr, {**after, POOLED: pooled.reshape(shape).numpy()})
    return torch.empty_strided(shape, pool.result.strides, dtype=torch.float64).copy_(torch.from_numpy(value))


def _windows(pool: Pool, x: torch.Tensor) -> torch.Tensor:
    rank = len(pool.windows)
    sizes = [w.size for w in pool.windows]
    options: dict[str, Any] = {"stride": [w.stride for w in pool.windows], "padding": [w.padding for w in pool.windows]}
    if any(w.adaptive for w in pool.windows):
        kind = getattr(F, f"adaptive_{pool.kind}_pool{rank}d")
        return kind(x, [w.outputs for w in pool.windows])  # type: ignore[no-any-return]
    options["ceil_mode"] = any(w.over_end for w in pool.windows)
    if pool.kind == "max":
        options["dilation"] = [w.dilation for w in pool.windows]
    else:
        options["count_include_pad"] = pool.count_include_pad
        options |= {"divisor_override": pool.divisor} if rank > 1 else {}
    found = getattr(F, f"{pool.kind}_pool{rank}d")(x, sizes, **options)
    return found[(..., *(slice(w.outputs) for w in pool.windows))]  # type: ignore[no-any-return]


def _storage(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    plain = tensor.detach()
    return plain.as_strided((plain.untyped_storage().nbytes() // 8,), (1,), 0).numpy()
