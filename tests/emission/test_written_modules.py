"""Modules of many kinds, written, run on the emulator, and compared with PyTorch in float64, gradients included."""

from __future__ import annotations

import copy
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from crucible import fusing
from crucible.judge.boundary.modules import seed_all
from crucible.judge.oracle.noise import RoundedOperands
from crucible.judge.oracle.reference import Reference
from crucible.task import Task
from support import some

pytestmark = pytest.mark.usefixtures("no_faults")
Tensors = dict[str, torch.Tensor]
FILES = sorted((Path(__file__).parents[1] / "modules").glob("*.py"))
TOLERANCE = {torch.float32: 2e-5, torch.float16: 2e-2, torch.bfloat16: 1e-1}
"""Of the largest value; what PyTorch's own kernels leave in these dtypes, with a margin."""
OURS = nn.Conv1d | nn.ConvTranspose1d | nn.Conv2d | nn.ConvTranspose2d | nn.Conv3d | nn.ConvTranspose3d
TF32 = 5e-4
"""The same where kernels of ours convolve, beside float64 with operands rounded to TF32 as theirs are: what is on the
edge between two such numbers may go to the other."""


def loaded(file: Path) -> tuple[torch.nn.Module, list[Any]]:
    task = Task.load(file).at(scale="small", training=True, mode="train", small_by_default=True)
    reference = Reference(task.source, str(file), task.sizes, mode=task.mode, seed=0, device=torch.device("cpu"))
    return reference.model, list(reference.inputs(0))


def leaves(outputs: Any) -> list[torch.Tensor]:
    if isinstance(outputs, torch.Tensor):
        return [outputs]
    items = outputs.values() if isinstance(outputs, dict) else outputs
    return [leaf for item in items for leaf in leaves(item)]


def outputs_and_gradients(module: torch.nn.Module, inputs: list[Any], exact: bool) -> Tensors:
    """By name; `exact` in float64."""

    def own(tensor: Any) -> Any:
        if not isinstance(tensor, torch.Tensor) or not tensor.is_floating_point():
            return tensor
        return (tensor.double() if exact else tensor.clone()).detach().requires_grad_()

    given = [own(each) for each in inputs]
    outputs = leaves(module(*given))
    seed_all(1)
    cotangents = [torch.randn(each.shape, dtype=torch.float64).to(each.dtype) for each in outputs]
    wanted = {f"input {i}": each for i, each in enumerate(given) if getattr(each, "requires_grad", False)}
    wanted |= {name: p for name, p in module.named_parameters() if p.requires_grad}
    gradients = torch.autograd.grad(outputs, list(wanted.values()), cotangents)
    found = {f"output {i}": each.detach() for i, each in enumerate(outputs)}
    found |= {f"gradient of {name}": g for name, g in zip(wanted, gradients, strict=True)}
    return found | {f"buffer {name}": each for name, each in module.named_buffers()}


def compare(found: Tensors, exact: Tensors, eager: Tensors, near: float) -> None:
    """Within `near` of the largest value, and four times as far from exact as PyTorch in the same dtypes (a gradient
    that is zero but for rounding has no other scale)."""
    assert found.keys() == exact.keys()
    for name, value in found.items():
        assert value.shape == exact[name].shape, name
        error, theirs = (float((each[name].double() - exact[name].double()).abs().max()) for each in (found, eager))
        allowed = near * float(exact[name].double().abs().max()) + 4 * theirs
        assert error <= allowed, f"{name}: off by {error:.2g}, PyTorch by {theirs:.2g}, allowed {allowed:.2g}"


@pytest.mark.parametrize("file", some(FILES, 12), ids=lambda file: file.stem)
def test_written_modules_compute_what_the_module_does(file: Path) -> None:
    module, inputs = loaded(file)
    exact, eager = copy.deepcopy(module).double(), copy.deepcopy(module)
    fused = fusing.fuse(module, *inputs, emulate=True)
    dtypes = {t.dtype for t in (*inputs, *module.parameters()) if isinstance(t, torch.Tensor) and t.is_floating_point()}
    narrow = min(dtypes, key=lambda dtype: -torch.finfo(dtype).eps)
    convolves = any(isinstance(each, OURS) for each in module.modules())
    near = max(TOLERANCE[narrow], TF32 if convolves else 0.0)
    found = outputs_and_gradients(fused, inputs, exact=False)
    with RoundedOperands(10) if convolves else nullcontext():
        expected = outputs_and_gradients(exact, inputs, exact=True)
    compare(found, expected, outputs_and_gradients(eager, inputs, exact=False), near)
