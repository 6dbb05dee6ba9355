"""`torch.compile(model, backend="crucible")`: each graph that Dynamo finds is fused, or goes on to Inductor.

Dynamo cuts a model into graphs and hands parameters and buffers over as inputs. Here they are a module's again, which
is fused as any other. What cannot be written (sizes that vary, whatever capture refuses) is Inductor's, and
so, with `options={"race": True}`, is what Inductor was measured to do faster. The logger "crucible" says at INFO who
computes a graph and why, `decisions` holds the same.
"""

from __future__ import annotations

import logging
import threading
import types
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import fx, nn

from crucible import fusing
from crucible.errors import CaptureError, CrucibleError, MisuseError
from crucible.tuning.rival import beside_compile, check_can_race

NAME = "crucible"
OPTIONS = frozenset({"emulate", "race", "tune"})
Compiled = Callable[..., Any]
decisions: list[str] = []
"""For each graph of this process, in their order, who computes it and why."""
_LOG = logging.getLogger(NAME)


def backend(graph: fx.GraphModule, inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None) -> Compiled:
    """What runs in the stead of a graph, with the same arguments. `options` are keywords of `crucible.fuse`: `emulate`,
    `race` (True or False), `tune`. Raises MisuseError for others."""
    asked = dict(options or {})
    if unknown := sorted(asked.keys() - OPTIONS):
        raise MisuseError(
            f"backend {NAME!r} has no option {', '.join(unknown)}: give some of {', '.join(sorted(OPTIONS))}"
        )
    if asked.get("race") not in (None, False, True):
        raise MisuseError(f"backend {NAME!r} races Inductor alone: race is True or False, not {asked['race']!r}")
    try:
        return _fused(graph, inputs, asked)
    except CrucibleError as error:
        _decided(graph, _refused(error))
        return _inductor(graph, inputs)


def _refused(error: CrucibleError) -> str:
    return f"Inductor's: {str(error).splitlines()[0]}"


def _decided(graph: fx.GraphModule, words: str) -> None:
    operations = sum(node.op.startswith("call") for node in graph.graph.nodes)
    decisions.append(f"a graph of {operations} operations is {words}")
    _LOG.info("%s", decisions[-1])


def _inductor(graph: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    from torch._inductor.compile_fx import compile_fx  # seconds

    compiled: Any = compile_fx(graph, list(inputs))
    return compiled  # type: ignore[no-any-return]


class _Whole(nn.Module):
    """A graph with its parameters and buffers, which are no arguments any more."""

    def __init__(self, graph: fx.GraphModule, inputs: Sequence[Any]) -> None:
        super().__init__()
        self.graph = graph
        self.held: dict[int, str] = {}
        """Places of arguments that are a module's, and their names."""
        places = [node for node in graph.graph.nodes if node.op == "placeholder"]
        for place, (node, given) in enumerate(zip(places, inputs, strict=True)):
            if isinstance(given, nn.Parameter):
                self.register_parameter(node.name, given)
            elif "_dynamo_static_input_type" in (node.meta.get("tensor_dict") or {}):
                self.register_buffer(node.name, given)
            else:
                continue
            self.held[place] = node.name

    def forward(self, *given: Any) -> Any:
        return self.graph(*self.arguments(self, given))

    def arguments(self, own: Any, given: Sequence[Any]) -> list[Any]:
        """All of the graph's: those that are attributes of `own`, in their places, and the others."""
        rest, count = iter(given), len(self.held) + len(given)
        return [getattr(own, self.held[n]) if n in self.held else next(rest) for n in range(count)]


def _fused(graph: fx.GraphModule, inputs: Sequence[Any], asked: Mapping[str, Any]) -> Compiled:
    if asked.get("race"):
        check_can_race(True)
    if any(isinstance(each, torch.SymInt) for each in inputs):
        raise CaptureError("sizes vary from call to call, and kernels are written for fixed ones")
    whole = _Whole(graph, inputs)
    given = [each for place, each in enumerate(inputs) if place not in whole.held]
    with torch._guards.tracing(None), torch.enable_grad():
        written = fusing.written_forward(whole, given, **{**asked, "race": False})
    held = whole.held

    def call(chosen: Compiled, *arguments: Any) -> Any:
        own = types.SimpleNamespace(**{name: arguments[place] for place, name in held.items()})
        return chosen(own, *(each for place, each in enumerate(arguments) if place not in held))

    if asked.get("race"):
        return partial(call, _AtFirstCall(lambda: _raced(whole, given, written, graph, inputs)))
    _decided(graph, "fused")
    return partial(call, written)


class _AtFirstCall:
    """A race, and from then on who won it. While Dynamo asks for what runs in a graph's stead its thread has a lock
    that Inductor takes to compile a backward, which autograd asks for in a thread of its own where tensors are on a
    GPU: they waited for each other for ever."""

    def __init__(self, race: Callable[[], Compiled]) -> None:
        self._race: Callable[[], Compiled] | None = race
        self._turn = threading.Lock()

    def __call__(self, *arguments: Any) -> Any:
        with self._turn:
            if self._race is not None:
                self._chosen, self._race = self._race(), None  # with it go the inputs that it was for
        return self._chosen(*arguments)


def _raced(
    whole: _Whole, given: Sequence[Any], written: Compiled, graph: fx.GraphModule, inputs: Sequence[Any]
) -> Compiled:
    """Whoever is faster with gradients, and without."""

    def by_inductor(own: Any, *rest: Any) -> Any:
        return compiled(*whole.arguments(own, rest))

    with torch.enable_grad():
        compiled = _inductor(graph, inputs)
        try:
            beside = beside_compile(written, whole, given, rivals={"": lambda plain: partial(by_inductor, plain)})
        except CrucibleError as error:
            _decided(graph, _refused(error))
            return by_inductor
    _decided(graph, f"fused, {beside.words}")
    return fusing.handing(beside, written, {"": by_inductor}) if beside.modes else written
