"""`torch.vmap` in a graph: what it maps is what PyTorch computes for all items at once.

torch.export leaves the calls that enter, fill and leave a level of `vmap` between those that the user wrote, which are
of one item there. What they come to is seen by tracing them once more, below that. The masks of transformers' language
models are made so.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from crucible.capture.lines import line_in, refusal

_LEVELS = "torch._functorch.predispatch"
"""Where the functions are that vmap and the others call."""
_ENTERS, _LEAVES = "_vmap_increment_nesting", "_vmap_decrement_nesting"
_AT_ONCE = "Write it with operations on all items at once, and take gradients outside of forward"
_KEPT = ("custom", "nn_module_stack", "stack_trace")
"""What a node's notes have of where it comes from."""


def unmap(module: fx.GraphModule) -> None:
    """Replaces each call of vmap, here and in graphs inside, by operations on all items. Raises CaptureError for one
    that cannot be traced so, and for what else of `torch.func` is left."""
    for inside in module.modules():
        if not isinstance(inside, fx.GraphModule):
            continue
        for region in list(_regions(inside)):
            _replace(inside, region)
        left = next((node for node in inside.graph.nodes if _level(node)), None)
        if left is not None:
            raise refusal(
                line_in(left.meta), "torch.func (vmap, grad, jvp) does here what cannot be followed", _AT_ONCE
            )


def _regions(module: fx.GraphModule) -> Iterator[list[fx.Node]]:
    """The calls of each outermost vmap."""
    depth, region = 0, list[fx.Node]()
    for node in module.graph.nodes:
        word = _level(node)
        depth += word == _ENTERS
        if depth or word:
            region.append(node)
        depth -= word == _LEAVES
        if region and not depth and word == _LEAVES:
            yield region
            region = []


def _level(node: fx.Node) -> str:
    """What a node does to the levels; empty if nothing."""
    target: Any = node.target
    of_levels = node.op == "call_function" and getattr(target, "__module__", "") == _LEVELS
    return str(target.__name__) if of_levels else ""


def _replace(module: fx.GraphModule, region: Sequence[fx.Node]) -> None:
    inside, calls = set(region), [node for node in region if node.op == "call_function"]
    operands = [n for n in dict.fromkeys(n for each in calls for n in each.all_input_nodes) if n not in inside]
    attributes = {n: getattr(module, str(n.target)) for n in (*operands, *region) if n.op == "get_attr"}
    operands = [each for each in operands if each.op != "get_attr"]
    results = [each for each in calls if any(user not in inside for user in each.users)]

    def run(*values: torch.Tensor) -> list[torch.Tensor]:
        known = attributes | dict(zip(operands, values, strict=True))
        for call in calls:
            args, kwargs = fx.node.map_arg((call.args, call.kwargs), known.__getitem__)
            known[call] = call.target(*args, **kwargs)  # type: ignore[operator]
        return [known[each] for each in results]

    try:
        with _levels_left():
            traced = make_fx(run)(*(each.meta["val"] for each in operands)).graph
    except (RuntimeError, ValueError, TypeError, NotImplementedError):
        return
    if not any(node.op == "get_attr" for node in traced.nodes):
        _put(module.graph, region, traced, dict(zip(_placeholders(traced), operands, strict=True)), results)


@contextlib.contextmanager
def _levels_left() -> Iterator[None]:
    """Whoever raises inside of vmap has left no level of it."""
    before = _depth()
    try:
        yield
    finally:
        while _depth() > before:
            torch._C._functorch._vmap_decrement_nesting()


def _depth() -> int:
    innermost = torch._C._functorch.peek_interpreter_stack()
    return innermost.level() if innermost is not None else 0


def _placeholders(graph: fx.Graph) -> list[fx.Node]:
    return [node for node in graph.nodes if node.op == "placeholder"]


def _put(
    graph: fx.Graph,
    region: Sequence[fx.Node],
    traced: fx.Graph,
    known: dict[fx.Node, fx.Node],
    results: Sequence[fx.Node],
) -> None:
    """Operations in the stead of a region, whose line they have."""
    notes = {word: region[-1].meta[word] for word in _KEPT if word in region[-1].meta}
    with graph.inserting_before(region[0]):
        for node in traced.nodes:
            if node.op == "call_function" and (node.users or node.is_impure()):
                known[node] = graph.node_copy(node, known.__getitem__)
                known[node].meta = {**node.meta, **notes}
    (found,) = next(node for node in traced.nodes if node.op == "output").args
    for result, new in zip(results, found, strict=True):
        result.replace_all_uses_with(known[new])
    for node in reversed(region):
        graph.erase_node(node)
