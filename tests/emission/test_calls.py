"""Calls of PyTorch as people write them do what the operators do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from crucible.capture import trace
from crucible.emission.body import _argument
from crucible.emission.calls import _FORMS, RESHAPED, SPLIT, expression
from crucible.graph import Ref

SDPA = F.scaled_dot_product_attention
CASES: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "convolutions": lambda x, w: (
        F.conv1d(x, w), F.conv1d(x, w, w[:, 0, 0], 2, 1, 1), F.conv1d(x, w, padding="same", dilation=2),
        F.conv2d(x[:, :, None], w[:, :, None]), F.conv1d(x, w[:, :1], groups=4),
        F.conv2d(x[:, :, None], w[:, :, None], None, (1, 2), (0, 1), (1, 1), 1),
        F.conv3d(x[:, :, None, None], w[:, :, None, None], None, 1, (1, 1, 1)),
    ),
    "transposed": lambda x, w: (
        F.conv_transpose1d(x, w), F.conv_transpose1d(x, w, None, 2, 1, 1, 1, 2),
        F.conv_transpose2d(x[:, :, None], w[:, :, None], None, (1, 2), (0, 1), (0, 1)),
        F.conv_transpose3d(x[:, :, None, None], w[:, :, None, None], w[0, :, 0], 2),
    ),
    "products": lambda x, w: (
        F.linear(x, w[0, :3, :1].expand(3, 6)), F.linear(x, w[:, 0, :1].expand(4, 6), w[:, 0, 0]),
        x @ x.mT, torch.bmm(x, x.mT), torch.mm(x[0], x[1].T),
    ),
    "attention": lambda x, w: (
        SDPA(x, x, x), SDPA(x, x, x, is_causal=True), SDPA(x, x, x, x[0, :, :4]), SDPA(x, x, x, scale=0.3),
        SDPA(x[:, None].expand(2, 4, 4, 6), x[:, None, :, :], x[:, None, :, :], enable_gqa=True),
    ),
    "views": lambda x, w: (
        x.view(2, 24), x.permute(2, 0, 1), x.transpose(0, -1), x.unsqueeze(1), x[:, :1].squeeze(1), x.select(1, 2),
        *x.unbind(1), *x.unbind(), *x.chunk(2, -1), *x.chunk(2), *x.split(4, 2), *x.split([1, 3], 1),
        x.mT.reshape(4, 12), x.unflatten(2, (2, 3)), x.flatten(1), x.mT.flatten(0, 1),
        x.unsqueeze(0).expand(3, -1, -1, -1), x.mT.contiguous(), x.sum().view(1).reshape(()),
        x.view_as(x.mT), F.dropout(x, 0.5), F.dropout(x, 0.5, False),
    ),
    "others": lambda x, w: (
        torch.cat([x, x], 1), torch.stack([x, x]), torch.cumsum(x, 1), torch.cumsum(x, 1, dtype=torch.float64),
        torch.add(x, x, alpha=3), x + 2, F.glu(x), F.glu(x, 1),
        F.embedding((x * 0).long(), w[0]), F.embedding((x * 0).long(), w[0], 1, scale_grad_by_freq=True),
    ),
}  # fmt: skip


class Case(nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def forward(self, x: torch.Tensor, w: torch.Tensor) -> Any:
        return CASES[self.name](x, w)


SEEN: set[str] = set()


@pytest.mark.parametrize("name", CASES)
def test_a_call_as_written_does_what_its_operator_does(name: str) -> None:
    torch.manual_seed(0)
    inputs = [torch.randn(2, 4, 6), torch.randn(4, 4, 3)]
    graph = trace(Case(name), inputs, drops=True)
    known = {value.name: given for value, given in zip(graph.inputs, inputs, strict=True)}
    known |= {constant.value.name: constant.tensor for constant in graph.constants}
    for operation in graph.operations:
        SEEN.add(operation.target.removeprefix("aten."))
        text = expression(operation, graph, lambda given: _argument(given, {}), "'cpu'")
        given = {name: _given(each, known) for name, each in operation.args.items()}
        torch.manual_seed(1)
        wanted = _as_operator(operation.target, given)
        torch.manual_seed(1)
        found = eval(text, {"torch": torch}, known)
        pairs = [(found, wanted)] if isinstance(wanted, torch.Tensor) else list(zip(found, wanted, strict=True))
        for one, other in pairs:
            assert one.dtype == other.dtype and one.stride() == other.stride() and torch.equal(one, other), text
        known |= {value.name: one for value, (one, _) in zip(operation.outputs, pairs, strict=True)}


def test_every_form_was_seen() -> None:
    named = {*_FORMS, *RESHAPED, *SPLIT}
    assert named - SEEN <= {"_unsafe_view.default", "split.sizes", "conv_transpose1d.default",
                            "conv2d.padding", "conv3d.padding"}  # fmt: skip


def _given(argument: Any, known: dict[str, torch.Tensor]) -> Any:
    if isinstance(argument, Ref):
        return known[argument.name]
    if isinstance(argument, tuple):
        return [_given(each, known) for each in argument]
    return getattr(torch, argument) if isinstance(argument, str) and hasattr(torch, argument) else argument


def _as_operator(target: str, given: dict[str, Any]) -> Any:
    namespace, name, overload = target.split(".")
    op = getattr(getattr(getattr(torch.ops, namespace), name), overload)
    return op(**given)
