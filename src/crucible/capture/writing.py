"""Operations in place as ones that are not: who reads the value later reads the new one.

A write to a part of a tensor (`y[:, 0] = x`) makes the whole anew with that part in it, and each other view of it that
is read later.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import fx
from torch._ops import OpOverload

from crucible.capture import schema
from crucible.capture.lines import refusal
from crucible.capture.values import Environment, Role
from crucible.graph import Operation, Ref

_RESIZES = frozenset({"resize_", "resize_as_", "set_", "as_strided_"})
_OUT_OF_PLACE = "Use the operation that returns a new tensor"
_OUTSIDE: Mapping[Role, str] = {
    "input": "the input", "parameter": "the parameter", "attribute": "the attribute", "buffer": "the buffer",
}  # fmt: skip
_aten: Any = torch.ops.aten


class Caller(Protocol):
    """Adds an operation for a node: what it gives, and a name wanted."""

    def __call__(self, node: fx.Node, func: OpOverload, given: dict[str, Any], where: str, name: str = "") -> Any: ...


class Writes:
    """What forward wrote to, so far."""

    def __init__(self, values: Environment, call: Caller, done: list[Operation], places: Mapping[fx.Node, int]) -> None:
        """`places` are those of nodes in their order."""
        self._values, self._call, self._done, self._places = values, call, done, places
        self.buffers: dict[str, str] = {}
        """The newest value of each buffer that was written to."""
        self.learning: frozenset[str] = frozenset()
        """Where gradients are off: the values that there were before."""

    def write(self, node: fx.Node, func: OpOverload, given: dict[str, Any], base: str | None, where: str) -> str:
        """The new value of what is written to. Raises CaptureError."""
        twin = schema.functional(func)
        if base is None or twin is None or str(func._schema.name).partition("::")[2] in _RESIZES:
            raise refusal(where, f"{func} writes to a tensor that it is given", _OUT_OF_PLACE)
        shared = self._values.sharing(base)
        only_sees = torch.Tag.inplace_view in func.tags
        self._check(func, base, shared, where, only_sees=only_sees)
        given = dict(zip((argument.name for argument in twin._schema.arguments), given.values(), strict=True))
        name = self._buffer_name(base) if self._values.roles[base] == "buffer" else ""
        if only_sees:
            seen: str = self._call(node, twin, given, where, name=name)
            self._renew(base, seen)
            return seen
        if twin is _aten.copy.default:
            new = self._copied(node, base, given["src"], where, name)
        else:
            new = self._as_before(node, base, self._call(node, twin, given, where, name=name), where)
        stale = [other for other in shared if self._is_read(other, node)]
        renewed = self._renewed(node, func, base, new, stale, where) if stale else {base: new}
        for old, value in renewed.items():
            self._renew(old, value)
        return renewed[base]

    def _copied(self, node: fx.Node, base: str, source: Any, where: str, name: str) -> str:
        """A tensor that is written over, which has no formula in autograd out of place: it lies as before."""
        fake = self._values.fakes[base]
        made = self._made(node, _aten.to.dtype, (source, fake.dtype), where)
        made = self._made(node, _aten.expand.default, (Ref(made), list(fake.shape)), where)
        if fake.is_contiguous():
            alone = {"memory_format": torch.contiguous_format}
            return self._made(node, _aten.clone.default, (Ref(made),), where, name, alone)
        put = _within(0, None, None)
        return self._made(node, put.func, put.given(Ref(base), Ref(made)), where, name)

    def _made(
        self,
        node: fx.Node,
        func: OpOverload,
        args: tuple[Any, ...],
        where: str,
        name: str = "",
        by_name: Mapping[str, Any] | None = None,
    ) -> str:
        return str(self._call(node, func, schema.named(func, args, dict(by_name or {})), where, name=name))

    def _renew(self, old: str, new: str) -> None:
        if new == old:
            return
        if self._values.roles[old] == "buffer":
            self.buffers[self._buffer_name(old)] = new
            self._values.roles[new] = "buffer"
        self._values.replace(old, new)

    def _buffer_name(self, name: str) -> str:
        """The buffer of which this is the value, by its first value's name."""
        return next((buffer for buffer, newest in self.buffers.items() if newest == name), name)

    def _as_before(self, node: fx.Node, base: str, new: str, where: str) -> str:
        """A write in place keeps the dtype, whatever was added."""
        dtype = self._values.fakes[base].dtype
        if self._values.fakes[new].dtype == dtype:
            return new
        return self._made(node, _aten.to.dtype, (Ref(new), dtype), where)

    def _check(self, func: OpOverload, base: str, shared: list[str], where: str, *, only_sees: bool) -> None:
        roles = self._values.roles
        role = roles[base]
        if role in ("input", "parameter", "attribute") or (only_sees and role == "buffer"):
            raise refusal(where, f"{func} writes to {_OUTSIDE[role]} {base}", _OUT_OF_PLACE)
        for other in shared if not only_sees else ():
            if roles[other] in ("input", "parameter", "attribute"):
                reason = f"{func} writes to a view of {_OUTSIDE[roles[other]]} {other}"
                raise refusal(where, reason, _OUT_OF_PLACE)
        all_of_it = {base, *shared}
        of_buffer = any(roles[each] == "buffer" and each not in self.buffers.values() for each in all_of_it)
        if not of_buffer and not self.learning.isdisjoint(all_of_it):
            raise refusal(where, f"{func} writes without gradients to what has some", _OUT_OF_PLACE)

    def _is_read(self, name: str, node: fx.Node) -> bool:
        """Later than by a node; a buffer is by the next call."""
        if self._values.roles[name] == "buffer":
            return True
        users = (user for other in self._values.nodes_of(name) for user in other.users)
        return any(self._places[user] > self._places[node] for user in users)

    def _renewed(
        self, node: fx.Node, func: OpOverload, base: str, new: str, stale: list[str], where: str
    ) -> dict[str, str]:
        """The new values of the tensor that another is part of, and of all parts of it that are read: views of it, as
        they were, so that the next write to one of them is seen by the others too."""
        makers = {output.name: each for each in self._done for output in each.outputs}
        shared = {base, *self._values.sharing(base)}
        part, value = base, new
        while (whole := _whole(makers.get(part), shared)) is not None:
            put = _putting(makers[part], part, self._values.fakes[whole])
            if put is None:
                reason = f"{func} writes to memory that {whole} shares, which is read later"
                raise refusal(where, reason, _OUT_OF_PLACE)
            name = self._buffer_name(whole) if self._values.roles[whole] == "buffer" else ""
            part, value = whole, self._made(node, put.func, put.given(Ref(whole), Ref(value)), where, name)
        renewed = {part: value}
        for each in (base, *stale):
            self._see_again(node, each, makers, renewed, where)
        return renewed

    def _see_again(
        self, node: fx.Node, name: str, makers: Mapping[str, Operation], renewed: dict[str, str], where: str
    ) -> str:
        """A view's new value, of what it is a view of."""
        if name not in renewed:
            maker = makers[name]
            whole = str(maker.inputs[0])
            args = {**maker.args, "self": Ref(self._see_again(node, whole, makers, renewed, where))}
            made = self._call(node, _overload(maker), args, where)
            names = [made] if isinstance(made, str) else made
            renewed |= {output.name: each for output, each in zip(maker.outputs, names, strict=True)}
        return renewed[name]


@dataclass(frozen=True)
class _Putting:
    """What makes a tensor anew with a part in it."""

    func: OpOverload
    given: Callable[[Ref, Ref], tuple[Any, ...]]
    """Its arguments, of the tensor and the part."""


def _whole(maker: Operation | None, shared: Container[str]) -> str | None:
    """Of what an operation gives a view; None for what has memory of its own."""
    source = maker.args.get("self") if maker else None
    return source.name if isinstance(source, Ref) and source.name in shared else None


def _putting(view: Operation, part: str, whole: torch.Tensor) -> _Putting | None:
    """How what a view gives is put back; None for views of which that is not known."""
    args: Any = view.args
    place = [output.name for output in view.outputs].index(part)
    sizes = [output.tensor.shape for output in view.outputs]
    match view.kind:
        case "select":
            return _at(args["dim"], args["index"])
        case "unbind":
            return _at(args["dim"], place)
        case "slice":
            return _within(args["dim"], args["start"], args["end"], args["step"])
        case "narrow":
            return _within(args["dim"], args["start"], args["start"] + args["length"])
        case "split" | "split_with_sizes" | "chunk":
            ends = [0, *itertools.accumulate(size[args["dim"]] for size in sizes)]
            return _within(args["dim"], ends[place], ends[place + 1])
        case "transpose":
            return _Putting(_aten.transpose.int, lambda _, new: (new, args["dim0"], args["dim1"]))
        case "permute":
            dims = [dim % whole.dim() for dim in args["dims"]]
            return _Putting(_aten.permute.default, lambda _, new: (new, [dims.index(dim) for dim in range(len(dims))]))
        case "view" | "reshape" | "flatten" | "unflatten" | "squeeze" | "unsqueeze":
            return _Putting(_aten.reshape.default, lambda _, new: (new, list(whole.shape)))
        case _:
            return None


def _at(dim: int, index: int) -> _Putting:
    return _Putting(_aten.select_scatter.default, lambda whole, new: (whole, new, dim, index))


def _within(dim: int, start: int | None, end: int | None, step: int = 1) -> _Putting:
    return _Putting(_aten.slice_scatter.default, lambda whole, new: (whole, new, dim, start, end, step))


def _overload(operation: Operation) -> OpOverload:
    namespace, name, overload = operation.target.split(".")
    found: OpOverload = getattr(getattr(getattr(torch.ops, namespace), name), overload)
    return found
