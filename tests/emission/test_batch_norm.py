"""Batch norm in training, written: values, gradients and running statistics, in the dtypes and layouts there are."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import crucible
from crucible import fusing
from crucible.capture import trace
from crucible.emission.file import emit
from crucible.errors import CaptureError
from crucible.plan.planner import fuse
from crucible.task import Task
from support import some

pytestmark = pytest.mark.usefixtures("no_faults")
FILES = sorted((Path(__file__).parents[1] / "modules").glob("*batch_norm_train*.py"))


class Net(nn.Module):
    """A norm between two functions."""

    def __init__(self, norm: nn.Module, before: Callable[..., Any], after: Callable[..., Any]) -> None:
        super().__init__()
        self.norm, self.before, self.after = norm, before, after

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.after(self.norm(self.before(x)))  # type: ignore[no-any-return]


def same(x: torch.Tensor) -> torch.Tensor:
    return x


def randomised(norm: nn.Module) -> nn.Module:
    with torch.no_grad():
        for parameter in norm.parameters():
            parameter.uniform_(0.5, 2)
    return norm


def twice(module: nn.Module, x: torch.Tensor, cotangent: torch.Tensor) -> dict[str, torch.Tensor]:
    """What two calls leave, the second with another batch: output and gradients of that, and all buffers."""
    module(x * 0.5 + 0.25)
    given = x.detach().requires_grad_()
    out = module(given)
    parameters = dict(module.named_parameters())
    found = torch.autograd.grad(out, [given, *parameters.values()], cotangent.to(out.dtype))
    names = ["input", *parameters]
    return {"output": out.detach(), **dict(zip(names, found, strict=True)), **dict(module.named_buffers())}


def check(module: nn.Module, x: torch.Tensor, tolerance: float = 2e-5) -> nn.Module:
    """The fused module, which is as near to float64 as PyTorch in the same dtypes is, within a factor of 4 and
    `tolerance` of the largest value."""
    exact, eager = copy.deepcopy(module).double(), copy.deepcopy(module)
    fused = crucible.fuse(module, x, emulate=True)
    cotangent = torch.randn(eager(x).shape, dtype=torch.float64)
    eager = copy.deepcopy(module)
    found = twice(fused, x, cotangent)
    expected, theirs = twice(exact, x.double(), cotangent), twice(eager, x, cotangent)
    for name, value in found.items():
        error, noise = (float((each.double() - expected[name].double()).abs().max()) for each in (value, theirs[name]))
        allowed = 4 * noise + tolerance * float(expected[name].double().abs().max())
        assert error <= allowed, f"{name}: off by {error:.2g}, PyTorch by {noise:.2g}"
    return fused


def elu_pool(x: torch.Tensor) -> torch.Tensor:
    return F.avg_pool2d(F.elu(x), 3, 2, 1)


def tiling_max_pool(x: torch.Tensor) -> torch.Tensor:
    return F.max_pool2d(x.tanh(), 2)


def overlapping_max_pool(x: torch.Tensor) -> torch.Tensor:
    return F.max_pool2d(x.relu(), 3, 2, 1) * 2


def mean_of_twos(x: torch.Tensor) -> torch.Tensor:
    return F.avg_pool3d(x, 2).sigmoid()


CASES: dict[str, tuple[nn.Module, Callable[..., Any], tuple[int, ...]]] = {
    "chain": (nn.BatchNorm2d(5), F.gelu, (3, 5, 7, 9)),
    "rows": (nn.BatchNorm1d(37), torch.relu, (11, 37)),
    "lines": (nn.BatchNorm1d(4, momentum=0.7), F.silu, (3, 4, 130)),
    "without_buffers": (nn.BatchNorm2d(5, track_running_stats=False), torch.tanh, (3, 5, 7, 9)),
    "split_over_blocks": (nn.BatchNorm2d(2), torch.sin, (3, 2, 80, 81)),
    "average_pool": (nn.BatchNorm2d(3), elu_pool, (2, 3, 11, 14)),
    "average_pool_tiles": (nn.BatchNorm3d(3), mean_of_twos, (2, 3, 5, 6, 9)),
    "max_pool_tiles": (nn.BatchNorm2d(3), tiling_max_pool, (2, 3, 8, 12)),
    "max_pool": (nn.BatchNorm2d(3, affine=False), overlapping_max_pool, (2, 3, 11, 14)),
}


@pytest.mark.parametrize("name", some(sorted(CASES), 9))
def test_values_gradients_and_running_statistics(name: str) -> None:
    norm, after, shape = CASES[name]
    check(Net(randomised(norm), same, after), torch.randn(shape))


NARROW = list(itertools.product([torch.float16, torch.bfloat16], [F.gelu, elu_pool]))


@pytest.mark.parametrize(("dtype", "after"), some(NARROW, 3))
def test_narrow_inputs_with_wide_statistics(dtype: torch.dtype, after: Callable[..., Any]) -> None:
    module = Net(randomised(nn.BatchNorm2d(3)), same, after)
    check(module, (torch.randn(2, 3, 6, 10) + 1).to(dtype), 4 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("after", some([elu_pool, same], 2))
def test_a_mean_of_a_thousand_deviations(after: Callable[..., Any]) -> None:
    check(Net(nn.BatchNorm2d(3), same, after), torch.randn(4, 3, 20, 22) + 1000, 1e-5)


def test_channels_last_and_double_precision() -> None:
    x = torch.randn(3, 8, 6, 7).to(memory_format=torch.channels_last)
    fused = check(Net(randomised(nn.BatchNorm2d(8)), torch.sigmoid, torch.relu), x)
    assert fused(x).is_contiguous(memory_format=torch.channels_last)
    check(Net(randomised(nn.BatchNorm2d(8)), same, elu_pool).double(), x.double(), 1e-12)


def test_a_chain_before_the_norm_goes_into_the_pool_too(monkeypatch: pytest.MonkeyPatch) -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.slope = nn.BatchNorm2d(3), nn.Parameter(torch.rand(3, 1, 1))
            self.conv, self.everywhere = nn.Conv2d(3, 3, 1), nn.Parameter(torch.rand(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return elu_pool(self.norm(torch.tanh(self.conv(x) * self.slope + self.everywhere)) + self.slope)

    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)  # the convolution is ours, in front of a chain
    check(Scaled(), torch.randn(2, 3, 11, 14))


def test_two_norms_added_fit_in_registers_in_eights() -> None:
    """Neighbours are channels, of which a thread would take eight of bfloat16 with 32 values for each of them."""

    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.main, self.side = nn.Conv2d(160, 160, 3, padding=1, bias=False), nn.Conv2d(160, 160, 1, bias=False)
            self.norm, self.other = randomised(nn.BatchNorm2d(160)), randomised(nn.BatchNorm2d(160))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(self.norm(self.main(x)) + self.other(self.side(x)))

    x = torch.randn(2, 160, 2, 2).bfloat16().to(memory_format=torch.channels_last)
    check(Residual().bfloat16(), x, 4 * torch.finfo(torch.bfloat16).eps)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_no_module_leaves_batch_norm_to_pytorch(file: Path) -> None:
    task = Task.load(file).at(scale="small", training=True, mode="train", small_by_default=True)
    text = fusing.write(task)
    assert "aten.batch_norm" not in text
    assert "running_mean.copy_(" not in text and "torch._foreach_copy_([" in text  # one launch for both
    assert "num_batches_tracked.add_(1)" in text and "num_batches_tracked.copy_" not in text


def test_a_count_of_batches_that_something_else_reads_is_no_addition_in_place() -> None:
    """A momentum of None averages over all batches so far: the factor is of the new count."""

    class Counting(nn.Module):
        def __init__(self, reads: bool) -> None:
            super().__init__()
            self.reads = reads
            self.register_buffer("seen", torch.tensor(0))

        def forward(self, x: torch.Tensor) -> Any:
            self.seen.add_(2)
            return (x.tanh(), self.seen + 0) if self.reads else x.tanh()

    x = torch.randn(4, 5)
    for reads in (False, True):
        text = emit(fuse(trace(Counting(reads), [x])), "counting", loader="crucible.emulator")
        assert ("self.seen.add_(2)" in text) != reads
        assert ("self.seen.copy_(" in text) == reads


class Recorded(TorchDispatchMode):
    """The calls of written operators."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: dict[str, tuple[Any, tuple[Any, ...]]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace.startswith("crucible_fused"):
            self.calls[func._schema.name] = func, tuple(each.detach().clone() for each in args)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("after", some([elu_pool, F.silu], 2))
def test_operators_keep_what_they_promise(after: Callable[..., Any]) -> None:
    module = Net(nn.BatchNorm2d(3), nn.Conv2d(3, 3, 1), after)
    x = torch.randn(2, 3, 6, 10, requires_grad=True)
    fused = crucible.fuse(module, x, emulate=True)
    with Recorded() as recorded:
        fused(x).sum().backward()
    assert len(recorded.calls) == 2
    for operator, args in recorded.calls.values():
        names = [argument.name for argument in operator._schema.arguments]
        forward = not operator._schema.name.endswith("_backward")
        given = (each.requires_grad_(forward and "running" not in name) for name, each in zip(names, args, strict=True))
        torch.library.opcheck(operator, tuple(given))


def test_the_bias_before_a_norm_has_a_gradient_of_zero() -> None:
    """As PyTorch's, but for roundings; optimisers and torch.autograd.grad ask for one."""
    module = Net(nn.BatchNorm2d(3), nn.Conv2d(3, 3, 1), F.silu)
    x = torch.randn(2, 3, 6, 10)
    crucible.fuse(module, x, emulate=True)(x).sum().backward()
    assert torch.equal(module.before.bias.grad, torch.zeros(3))


def test_what_has_no_slope_has_a_gradient_of_zero() -> None:
    x = torch.randn(3, 5, requires_grad=True)
    module = Net(nn.Identity(), torch.sign, same)
    crucible.fuse(module, x, emulate=True)(x).sum().backward()
    assert torch.equal(x.grad, torch.zeros(3, 5))  # type: ignore[arg-type]


def test_one_value_for_a_channel_is_refused_as_pytorch_does() -> None:
    with pytest.raises(CaptureError, match="Expected more than 1 value per channel when training"):
        crucible.fuse(nn.BatchNorm1d(4), torch.rand(1, 4), emulate=True)


def test_it_compiles_as_one_graph_and_still_updates() -> None:
    module, x = Net(nn.BatchNorm2d(3), same, elu_pool), torch.randn(2, 3, 6, 10)
    eager = copy.deepcopy(module)
    compiled = torch.compile(crucible.fuse(module, x, emulate=True), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), eager(x), rtol=1e-4, atol=1e-5)
    for name, buffer in eager.named_buffers():
        torch.testing.assert_close(module.get_buffer(name), buffer)
