"""Graphs of modules: what they compute equals the module, and what cannot be captured is refused by its line."""

from __future__ import annotations

import copy
import keyword
import random
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import fx, nn
from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex
from torch._functorch import predispatch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree

from crucible.capture import schema, trace
from crucible.capture.autocast import Casts, casts
from crucible.capture.mapping import unmap
from crucible.errors import CaptureError
from crucible.graph import Argument, Graph, Operation, Ref
from support import NIGHTLY, TASKS

Forward = Callable[..., Any]
brief = settings(max_examples=15, deadline=None)


class Wrapped(nn.Module):
    """A function as a module: parts are its layers, parameters and buffers."""

    def __init__(self, function: Forward, **parts: Any) -> None:
        super().__init__()
        self.function = function
        for name, part in parts.items():
            if isinstance(part, torch.Tensor) and not isinstance(part, nn.Parameter):
                self.register_buffer(name, part)
            else:
                setattr(self, name, part)

    def forward(self, *args: Any) -> Any:
        return self.function(self, *args)


def graph_of(function: Forward, *inputs: Any, **parts: Any) -> Graph:
    return trace(Wrapped(function, **parts), inputs or (torch.rand(2, 3, 5, 7),))


def kinds(graph: Graph) -> list[str]:
    return [operation.kind for operation in graph.operations]


# An interpreter for graphs.


def overload(operation: Operation) -> Any:
    namespace, name, kind = operation.target.split(".")
    return getattr(getattr(getattr(torch.ops, namespace), name), kind)


def argument(value: Argument, of_type: str, values: dict[str, torch.Tensor]) -> Any:
    if isinstance(value, Ref):
        return values[value.name]
    if isinstance(value, tuple):
        return [argument(item, of_type, values) for item in value]
    if isinstance(value, str) and of_type in ("ScalarType", "Layout", "MemoryFormat"):
        return getattr(torch, value)
    return value


def call(operation: Operation, values: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    func = overload(operation)
    positional, by_name = [], {}
    for stated in func._schema.arguments:
        of_type = str(stated.real_type).removeprefix("Optional[").removesuffix("]")
        value = argument(operation.args[stated.name], of_type, values)
        if stated.kwarg_only:
            by_name[stated.name] = value
        else:
            positional.append(value)
    return [leaf for leaf in pytree.tree_leaves(func(*positional, **by_name)) if leaf is not None]


def interpret(graph: Graph, module: nn.Module, inputs: Sequence[Any]) -> Any:
    """What the module would return, its buffers changed as it would."""
    tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
    values = dict(zip((value.name for value in graph.inputs), tensors, strict=True))
    state = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    values.update((p.value.name, next(state[n] for n in p.names if n in state)) for p in graph.parameters)
    values.update((constant.value.name, constant.tensor) for constant in graph.constants)
    for operation in graph.operations:
        results = call(operation, values)
        for output, result in zip(operation.outputs, results, strict=True):
            found, stated = (tuple(result.shape), str(result.dtype)), output.tensor
            assert found == (stated.shape, f"torch.{stated.dtype}"), f"{operation.where}: {operation.target}"
            steps = zip(stated.shape, result.stride(), stated.strides, strict=True)
            assert all(size < 2 or one == other for size, one, other in steps), f"{operation.where}: {operation.target}"
            values[output.name] = result
    with torch.no_grad():
        for mutation in graph.mutations:
            values[mutation.buffer].copy_(values[mutation.value])
    return filled(graph.structure, [values[name] for name in graph.outputs])


def filled(structure: Any, outputs: list[torch.Tensor]) -> Any:
    if isinstance(structure, dict):
        return {key: filled(item, outputs) for key, item in structure.items()}
    if isinstance(structure, tuple | list):
        return type(structure)(filled(item, outputs) for item in structure)
    return outputs[structure]


def gradients(outputs: Any, wanted: list[torch.Tensor]) -> list[torch.Tensor | None]:
    """With respect to `wanted`, for cotangents that differ by element."""
    leaves = [leaf for leaf in pytree.tree_leaves(outputs) if leaf.requires_grad]
    if not leaves:
        return []
    weights = [torch.linspace(-1, 1, leaf.numel(), dtype=leaf.dtype).reshape(leaf.shape) for leaf in leaves]
    return list(torch.autograd.grad(leaves, wanted, weights, allow_unused=True))


def assert_equal(module: nn.Module, inputs: Sequence[Any], *, training: bool = True) -> Graph:
    """The graph gives the module's outputs, buffers and (unless eager has none) gradients."""
    graph = trace(module, inputs)
    results = []
    for run in (lambda m, x: m(*x), lambda m, x: interpret(graph, m, x)):
        own = copy.deepcopy(module)
        given = [x.clone().requires_grad_(x.is_floating_point()) if isinstance(x, torch.Tensor) else x for x in inputs]
        wanted = [x for x in (*given, *own.parameters()) if isinstance(x, torch.Tensor) and x.requires_grad]
        out = run(own, given)
        results.append((out, gradients(out, wanted) if training else [], dict(own.named_buffers())))
    torch.testing.assert_close(results[1], results[0], equal_nan=True)
    check_form(graph)
    return graph


def check_form(graph: Graph) -> None:
    """What holds of every graph."""
    names = [value.name for value in graph.values.values()]
    assert len(names) == len(set(names)) and all(name.isidentifier() and not keyword.iskeyword(name) for name in names)
    known = set(names) - set(graph.producers)
    for operation in graph.operations:
        assert set(operation.inputs) <= known, f"{operation.name} reads what comes later"
        known |= {output.name for output in operation.outputs}
        assert not any(a.alias_info and a.alias_info.is_write for a in overload(operation)._schema.arguments)
        assert list(operation.args) == [a.name for a in overload(operation)._schema.arguments]
        assert ".py:" in operation.where
        assert operation.mutates or any(
            output.name in {*graph.outputs, *(m.value for m in graph.mutations)} or graph.readers(output.name)
            for output in operation.outputs
        ), f"{operation.name} is dead"
    assert {*graph.outputs} <= known


# Forms of operations.


def test_operations_stay_as_users_wrote_them() -> None:
    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        x = F.leaky_relu(m.conv(x), 0.2) + m.shift
        return torch.softmax(F.max_pool3d(m.norm(x), 2), dim=1)

    parts = {"conv": nn.Conv3d(3, 4, 3), "shift": nn.Parameter(torch.rand(4, 1, 1, 1)), "norm": nn.GroupNorm(2, 4)}
    module = Wrapped(forward, **parts)
    graph = assert_equal(module, [torch.rand(2, 3, 6, 7, 8)])
    assert kinds(graph) == ["conv3d", "leaky_relu", "add", "group_norm", "max_pool3d", "softmax"]
    assert [operation.name for operation in graph.operations] == [
        "conv", "leaky_relu", "add", "norm", "max_pool3d", "softmax"
    ]  # fmt: skip
    leaky = graph.operations[1]
    assert leaky.target == "aten.leaky_relu.default"
    assert leaky.args == {"self": Ref("conv"), "negative_slope": 0.2}
    assert leaky.where.endswith(": x = F.leaky_relu(m.conv(x), 0.2) + m.shift") and "test_capture.py" in leaky.where
    assert graph.operations[0].where == leaky.where, "the user's line, not nn.Conv3d's"
    assert graph.operations[0].args["stride"] == (1, 1, 1) and graph.operations[0].args["groups"] == 1
    assert graph.outputs == ("softmax",) and graph.structure == 0 and graph.training
    assert graph.values["softmax"].tensor.shape == (2, 4, 2, 2, 3)


def test_bytes_and_flops_are_those_of_eager() -> None:
    module = Wrapped(lambda m, x: (m.fc(x) + m.row).t(), fc=nn.Linear(5, 7), row=torch.rand(7))
    graph = trace(module, [torch.rand(3, 5)])
    linear, add, view = graph.operations
    assert (linear.flops, linear.bytes_moved) == (2 * 3 * 5 * 7, 4 * (15 + 35 + 7 + 21))
    assert (add.flops, add.bytes_moved) == (21, 4 * (21 + 7 + 21))
    assert (view.kind, view.flops, view.bytes_moved) == ("t", 0, 0)
    assert (graph.flops, graph.bytes_moved) == (linear.flops + 21, linear.bytes_moved + add.bytes_moved)


def test_aliases_come_under_one_name() -> None:
    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        x = torch.clip(torch.multiply(x, 2).subtract(1).divide(3).absolute(), 0, 1)
        x = torch.max(x, torch.min(x, x * 2))
        return torch.special.expit(x) * ((x > 0.1) & (x.less(0.9)))

    graph = graph_of(forward)
    assert kinds(graph)[:8] == ["mul", "sub", "div", "abs", "clamp", "mul", "minimum", "maximum"]
    assert kinds(graph)[8:] == ["sigmoid", "gt", "lt", "bitwise_and", "mul"]


def test_what_does_nothing_is_an_alias() -> None:
    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        x = F.dropout(x.contiguous().float().view(2, 3, 5, 7).to(x.device), 0.5, training=False)
        return m.drop(x[:].expand(2, 3, 5, 7).permute(0, 1, 2, 3)).relu()

    graph = graph_of(forward, drop=nn.Dropout(0.3).eval())
    assert kinds(graph) == ["relu"] and graph.operations[0].args == {"self": Ref("args_0")}


def test_detach_and_real_copies_stay() -> None:
    module = Wrapped(lambda m, x: x.detach() * x + x.transpose(1, 2).contiguous().transpose(1, 2).half())
    graph = assert_equal(module, [torch.rand(2, 3, 4)])
    assert kinds(graph) == ["detach", "mul", "transpose", "contiguous", "transpose", "to", "add"]


def test_what_nothing_needs_is_dropped() -> None:
    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        x.mean(dim=1).exp()
        return x.max(dim=1)[0]

    graph = graph_of(forward)
    assert kinds(graph) == ["max"]
    assert [output.name for output in graph.operations[0].outputs] == ["max_values", "max_indices"]


def test_names_are_words_of_cpp_and_python() -> None:
    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        return m.register(m.lambda_(m.net(x))).float().half()

    parts = {"register": nn.ReLU(), "lambda_": nn.Tanh(), "net": nn.Sequential(nn.ReLU(), nn.ReLU())}
    graph = graph_of(forward, **parts)
    assert [operation.name for operation in graph.operations] == ["relu", "relu_2", "lambda_", "register_value", "to"]


def test_no_value_is_called_what_plan_and_writer_call_their_own() -> None:
    parts = {
        name: nn.Parameter(torch.rand(7)) for name in ("grad_x", "x_parts", "x_again_2", "product", "the_x", "total")
    }
    graph = graph_of(lambda m, x: sum((getattr(m, name) for name in parts), x), **parts)
    assert [p.value.name for p in graph.parameters] == [
        "the_grad_x", "the_x_parts", "the_x_again_2", "the_product", "the_the_x", "total"
    ]  # fmt: skip


def test_lines_are_those_of_helpers_too() -> None:
    def helper(x: torch.Tensor) -> torch.Tensor:
        return (
            x.exp()  # the innermost line of the user's
            + 1
        )

    graph = graph_of(lambda m, x: m.act(helper(x)), act=nn.ReLU())
    assert [operation.where.partition(": ")[2] for operation in graph.operations] == [
        "x.exp()  # the innermost line of the user's",
        "x.exp()  # the innermost line of the user's",
        "graph = graph_of(lambda m, x: m.act(helper(x)), act=nn.ReLU())",
    ]


def test_sizes_may_be_read_without_gradients() -> None:
    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            size = x.stride()[0] + x.shape[0]
        return x * size

    assert graph_of(forward).operations[0].args["other"] == 107


def test_the_three_tasks() -> None:
    """What the writer is for: each stays as its users wrote it, at full size."""
    found = {}
    for task in TASKS:
        names: dict[str, Any] = {}
        exec((task / "reference.py").read_text(encoding="utf-8"), names)
        with torch.device("meta"):
            graph = trace(names["Model"](*names["get_init_inputs"]()), names["get_inputs"]())
        found[task.name] = kinds(graph)
    assert found == {
        "avgpool3d_convtranspose3d_clamp_softmax_scale": [
            "avg_pool3d", "conv_transpose3d", "clamp", "flatten", "softmax", "reshape", "mul"
        ],
        "conv3d_leakyrelu_sum_clamp_gelu": ["conv3d", "leaky_relu", "add", "clamp", "gelu"],
        "convtranspose3d_leakyrelu_multiply_leakyrelu_maxpool": [
            "conv_transpose3d", "leaky_relu", "mul", "leaky_relu", "max_pool3d"
        ],
    }  # fmt: skip


# In place.


def test_writes_in_place_become_values() -> None:
    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        x = m.act(m.conv(x))
        y = x
        x.add_(m.bias).mul_(x).clamp_(0, 2)
        x *= 2
        x.pow_(2)
        return F.hardtanh(y, 0, 3, inplace=True)

    parts = {"conv": nn.Conv2d(3, 4, 3), "act": nn.ReLU(inplace=True), "bias": nn.Parameter(torch.rand(4, 1, 1))}
    graph = assert_equal(Wrapped(forward, **parts), [torch.rand(2, 3, 5, 7)], training=False)
    assert kinds(graph) == ["conv2d", "relu", "add", "mul", "clamp", "mul", "pow", "hardtanh"]
    assert graph.operations[3].args == {"self": Ref("add"), "other": Ref("add")}
    assert graph.operations[6].target == "aten.pow.Tensor_Scalar"


def test_a_write_is_seen_through_every_alias() -> None:
    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        x = x * 2
        y, z = x.view(x.shape), F.dropout(x, training=False)
        x.add_(1)
        return y - z.exp()

    graph = assert_equal(Wrapped(forward), [torch.rand(3, 4)])
    assert graph.operations[-1].args["self"] == Ref("add")


def test_a_write_keeps_the_dtype() -> None:
    module = Wrapped(lambda m, x, y: (x + 1).add_(y))
    graph = assert_equal(module, [torch.rand(3, 4).half(), torch.rand(3, 4)])
    assert kinds(graph) == ["add", "add", "to"] and graph.values[graph.outputs[0]].tensor.dtype == "float16"


def test_a_write_to_a_view_that_nobody_else_reads_is_harmless() -> None:
    module = Wrapped(lambda m, x: (x * 2).view(2, -1).sub_(1).add_(1))
    assert kinds(assert_equal(module, [torch.rand(2, 3, 4) - 0.5])) == ["mul", "view", "sub", "add"]
    module = Wrapped(lambda m, x: (x * 2).t_())
    assert kinds(assert_equal(module, [torch.rand(2, 3)])) == ["mul", "t"]


def shared(m: Any, x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y[:, 0].add_(1)
    return y


def shared_by_a_view(m: Any, x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    z = y.flatten()
    y.relu_()
    return z + 1


def shared_by_detach(m: Any, x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    z = y.detach()
    y.relu_()
    return y * z


def shared_by_parts(m: Any, x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y.select(1, 1).copy_(y.unbind(1)[0])
    half, last = y[:, :, :2], y.movedim(1, 0)[2]
    y.narrow(2, 2, 3).mul_(x.detach()[:, :, :3])
    y.transpose(0, 1)[1, :, 1::2] = 0.5
    return half.sum() + y[:, 0].exp() + last * y.flatten()[:7]


def filled_turn_by_turn(m: Any, x: torch.Tensor) -> torch.Tensor:
    out, state = torch.zeros_like(x), x[:, 0]
    for turn in range(3):
        state = torch.tanh(state + x[:, turn])
        out[:, turn] = state
    return out * 2


def state_of_a_buffer(m: Any, x: torch.Tensor) -> torch.Tensor:
    m.buffer[0, :2].add_(x.detach()[0, 0, 0, :2])
    last = m.buffer[2]
    last.copy_(m.buffer[0])
    return x * m.buffer[0] + last


def of_another_dtype(m: Any, x: torch.Tensor) -> torch.Tensor:
    made = torch.zeros(2, 7, dtype=torch.float64)
    made[1] = x[0, 0, 0]
    return made


def views_of_many(m: Any, x: torch.Tensor) -> torch.Tensor:
    """Where nothing learns one of several views may be written to."""
    made = torch.zeros(3, 6)
    made.unbind(0)[1].add_(x.detach()[0, 0, 0, 0])
    made.split([1, 2, 3], 1)[2].add_(2.0)
    made.split(2)[1].mul_(3)
    made.chunk(2, 1)[1].sub_(0.5)
    return made * x.mean()


def turned(m: Any, x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y.permute(3, 0, 2, 1)[1].add_(1)
    return y


WRITTEN = (views_of_many, turned, shared, shared_by_a_view, shared_by_detach, shared_by_parts, filled_turn_by_turn)
WRITTEN += (state_of_a_buffer, of_another_dtype)


@pytest.mark.parametrize("forward", WRITTEN)
def test_writes_are_seen_by_whoever_shares_the_memory(forward: Forward) -> None:
    torch.manual_seed(0)
    assert_equal(Wrapped(forward, buffer=torch.rand(3, 7)), [torch.randn(2, 3, 5, 7)])


def test_what_is_written_over_lies_as_before() -> None:
    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        y = (x * 2).transpose(0, 1)
        y.copy_(x.mean())
        return y

    graph = assert_equal(Wrapped(forward), [torch.randn(2, 3)])
    assert graph.values[graph.outputs[0]].tensor.strides == (1, 3)


def cut(x: torch.Tensor, chance: random.Random) -> torch.Tensor:
    """Some view of a tensor."""
    dim = chance.randrange(x.dim())
    size = x.shape[dim]
    start = chance.randrange(size)
    ways: list[Callable[[], torch.Tensor]] = [
        lambda: x.narrow(dim, start, chance.randint(1, size - start)),
        lambda: x[(slice(None),) * dim + (slice(start, None, chance.randint(1, 3)),)],
        lambda: x.transpose(dim, chance.randrange(x.dim())),
        lambda: chance.choice(x.split(chance.randint(1, size), dim)),
        lambda: chance.choice(x.chunk(2, dim)),
        lambda: x.unsqueeze(dim),
        lambda: x.permute(chance.sample(range(x.dim()), x.dim())),
        lambda: x.flatten() if x.is_contiguous() else x.squeeze(),
        lambda: x.view(-1, 1) if x.is_contiguous() else x.detach(),
    ]
    if x.dim() > 1:
        ways += [lambda: x.select(dim, start - size), lambda: x.unbind(dim)[start]]
    found = chance.choice(ways)()
    return found if found.dim() else x


def writing(seed: int) -> Forward:
    """A forward that writes to views of what it made, and reads others."""

    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        chance = random.Random(seed)
        known, total = [x * 2, x.flatten() + 1], x.sum()
        for _ in range(chance.randint(3, 9)):
            of = chance.choice(known)
            if chance.random() < 0.5:
                known.append(cut(chance.choice(known[-2:]), chance))
                continue
            value = chance.choice([x.mean(), chance.choice(known).detach().mean() + 1, x.flatten()[: of.shape[-1]]])
            value = value if value.numel() in (1, of.shape[-1]) else x.mean()
            chance.choice([of.copy_, of.mul_, of.add_])(value)
            total = total + (chance.choice(known) * 3).sum()
        return total + sum((each * n).sum() for n, each in enumerate(known))

    return forward


@settings(max_examples=1000 if NIGHTLY else 40, deadline=None)
@given(st.integers(0, 1 << 30))
def test_any_writes_to_views_do_what_they_do_in_eager(seed: int) -> None:
    torch.manual_seed(seed)
    module, x = Wrapped(writing(seed)), torch.randn(2, 3, 4, requires_grad=True)
    try:
        torch.autograd.grad(copy.deepcopy(module)(x), x)
    except RuntimeError:  # one of several views at once, or what a gradient needs was written over
        return
    try:
        assert_equal(module, [x.detach()])
    except CaptureError as error:
        assert "writes to memory that" in str(error), error  # through detach


# State.


def test_tied_parameters_are_one() -> None:
    first, second = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
    second.weight = first.weight
    frozen = nn.Parameter(torch.rand(4), requires_grad=False)
    module = Wrapped(lambda m, x: m.second(m.first(x)) + m.frozen, first=first, second=second, frozen=frozen)
    graph = assert_equal(module, [torch.rand(3, 4)])
    assert {p.names: p.trainable for p in graph.parameters} == {
        ("frozen",): False, ("first.weight", "second.weight"): True
    }  # fmt: skip
    assert [operation.args.get("weight") for operation in graph.operations[:2]] == [Ref("first_weight")] * 2


def test_batch_norm_in_training_says_what_it_changes() -> None:
    module = Wrapped(lambda m, x: m.norm(x).relu(), norm=nn.BatchNorm2d(3))
    graph = assert_equal(module, [torch.rand(2, 3, 5, 7)])
    norm = next(operation for operation in graph.operations if operation.kind == "batch_norm")
    assert norm.mutates == ("norm_running_mean", "norm_running_var") and norm.name == "norm"
    (mutation,) = graph.mutations
    assert mutation.buffer == "norm_num_batches_tracked"
    assert graph.producers[mutation.value].args == {"self": Ref("norm_num_batches_tracked"), "other": 1, "alpha": 1}
    evaluated = assert_equal(module.eval(), [torch.rand(2, 3, 5, 7)])
    assert kinds(evaluated) == ["batch_norm", "relu"] and not evaluated.mutations and not evaluated.training
    assert not evaluated.operations[0].mutates


def test_statistics_change_although_nothing_is_returned_of_it() -> None:
    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        m.norm(x)
        return m.norm(x.relu()) + 1

    assert_equal(Wrapped(forward, norm=nn.InstanceNorm2d(3, track_running_stats=True)), [torch.rand(2, 3, 5, 7)])
    graph = assert_equal(Wrapped(forward, norm=nn.BatchNorm2d(3)), [torch.rand(2, 3, 5, 7)])
    assert kinds(graph).count("batch_norm") == 2


def test_writes_to_buffers_are_kept() -> None:
    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        m.calls += 1
        m.mean = m.mean * 0.9 + x.detach().mean(0) * 0.1
        return x * m.calls - m.mean

    module = Wrapped(forward, calls=torch.zeros(()), mean=torch.zeros(4))
    graph = assert_equal(module, [torch.rand(3, 4)])
    assert [mutation.buffer for mutation in graph.mutations] == ["calls", "mean"]


def test_constants() -> None:
    module = Wrapped(lambda m, x: x * torch.tensor(2.0) + torch.tensor([1.0, 2.0, 3.0]) - m.inner.plain + m.inner.small)
    module.inner = nn.Identity()
    module.inner.plain, module.inner.small = torch.rand(3), torch.tensor(0.5)
    graph = assert_equal(module, [torch.rand(2, 3)])
    assert graph.operations[0].args["other"] == 2.0 and graph.operations[-1].args["other"] == 0.5
    assert {c.attribute: c.value.name for c in graph.constants} == {"inner.plain": "inner_plain", "": "constant"}
    typed = Wrapped(lambda m, x: x * torch.tensor(0.5, dtype=torch.float64), x=torch.ones(1))
    assert assert_equal(typed, [torch.arange(3)]).constants, "a number would have made it float32"
    alone = Wrapped(lambda m, x: (x, torch.tensor(3.0), torch.tensor(1.0).add_(2).exp()))
    assert_equal(alone, [torch.rand(2)])


# Inputs and outputs.


def test_outputs_keep_their_structure() -> None:
    def forward(m: Any, x: torch.Tensor) -> Any:
        values, places = x.max(dim=1)
        return {"first": x, "rest": [values, (places, values)], "parts": tuple(x.split(2))}

    graph = assert_equal(Wrapped(forward), [torch.rand(4, 3)])
    assert graph.structure == {"first": 0, "rest": [1, (2, 3)], "parts": (4, 5)}
    assert graph.outputs[:4] == ("args_0", "max_values", "max_indices", "max_values")


def test_numbers_among_the_inputs_are_constants() -> None:
    module = Wrapped(lambda m, x, n, skip, on, y: x * n if skip is None and on else y)
    graph = assert_equal(module, [torch.rand(3), 3, None, True, torch.rand(3)])
    assert graph.arguments == (Ref("args_0"), 3, None, True, Ref("args_4"))
    assert [value.name for value in graph.inputs] == ["args_0", "args_4"]


def test_only_shapes_matter() -> None:
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
    expected = trace(module, [torch.rand(2, 3, 5, 7)])
    assert trace(module.to("meta"), [torch.rand(2, 3, 5, 7, device="meta")]) == expected
    with FakeTensorMode():
        module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
        inputs = [torch.rand(2, 3, 5, 7)]
    assert trace(module, inputs) == expected
    assert {operation.where for operation in expected.operations} == {""}


def test_nothing_is_computed_nor_changed() -> None:
    module = nn.BatchNorm1d(4)
    with torch.no_grad():
        large = trace(Wrapped(lambda m, x: x.relu()), [torch.empty(1 << 16, 1 << 20, device="meta")])
        trace(module, [torch.rand(3, 4)])
    assert large.bytes_moved == 2 * 4 << 36
    assert module.num_batches_tracked == 0 and bool((module.running_mean == 0).all())


def test_strides_are_eagers() -> None:
    x = torch.rand(2, 3, 5, 7).to(memory_format=torch.channels_last)
    graph = assert_equal(Wrapped(lambda m, x: (x.relu() + 1).flatten(1)), [x])
    assert graph.inputs[0].tensor.strides == (105, 1, 21, 3) == graph.values["relu"].tensor.strides


VIEWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "of a batch": lambda x: x[0],
    "turned": lambda x: x.transpose(0, 2),
    "cut": lambda x: x[:, 1:, ::2],
    "reshaped": lambda x: x.view(3, -1),
    "repeated": lambda x: x[:1].expand(4, -1, -1),
    "meta": lambda x: x.to("meta")[0],
}


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_is_an_input_like_any_other(name: str) -> None:
    given = VIEWS[name](torch.rand(3, 5, 7))
    graph = trace(Wrapped(lambda m, x: x.tanh() * 2), [given])
    assert all(type(n) is int for value in graph.values.values() for n in (*value.tensor.shape, *value.tensor.strides))
    assert (graph.inputs[0].tensor.shape, graph.inputs[0].tensor.strides) == (tuple(given.shape), given.stride())


def test_a_view_is_a_buffer_like_any_other() -> None:
    module = Wrapped(lambda m, x: x * m.turned)
    module.register_buffer("turned", torch.rand(7, 5).t())
    assert_equal(module, [torch.rand(3, 5, 7)[1].requires_grad_()])


# Refusals.


def write_through(y: torch.Tensor) -> torch.Tensor:
    y.detach()[0] = 1
    return y


class Sign(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.sign()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient


class Switching(torch.autograd.Function):
    """Its forward turns gradients off, or on, by itself."""

    on = False

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        with torch.set_grad_enabled(Switching.on):
            y = x.sign()
        return y * 2 if not Switching.on else y

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient


def switching(m: Any, x: torch.Tensor) -> torch.Tensor:
    Switching.on = False
    return Switching.apply(x)


def switching_on(m: Any, x: torch.Tensor) -> torch.Tensor:
    Switching.on = True
    return Switching.apply(x)


def writes_without_gradients(m: Any, x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    with torch.no_grad():
        y.mul_(3)
    return y + x


def in_inference_mode(m: Any, x: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        y = x * 3
    return x + y


def for_a_gpu(m: Any, x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cuda", enabled=False):
        y = x @ x.mT
    return y


def branching(m: Any, x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0:
        return x
    return -x


REFUSED: dict[str, tuple[Forward, str, str]] = {
    "branch": (branching, "if x.sum() > 0:", "depends on the values in a tensor. Use torch.where"),
    "item": (lambda m, x: x * x.max().item(), "x.max().item()", "aten.item.default takes a number out of a tensor"),
    "mask": (lambda m, x: x[x > 0], "x[x > 0]", "the shape that aten.index.Tensor gives depends on values"),
    "nonzero": (lambda m, x: x.nonzero(), "x.nonzero()", "depends on values"),
    "cond": (lambda m, x: torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)), "torch.cond(", "cond"),
    "written without": (writes_without_gradients, "y.mul_(3)", "writes without gradients to what has some"),
    "switching": (switching, "with torch.set_grad_enabled(", "gradients are off here"),
    "switching on": (switching_on, "with torch.set_grad_enabled(", "gradients are off here"),
    "inference": (in_inference_mode, "y = x * 3", "gradients are off here"),
    "function": (lambda m, x: Sign.apply(x), "return x.sign()", "Use .detach() where gradients shall stop"),
    "func": (lambda m, x: torch.func.grad(lambda y: y.sin().sum())(x), "self.function(", "torch.func (vmap, grad"),
    "autocast": (for_a_gpu, "y = x @ x.mT", "torch.autocast('cuda') is for other tensors than these"),
    "data": (lambda m, x: x.data * 2, "", "takes a tensor's .data, or its values"),
    "input": (lambda m, x: x.relu_(), "x.relu_()", "aten.relu_.default writes to the input args_0"),
    "view": (lambda m, x: x.view(-1).relu_(), "x.view(-1).relu_()", "writes to a view of the input args_0"),
    "sizes": (lambda m, x: x.unsqueeze_(0), "", "torch.export cannot follow this (IndexError"),
    "resize": (lambda m, x: (x + 1).resize_(3), "resize_(3)", "aten.resize_.default writes"),
    "parameter": (lambda m, x: x + m.weight.data.mul_(2), "", "takes a tensor's .data"),
    "weight": (lambda m, x: x + m.weight.mul_(2), "m.weight.mul_(2)", "writes to the parameter weight"),
    "attribute": (lambda m, x: x + m.plain[0].add_(1), "m.plain[0]", "a view of the attribute plain"),
    "detached": (lambda m, x: write_through(x * 2), "y.detach()[0] = 1", "to memory that mul shares, which is read"),
    "dropout": (lambda m, x: F.dropout(x, 0.5), "F.dropout(x, 0.5)", "aten.dropout.default draws random numbers"),
    "rand": (lambda m, x: x + torch.rand(7), "torch.rand(7)", "aten.rand.default draws random numbers"),
    "like": (lambda m, x: x + torch.randn_like(x), "torch.randn_like(x)", "draws random numbers. Call eval()"),
    "bernoulli": (lambda m, x: torch.bernoulli(x), "torch.bernoulli(x)", "draws random numbers"),
    "uniform": (lambda m, x: torch.empty(7).uniform_() + x, "uniform_()", "draws random numbers"),
    "rrelu": (lambda m, x: F.rrelu(x, training=True), "F.rrelu(", "draws random numbers"),
    "random": (lambda m, x: x * random.random(), "", "draws random numbers in Python"),
    "random of numpy": (lambda m, x: x * np.random.rand(), "", "draws random numbers in Python"),
    "chance": (lambda m, x: x if torch.rand([]) < 0.1 else x.sin(), "torch.rand([]) < 0.1", "draws random numbers"),
    "numpy": (lambda m, x: x * x.numpy().max(), "x.numpy()", "torch.export cannot follow this (RuntimeError"),
    "error": (lambda m, x: x @ x, "x @ x", "torch.export cannot follow this"),
    "nothing": (lambda m, x: (None, 3), "", "returns no tensor"),
    "type": (lambda m, x: (x, x.dtype), "", "returns a dtype"),
    "class": (lambda m, x: x.max(dim=1), "", "returns a max"),
    "keys": (lambda m, x: {1: x}, "", "returns a dict"),
    "statistics": (
        lambda m, x: F.batch_norm(x, m.plain, m.plain.abs(), training=True), "F.batch_norm(", "that are no buffers"
    ),
    "stretch": (lambda m, x: x + m.buffer.t_().t(), "m.buffer.t_()", "writes to the buffer buffer"),
    "read": (lambda m, x: m.norm(x) * m.norm.running_var[0], "m.norm(x) *", "it reads norm_running_var"),
}  # fmt: skip


DROPPED: dict[str, tuple[Callable[[torch.Tensor], Any], bool | None]] = {
    "never": (lambda r: r < 0.0, False),
    "never, the other way round": (lambda r: 0 > r, False),  # noqa: SIM300
    "never, by name": (lambda r: torch.lt(r, 0.0), False),
    "kept always": (lambda r: r >= 0, True),
    "kept never": (lambda r: r.ge(1.0), False),
    "always": (lambda r: r < 1.0, True),
    "above": (lambda r: r > -1.0, True),
    "never above": (lambda r: r > 1, False),
    "perhaps": (lambda r: r < 0.5, None),
    "at most 0": (lambda r: r <= 0.0, None),
    "above 0": (lambda r: r > 0.0, None),
    "of another": (lambda r: r * 2 < 1.0, None),
    "written to": (lambda r: r.mul_(2) < 1.0, None),
    "written to by another name": (lambda r: (r.add_(1), r < 1.0)[1], None),
    "an answer that is turned round": (lambda r: (r < 0.0).logical_not_(), None),
    "by keywords": (lambda r: torch.lt(input=r, other=0.0), None),
    "of several": (lambda r: torch.rand(3) < 0.0, None),
}


@pytest.mark.parametrize("name", DROPPED)
def test_layers_that_are_dropped_with_a_chance_of_0_are_taken(name: str) -> None:
    """The number is drawn all the same: a seed gives what it gives in eager."""
    ask, known = DROPPED[name]

    def forward(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return x.sin() if ask(torch.rand([])) else x.cos()

    if known is None:
        with pytest.raises(CaptureError, match=r"depends on the values in a tensor|more than one value"):
            trace(Wrapped(forward), [torch.rand(3)], drops=True)
        return
    graph = trace(Wrapped(forward), [torch.rand(3)], drops=True)
    assert [each.kind for each in graph.operations] == ["rand", "sin" if known else "cos"]


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_name_the_line_and_the_way_out(name: str) -> None:
    forward, line, words = REFUSED[name]
    module = Wrapped(forward, weight=nn.Parameter(torch.rand(7)), buffer=torch.rand(3, 7), norm=nn.BatchNorm2d(3))
    object.__setattr__(module, "plain", torch.rand(3, 7) if name != "statistics" else torch.rand(3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(CaptureError) as caught:
            trace(module, [torch.rand(2, 3, 5, 7)])
    said = str(caught.value)
    assert line in said and words in said, said
    assert said.startswith("test_capture.py:" if line else "forward: "), said
    assert "\n" not in said and said.count(". ") >= 1, said


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ([[torch.rand(2)]], "input 0 is a list: give tensors, numbers or None"),
        ([torch.rand(2), "mean"], "input 1 is a str"),
        ([3.0], "no tensor is among the inputs"),
        ([torch.rand(2), torch.rand(2), torch.rand(2)], "torch.export cannot follow this"),
    ],
)
def test_inputs_that_are_refused(inputs: list[Any], words: str) -> None:
    with pytest.raises(CaptureError, match=words):
        trace(nn.Identity(), inputs)


def test_backward_hooks_are_refused() -> None:
    x = torch.rand(2, 2)
    module = nn.Sequential(nn.ReLU())
    module[0].register_full_backward_hook(lambda *_: None)
    with pytest.raises(CaptureError, match="0 has backward hooks"):
        trace(module, [x])


def test_refusals_are_quiet(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(CaptureError):
        graph_of(branching)
    assert capfd.readouterr() == ("", "")


# Blocks without gradients.


def partly(m: Any, x: torch.Tensor) -> torch.Tensor:
    y = m.lin(x)
    with torch.no_grad():
        scale = torch.sigmoid(y * 2)
    return x * scale + y


def all_without(m: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    with torch.no_grad():
        return m.lin(x), x * 2


def returning_what_it_was_given(m: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = m.lin(x)
    with torch.no_grad():
        z = y.relu()
        same = y
    return same * z, z


def on_again(m: Any, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        y = x * 2
        with torch.enable_grad():
            z = y * m.lin(x)
        w = z.exp()
    return z + w


@torch.no_grad()
def angles(frequencies: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    with torch.autocast("cpu", enabled=False):
        found = torch.arange(x.shape[-1])[:, None].float() @ frequencies[None, :].float()
    return found.cos(), found.sin()


def rotary(m: Any, x: torch.Tensor) -> torch.Tensor:
    cos, sin = angles(m.buffer, x)
    return x * cos + m.lin(x) * sin


def moving_mean(m: Any, x: torch.Tensor) -> torch.Tensor:
    y = m.lin(x)
    with torch.no_grad():
        m.buffer.mul_(0.9).add_(y.mean((0, 1)), alpha=0.1)
        filled = torch.zeros(7)
        filled.add_(y[0, 0])
    return y - m.buffer + filled


def read_after_writing(m: Any, x: torch.Tensor) -> torch.Tensor:
    m.buffer.add_(m.lin(x).mean((0, 1)))
    with torch.no_grad():
        scale = m.buffer * 2
    return x * scale


def taught(m: Any, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        target = m.norm(x).relu()
    return m.lin(x) * target


BLOCKS = {each.__name__: each for each in (taught, partly, all_without, returning_what_it_was_given, on_again, rotary)}
BLOCKS |= {each.__name__: each for each in (moving_mean, read_after_writing)}


@pytest.mark.parametrize("name", BLOCKS)
def test_what_is_computed_without_gradients_has_none(name: str) -> None:
    torch.manual_seed(0)
    module = Wrapped(BLOCKS[name], lin=nn.Linear(7, 7), norm=nn.BatchNorm1d(7), buffer=torch.rand(7))
    assert_equal(module, [torch.rand(2, 7, 7)], training=name != "read_after_writing")
    if name == "read_after_writing":  # a buffer with a history may not be saved: eager itself has no gradient
        assert kinds(trace(module, [torch.rand(2, 7, 7)])).count("detach") == 1


def test_frequencies_that_nothing_learns_are_detached_nowhere() -> None:
    assert "detach" not in kinds(graph_of(rotary, torch.rand(2, 7, 7), lin=nn.Linear(7, 7), buffer=torch.rand(7)))


# Mapped over items.


def masked(m: Any, x: torch.Tensor) -> torch.Tensor:
    """As transformers makes the mask of causal attention."""

    def sees(query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        return (key <= query) & (key > query - 3)

    places = torch.arange(7)
    mask = torch.vmap(torch.vmap(sees, in_dims=(None, 0)), in_dims=(0, None))(places, places)
    return torch.where(mask, x, 0.0)


def packed(m: Any, x: torch.Tensor) -> torch.Tensor:
    """A table is read at what is mapped."""
    table = (x[0, 0] > 0).cumsum(0)
    with TransformGetItemToIndex():
        same = torch.vmap(lambda key: table[key] == table[0])(torch.arange(7))
    return x * same


def learns_within(m: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.vmap(lambda row: torch.tanh(m.lin(row)) * row.sum())(x)


def without_gradients(m: Any, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        scale = torch.vmap(lambda row: row / row.max())(x)
    return x * scale


MAPPED = {each.__name__: each for each in (masked, packed, learns_within, without_gradients)}


@pytest.mark.parametrize("name", MAPPED)
def test_what_is_mapped_is_computed_for_all_at_once(name: str) -> None:
    torch.manual_seed(0)
    assert_equal(Wrapped(MAPPED[name], lin=nn.Linear(7, 7)), [torch.randn(2, 7, 7)])


def test_what_cannot_be_mapped_is_refused_and_leaves_nothing_behind() -> None:
    def drawing(m: Any, x: torch.Tensor) -> torch.Tensor:
        return torch.vmap(lambda row: row * torch.rand(7))(x)

    with pytest.raises(CaptureError):
        graph_of(drawing, torch.rand(2, 7))


def raises(x: torch.Tensor) -> torch.Tensor:
    raise RuntimeError(f"not of {x.dim()} dims")


def test_what_cannot_be_traced_again_is_refused_and_leaves_no_level_behind() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    x.meta["val"] = torch.rand(2, 7)
    graph.call_function(predispatch._vmap_increment_nesting, (2, "error"))
    item = graph.call_function(raises, (graph.call_function(predispatch._add_batch_dim, (x, 0, 1)),))
    found = graph.call_function(predispatch._remove_batch_dim, (item, 1, 2, 0))
    graph.call_function(predispatch._vmap_decrement_nesting, ())
    graph.output(found)
    module = fx.GraphModule(nn.Module(), graph)
    with pytest.raises(
        CaptureError, match=r"torch\.func .* cannot be followed\. Write it with operations on all items"
    ):
        unmap(module)
    assert torch.rand(3).shape == (3,)  # which a level of vmap refuses


# Autocast.


def in_blocks(m: Any, x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        y = m.lin(x)
        with torch.autocast("cpu", enabled=False):
            y = y.float() @ y.float().mT
        y = y.add_(1) @ x
    return y @ y.mT


AUTOCAST: dict[str, tuple[Forward, int]] = {
    "linear": (lambda m, x: m.lin(x), 3),
    "one parameter twice": (lambda m, x: m.lin(x) + m.lin(x * 2), 4),
    "one value twice": (lambda m, x: (y := x * 2) @ m.lin.weight + y @ m.lin.weight.mT, 3),
    "narrow where it was cast": (lambda m, x: torch.relu(m.lin(x)) @ x.mT, 4),
    "einsum": (lambda m, x: torch.einsum("bij,bkj->bik", x, x), 1),
    "attention": (lambda m, x: F.scaled_dot_product_attention(x, x, x), 1),
    "loss": (lambda m, x: F.cross_entropy(m.lin(x).flatten(0, 1), torch.arange(6) % 7), 4),
    "nothing to cast": (lambda m, x: torch.softmax(x, -1), 0),
    "in blocks": (in_blocks, 6),
    "recurrent, which no CPU casts": (lambda m, x: m.rnn(x)[0], 0),
}
"""Forward, and how many values are cast in its graph."""


@pytest.mark.parametrize("name", AUTOCAST)
def test_what_autocast_casts_is_cast_in_the_graph(name: str) -> None:
    forward, count = AUTOCAST[name]
    module, x = Wrapped(forward, lin=nn.Linear(7, 7), rnn=nn.GRU(7, 5, batch_first=True)), torch.rand(2, 3, 7)
    with torch.autocast("cpu", torch.bfloat16, enabled=name != "in blocks"):
        graph = trace(module, [x])
        out = module(x.requires_grad_())
    wanted = [x, *module.parameters()]
    found = [out, *gradients(out, wanted)]
    mine = interpret(graph, module, [x])
    assert kinds(graph).count("to") == count, kinds(graph)
    for ours, eager in zip([mine, *gradients(mine, wanted)], found, strict=True):
        assert (ours is None) == (eager is None)
        if eager is not None:  # where a value was cast once for two readers, their gradients are added in bfloat16
            torch.testing.assert_close(ours, eager, rtol=2e-2, atol=2e-2)
    check_form(graph)
    assert not torch.is_autocast_enabled("cpu")


def on_a_gpu(*shape: int, dtype: torch.dtype = torch.float16) -> torch.Tensor:
    return torch.empty(shape, device="cuda", dtype=dtype)


WIDE, NARROW = torch.float32, torch.float16
POLICIES: list[tuple[str, Callable[[], tuple[Any, ...]], Casts]] = [
    ("linear", lambda: (on_a_gpu(2, 8), on_a_gpu(4, 8, dtype=WIDE)), Casts({1: NARROW})),
    ("layer_norm", lambda: (on_a_gpu(2, 8), [8], on_a_gpu(8, dtype=WIDE)), Casts({0: WIDE})),
    ("softmax.int", lambda: (on_a_gpu(2, 8), -1), Casts({}, WIDE)),
    ("softmax.int", lambda: (on_a_gpu(2, 8, dtype=WIDE), -1), Casts({})),
    ("softmax.int", lambda: (on_a_gpu(2, 8), -1, torch.float64), Casts({})),
    ("sum.dim_IntList", lambda: (on_a_gpu(2, 8), [1]), Casts({}, WIDE)),
    ("norm.Scalar", lambda: (on_a_gpu(2, 8), 2), Casts({0: WIDE})),
    ("exp", lambda: (on_a_gpu(2, 8),), Casts({0: WIDE})),
    ("cross_entropy_loss", lambda: (on_a_gpu(2, 8), on_a_gpu(2, dtype=torch.int64)), Casts({0: WIDE})),
    ("mse_loss", lambda: (on_a_gpu(2, 8), on_a_gpu(2, 8, dtype=WIDE)), Casts({0: WIDE})),
    ("add.Tensor", lambda: (on_a_gpu(2, 8), on_a_gpu(2, 8, dtype=WIDE)), Casts({})),
    ("gelu", lambda: (on_a_gpu(2, 8),), Casts({})),
    ("to.dtype", lambda: (on_a_gpu(2, 8), WIDE), Casts({})),
    ("matmul", lambda: (on_a_gpu(2, 2, dtype=torch.float64), on_a_gpu(2, 2, dtype=torch.float64)), Casts({})),
    ("einsum", lambda: ("ij,jk->ik", [on_a_gpu(2, 3, dtype=WIDE), on_a_gpu(3, 2)]), Casts({1: NARROW})),
]


def test_a_recurrent_layer_is_cast_whole_whichever_library_computes_it() -> None:
    lstm = torch.ops.aten.lstm.input
    with FakeTensorMode():
        x, h, c = torch.empty(2, 3, 7), torch.empty(1, 2, 5), torch.empty(1, 2, 5)
        weights = [torch.empty(20, 7), torch.empty(20, 5), torch.empty(20), torch.empty(20)]
        given_ = schema.named(lstm, (x, [h, c], weights, True, 1, 0.0, False, False, True), {})
        assert casts(lstm, given_, {"cpu": torch.bfloat16}) == Casts(dict.fromkeys(range(7), torch.bfloat16))


@pytest.mark.parametrize(("name", "given_", "expected"), POLICIES, ids=[name for name, *_ in POLICIES])
def test_casts_are_those_of_a_gpu(name: str, given_: Callable[[], tuple[Any, ...]], expected: Casts) -> None:
    packet, _, kind = name.partition(".")
    func = getattr(getattr(torch.ops.aten, packet), kind or "default")
    with FakeTensorMode():
        assert casts(func, schema.named(func, given_(), {}), {"cuda": NARROW}) == expected


# Properties.

UNARY: list[Callable[[torch.Tensor], torch.Tensor]] = [
    torch.relu, torch.sigmoid, F.gelu, F.silu, F.mish, F.elu, F.celu, F.selu, F.relu6, F.hardswish, F.softsign,
    lambda x: x.clamp(-1, 1), lambda x: 1 - x, lambda x: x.exp().log1p(), lambda x: x / 3, lambda x: -x, torch.erf,
    lambda x: torch.where(x > 0, x, 0.1 * x), lambda x: x.half().float(), lambda x: x.transpose(-1, -2),
    lambda x: x.mean(dim=-1, keepdim=True) + x, lambda x: F.softmax(x, -1), lambda x: x.flatten(1).view(x.shape),
    lambda x: F.rms_norm(x, x.shape[-1:]), lambda x: x[..., 1:], lambda x: torch.cat([x, x * 2], 1), torch.detach,
    lambda x: (x + 1).sub_(2), lambda x: (x * x).mul_(0.5).add_(1), lambda x: x.amax(1, keepdim=True) * x,
    lambda x: F.avg_pool2d(x, 2, 1, 1), lambda x: x.unsqueeze(1).squeeze(1), lambda x: x.chunk(2, -1)[0],
]  # fmt: skip


@brief
@given(chain=st.lists(st.sampled_from(UNARY), min_size=1, max_size=6), seed=st.integers(0, 99))
def test_any_chain_equals_its_graph(chain: list[Any], seed: int) -> None:
    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        first = x = m.conv(x)
        for function in chain:
            x = function(x)
        return x.sum() + first.mean()

    torch.manual_seed(seed)
    assert_equal(Wrapped(forward, conv=nn.Conv2d(3, 4, 2)), [torch.randn(2, 3, 9, 11)])


LAYERS: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "attention": (nn.MultiheadAttention(8, 2, batch_first=True), (2, 5, 8)),
    "lstm": (nn.LSTM(4, 3, num_layers=2), (5, 2, 4)),
    "transformer": (nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), (2, 5, 8)),
    "parametrized": (nn.utils.parametrizations.weight_norm(nn.Conv1d(3, 4, 3)), (2, 3, 9)),
    "norms": (nn.Sequential(nn.LayerNorm(7), nn.InstanceNorm1d(3, affine=True), nn.GroupNorm(3, 3)), (2, 3, 7)),
    "transposed": (nn.Sequential(nn.ConvTranspose2d(3, 4, 3, 2, 1, 1), nn.AdaptiveAvgPool2d((2, 3))), (2, 3, 5, 6)),
    "lazily": (
        nn.Sequential(nn.Unflatten(1, (2, 3)), nn.Flatten(), nn.Linear(6, 3), nn.PReLU(), nn.Softmin(1)),
        (4, 6),
    ),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers_equal_their_graphs(name: str) -> None:
    layer, shape = LAYERS[name]
    inputs = [torch.rand(shape)]
    module = Wrapped(lambda m, x: m.layer(x, x, x)[0] if name == "attention" else m.layer(x), layer=layer)
    if name == "lstm":
        module = Wrapped(lambda m, x: m.layer(x)[0], layer=layer)
    assert_equal(module, inputs)
