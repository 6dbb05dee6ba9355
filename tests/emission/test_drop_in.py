"""A fused module in the place of the module: state, modes, copies, compilation, other inputs, errors."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.profiler import profile
from torch.utils._python_dispatch import TorchDispatchMode

import crucible
from crucible import fusing
from crucible.errors import CaptureError, DeviceError
from support import some

pytestmark = pytest.mark.usefixtures("no_faults")


class Net(nn.Module):
    """A chain, a pool and a norm behind a convolution, which runs channels-last."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 72, 1)
        self.norm = nn.GroupNorm(2, 72)
        self.scale = nn.Parameter(torch.rand(72, 1, 1))
        self.register_buffer("shift", torch.tensor(0.5))

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        y = F.silu(self.norm(self.conv(x) * self.scale)) + self.shift
        return {"pooled": F.max_pool2d(y, 2), "mean": y.mean((2, 3))}


@pytest.fixture(scope="module")
def net() -> Net:
    torch.manual_seed(0)
    return Net()


@pytest.fixture(scope="module")
def fused(net: Net) -> nn.Module:
    return crucible.fuse(net, torch.rand(2, 4, 7, 9), emulate=True)  # type: ignore[no-any-return]


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        torch.testing.assert_close(value, other[name], rtol=1e-4, atol=1e-5)


def test_it_is_the_module_with_the_same_parameters(net: Net, fused: nn.Module) -> None:
    assert isinstance(fused, Net)
    assert dict(fused.named_parameters()).keys() == dict(net.named_parameters()).keys()
    assert all(p is q for p, q in zip(fused.parameters(), net.parameters(), strict=True))
    assert type(net) is Net


def test_state_is_saved_and_loaded_as_before(net: Net, fused: nn.Module) -> None:
    stream = io.BytesIO()
    torch.save(fused.state_dict(), stream)
    stream.seek(0)
    other = Net()
    other.load_state_dict(torch.load(stream))
    x = torch.rand(2, 4, 7, 9)
    same(fused(x), other(x))


def test_gradients_reach_every_parameter(net: Net, fused: nn.Module) -> None:
    """Each is as near to float64 as eager is: that of a bias before a norm is what is left of sums that cancel."""
    given = torch.rand(2, 4, 7, 9)

    def gradients(module: nn.Module, x: torch.Tensor) -> dict[str, torch.Tensor]:
        out = module(x.requires_grad_())
        loss = out["pooled"].square().sum() + out["mean"].sin().sum()
        names = ["x", *(name for name, _ in module.named_parameters())]
        return dict(zip(names, torch.autograd.grad(loss, [x, *module.parameters()]), strict=True))

    found, eager = gradients(fused, given.clone()), gradients(net, given.clone())
    for name, exact in gradients(copy.deepcopy(net).double(), given.double()).items():
        apart = [float((each[name].double() - exact).norm()) for each in (found, eager)]
        assert apart[0] <= 5 * apart[1] + 1e-5 * float(exact.norm()), name


def test_an_expanded_gradient_and_a_transposed_input_are_copied_into_place(net: Net, fused: nn.Module) -> None:
    x = torch.rand(7, 2, 9, 4).permute(1, 3, 0, 2).requires_grad_()
    for module in (net, fused):
        module(x)["mean"].sum().backward()
    assert x.grad is not None


def beside_its_start(value: torch.Tensor) -> torch.Tensor:
    """The same, four bytes behind a whole sixteen."""
    return torch.cat([torch.zeros(1), value.flatten()])[1:].view(value.shape)


def rounded(value: torch.Tensor) -> torch.Tensor:
    """As TF32 holds it."""
    return (value * 64).round() / 64


def test_tensors_that_begin_within_sixteen_bytes_are_copied() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv3d(3, 8, 2), nn.LeakyReLU(0.25))
    x, grad = torch.randn(1, 3, 3, 9, 33), torch.randn(1, 8, 2, 8, 32)
    x, grad, module[0].weight.data = (rounded(each) for each in (x, grad, module[0].weight.data))
    fused = crucible.fuse(module, x, emulate=True)
    found = []
    for each in (module, fused):
        given = beside_its_start(x).requires_grad_()
        out = each(given)
        found.append((out, *torch.autograd.grad(out, [given, *each.parameters()], beside_its_start(grad))))
    for theirs, ours in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("make", "shape"),
    some(
        [
            (lambda: nn.Sequential(nn.AvgPool2d(2), nn.Sigmoid()), (1, 4, 8, 16)),
            (lambda: nn.Sequential(nn.LayerNorm(64), nn.Sigmoid()), (6, 64)),
        ],
        2,
    ),
)
def test_kernels_of_packs_are_given_copies_of_what_begins_within_sixteen_bytes(
    make: Callable[[], nn.Module], shape: tuple[int, ...]
) -> None:
    """They load sixteen bytes at once, wherever they stand."""
    torch.manual_seed(0)
    module, x = make(), torch.randn(shape)
    grad = torch.randn_like(module(x))
    fused = crucible.fuse(module, x, emulate=True)
    with torch.no_grad():
        for each in (*module.parameters(), *fused.parameters()):
            each.data = beside_its_start(each.data)
    given = beside_its_start(x).requires_grad_()
    assert all(each.data_ptr() % 16 for each in (given, *fused.parameters()))
    found = []
    for each in (module, fused):
        out = each(given)
        found.append((out, *torch.autograd.grad(out, [given, *each.parameters()], beside_its_start(grad))))
    for theirs, ours in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def test_a_copy_has_parameters_of_its_own(fused: nn.Module) -> None:
    other = copy.deepcopy(fused)
    with torch.no_grad():
        next(other.parameters()).add_(1.0)
    assert not torch.equal(next(other.parameters()), next(fused.parameters()))
    x = torch.rand(2, 4, 7, 9)
    assert not torch.allclose(other(x)["mean"], fused(x)["mean"])


def test_it_compiles_as_one_graph(net: Net, fused: nn.Module) -> None:
    x = torch.rand(2, 4, 7, 9)
    compiled = torch.compile(fused, fullgraph=True, backend="aot_eager")
    same(compiled(x), net(x))
    compiled(x)["mean"].sum().backward()


def test_under_autocast_it_casts_as_eager_does() -> None:
    torch.manual_seed(0)
    net, x = nn.Sequential(nn.Linear(32, 48), nn.LayerNorm(48), nn.GELU(), nn.Softmax(-1)), torch.rand(8, 32)
    fused = crucible.fuse(net, x, emulate=True)
    for within in (False, True):  # backward
        found = []
        for module in (fused, net):
            with torch.autocast("cpu", torch.bfloat16):
                out = module(x)
                loss = (out.float() * torch.linspace(-1, 1, 48)).square().sum()
                gradients = torch.autograd.grad(loss, list(module.parameters())) if within else None
            found.append((out.detach(), *(gradients or torch.autograd.grad(loss, list(module.parameters())))))
        for own, eager in zip(*found, strict=True):
            assert own.dtype == eager.dtype
            torch.testing.assert_close(own, eager, rtol=2e-2, atol=2e-2 * float(eager.abs().max()))
    assert fused(x).dtype == torch.float32 and not torch.is_autocast_enabled("cpu")
    with torch.autocast("cpu", torch.bfloat16):  # whatever was written between
        assert fused(x).dtype == torch.bfloat16 and torch.is_autocast_enabled("cpu")
    assert len(fused._written) == 2


def test_what_was_written_outside_of_autocast_refuses_it() -> None:
    module, x = nn.Sequential(nn.Tanh(), nn.Sigmoid()), torch.rand(4, 4)
    written = fusing.written_forward(module, [x], emulate=True)
    with torch.autocast("cpu"), pytest.raises(RuntimeError, match=r"outside of torch\.autocast"):
        written(module, x)


def test_it_is_written_again_for_other_inputs(net: Net, fused: nn.Module) -> None:
    x = torch.rand(1, 4, 5, 6)
    same(fused(x), net(x))


def test_beyond_so_many_forms_the_module_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fusing, "MOST_FORMS", 1)
    module = nn.Sequential(nn.Sigmoid(), nn.Tanh())
    fused = crucible.fuse(module, torch.rand(2, 3), emulate=True)
    for size in (4, 5):
        x = torch.rand(size, 3, requires_grad=True)
        with pytest.warns(UserWarning, match="Sequential was written for 1 forms of inputs: others go through its own"):
            out = fused(x)
        assert torch.equal(out, module(x)) and out.grad_fn is not None
    assert len(fused._written) == 1
    crucible.fuse(fused, x, emulate=True)  # asked for by name, it is written
    assert len(fused._written) == 2


def test_arguments_may_be_given_by_name() -> None:
    class Scaled(nn.Module):
        def forward(
            self, x: torch.Tensor, factor: float = 2.0, shift: torch.Tensor | None = None, *, unread: int = 0
        ) -> torch.Tensor:
            return x.tanh() * factor if shift is None else x.tanh() * factor + shift

    module, x, shift = Scaled(), torch.rand(3, 5), torch.rand(5)
    fused = crucible.fuse(module, x, emulate=True)
    torch.testing.assert_close(fused(x=x), module(x))
    assert len(fused._written) == 1
    torch.testing.assert_close(fused(x, shift=shift), module(x, shift=shift))
    with pytest.raises(TypeError, match="unexpected keyword argument 'scale'"):
        fused(x, scale=2.0)
    with pytest.raises(TypeError, match="by name alone: unread"):
        fused(x, unread=1)


def test_double_precision_passes_gradcheck() -> None:
    """Every family: chain, row norm, pool that tiles, pool that overlaps, softmax along channels."""

    def forward(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        y = F.max_pool2d(F.gelu(x * weight).sigmoid(), 2)
        z = F.avg_pool2d(F.layer_norm(y, y.shape[-2:]), 3, 1, 1).softmax(1)
        return z.logsumexp(-1).tanh()

    class Double(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.rand(2, 1, 1, dtype=torch.float64))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return forward(x, self.weight)

    module = Double()
    x = torch.rand(2, 2, 4, 6, dtype=torch.float64, requires_grad=True)
    fused = crucible.fuse(module, x, emulate=True)
    torch.testing.assert_close(fused(x), module(x), rtol=1e-10, atol=1e-12)
    assert torch.autograd.gradcheck(lambda x, _: fused(x), (x, module.weight), fast_mode=True)


class Recorded(TorchDispatchMode):
    """The calls of written operators."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: dict[str, tuple[Any, tuple[Any, ...]]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace.startswith("crucible_fused"):
            self.calls[func._schema.name] = func, tuple(each.detach().clone() for each in args)
        return func(*args, **(kwargs or {}))


def test_operators_keep_what_they_promise(fused: nn.Module) -> None:
    """Schema, shapes and gradients of each operator, forward and backward, by PyTorch's own check."""
    x = torch.rand(2, 4, 7, 9, requires_grad=True)
    with Recorded() as recorded:
        out = fused(x)
        (out["pooled"].sum() + out["mean"].sum()).backward()
    assert len(recorded.calls) >= 4
    for operator, args in recorded.calls.values():
        differentiable = not operator._schema.name.endswith("_backward")
        torch.library.opcheck(operator, tuple(each.requires_grad_(differentiable) for each in args))


def test_what_is_fused_already_is_written_for_more(fused: nn.Module) -> None:
    assert crucible.fuse(fused, torch.rand(2, 4, 7, 9), emulate=True) is fused


def test_inputs_on_the_cpu_need_the_emulator(net: Net) -> None:
    with pytest.raises(DeviceError, match=r"input 0 is on cpu: .*emulate=True"):
        crucible.fuse(net, torch.rand(2, 4, 7, 9))


def test_what_cannot_be_captured_is_refused_with_its_line() -> None:
    class Decides(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2 if x.sum() > 0 else x

    with pytest.raises(CaptureError, match=r"x\.sum\(\) > 0"):
        crucible.fuse(Decides(), torch.rand(3), emulate=True)


class Pooled(nn.Module):
    """A convolution whose kernel pools."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv3d(3, 4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.max_pool3d(F.leaky_relu(self.conv(x), 0.2), 2)


class Operators(TorchDispatchMode):
    """The names of the written operators that are called."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace.startswith("crucible"):
            self.names.append(func._opname)
        return func(*args, **(kwargs or {}))


def test_a_pool_inside_of_a_convolution_keeps_its_choices_for_gradients_alone() -> None:
    module = Pooled()
    x = torch.rand(2, 3, 5, 5, 7)
    fused = crucible.fuse(module, x, emulate=True)
    with torch.no_grad(), Operators() as alone:
        found = fused(x)
    with Operators() as learning:
        again = fused(x)
        again.sum().backward()
    name = "conv3d_leaky_relu_max_pool3d"
    assert alone.names == [name]
    assert learning.names == [f"{name}_keeping", f"{name}_backward"]
    torch.testing.assert_close(found, module(x), rtol=2e-3, atol=2e-3)
    assert torch.equal(found, again) and module.conv.weight.grad is not None
    for parameter in module.parameters():
        parameter.requires_grad_(False)
    with Operators() as frozen:
        fused(x)
    assert frozen.names == [name]


def happened(module: nn.Module, x: torch.Tensor) -> set[str]:
    """What PyTorch recorded of forward and backward."""
    with profile() as recorded:
        module(x).sum().backward()
    return {event.key for event in recorded.key_averages()}


def test_kernels_are_called_without_operators_where_nobody_looks_on() -> None:
    x = torch.rand(2, 3, 5, 5, 7)
    fused = crucible.fuse(Pooled(), x, emulate=True)
    alone = happened(fused, x)
    with Operators():
        watched = happened(fused, x)
    assert not [name for name in alone if name.startswith("crucible")]
    assert len([name for name in watched if name.startswith("crucible")]) == 2
    assert not {"aten::zeros", "aten::zero_"} & (alone | watched)  # gradients of what only backward reads


def test_an_operator_that_gets_no_gradient_gives_none() -> None:
    class Nothing(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, y: torch.Tensor) -> torch.Tensor:
            return y.clone()

        @staticmethod
        def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
            return None

    x = torch.rand(2, 3, 5, 5, 7, requires_grad=True)
    fused = crucible.fuse(Pooled(), x, emulate=True)
    for watching in (nullcontext(), Operators()):
        with watching:
            (Nothing.apply(fused(x)).sum() + 2.0 * x.sum()).backward()
    assert fused.conv.weight.grad is None
    assert x.grad is not None and bool((x.grad == 4.0).all())


@pytest.mark.parametrize("watching", [nullcontext, Operators])
def test_a_second_derivative_is_missed_aloud(watching: Any) -> None:
    x = torch.rand(2, 3, 5, 5, 7, requires_grad=True)
    fused = crucible.fuse(Pooled(), x, emulate=True)
    with watching():
        (gradient,) = torch.autograd.grad(fused(x).sum(), x, create_graph=True)
    with pytest.warns(UserWarning, match="an autograd kernel was not registered"):
        gradient.sum().backward()


class Stacked(nn.Module):
    """Submodules that are called by numbers, and by a word of Python."""

    def __init__(self) -> None:
        super().__init__()
        self.stages = nn.Sequential(nn.Linear(6, 5), nn.Sequential(nn.LayerNorm(5), nn.SiLU()))
        self.heads = nn.ModuleList([nn.Linear(5, 2), nn.Linear(5, 3)])
        self.add_module("lambda", nn.PReLU())

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        y = getattr(self, "lambda")(self.stages(x))
        return [head(y).sigmoid() for head in self.heads]


@pytest.mark.parametrize("module", some([Stacked(), Stacked().stages], 2), ids=some(["inside", "itself"], 2))
def test_submodules_may_be_called_by_numbers(module: nn.Module) -> None:
    x = torch.rand(7, 6)
    made = crucible.fuse(module, x, emulate=True)
    got, expected = made(x), module(x)
    pairs = zip(got, expected, strict=True) if isinstance(expected, list) else [(got, expected)]
    for one, other in pairs:
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(
        *(torch.autograd.grad(m(x)[0].sum(), list(m.parameters())[:1])[0] for m in (made, module))
    )


@pytest.fixture(scope="module")
def pooled() -> nn.Module:
    torch.manual_seed(0)
    return crucible.fuse(Pooled(), torch.rand(2, 3, 5, 5, 7), emulate=True)  # type: ignore[no-any-return]


def an_input() -> torch.Tensor:
    return torch.rand(2, 3, 5, 5, 7, requires_grad=True)


def test_what_backward_reads_may_not_be_changed_before(pooled: nn.Module) -> None:
    out = pooled(an_input())
    with torch.no_grad():
        pooled.conv.weight.mul_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_a_graph_is_kept_where_that_is_asked_for_and_freed_otherwise(pooled: nn.Module) -> None:
    x = an_input()
    out = pooled(x).sum()
    first, second = (torch.autograd.grad(out, x, retain_graph=retain)[0] for retain in (True, False))
    assert torch.equal(first, second)
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        torch.autograd.grad(out, x)


def test_gradients_of_several_cotangents_at_once_are_those_of_each(pooled: nn.Module) -> None:
    x = an_input()
    out = pooled(x)
    cotangents = torch.rand(3, *out.shape)
    (batched,) = torch.autograd.grad(out, x, cotangents, retain_graph=True, is_grads_batched=True)
    each = [torch.autograd.grad(out, x, cotangent, retain_graph=True)[0] for cotangent in cotangents]
    assert torch.equal(batched, torch.stack(each))


def test_who_looks_on_at_backward_alone_sees_its_operator(pooled: nn.Module) -> None:
    out = pooled(an_input())
    with Operators() as looking:
        out.sum().backward()
    assert looking.names == ["conv3d_leaky_relu_max_pool3d_backward"]


def test_only_what_takes_a_gradient_gets_one(pooled: nn.Module) -> None:
    x = an_input().detach()
    parameters = list(pooled.parameters())
    gradients = torch.autograd.grad(pooled(x).sum(), parameters)
    assert [each.shape for each in gradients] == [each.shape for each in parameters]
    assert not x.requires_grad and pooled(x).requires_grad
    with torch.inference_mode():
        assert not pooled(x).requires_grad


def test_hooks_of_saved_tensors_and_anomaly_mode_see_the_step(pooled: nn.Module) -> None:
    packed: list[torch.Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t) or t, lambda t: t):
        out = pooled(an_input())
    assert len(packed) == 5  # input, weight, bias, and what a window keeps
    with torch.autograd.detect_anomaly(check_nan=True), pytest.raises(RuntimeError, match="returned nan values"):
        pooled(an_input()).backward(torch.full_like(out, torch.nan))


def test_a_view_that_stands_for_its_negative_is_read_as_that(pooled: nn.Module) -> None:
    x = torch.rand(2, 3, 5, 5, 7)
    assert torch.equal(pooled(torch._neg_view(x)), pooled(-x))


@pytest.mark.parametrize("option", ["tune", "race", "cuda_graph"])
def test_what_needs_a_gpu_is_refused_on_the_emulator(option: str) -> None:
    with pytest.raises(DeviceError, match=f"fuse: {option} needs a GPU"):
        crucible.fuse(nn.ReLU(), torch.randn(4), emulate=True, **{option: True})
