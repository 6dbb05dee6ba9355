"""The modules in tests/modules are tasks: each runs, is well conditioned, and has a graph that equals it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

from crucible.capture import trace
from crucible.graph import Graph
from crucible.judge.oracle.reference import Reference
from crucible.task import Task
from support import TESTS, some
from test_capture import assert_equal

FILES = sorted((TESTS / "modules").glob("*.py"))
VOCABULARY = set(
    """
    add sub mul div pow neg abs minimum maximum clamp hardtanh relu relu6 leaky_relu prelu elu selu celu gelu silu mish
    softplus sigmoid tanh hardsigmoid hardswish hardshrink softshrink exp log sqrt rsqrt sin cos erf where gt lt ge eq
    bitwise_and to
    conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d linear matmul bmm
    max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool2d adaptive_avg_pool3d
    adaptive_max_pool2d softmax log_softmax logsumexp mean sum amax layer_norm group_norm instance_norm rms_norm
    batch_norm
    """.split()  # noqa: SIM905
)
MOST_SMALL = 8000  # elements, for a CPU and an emulator
LEAST_BYTES, MOST_BYTES = 0.1e9, 15e9  # 0.03 to 5 ms at an H200's 4 TB/s
LEAST_LARGEST, MOST_LARGEST = 10e6, 1.1e9  # bytes of the largest tensor


def load(file: Path) -> tuple[torch.nn.Module, list[Any]]:
    """The module and its inputs at the small size, as the oracle makes them."""
    task = Task.load(file).at(scale="small", training=True, mode="train", small_by_default=False)
    reference = Reference(task.source, str(file), task.sizes, mode="train", seed=0, device=torch.device("cpu"))
    return reference.model, reference.inputs(1)


def full_graph(file: Path) -> Graph:
    """The graph at the task's own sizes; nothing is allocated."""
    names: dict[str, Any] = {}
    exec(compile(Task.load(file).source, str(file), "exec"), names)
    with torch.device("meta"):
        return trace(names["Model"](*names["get_init_inputs"]()), names["get_inputs"]())


@pytest.fixture(scope="module")
def graphs() -> Iterator[dict[str, Graph]]:
    """The graphs captured so far, by file."""
    yield {}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_module_runs_and_equals_its_graph(file: Path, graphs: dict[str, Graph]) -> None:
    torch.manual_seed(0)
    module, inputs = load(file)
    graph = graphs[file.stem] = assert_equal(module, inputs)
    assert graph.training
    for value in graph.values.values():
        assert value.tensor.elements <= MOST_SMALL, f"{value} is too large for an emulator"
    for value in (*graph.inputs, *(graph.values[name] for name in graph.outputs)):
        assert value.tensor.elements % 32, f"{value} is not ragged"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_gradients_exist_and_are_finite(file: Path) -> None:
    module, inputs = load(file)
    given = [x.requires_grad_(x.is_floating_point()) for x in inputs]
    outputs = pytree.tree_leaves(module(*given))
    assert all(bool(out.isfinite().all()) for out in outputs)
    wanted = {f"input {place}": x for place, x in enumerate(given) if x.requires_grad} | dict(module.named_parameters())
    torch.manual_seed(2)
    got = torch.autograd.grad(outputs, list(wanted.values()), [torch.randn_like(out) for out in outputs])
    for name, gradient in zip(wanted, got, strict=True):
        assert bool(gradient.isfinite().all()), name


@pytest.mark.parametrize("file", some(FILES, 3), ids=lambda file: file.stem)
def test_full_size_is_worth_a_gpu(file: Path) -> None:
    graph = full_graph(file)
    largest = max(value.tensor.bytes for value in graph.values.values())
    assert LEAST_BYTES <= graph.bytes_moved <= MOST_BYTES, f"{graph.bytes_moved:.2g} bytes moved in eager"
    assert LEAST_LARGEST <= largest <= MOST_LARGEST, f"{largest:.2g} bytes in the largest tensor"


def test_the_vocabulary_is_covered(graphs: dict[str, Graph]) -> None:
    for file in FILES:
        if file.stem not in graphs:
            graphs[file.stem] = trace(*load(file))
    operations = [operation for graph in graphs.values() for operation in graph.operations]
    assert {operation.kind for operation in operations} >= VOCABULARY
    assert {op.args["approximate"] for op in operations if op.kind == "gelu"} == {"none", "tanh"}
    assert {op.args["training"] for op in operations if op.kind == "batch_norm"} == {True, False}
    dtypes = {value.tensor.dtype for graph in graphs.values() for value in graph.inputs}
    assert {"float32", "float16", "bfloat16"} <= dtypes


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_each_says_what_it_covers(file: Path) -> None:
    docstring = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    assert docstring.endswith(".") and len(docstring) > 40
    assert len(FILES) == 40
