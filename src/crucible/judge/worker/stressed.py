"""What a candidate's process does for stress cases: watches parameters and buffers, lays tensors out, trains a step."""

from __future__ import annotations

import torch

from crucible.judge.boundary.modules import joined
from crucible.judge.worker.outputs import mutated


def copied(model: torch.nn.Module, given: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The parameters and buffers that have the form of those given, as they are now."""
    if not given:
        return {}
    return {name: value.detach().clone() for name, value in _alike(model, given).items()}


def changed(model: torch.nn.Module, before: dict[str, torch.Tensor]) -> list[str]:
    """Of these the ones that have other bits now, or another form."""
    if not before:
        return []
    now = _alike(model, before)
    places = mutated(list(now.values()), [before[name] for name in now])
    return sorted([*(list(now)[i] for i in places), *(set(before) - set(now))])


def _alike(model: torch.nn.Module, given: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    own = model.state_dict()
    same = [n for n, t in given.items() if n in own and (own[n].shape, own[n].dtype) == (t.shape, t.dtype)]
    return {name: own[name] for name in same}


def trained(
    model: torch.nn.Module,
    outputs: list[torch.Tensor],
    cotangents: list[torch.Tensor],
    after: dict[str, torch.Tensor],
) -> dict[str, torch.Tensor]:
    """A step as a training loop takes it: gradients are accumulated in `.grad`, whose values are returned by parameter;
    then the weights move, in place and by `.grad` as SGD moves them, to those given. Buffers go there by a copy."""
    end = joined(outputs, cotangents)
    if end is not None:
        end.backward()
    own = dict(model.named_parameters())
    found = {name: p.grad.detach().clone() for name, p in own.items() if p.grad is not None}
    with torch.no_grad():
        for name, parameter in own.items():
            if name in after and after[name].shape == parameter.shape:
                parameter.grad = parameter - after[name].to(parameter)
                parameter.add_(parameter.grad, alpha=-1)  # making an optimizer imports torch._dynamo: 1.1 s
            parameter.grad = None
        for name, buffer in model.named_buffers():
            if name in after and after[name].shape == buffer.shape:
                buffer.copy_(after[name])
    return found
