"""Each call of torch.export's becomes an Operation that writes to nothing, or a mere alias, or is refused."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch._ops import HigherOrderOperator, OpOverload
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.export import ExportedProgram

from crucible.capture import schema
from crucible.capture.autocast import RECURRENT, casts
from crucible.capture.exporting import NO_NUMBERS
from crucible.capture.lines import line_in, refusal
from crucible.capture.names import kind_of, layer_name
from crucible.capture.values import Environment, Number, leaves, mapped, tensor_type
from crucible.capture.writing import Writes
from crucible.graph import Argument, Constant, Operation, Ref
from crucible.products import tensors_in
from crucible.work import count

_CHECKS = frozenset({"_assert_tensor_metadata", "_assert_scalar", "_assert_async", "sym_constrain_range"})
_LIFTS = frozenset({"lift", "lift_fresh", "lift_fresh_copy", "detach", "detach_"})
"""Operations on a tensor that forward wrote down which leave it what it is."""
_LOOSE = RECURRENT | {"scaled_dot_product_attention"}
"""Operations whose results lie as the device's kernel has them: in batch, heads, places or in batch, places, heads."""
_PRODUCTS = frozenset({"linear", "matmul", "mm", "bmm", "addmm", "baddbmm"})
"""Operations that lay their results in one way, whatever the layout of what they are given."""


class Operations:
    """The operations of a graph, in their order."""

    def __init__(
        self, values: Environment, program: ExportedProgram, *, drops: bool = False, autocast: Mapping[str, torch.dtype]
    ) -> None:
        """`autocast` is what is on around forward."""
        self.values = values
        self._autocast = autocast
        self._cast: dict[tuple[str, torch.dtype], Ref] = {}
        """Values that were cast: once, as eager keeps a parameter's."""
        self._drops = drops
        self.done: list[Operation] = []
        self.constants: list[Constant] = []
        """Numbers that had to stay tensors."""
        places = {node: place for place, node in enumerate(_in_order(program.graph_module))}
        self._writes = Writes(values, self._call, self.done, places)
        self._mode = _fake_mode(program)
        self._loose: set[str] = set()
        """Values that may lie otherwise on another device: what attention or a recurrent layer makes, and what follows
        its layout. Where one of these is made contiguous, that is no mere alias, whatever it is on this device."""

    def take(self, node: fx.Node) -> None:
        """One call. Raises CaptureError."""
        func, where = node.target, line_in(node.meta)
        if func is operator.getitem:
            whole, place = node.args
            self.values.bind(node, self.values.of(whole)[place])  # type: ignore[arg-type]
            return
        if isinstance(func, HigherOrderOperator):
            self._take_block(node, func.name(), where)
            return
        if not isinstance(func, OpOverload):
            raise refusal(where, "it computes with numbers taken from tensors", NO_NUMBERS)
        name = func._schema.name.partition("::")[2]
        if name in _CHECKS:
            return
        given = schema.named(func, node.args, node.kwargs)
        _check_results(node, func, where)
        if schema.is_random(func, given) and not self._drops:
            raise refusal(
                where, f"{func} draws random numbers", "Call eval() on the module, set p=0, or make it an input"
            )
        source = node.args[0] if node.args else next(iter(given.values()), None)
        if name in _LIFTS and isinstance(source, fx.Node) and self._is_constant(source):
            self.values.bind(node, self.values.of(source))
        elif schema.written(func):
            base = self.value_of(source) if isinstance(source, fx.Node) else None
            self.values.bind(node, self._writes.write(node, func, given, base, where))
        else:
            self.values.bind(node, self._call(node, func, self._as_autocast(node, func, given, where), where))

    @property
    def written(self) -> Mapping[str, str]:
        """The newest value of each buffer that forward wrote to."""
        return self._writes.buffers

    def value_of(self, node: fx.Node) -> str | None:
        """The name of the tensor that a node is; None if it is none."""
        bound = self.values.of(node)
        bound = self._constant(node, bound) if isinstance(bound, Number) else bound
        return bound if isinstance(bound, str) else None

    def check(self) -> None:
        """Running statistics that change in passing must be read by nothing else. Raises CaptureError."""
        changed = {name for operation in self.done for name in operation.mutates}
        for operation in self.done:
            for name in changed & (set(operation.inputs) - set(operation.mutates)):
                raise refusal(
                    operation.where,
                    f"it reads {name}, which batch norm changes in the same call",
                    "Read running statistics in eval mode alone",
                )

    def _call(self, node: fx.Node, func: OpOverload, given: dict[str, Any], where: str, name: str = "") -> Any:
        """What an operation that writes to nothing gives: names, or that of the operand which it returns."""
        args, result, flops, bytes_moved = self._run(node, func, given)
        kind = kind_of(func._schema.name.partition("::")[2], func._overloadname)
        read = [arg.name for arg in leaves(tuple(args.values())) if isinstance(arg, Ref)]
        lies_as_it_comes = kind == "detach" or (kind == "contiguous" and not self._loose.isdisjoint(read))
        same = self.values.same(result, read) if isinstance(result, torch.Tensor) and not lies_as_it_comes else None
        if same is not None:
            return same
        wanted = name or layer_name(node.meta.get("nn_module_stack")) or kind
        tensors = list(tensors_in(result))
        wanted_names = schema.output_names(func, len(tensors), wanted)
        outputs = tuple(
            self.values.add(word, fake, "intermediate") for word, fake in zip(wanted_names, tensors, strict=True)
        )
        if kind in _LOOSE or not (self._loose.isdisjoint(read) or kind in _PRODUCTS or kind == "contiguous"):
            self._loose |= {output.name for output in outputs}
        self.done.append(
            Operation(
                name=outputs[0].name,
                kind=kind,
                target=str(func),
                args=args,
                outputs=outputs,
                where=where,
                flops=flops,
                bytes_moved=bytes_moved,
                mutates=self._passing(kind, args, where),
                draws=schema.is_random(func, given),
            )
        )
        names = iter(output.name for output in outputs)
        return mapped(_tuples(result), lambda item: next(names) if isinstance(item, torch.Tensor) else None)

    def _take_block(self, node: fx.Node, name: str, where: str) -> None:
        """A part of forward that became a graph of its own: under autocast, without gradients, or one that computes
        nothing."""
        if name == "wrap_with_autocast":
            self._take_autocast(node, where)
        elif name == "wrap_with_set_grad_enabled" and not node.args[0]:
            self._take_without_gradients(node, where)
        else:
            _check_block(node, name, where)

    def _take_autocast(self, node: fx.Node, where: str) -> None:
        kind, dtype, enabled, _, part, *given = list[Any](node.args)
        module = _module(part)
        if not {each.meta["val"].device.type for each in given if isinstance(each, fx.Node)} <= {kind}:
            reason = f"torch.autocast({kind!r}) is for other tensors than these here"
            raise refusal(_first_line(module) or where, reason, "Cast with .to(dtype) instead")
        before, others = self._autocast, {each: on for each, on in self._autocast.items() if each != kind}
        self._autocast = {**others, kind: dtype or torch.get_autocast_dtype(kind)} if enabled else others
        self._take_all(node, module, [self._bound(each) for each in given])
        self._autocast = before

    def _take_without_gradients(self, node: fx.Node, where: str) -> None:
        """Its operands are detached, so that nothing inside learns. It returns none of them: who reads one later reads
        what it was."""
        _, part, *given = list[Any](node.args)
        module = _module(part)
        where = _first_line(module) or where
        self._writes.learning = frozenset(self.values.fakes)
        self._take_all(node, module, [self._detached(node, self._bound(each), where) for each in given])
        self._writes.learning = frozenset()

    def _detached(self, node: fx.Node, operand: Any, where: str) -> Any:
        """An operand that nothing learns through; of buffers nobody does, as long as nothing was written to them."""
        if not isinstance(operand, str) or not self.values.fakes[operand].is_floating_point():
            return operand
        if self.values.roles[operand] in ("buffer", "constant") and operand not in self.written.values():
            return operand
        detach = torch.ops.aten.detach.default
        return self._call(node, detach, schema.named(detach, (Ref(operand),), {}), where)

    def _take_all(self, node: fx.Node, module: fx.GraphModule, operands: Sequence[Any]) -> None:
        """The operations of a graph inside, in the stead of the node that calls it."""
        places = iter(operands)
        for inner in module.graph.nodes:
            if inner.op == "placeholder":
                self.values.bind(inner, next(places))
            elif inner.op == "call_function":
                self.take(inner)
            elif inner.op == "output":
                self.values.bind(node, mapped(_tuples(inner.args[0]), self._bound))

    def _bound(self, item: Any) -> Any:
        return self.values.of(item) if isinstance(item, fx.Node) else item

    def _as_autocast(self, node: fx.Node, func: OpOverload, given: dict[str, Any], where: str) -> dict[str, Any]:
        """The arguments, cast as autocast does."""
        if not self._autocast:
            return given
        with self._mode:
            found = casts(func, {name: mapped(value, self._operand) for name, value in given.items()}, self._autocast)
        if found is None:
            raise refusal(where, f"autocast makes of {func} what casts of its operands do not", "Cast with .to(dtype)")
        return found.applied(given, lambda item, dtype: self._as(node, item, dtype, where))

    def _as(self, node: fx.Node, item: Any, dtype: torch.dtype, where: str) -> Ref:
        """A value in another dtype."""
        key, cast = (str(self.value_of(item)), dtype), torch.ops.aten.to.dtype
        if key not in self._cast:
            given = schema.named(cast, (Ref(key[0]), dtype), {})
            self._cast[key] = Ref(str(self._call(node, cast, given, where, name=key[0])))
        return self._cast[key]

    def _passing(self, kind: str, args: dict[str, Argument], where: str) -> tuple[str, ...]:
        names = [args[name] for name in schema.passing(kind, args)]
        for ref in names:
            if not isinstance(ref, Ref) or self.values.roles[ref.name] != "buffer" or ref.name in self.written.values():
                raise refusal(where, f"{kind} changes running statistics that are no buffers", "Register them as such")
        return tuple(ref.name for ref in names if isinstance(ref, Ref))

    def _run(self, node: fx.Node, func: OpOverload, given: dict[str, Any]) -> tuple[dict[str, Argument], Any, int, int]:
        """Arguments as the graph has them, the result as fake tensors, and the work; constants as numbers if that
        changes nothing."""
        bound = [self.values.of(arg) for value in given.values() for arg in leaves(value) if isinstance(arg, fx.Node)]
        if any(isinstance(item, Number) for item in bound) and not all(isinstance(item, Number) for item in bound):
            try:
                done = self._run_with(func, given, numbers=True)
            except (RuntimeError, TypeError):
                pass
            else:
                if isinstance(done[1], torch.Tensor) and tensor_type(done[1]) == tensor_type(node.meta["val"]):
                    return done
        return self._run_with(func, given, numbers=False)

    def _run_with(
        self, func: OpOverload, given: dict[str, Any], *, numbers: bool
    ) -> tuple[dict[str, Argument], Any, int, int]:
        args = {name: self._argument(value, numbers=numbers) for name, value in given.items()}
        fakes = {name: mapped(value, lambda item: self._fake(item, numbers=numbers)) for name, value in given.items()}
        positional, by_name = schema.split(func, fakes)
        results: list[Any] = []

        def run() -> list[torch.Tensor]:
            results.append(func(*positional, **by_name))
            return list(tensors_in(results))

        with self._mode, torch.no_grad():
            (work,) = count(run, list(tensors_in(list(fakes.values()))))
        return args, results[0], work.matrix_flops or work.other_flops, work.bytes_moved

    def _operand(self, item: Any) -> Any:
        """As a fake tensor, if it is one; what may stay a number does."""
        if not isinstance(item, fx.Node):
            return item
        bound = self.values.of(item)
        return bound.fake if isinstance(bound, Number) else self.values.fakes.get(bound)

    def _argument(self, value: Any, *, numbers: bool) -> Argument:
        if isinstance(value, tuple | list):
            return tuple(self._argument(item, numbers=numbers) for item in value)
        if isinstance(value, fx.Node):
            bound = self.values.of(value)
            return bound.value if isinstance(bound, Number) and numbers else Ref(str(self.value_of(value)))
        if isinstance(value, Ref):
            return value
        if isinstance(value, torch.dtype | torch.layout | torch.memory_format):
            return str(value).removeprefix("torch.")
        return value if value is None or isinstance(value, bool | int | float) else str(value)

    def _fake(self, value: Any, *, numbers: bool) -> Any:
        if isinstance(value, Ref):
            return self.values.fakes[value.name]
        if not isinstance(value, fx.Node):
            return value
        bound = self.values.of(value)
        return bound.value if isinstance(bound, Number) and numbers else self.values.fakes[str(self.value_of(value))]

    def _constant(self, node: fx.Node, number: Number) -> str:
        """A number as the tensor that it was."""
        value = self.values.add("constant", number.fake, "constant")
        self.constants.append(Constant(value, "", number.tensor))
        self.values.bind(node, value.name)
        return value.name

    def _is_constant(self, node: fx.Node) -> bool:
        bound = self.values.of(node)
        return isinstance(bound, Number) or (isinstance(bound, str) and self.values.roles[bound] == "constant")


def _check_results(node: fx.Node, func: OpOverload, where: str) -> None:
    """All tensors, of known sizes."""
    for result in leaves(node.meta.get("val")):
        if not isinstance(result, torch.Tensor):
            raise refusal(where, f"{func} takes a number out of a tensor", NO_NUMBERS)
        if not all(isinstance(size, int) for size in result.shape):
            raise refusal(where, f"the shape that {func} gives depends on values in a tensor", NO_NUMBERS)


def _check_block(node: fx.Node, name: str, where: str) -> None:
    """A part of forward that became a graph of its own may compute nothing."""
    parts = _parts(node)
    if not parts or any(_calls(part) for part in parts):
        lines = [line for part in parts if (line := _first_line(part))]
        reason = f"{name} runs a part of forward under conditions of its own"
        raise refusal(lines[0] if lines else where, reason, NO_NUMBERS)


def _parts(node: fx.Node) -> list[fx.GraphModule]:
    """The graphs that a call is given, beside which there may be others of a module's attributes."""
    attributes = [arg for arg in node.args if isinstance(arg, fx.Node) and arg.op == "get_attr"]
    return [module for each in attributes if isinstance(module := _module(each), fx.GraphModule)]


def _module(part: Any) -> fx.GraphModule:
    """The graph that a node stands for."""
    found: fx.GraphModule = getattr(part.graph.owning_module, str(part.target))
    return found


def _calls(module: fx.GraphModule) -> list[fx.Node]:
    return [node for node in module.graph.nodes if node.op == "call_function"]


def _first_line(module: fx.GraphModule) -> str:
    """Of the user's, that computes in it; empty where none is known."""
    return next((line for node in _calls(module) if (line := line_in(node.meta))), "")


def _in_order(module: fx.GraphModule) -> Iterator[fx.Node]:
    """All nodes, those of parts behind the node that calls them."""
    for node in module.graph.nodes:
        yield node
        for part in _parts(node) if node.op == "call_function" else ():
            yield from _in_order(part)


def _fake_mode(program: ExportedProgram) -> FakeTensorMode:
    """The mode that torch.export's fake tensors belong to."""
    fakes = (node.meta.get("val") for node in program.graph.nodes)
    return next(fake.fake_mode for fake in fakes if isinstance(fake, FakeTensor))


def _tuples(nested: Any) -> Any:
    """Lists as tuples."""
    return tuple(_tuples(item) for item in nested) if isinstance(nested, tuple | list) else nested
