"""Forward as one C++ function, steps with several results, names for each use: a GPU alone runs these together."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch

import crucible
from crucible.judge.surface import Reference
from crucible.task import Task

NETWORKS = Path(__file__).parents[1] / "networks"
NAMES = ("01_resnet_basic", "15_vit", "17_gpt", "22_lstm_cells", "24_mamba", "31_diffusion_unet")


@pytest.mark.parametrize("name", NAMES)
def test_a_network_trains_as_eager_does(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)  # behind ReLUs roundings of TF32 turn signs
    task = Task.load(NETWORKS / f"{name}.py").at(scale="small", training=True, mode="train", small_by_default=True)
    reference = Reference(task.source, name, task.sizes, mode=task.mode, seed=0, device=torch.device("cuda"))
    net = reference.model.cuda()
    inputs = [each.cuda() if torch.is_tensor(each) else each for each in reference.inputs(0)]
    fused = crucible.fuse(copy.deepcopy(net), *inputs)
    exact = copy.deepcopy(net).double()
    wide = [each.double() if torch.is_tensor(each) and each.is_floating_point() else each for each in inputs]
    found = []
    for module, given in ((fused, inputs), (net, inputs), (exact, wide)):
        torch.manual_seed(0)
        out = module(*given)
        outputs = list(out) if isinstance(out, tuple) else [out]
        loss = sum(each.double().square().mean() for each in outputs if each.is_floating_point())
        gradients = torch.autograd.grad(loss, list(module.parameters()), allow_unused=True)
        found.append([*outputs, *(each for each in gradients if each is not None), *module.buffers()])
    for own, eager, right in zip(*found, strict=True):
        error, noise = (float((each.double() - right.double()).norm()) for each in (own, eager))
        assert error <= 5 * noise + 5e-3 * float(right.double().norm()), own.shape
