"""All steps in one C++ function: the same values, gradients and buffers as line by line, where nobody looks on."""

from __future__ import annotations

import copy
import sys
import types
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode

from crucible import emulator
from crucible.capture import trace
from crucible.emission import at_once
from crucible.emission.file import emit
from crucible.gpus import H200
from crucible.graph import Graph
from crucible.judge.diagnosis.asks_who_judges import signs
from crucible.plan.planner import fuse
from crucible.plan.steps import Call, Plan


class Everything(nn.Module):
    """Whatever there is a form for."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Conv1d(4, 6, 3, 2, 1, 1), nn.Conv2d(4, 6, 3, 1, 1, 2), nn.Conv3d(2, 3, 2)])
        self.turned = nn.ModuleList(
            [nn.ConvTranspose1d(4, 2, 3, 2, 1, 1), nn.ConvTranspose2d(4, 2, 3, 2), nn.ConvTranspose3d(2, 2, 2)]
        )
        self.linear, self.words = nn.Linear(8, 6, bias=False), nn.Embedding(10, 6, padding_idx=2)
        self.drop = nn.Dropout(0.5)

    def forward(self, given: torch.Tensor, given_: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """By names that the function has for other things, and would put in their stead."""
        x, ids = given, given_
        line, plane, box = x.reshape(4, 4, 12), x.reshape(2, 4, 4, 6), x.reshape(2, 2, 2, 4, 6)
        made = [self.layers[0](line), self.layers[1](plane), self.layers[2](box)]
        made += [self.turned[0](line), self.turned[1](plane), self.turned[2](box)]
        a, b = self.linear(x.reshape(24, 8)).split([10, 14])
        made += [torch.mm(b, a.transpose(0, 1)), torch.matmul(line, line.transpose(1, 2))]
        made += [torch.bmm(line, line.transpose(-1, -2))]
        one, two, three = line.chunk(3, 2)
        made += [F.scaled_dot_product_attention(one, two, three, is_causal=True, scale=0.25)]
        made += [F.scaled_dot_product_attention(one, two, three), torch.cat([a, b], 0), torch.stack((one, two), -1)]
        made += [self.words(ids), self.drop(x), torch.add(a, b[:10], alpha=2), line.cumsum(1), F.glu(line, 1)]
        made += [torch.roll(plane, (1, -2), (2, 3)), plane.flip((1, 3)), F.pixel_unshuffle(plane, 2)]
        made += [F.pixel_shuffle(plane, 2), plane.permute(0, 3, 1, 2), a.unsqueeze(1).squeeze(1), line.select(1, -1)]
        made += [line[:, 1:3, ::2], *line.unbind(0), a[:1].expand(5, 6), plane.permute(0, 2, 3, 1).contiguous()]
        made += [a.detach(), *torch.broadcast_tensors(a[:1], b), torch.einsum("ij,kj->ik", a, b), b[ids, :]]
        made += [
            *line.max(2),
            *line.min(1, keepdim=True),
            F.pad(line, (1, 2)),
            F.pad(line, (0, 1), value=-float("inf")),
        ]
        made += [
            torch.zeros(10, 5),
            F.mse_loss(one, two),
            F.cross_entropy(b[:4], ids, label_smoothing=0.1),
        ]
        made += [F.interpolate(each, scale_factor=2) for each in (line, plane, box)]
        made += [F.interpolate(plane, scale_factor=2, mode="bilinear", align_corners=True)]
        made += [F.interpolate(box, scale_factor=2.0, mode="trilinear")]
        made += [
            torch.arange(5),
            torch.arange(1, 4),
            torch.ones(2, 3),
            torch.eye(3),
            torch.arange(3, dtype=torch.float32),
            ids.to(torch.float32),
        ]
        return tuple(made)


INPUTS = torch.randn(192), torch.tensor([1, 2, 0, 5])


def call_by_call(graph: Graph) -> Plan:
    """A plan of calls of PyTorch alone."""
    steps = [Call(each, tuple(made.name for made in each.outputs), "") for each in graph.operations]
    return Plan(graph, tuple(steps), {}, H200)


def built(plan: Plan) -> Callable[..., list[torch.Tensor]]:
    """By the emulator, which has PyTorch's headers precompiled: a fifth of the time."""
    text = "using variable_list = std::vector<torch::Tensor>;\nbool are_plain(const variable_list&) { return true; }\n"
    included = ("torch/csrc/Exceptions.h", "torch/csrc/utils/pybind.h", "torch/types.h")
    headers = "".join(f"#include <{each}>\n" for each in included)
    module: Any = emulator.load_inline(
        "at_once_forms", headers + text + at_once.function(plan, {}), functions=[at_once.FUNCTION]
    )
    found: Callable[..., list[torch.Tensor]] = module.at_once
    return found


@pytest.mark.slow
def test_every_form_calls_what_it_stands_for() -> None:
    module = Everything()
    graph = trace(module, INPUTS, drops=True)
    plan = call_by_call(graph)
    used = {each.target.removeprefix("aten.") for each in graph.operations}
    known = {each.target.removeprefix("aten.") for each in graph.operations if at_once.is_known(each)}
    assert used == known
    assert at_once.FORMS.keys() - used == {"constant_pad_nd.default"}  # which rewrites alone put in
    state = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    paths = {each.value.name: each.names[0] for each in graph.parameters}
    given = dict(zip([value.name for value in graph.inputs], INPUTS, strict=True))
    tensors = [given[name] if name in given else state[paths[name]] for name in at_once.outside(plan)]
    torch.manual_seed(5)
    expected = module(*INPUTS)
    torch.manual_seed(5)
    found = built(plan)(tensors, "")
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert one.stride() == other.stride() or one.numel() < 2
        torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)


class Block(nn.Module):
    """Norms whose buffers change, a value that two steps read, parameters that take a gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 4, 1), nn.Linear(4, 4)
        self.norms = nn.ModuleList([nn.BatchNorm2d(4), nn.BatchNorm2d(4)])
        self.register_buffer("scale", torch.rand(4, 1, 1))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        y = F.silu(self.norms[0](self.first(x)))
        y = F.silu(self.norms[1](y * self.scale)) + y
        z = F.gelu(self.last(y.mean((2, 3))))
        return z, {"features": y, "given": x}


@pytest.fixture(scope="module")
def written() -> types.ModuleType:
    """On the emulator, as if its tensors, which are a CPU's, were a GPU's."""
    graph = trace(Block(), [torch.randn(2, 3, 4, 4)])
    text = emit(fuse(graph), "block", loader="crucible.emulator")
    for asked, instead in (("DispatchKey::CUDA", "DispatchKey::CPU"), ("#ifdef GPU_IS_EMULATED", "#if 0")):
        assert asked in text
        text = text.replace(asked, instead)
    names = types.ModuleType("written_block")
    sys.modules[names.__name__] = names
    exec(text, names.__dict__)
    return names


def results(names: types.ModuleType, seed: int = 0) -> list[torch.Tensor]:
    """Outputs, gradients and buffers after a step."""
    torch.manual_seed(seed)
    module, x = Block(), torch.randn(2, 3, 4, 4, requires_grad=True)
    z, more = names.forward(module, x)
    assert more["given"] is x
    gradients = torch.autograd.grad((z.sum() + more["features"].square().sum()), [x, *module.parameters()])
    return [z, more["features"], *gradients, *module.buffers()]


@pytest.mark.slow
def test_a_block_computes_the_same_at_once(written: types.ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[int] = []
    at_once_there = written._at_once

    def heard(state: list[torch.Tensor]) -> list[torch.Tensor]:
        made: list[torch.Tensor] = at_once_there(state)
        said.append(len(made))
        return made

    monkeypatch.setattr(written, "_at_once", heard)
    found = results(written)
    assert said == [3]
    monkeypatch.setattr(written, "_at_once", lambda state: [])
    for one, other in zip(found, results(written), strict=True):
        assert one.stride() == other.stride()
        torch.testing.assert_close(one, other, rtol=0, atol=0)


class Looks(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class Named(torch.Tensor):
    """A tensor of another kind."""


@pytest.mark.slow
def test_who_looks_on_sees_every_step(written: types.ModuleType) -> None:
    state = [torch.randn(2, 3, 4, 4)]
    with Looks():
        assert written._at_once(state) == []
    assert written._at_once([state[0].as_subclass(Named)]) == []
    assert written._at_once([state[0].to("meta")]) == []
    assert torch.compile(lambda: len(written._at_once(state)), backend="eager", fullgraph=True)() == 0


def test_a_judge_has_no_doubts_of_it() -> None:
    """Though the emulator leaves the function out."""
    text = emit(fuse(trace(Block(), [torch.randn(2, 3, 4, 4)])), "block")
    assert "#ifdef GPU_IS_EMULATED" in text and signs(text) == []
    assert signs(text.replace("{ return {}; }", "{ return right(); }")) != []


@pytest.mark.slow
def test_the_emulator_goes_line_by_line() -> None:
    """Its tensors are no GPU's, and what calls all of PyTorch takes it ten times as long to build."""
    graph = trace(Block(), [torch.randn(2, 3, 4, 4)])
    names = types.ModuleType("emulated_block")
    sys.modules[names.__name__] = names
    exec(emit(fuse(graph), "block", loader="crucible.emulator"), names.__dict__)
    assert names.kernels.__file__.endswith("_lean.so")
    assert names._at_once([torch.randn(2, 3, 4, 4)]) == []
    assert len(results(names)) > 3


def test_a_call_with_an_argument_that_no_form_says_is_not_known() -> None:
    (operation,) = trace(nn.Linear(3, 3), [torch.randn(2, 3)]).operations
    assert at_once.is_known(operation)
    assert not at_once.is_known(replace(operation, args={**operation.args, "more": 1}))


def test_what_is_not_known_is_written_line_by_line() -> None:
    def plan(forward: Callable[[nn.Module, torch.Tensor], torch.Tensor]) -> Plan:
        kind = type("Module", (nn.Module,), {"forward": forward})
        return fuse(trace(kind(), [torch.randn(4, 8)]))

    assert at_once.is_written(plan(lambda m, x: torch.sin(x).cumsum(0).exp().flip(0)))
    assert not at_once.is_written(plan(lambda m, x: torch.sin(x).cumsum(0).exp()))  # few steps
    assert not at_once.is_written(plan(lambda m, x: torch.sin(x).cumprod(0).exp().flip(0)))  # an unknown operation
    assert not at_once.is_written(plan(lambda m, x: F.pad(torch.sin(x).cumsum(0), (1, 1), "reflect").exp().flip(0)))


def test_copies_of_a_module_share_it(written: types.ModuleType) -> None:
    """State is given at each call."""
    first, x = Block(), torch.randn(2, 3, 4, 4)
    second = copy.deepcopy(first)
    with torch.no_grad():
        second.last.bias += 1
        one, other = (written.forward(module, x)[0] for module in (first, second))
    assert not torch.equal(one, other)
