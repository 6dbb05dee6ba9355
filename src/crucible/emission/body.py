"""Python: the forward of the written module, a line for each step."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any

from crucible.emission import at_once
from crucible.emission.calls import expression
from crucible.emission.owners import Owners, own
from crucible.emission.updates import at_the_end, counted, detached, of_kernels, read_by, waiting
from crucible.errors import CaptureError
from crucible.graph import Argument, Fixed, Graph, Instance, Ref, unused
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
    graph, added, later = plan.graph, counted(plan), waiting(plan)
    owners = _owners(plan)
    words = _words(graph, owners)
    lines = owners.lines + (_at_once(plan, words) if at_once.is_written(plan) else [])
    for step in plan.steps:
        if isinstance(step, Fused):
            lines += _fused(step, served[step.name].name, words, later)
        elif step.results[0] not in added:
            lines.append(_call(step, words, graph))
    lines += _copied([(words[buffer], name) for name, buffer in later.items()])
    copied, more = at_the_end(plan, added)
    together, apart = of_kernels(plan, copied)
    lines += _copied([(words[buffer], words.get(value, value)) for buffer, value in together])
    lines += [f"{words[buffer]}.copy_({words.get(value, value)})" for buffer, value in apart]
    lines += [_added([words[buffer] for buffer in buffers], number) for number, buffers in more.items()]
    outputs = [words.get(name, name) for name in graph.outputs]
    returned = _structure(graph.structure, outputs, returned_classes(graph))
    return [*lines, f"return {returned}"]


def _at_once(plan: Plan, words: Mapping[str, str]) -> list[str]:
    """All of it by one function, where nobody looks on."""
    made = unused("made", plan.graph.values)
    state = ", ".join(words.get(name, name) for name in at_once.outside(plan))
    outputs = [f"{made}[{n}]" for n in range(len(plan.graph.outputs))]
    returned = _structure(plan.graph.structure, outputs, returned_classes(plan.graph))
    return [f"{made} = _{at_once.FUNCTION}([{state}])", f"if {made}:", f"    return {returned}"]


def _copied(pairs: Sequence[tuple[str, str]]) -> list[str]:
    """New values into buffers."""
    if len(pairs) < 2:
        return [f"{buffer}.copy_({name})" for buffer, name in pairs]
    return [f"torch._foreach_copy_([{', '.join(b for b, _ in pairs)}], [{', '.join(n for _, n in pairs)}])"]


def _added(buffers: Sequence[str], number: int) -> str:
    return (
        f"{buffers[0]}.add_({number})" if len(buffers) < 2 else f"torch._foreach_add_([{', '.join(buffers)}], {number})"
    )


def _owners(plan: Plan) -> Owners:
    """Of what the steps read and change."""
    graph = plan.graph
    used = read_by(plan) | {each.buffer for each in graph.mutations}
    own = {p.value.name: p.names[0] for p in graph.parameters}
    made = {name for step in plan.steps for name in step.names}
    return Owners([path for name, path in own.items() if name in used], {*graph.values, *made})


def _words(graph: Graph, owners: Owners) -> dict[str, str]:
    """What comes from outside, as forward calls it."""
    state = {parameter.value.name: owners.word(parameter.names[0]) for parameter in graph.parameters}
    return {**state, **{constant.value.name: _constant(constant, graph) for constant in graph.constants}}


def _constant(constant: Any, graph: Graph) -> str:
    if constant.attribute:
        return f"{own(constant.attribute)}.to({_device(graph)})"
    if constant.value.tensor.elements > _MOST_ELEMENTS:
        raise CaptureError(
            f"forward makes a tensor of {constant.value.tensor.shape} by itself: make it in __init__, as a buffer"
        )
    dtype = constant.value.tensor.dtype
    return f"torch.tensor({constant.tensor.tolist()}, dtype=torch.{dtype}, device={_device(graph)})"


def _device(graph: Graph) -> str:
    """Where forward makes tensors of its own: beside its first input, or its first parameter."""
    if graph.inputs:
        return f"{graph.inputs[0].name}.device"
    return f"{own(graph.parameters[0].names[0])}.device" if graph.parameters else "None"


def _fused(step: Fused, operator: str, words: Mapping[str, str], later: Container[str]) -> list[str]:
    apart = detached(step)
    given = [f"{words.get(name, name)}{'.detach()' * (name in apart)}" for name in step.reads]
    call = f"fused_{operator}({', '.join(given)})"
    if not step.beside:
        return [f"{', '.join(step.readable)} = {call}"]
    made = ", ".join([*step.readable, *(["*_"] if step.saved else []), *step.beside])
    now = [(words[buffer], name) for name, buffer in step.updates.items() if name not in later]
    return [f"{made} = {call}", *_copied(now)]


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


def _structure(structure: Any, outputs: list[str], classes: Mapping[tuple[str, str], str]) -> str:
    """What forward returns, with the values in their places, and what its classes are called."""
    if isinstance(structure, Fixed):
        return _number(structure.value) if isinstance(structure.value, float) else repr(structure.value)
    if isinstance(structure, int):
        return outputs[structure]
    if isinstance(structure, Instance):
        word, parts = classes[structure.module, structure.name], structure.parts
        if structure.in_one:
            return f"{word}({_structure(parts, outputs, classes)})"
        return f"{word}({', '.join(f'{key}={_structure(item, outputs, classes)}' for key, item in parts.items())})"
    if isinstance(structure, dict):
        pairs = (f"{key!r}: {_structure(item, outputs, classes)}" for key, item in structure.items())
        return f"{{{', '.join(pairs)}}}"
    items = [_structure(item, outputs, classes) for item in structure]
    if isinstance(structure, list):
        return f"[{', '.join(items)}]"
    return f"({', '.join(items)}{',' if len(items) == 1 else ''})"


def returned_classes(graph: Graph) -> dict[tuple[str, str], str]:
    """Classes of objects that forward returns, by module and name, and what they are called in a file: what no value
    is."""
    found: dict[tuple[str, str], str] = {}
    for each in _classes(graph.structure):
        if each not in found:
            found[each] = unused(f"Returned{each[1]}", {*graph.values, *found.values()})
    return found


def _classes(structure: Any) -> Iterator[tuple[str, str]]:
    if isinstance(structure, Instance):
        yield structure.module, structure.name
        structure = structure.parts
    if isinstance(structure, tuple | list | dict):
        for item in structure.values() if isinstance(structure, dict) else structure:
            yield from _classes(item)
