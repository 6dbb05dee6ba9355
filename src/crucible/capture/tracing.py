"""From what torch.export gives to a Graph: every value named once, nothing in place, nothing without effect."""

from __future__ import annotations

import dataclasses
import sys
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import fx, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, InputSpec
from torch.utils import _pytree as pytree

from crucible.capture.autocast import around, autocast
from crucible.capture.exporting import RETURNABLE, export
from crucible.capture.lines import refusal
from crucible.capture.mapping import unmap
from crucible.capture.operations import Operations
from crucible.capture.values import Environment, Number
from crucible.errors import CaptureError
from crucible.graph import Constant, Fixed, Graph, Instance, Mutation, Operation, Parameter, Ref, Value


def trace(module: nn.Module, inputs: Sequence[Any], *, drops: bool = False) -> Graph:
    """What `module(*inputs)` computes, in the mode (train or eval) that the module is in.

    `inputs` are tensors, of which only shape, strides, dtype and device matter (`meta` and fake ones will do), or
    numbers and None, on which the graph then depends. Nothing is computed, module and inputs stay as they are. With
    `drops` dropout in training, and whatever else draws random numbers, is in the graph: PyTorch draws the same for a
    seed then as in eager.

    Raises CaptureError, which names the user's line, for whatever depends on values in tensors, writes to inputs,
    parameters or shared views, draws random numbers without `drops`, replaces gradients (`autograd.Function`), takes
    or returns other things than tensors. What autocast casts, around this call or in forward, is cast in the graph;
    what is computed under `torch.no_grad` learns nothing in it, and what `torch.vmap` maps is computed at once.
    """
    program = export(module, inputs)
    unmap(program.graph_module)
    outside = _Outside(module, program)
    operations = Operations(outside.values, program, drops=drops, autocast=around())
    with autocast({}):
        for node in program.graph.nodes:
            if node.op == "placeholder":
                outside.take(node)
            elif node.op == "call_function":
                operations.take(node)
    operations.check()
    outputs, structure = _outputs(program, operations)
    live = _live(operations.done, {*outputs, *operations.written.values()})
    read = {*outputs, *(name for operation in live for name in operation.inputs)}
    return Graph(
        inputs=tuple(outside.inputs),
        arguments=tuple(outside.arguments),
        parameters=tuple(outside.parameters.values()),
        constants=tuple(c for c in (*outside.constants, *operations.constants) if c.value.name in read),
        operations=live,
        outputs=outputs,
        structure=structure,
        mutations=tuple(Mutation(buffer, value) for buffer, value in operations.written.items()),
        training=module.training,
    )


class _Outside:
    """What comes from outside of forward."""

    def __init__(self, module: nn.Module, program: ExportedProgram) -> None:
        self.values = Environment()
        self.inputs: list[Value] = []
        self.arguments: list[Ref | Any] = []
        self.parameters: dict[Any, Parameter] = {}
        """By their place in memory: tied ones are one."""
        self.constants: list[Constant] = []
        self._module, self._program = module, program
        self._specs = iter(program.graph_signature.input_specs)

    def take(self, node: fx.Node) -> None:
        spec = next(self._specs)
        match spec.kind:
            case InputKind.USER_INPUT:
                self._input(node, spec)
            case InputKind.PARAMETER | InputKind.BUFFER:
                self._state(node, str(spec.target), is_buffer=spec.kind is InputKind.BUFFER)
            case InputKind.CONSTANT_TENSOR:
                self._constant(node, str(spec.target))
            case kind:
                raise CaptureError(f"{spec.target}: forward uses a {kind.name.lower()}, which no graph can hold")

    def _input(self, node: fx.Node, spec: InputSpec) -> None:
        if isinstance(spec.arg, ConstantArgument):
            self.arguments.append(spec.arg.value)
            return
        value = self.values.add(node.name, node.meta["val"], "input")
        self.inputs.append(value)
        self.arguments.append(Ref(value.name))
        self.values.bind(node, value.name)

    def _state(self, node: fx.Node, name: str, *, is_buffer: bool) -> None:
        tensor = self._module.get_buffer(name) if is_buffer else self._module.get_parameter(name)
        place = (tensor.untyped_storage()._cdata, tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype)
        known = self.parameters.get(place)
        if known is None:
            value = self.values.add(name.replace(".", "_"), node.meta["val"], "buffer" if is_buffer else "parameter")
            known = Parameter(value, (), tensor.requires_grad, is_buffer)
        self.parameters[place] = Parameter(known.value, (*known.names, name), known.trainable, known.is_buffer)
        self.values.bind(node, known.value.name)

    def _constant(self, node: fx.Node, target: str) -> None:
        tensor, fake = self._program.constants[target], node.meta["val"]
        if not tensor.dim() and tensor.device.type != "meta" and not isinstance(tensor, FakeTensor):
            self.values.bind(node, Number(tensor.item(), tensor, fake))
            return
        attribute = target if _has(self._module, target) else ""
        value = self.values.add(
            target.replace(".", "_") if attribute else "constant", fake, "attribute" if attribute else "constant"
        )
        self.constants.append(Constant(value, attribute, tensor))
        self.values.bind(node, value.name)


def _outputs(program: ExportedProgram, operations: Operations) -> tuple[tuple[str, ...], Any]:
    """Names of the values returned, and their nesting."""
    (returned,) = next(node for node in program.graph.nodes if node.op == "output").args
    names: list[str] = []
    leaves: list[int | Fixed] = []
    for item in returned:
        name = operations.value_of(item) if isinstance(item, fx.Node) else None
        if name is not None:
            leaves.append(len(names))
            names.append(name)
        elif item is None or isinstance(item, bool | int | float | str):
            leaves.append(Fixed(item))
        else:
            raise refusal("", f"it returns {item!r} beside tensors", RETURNABLE)
    if not names:
        raise refusal("", "it returns no tensor", RETURNABLE)
    return tuple(names), _plain(pytree.tree_unflatten(leaves, program.call_spec.out_spec))


def _plain(nested: Any) -> Any:
    """The same, if it is made of tuples, lists, dicts with words for keys, and objects of such."""
    if type(nested) in (tuple, list):
        return type(nested)(_plain(item) for item in nested)
    if type(nested) is dict and all(isinstance(key, str) for key in nested):
        return {key: _plain(item) for key, item in nested.items()}
    if isinstance(nested, int | Fixed):
        return nested
    kind, parts = type(nested), _parts(nested)
    if parts is None or getattr(sys.modules.get(kind.__module__), kind.__qualname__, None) is not kind:
        raise refusal("", f"it returns a {kind.__name__}", RETURNABLE)
    made = {key: _plain(item) for key, item in parts.items()}
    return Instance(kind.__module__, kind.__name__, made, in_one=kind is OrderedDict)


def _parts(made: Any) -> dict[str, Any] | None:
    """What an object is made of, by keywords of its class: a named tuple, a dataclass, or a dict that is one."""
    if isinstance(made, tuple) and hasattr(made, "_asdict"):
        return dict(made._asdict())
    if type(made) is OrderedDict and all(isinstance(key, str) for key in made):
        return dict(made)
    if not dataclasses.is_dataclass(made):
        return None
    if isinstance(made, Mapping):
        return dict(made)
    return {field.name: getattr(made, field.name) for field in dataclasses.fields(made)}


def _live(operations: Iterable[Operation], wanted: set[str]) -> tuple[Operation, ...]:
    """Without those on which nothing depends, random numbers that are drawn later among that."""
    kept: list[Operation] = []
    for operation in reversed(list(operations)):
        if operation.mutates or operation.draws or any(output.name in wanted for output in operation.outputs):
            kept.append(operation)
            wanted = wanted.union(operation.inputs)
    return tuple(reversed(kept))


def _has(module: nn.Module, path: str) -> bool:
    """Whether that is a plain attribute of the module or of one inside it."""
    owner: Any = module
    for name in path.split("."):
        owner = getattr(owner, name, None)
    return isinstance(owner, torch.Tensor)
