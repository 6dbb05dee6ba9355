"""Python: the forward of the written module, a line for each step."""

from __future__ import annotations

import keyword
from collections.abc import Mapping
from typing import Any

from crucible.emission.calls import expression
from crucible.errors import CaptureError
from crucible.graph import Argument, Graph, Ref
from crucible.plan.steps import Call, Fused, Plan

_MOST_ELEMENTS = 64
"""Of a constant that is written out."""
_DTYPES = frozenset({"float16", "bfloat16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "bool"})
_LISTS = frozenset({
    "chunk", "unsafe_chunk", "split", "split_with_sizes", "unsafe_split", "unsafe_split_with_sizes", "tensor_split",
    "hsplit", "vsplit", "dsplit", "unbind",
})  # fmt: skip
"""Operations that give a list, if only of one tensor."""
_NAMED = _DTYPES | {"strided", "channels_last", "channels_last_3d", "contiguous_format", "preserve_format"}


def body(plan: Plan, served: Mapping[str, Fused]) -> list[str]:
    """The statements of `forward(self, ...)`, without indentation; `served` says whose operator a step calls."""
    graph = plan.graph
    words, lines, counted = _words(graph), [], _counted(plan)
    for step in plan.steps:
        if isinstance(step, Fused):
            lines += _fused(step, served[step.name].name, words)
        elif step.results[0] not in counted:
            lines.append(_call(step, words, graph))
    for mutation in graph.mutations:
        buffer, value = words[mutation.buffer], mutation.value
        more = counted.get(value)
        lines.append(f"{buffer}.copy_({words.get(value, value)})" if more is None else f"{buffer}.add_({more})")
    returned = _structure(graph.structure, [words.get(name, name) for name in graph.outputs])
    return [*lines, f"return {returned}"]


def _counted(plan: Plan) -> dict[str, int]:
    """Values that are a buffer and a number more, and nothing but that buffer's new value, as batch norm's count of
    batches: added in place they take one kernel in the stead of two."""
    new = {mutation.value: mutation.buffer for mutation in plan.graph.mutations}
    read = {name for step in plan.steps for name in (step.operation.inputs if isinstance(step, Call) else step.reads)}
    found = {}
    for step in plan.steps:
        if not isinstance(step, Call) or step.operation.target != "aten.add.Tensor":
            continue
        name, args = step.results[0], step.operation.args
        is_last = name in new and name not in read and name not in plan.graph.outputs
        if is_last and args["self"] == Ref(new[name]) and type(args["other"]) is int and args["alpha"] == 1:
            found[name] = args["other"]
    return found


def _words(graph: Graph) -> dict[str, str]:
    """What comes from outside, as forward calls it."""
    state = {parameter.value.name: _own(parameter.names[0]) for parameter in graph.parameters}
    return {**state, **{constant.value.name: _constant(constant, graph) for constant in graph.constants}}


def _own(path: str) -> str:
    """An attribute of the module; `nn.Sequential` and `nn.ModuleList` have submodules called `0`."""
    found = "self"
    for name in path.split("."):
        plain = name.isidentifier() and not keyword.iskeyword(name)
        found = f"{found}.{name}" if plain else f"getattr({found}, {name!r})"
    return found


def _constant(constant: Any, graph: Graph) -> str:
    if constant.attribute:
        return f"{_own(constant.attribute)}.to({_device(graph)})"
    if constant.value.tensor.elements > _MOST_ELEMENTS:
        raise CaptureError(
            f"forward makes a tensor of {constant.value.tensor.shape} by itself: make it in __init__, as a buffer"
        )
    dtype = constant.value.tensor.dtype
    return f"torch.tensor({constant.tensor.tolist()}, dtype=torch.{dtype}, device={_device(graph)})"


def _device(graph: Graph) -> str:
    """Where forward makes tensors of its own: beside its first input, or its first parameter."""
    outside = [value.name for value in graph.inputs] + [_own(p.names[0]) for p in graph.parameters]
    return f"{outside[0]}.device" if outside else "None"


def _fused(step: Fused, operator: str, words: Mapping[str, str]) -> list[str]:
    """What it makes of detached tensors alone takes no gradient either."""
    detached = set() if step.wanted else {step.operands[each.name] for each in step.all_operands if each.constant}
    given = [f"{words.get(name, name)}{'.detach()' * (name in detached)}" for name in step.reads]
    call = f"fused_{operator}({', '.join(given)})"
    if not step.updates:
        return [f"{step.result} = {call}"]
    made = ", ".join([step.result, *(["*_"] if step.saved else []), *step.updates])
    buffers = [words[buffer] for buffer in step.updates.values()]
    if len(buffers) == 1:
        return [f"{made} = {call}", f"{buffers[0]}.copy_({next(iter(step.updates))})"]
    return [f"{made} = {call}", f"torch._foreach_copy_([{', '.join(buffers)}], [{', '.join(step.updates)}])"]


def _call(step: Call, words: Mapping[str, str], graph: Graph) -> str:
    operation = step.operation
    called = expression(operation, graph, lambda argument: _argument(argument, words), _device(graph))
    alone = "," * (len(step.results) == 1 and operation.kind in _LISTS)
    return f"{', '.join(step.results)}{alone} = {called}"


def _argument(argument: Argument, words: Mapping[str, str]) -> str:
    if isinstance(argument, Ref):
        return words.get(argument.name, argument.name)
    if isinstance(argument, tuple):
        return f"[{', '.join(_argument(item, words) for item in argument)}]"
    if isinstance(argument, str) and argument in _NAMED:
        return f"torch.{argument}"
    return _number(argument) if isinstance(argument, float) else repr(argument)


def _number(value: float) -> str:
    text = repr(value)
    return f'float("{text}")' if text in ("inf", "-inf", "nan") else text


def _structure(structure: Any, outputs: list[str]) -> str:
    """What forward returns, with the values in their places."""
    if isinstance(structure, bool) or not isinstance(structure, int | tuple | list | dict):
        return repr(structure)
    if isinstance(structure, int):
        return outputs[structure]
    if isinstance(structure, dict):
        items = (f"{key!r}: {_structure(item, outputs)}" for key, item in structure.items())
        return f"{{{', '.join(items)}}}"
    parts = [_structure(item, outputs) for item in structure]
    if isinstance(structure, list):
        return f"[{', '.join(parts)}]"
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
