"""Whole networks at small sizes: what is planned for each is carried out in float64, beside the module."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from interpret import run
from torch.utils import _pytree as pytree

from crucible.capture import trace
from crucible.graph import Graph
from crucible.judge.oracle.reference import Reference
from crucible.plan.planner import fuse
from crucible.plan.steps import Plan
from crucible.task import Task
from support import some

FILES = sorted((Path(__file__).parents[1] / "networks").glob("*.py"))
IN_EVAL = ("01_resnet_basic", "05_mobilenet_v3", "17_gpt")
NEAR = 1e-6
"""Of the largest value: both are float64, but for a norm that asks for float32."""


def loaded(file: Path, mode: str, **sizes: float) -> tuple[torch.nn.Module, list[Any]]:
    task = Task.load(file).at(scale="small", training=True, mode=mode, small_by_default=False)
    sizes = {**task.sizes, **sizes}
    reference = Reference(task.source, str(file), sizes, mode=mode, seed=0, device=torch.device("cpu"))
    return reference.model, list(reference.inputs(0))


def double(given: Any) -> Any:
    return given.double() if isinstance(given, torch.Tensor) and given.is_floating_point() else given


def flat(found: Any) -> list[torch.Tensor]:
    return [each for each in pytree.tree_leaves(found) if isinstance(each, torch.Tensor)]


def known(graph: Graph, module: torch.nn.Module, inputs: list[Any]) -> dict[str, torch.Tensor]:
    """Inputs, parameters, buffers and constants by their names in the graph, floating ones in float64."""
    state = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    tensors = {value.name: given.clone() for value, given in zip(graph.inputs, inputs, strict=True)}
    tensors |= {p.value.name: state[p.names[0]].detach().clone() for p in graph.parameters}
    tensors |= {c.value.name: c.tensor for c in graph.constants}
    return {name: double(each) for name, each in tensors.items()}


def compare(plan: Plan, module: torch.nn.Module, inputs: list[Any], near: float = NEAR) -> None:
    """Outputs and buffers of a plan, and those of the module in float64 under the same seed."""
    graph = plan.asked or plan.graph
    tensors = known(graph, module, inputs)
    exact = copy.deepcopy(module).double()
    torch.manual_seed(3)
    right = flat(exact(*map(double, inputs)))
    torch.manual_seed(3)
    with torch.no_grad():
        found = run(plan, tensors)
    buffers = dict(exact.named_buffers())
    pairs = [(f"output {place}", *each) for place, each in enumerate(zip(found, right, strict=True))]
    pairs += [(p.names[0], tensors[p.value.name], buffers[p.names[0]]) for p in graph.parameters if p.is_buffer]
    for name, one, other in pairs:
        assert one.shape == other.shape, name
        ours, theirs = (each.detach().double() for each in (one, other))
        apart = torch.where(ours == theirs, 0.0, (ours - theirs).abs())  # a buffer may be infinite
        error, largest = float(apart.max()), float(theirs.abs().max())
        assert error <= near * max(largest, 1.0), f"{name}: off by {error:.2g} of {largest:.2g}"


@pytest.mark.parametrize("file", some(FILES, 8, lambda file: file.stem in IN_EVAL), ids=lambda file: file.stem)
def test_a_networks_plan_computes_what_the_network_does(file: Path) -> None:
    for mode in ("train", *(["eval"] if file.stem in IN_EVAL else [])):
        module, inputs = loaded(file, mode)
        compare(fuse(trace(module, inputs, drops=True)), module, inputs)


def test_dropout_draws_what_eager_draws() -> None:
    (file,) = (file for file in FILES if file.stem == "17_gpt")
    module, inputs = loaded(file, "train", dropout=0.2)
    graph = trace(module, inputs, drops=True)
    assert [operation.kind for operation in graph.operations if operation.draws].count("dropout") == 4
    compare(fuse(graph), module, inputs)
