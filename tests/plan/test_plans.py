"""Plans of small modules: what shares a kernel, and that it computes what the module does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from interpret import check, planned, run
from torch import nn

from crucible.algebra.convolution.correlation import convolution, input_gradient
from crucible.algebra.convolution.fused import Convolution
from crucible.algebra.evaluate import evaluate_program
from crucible.algebra.program import Program, reads
from crucible.capture import trace
from crucible.emission.file import emit
from crucible.gpus import GPUS, H200, SHARED_RESERVED_BYTES, Gpu, known_gpu
from crucible.plan import reductions
from crucible.plan.planner import MOST_OPERANDS, fuse
from crucible.plan.steps import Call, Fused, Plan
from crucible.schedule.convolution.tile_choice import tile
from crucible.schedule.convolution.tiling import STATIC_SHARED
from crucible.schedule.convolution.weight_division import divide
from crucible.schedule.passes import passes


class Module(nn.Module):
    """A function with some parameters."""

    def __init__(self, function: Callable[..., object], **parameters: object) -> None:
        super().__init__()
        self.function = function
        for name, value in parameters.items():
            if isinstance(value, nn.Module):
                setattr(self, name, value)
            elif isinstance(value, torch.Tensor):
                self.register_parameter(name, nn.Parameter(value))

    def forward(self, *inputs: torch.Tensor) -> object:
        return self.function(self, *inputs)


def kernels(plan: Plan) -> list[str]:
    return [step.name for step in plan.steps if isinstance(step, Fused)]


def calls(plan: Plan) -> list[str]:
    return [step.operation.kind for step in plan.steps if isinstance(step, Call)]


def test_a_chain_behind_a_convolution_is_one_kernel_and_takes_its_bias() -> None:
    def forward(self: Module, x: torch.Tensor) -> torch.Tensor:
        y = F.leaky_relu(self.conv(x), 0.2) + self.sum
        return F.gelu(torch.clamp(y, min=-1, max=1))

    module = Module(forward, conv=nn.Conv2d(2, 65, 1), sum=torch.randn(65, 1, 1))
    plan = check(module, torch.rand(2, 2, 5, 6))
    assert calls(plan) == ["conv2d"]
    assert kernels(plan) == ["bias_leaky_relu_add_clamp_gelu"]


DROPPED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "elements": lambda x: F.dropout(x, 0.3),
    "in place": lambda x: F.dropout(x * 1.5, 0.3, inplace=True),
    "channels": lambda x: F.dropout2d(x.view(6, 4, 2, 3), 0.3).flatten(1),
    "to another number": lambda x: F.alpha_dropout(x.clamp(max=0.0).clamp(min=0.0), 0.3, training=True),
    "all": lambda x: F.dropout(x, 1.0) + x,
    "twice": lambda x: F.dropout(F.dropout(x, 0.3).tanh(), 0.2) + F.dropout(x, 0.3),
}


@pytest.mark.parametrize("name", DROPPED)
def test_dropout_in_training_is_pytorchs_and_draws_what_the_module_draws(name: str) -> None:
    """Between kernels: the layer in front keeps its bias, as no chain follows it."""
    module = Module(lambda m, x: F.softmax(DROPPED[name](m.fc(x)) * 2, 1) * x.sum(), fc=nn.Linear(20, 24))
    plan = check(module, torch.randn(6, 20))
    drops = [each for each in plan.steps if isinstance(each, Call) and "dropout" in each.operation.kind]
    assert drops and all("same seed" in each.why for each in drops)
    if name == "elements":
        assert calls(plan) == ["linear", "dropout"] and kernels(plan) == ["sum", "mul_softmax"]


def test_dropout_that_drops_nothing_is_no_call() -> None:
    module = Module(lambda m, x: F.dropout(F.dropout1d(m.fc(x).tanh()[None], 0.0), 0.5, training=False).exp(),
                    fc=nn.Linear(20, 24))  # fmt: skip
    assert calls(check(module, torch.randn(6, 20))) == ["linear"]


def test_a_convolution_takes_the_chain_behind_it() -> None:
    def forward(self: Module, x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        y = F.leaky_relu(self.conv(x), 0.2) + self.sum
        return F.gelu(torch.clamp(y, min=-1, max=1)) * other

    module = Module(forward, conv=nn.Conv3d(3, 4, 3, 2, 1), sum=torch.randn(4, 1, 1, 1))
    plan = check(module, torch.rand(2, 3, 4, 5, 6), torch.rand(2, 4, 2, 3, 3), gradients=False)
    assert calls(plan) == []
    assert kernels(plan) == ["conv3d_leaky_relu_add_clamp_gelu_mul"]


def test_convolutions_that_were_not_measured_stay_with_pytorch() -> None:
    for conv in (nn.Conv3d(2, 65, 1), nn.Conv3d(34, 34, 1, groups=17), nn.Conv2d(2, 65, 1)):
        shape = (2, conv.in_channels, *[4] * len(conv.kernel_size))
        assert calls(fuse(trace(nn.Sequential(conv, nn.ReLU()), [torch.rand(shape)])))


@pytest.mark.parametrize(
    ("conv", "shape"),
    [
        (nn.Conv1d(3, 5, 4, 2, 1), (2, 3, 11)),
        (nn.ConvTranspose1d(3, 5, 4, 2, 1), (2, 3, 11)),
        (nn.Conv2d(16, 24, 3, padding=1, groups=2), (2, 16, 5, 6)),
        (nn.ConvTranspose2d(16, 24, 3, 2, groups=2), (2, 16, 4, 5)),
        (nn.Conv2d(24, 24, 3, padding=1, groups=24), (2, 24, 5, 6)),
        (nn.ConvTranspose1d(24, 24, 4, 2, 1, groups=12), (2, 24, 9)),
        (nn.Conv2d(3, 5, (3, 5), padding="same", dilation=(2, 1)), (2, 3, 7, 8)),
        (nn.Conv3d(3, 5, 3, padding="valid"), (2, 3, 4, 5, 6)),
    ],
    ids=str,
)
def test_one_dim_groups_and_padding_by_name_take_their_chain(conv: nn.Module, shape: tuple[int, ...]) -> None:
    module = Module(lambda self, x: F.gelu(self.conv(x)) * 2, conv=conv)
    plan = check(module, torch.randn(shape), gradients=False)
    assert not calls(plan) and len(kernels(plan)) == 1


SQUARE: dict[str, Callable[[Module, torch.Tensor], torch.Tensor]] = {
    "a pool": lambda m, x: F.avg_pool2d(x, 2),
    "a pool whose windows overlap": lambda m, x: F.max_pool2d(x, 3, 1),
    "a convolution": lambda m, x: m.conv(x),
    "a convolution with a pool": lambda m, x: F.max_pool2d(m.conv(x), 2),
}
"""Of as many rows as columns."""


@pytest.mark.parametrize("name", SQUARE)
def test_rows_and_columns_that_are_exchanged_are_not_taken_for_each_other(name: str) -> None:
    def forward(self: Module, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y, z = SQUARE[name](self, x), SQUARE[name](self, x + 1)
        return torch.tanh(y * y.transpose(2, 3)), z.transpose(2, 3).sin(), self.after(SQUARE[name](self, x - 1).mT)

    module = Module(forward, conv=nn.Conv2d(3, 3, 3, padding=1), after=nn.Conv2d(3, 2, 3))
    check(module, torch.randn(2, 3, 8, 8), gradients=False)


def test_what_meets_its_own_transpose_is_computed_once() -> None:
    module = Module(lambda self, x: (y := F.max_pool2d(x, 2)) + y.transpose(2, 3))
    plan = check(module, torch.randn(2, 3, 8, 8), gradients=False)
    assert calls(plan) == ["transpose"] and kernels(plan) == ["max_pool2d", "add"]


@pytest.mark.parametrize("shape", [(3, 3), (1, 2, 2, 2)])
def test_what_meets_its_own_transpose_twice_keeps_both(shape: tuple[int, ...]) -> None:
    """The name that the one gets in a sum is what the other had in the product."""

    def forward(self: Module, x: torch.Tensor) -> torch.Tensor:
        turned = x.transpose(-1, 1 - len(shape))
        return turned - x * turned + (x + turned * 2).exp()

    check(Module(forward), torch.randn(shape))


FRONTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu": torch.relu,
    "scaled": lambda x: F.leaky_relu(x * 0.5, 0.1),
    "turned": lambda x: x.transpose(2, 3).clamp(-1, 1),
    "squared": lambda x: x * x.abs(),
}


@pytest.mark.parametrize("name", FRONTS)
def test_a_chain_in_front_is_inside_of_a_convolution_by_warps(name: str) -> None:
    module = Module(lambda self, x: torch.tanh(self.conv(FRONTS[name](x))), conv=nn.Conv2d(3, 5, 3, padding=1))
    x, ampere = torch.randn(2, 3, 5, 6), known_gpu("a100")
    check(module, x, gradients=False)
    (step,) = fuse(trace(module.float(), [x]), gpu=ampere).steps
    assert isinstance(step, Fused) and isinstance(step.compute, Convolution) and step.compute.front is not None


def test_a_chain_in_front_goes_with_the_product_that_is_written() -> None:
    module = nn.Sequential(nn.ReLU(), nn.Conv2d(3, 5, 3, padding=1), nn.Flatten(2), nn.Softmax(-1))
    plan = fuse(trace(module, [torch.randn(2, 3, 5, 6)]), gpu=known_gpu("a100"))
    first, *_ = plan.steps
    assert isinstance(first, Fused) and first.name == "relu_conv2d" and len(first.covers) == 2


APART: dict[str, Callable[[Module, torch.Tensor], object]] = {
    "read twice": lambda m, x: (m.conv(y := x.relu()) + y.sum()).tanh(),
    "returned": lambda m, x: ((y := x.relu()), m.conv(y).tanh()),
    "zero is not kept": lambda m, x: m.conv(x + 1).tanh(),
    "dear": lambda m, x: m.conv(F.gelu(x)).tanh(),
    "a sum": lambda m, x: m.conv(x * 3 + x.abs()).tanh(),
    "of two tensors": lambda m, x: m.conv(x * m.scale).tanh(),
    "expanded": lambda m, x: m.conv(x[:1].expand(2, -1, -1, -1)).tanh(),
    "expanded behind": lambda m, x: m.conv(x[:1].relu().expand(2, -1, -1, -1)).tanh(),
}


@pytest.mark.parametrize("name", APART)
def test_what_else_is_in_front_is_computed_before(name: str) -> None:
    module = Module(
        lambda self, x: APART[name](self, x), conv=nn.Conv2d(3, 5, 3, padding=1), scale=torch.randn(3, 1, 1)
    )
    x = torch.randn(2, 3, 5, 6)
    check(module, x, gradients=False)
    plan = fuse(trace(module.float(), [x]), gpu=known_gpu("a100"))
    found = [s.compute for s in plan.steps if isinstance(s, Fused) and isinstance(s.compute, Convolution)]
    assert found and all(conv.front is None and all(conv.source.strides) for conv in found)


def test_a_chain_in_front_stays_apart_where_warpgroups_multiply() -> None:
    module = nn.Sequential(nn.ReLU(), nn.Conv3d(32, 64, 3, padding=1), nn.Tanh())
    plan = fuse(trace(module, [torch.randn(8, 32, 16, 64, 64)]))
    assert kernels(plan) == ["relu", "conv3d_tanh"]


@pytest.mark.filterwarnings("ignore:Using padding")
def test_padding_that_differs_from_side_to_side_stays_with_pytorch() -> None:
    module = Module(lambda self, x: F.relu(self.conv(x)), conv=nn.Conv1d(3, 5, 4, padding="same"))
    assert calls(check(module, torch.randn(2, 3, 11), gradients=False)) == ["conv1d"]


@pytest.mark.parametrize("shape", [(7, 12), (2, 7, 12), (2, 3, 5, 12), (2, 3, 2, 5, 12)])
@pytest.mark.parametrize("bias", [True, False])
def test_a_linear_layer_of_few_features_takes_its_chain(shape: tuple[int, ...], bias: bool) -> None:
    def forward(self: Module, x: torch.Tensor) -> torch.Tensor:
        return F.silu(self.layer(x) * self.scale)

    module = Module(forward, layer=nn.Linear(12, 5, bias), scale=torch.randn(5))
    plan = check(module, torch.randn(shape), gradients=False)
    assert not calls(plan) and kernels(plan) == ["linear_mul_silu"]
    (output,) = plan.graph.outputs
    assert plan.types[output].strides == torch.empty((*shape[:-1], 5)).stride()


def test_linear_layers_stay_with_pytorch_where_theirs_is_faster_or_keeps_float32() -> None:
    behind: dict[str, tuple[nn.Module, int, dict[str, bool]]] = {
        "many features": (nn.ReLU(), 17, {}),
        "nothing behind": (nn.Identity(), 4, {}),
        "features are reduced": (nn.Softmax(-1), 4, {}),
        "float32 is kept": (nn.ReLU(), 4, {"tf32_linear": False}),
        "all float32 is kept": (nn.ReLU(), 4, {"tf32": False}),
    }
    for name, (chain, features, options) in behind.items():
        graph = trace(nn.Sequential(nn.Linear(features, features), chain), [torch.rand(3, features)])
        assert calls(fuse(graph, **options)) == ["linear"], name
    halves = trace(nn.Sequential(nn.Linear(4, 4), nn.ReLU()).half(), [torch.rand(3, 4).half()])
    assert not calls(fuse(halves, tf32_linear=False))


@pytest.mark.parametrize(
    ("taps", "groups", "kept"), [((5, 5, 5), 6, True), ((3, 3, 3), 6, False), ((5, 5, 5), 3, False)]
)
def test_a_depthwise_convolution_of_many_taps_stays_where_float32_is_kept(
    taps: tuple[int, ...], groups: int, kept: bool
) -> None:
    """Tensor cores make three products, of 16 channels each."""
    module = nn.Sequential(nn.Conv3d(6, 6, taps, padding=2, groups=groups), nn.ReLU())
    graph = trace(module, [torch.rand(2, 6, 5, 6, 7)])
    assert calls(fuse(graph, tf32=False)) == ["conv3d"] * kept
    assert not calls(fuse(graph))
    assert not calls(fuse(trace(module.half(), [torch.rand(2, 6, 5, 6, 7).half()]), tf32=False))


def test_linear_layers_in_a_row_are_a_kernel_each() -> None:
    layers = nn.Sequential(nn.Linear(9, 16), nn.Tanh(), nn.Linear(16, 4), nn.Sigmoid())
    module = Module(lambda self, x: self.layers(x.movedim(0, 1)) + 1, layers=layers)
    plan = check(module, torch.randn(3, 5, 9), gradients=False)
    assert not calls(plan) and kernels(plan) == ["linear_tanh", "linear_sigmoid_add"]


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.movedim(1, -1),
        lambda x: x.moveaxis((0, -1), (2, 0)),
        lambda x: x.swapdims(0, -1),
        lambda x: x.swapaxes(-2, 1),
        lambda x: x.transpose(1, 2).view_as(x.transpose(1, 2)),
        lambda x: x.reshape_as(x.flatten(1)),
        lambda x: F.pixel_shuffle(x, 2),
        lambda x: F.pixel_unshuffle(x, 2),
        lambda x: F.channel_shuffle(x, 2),
    ],
    ids=["movedim", "moveaxis", "swapdims", "swapaxes", "view_as", "reshape_as", "pixels", "pixels back", "channels"],
)
def test_views_join_the_chain_around_them(view: Callable[[torch.Tensor], torch.Tensor]) -> None:
    plan = check(Module(lambda self, x: torch.tanh(view(x * 2 + 1)) - 3), torch.randn(2, 4, 6, 8))
    assert not calls(plan) and len(kernels(plan)) == 1


def test_a_convolution_writes_its_dims_in_another_order() -> None:
    def forward(self: Module, x: torch.Tensor) -> torch.Tensor:
        return F.gelu(self.conv(x).permute(0, 2, 3, 1) * self.scale)

    module = Module(forward, conv=nn.Conv2d(3, 5, 3), scale=torch.randn(5))
    x = torch.randn(2, 3, 5, 6)
    plan = check(module, x, gradients=False)
    assert kernels(plan) == ["conv2d_mul_gelu"]
    (output,) = plan.graph.outputs
    assert plan.types[output].strides == module.double()(x.double()).stride()


def test_channels_become_pixels_in_the_kernel_of_the_chain_behind() -> None:
    conv = nn.Conv2d(3, 8, 3, padding=1)
    module = Module(lambda self, x: torch.sigmoid(F.pixel_shuffle(self.conv(x), 2)), conv=conv)
    plan = check(module, torch.randn(2, 3, 4, 5), gradients=False)
    assert not calls(plan) and kernels(plan) == ["conv2d", "bias_pixel_shuffle_sigmoid"]
    alone = fuse(trace(nn.PixelShuffle(2), [torch.rand(2, 4, 5, 6)]))
    assert calls(alone) == ["pixel_shuffle"]


def test_one_tap_in_two_dims_is_ours_with_a_chain_alone() -> None:
    conv = nn.Conv2d(2, 4, 1)
    for behind, is_kept in (([nn.ReLU()], False), ([], True), ([nn.BatchNorm2d(4)], True)):
        plan = fuse(trace(nn.Sequential(conv, *behind), [torch.rand(2, 2, 4, 4)]))
        assert ("conv2d" in calls(plan)) == is_kept


def test_where_tf32_is_not_allowed_convolutions_are_exact() -> None:
    module = nn.Sequential(nn.Conv3d(3, 4, 3), nn.ReLU())
    graph = trace(module, [torch.rand(2, 3, 4, 5, 6)])
    for tf32 in (False, True):
        (step,) = fuse(graph, tf32=tf32).steps
        assert isinstance(step, Fused) and isinstance(step.compute, Convolution) and step.compute.exact is not tf32


@pytest.mark.parametrize(
    ("module", "shape", "exact", "rounded"),
    [
        (nn.ConvTranspose2d(8, 128, 4, 2), (2, 8, 5, 6), True, False),
        (nn.ConvTranspose3d(8, 128, 3), (2, 8, 3, 4, 5), True, False),
        (nn.ConvTranspose2d(8, 128, 3), (2, 8, 5, 6), False, False),
        (nn.Conv2d(8, 128, 3, 2), (2, 8, 7, 6), False, False),
        (nn.ConvTranspose3d(8, 136, 3), (2, 8, 3, 4, 5), False, False),
        (nn.ConvTranspose2d(16, 256, 4, 2, groups=2), (2, 16, 5, 6), False, False),
        (nn.ConvTranspose2d(8, 16, 4, 2), (2, 8, 5, 6), True, True),
    ],
    ids=["strides", "three dims", "neither", "not transposed", "too many", "groups", "few"],
)
def test_exactly_ours_are_transposed_convolutions_of_more_channels(
    module: nn.Module, shape: tuple[int, ...], exact: bool, rounded: bool
) -> None:
    graph = trace(nn.Sequential(module, nn.ReLU()), [torch.rand(shape)])
    found = [not calls(fuse(graph, tf32=tf32)) for tf32 in (False, True)]
    assert found == [exact, rounded]


def test_a_convolution_reads_what_is_computed_before_it() -> None:
    def forward(self: Module, x: torch.Tensor) -> torch.Tensor:
        y = self.second(torch.relu(self.first(x)).tanh())
        return y.reshape(y.shape[0], 2, -1).amax(2)

    module = Module(forward, first=nn.Conv3d(2, 3, 2), second=nn.ConvTranspose3d(3, 4, 2, 2, bias=False))
    plan = check(module, torch.rand(2, 2, 3, 4, 3), gradients=False)
    assert kernels(plan) == ["conv3d_relu_tanh", "conv_transpose3d", "amax"]


def test_softmax_of_a_flattened_volume_and_a_scale() -> None:
    def forward(self: Module, x: torch.Tensor) -> torch.Tensor:
        y = torch.clamp(self.conv(x), 0, 1)
        return F.softmax(y.flatten(2), dim=2).reshape(y.shape) * self.scale

    module = Module(forward, conv=nn.ConvTranspose2d(2, 65, 1, 2), scale=torch.randn(1, 65, 1, 1))
    assert len(kernels(check(module, torch.rand(2, 2, 3, 4)))) == 1

    module = Module(forward, conv=nn.ConvTranspose3d(2, 4, 3, 2, 1, 1), scale=torch.randn(1, 4, 1, 1, 1))
    plan = check(module, torch.rand(2, 2, 2, 3, 4), gradients=False)
    assert len(kernels(plan)) == 2
    assert any("no maximum is needed" in note for step in plan.steps for note in step.notes)  # known to be clamped


def test_a_pool_takes_the_chain_before_it() -> None:
    def forward(self: Module, x: torch.Tensor) -> torch.Tensor:
        y = F.leaky_relu(self.conv(x), 0.2) * self.multiplier
        return F.max_pool2d(F.leaky_relu(y, 0.2), 2) + self.multiplier

    module = Module(forward, conv=nn.ConvTranspose2d(2, 4, 3, 2, 1, 1), multiplier=torch.randn(4, 1, 1))
    plan = check(module, torch.rand(2, 2, 3, 4), gradients=False)
    assert len(kernels(plan)) == 1


def pooled(pool: Callable[[torch.Tensor], torch.Tensor], chain: Callable[..., torch.Tensor]) -> list[str]:
    def forward(self: Module, x: torch.Tensor) -> torch.Tensor:
        return pool(chain(self.conv(x), self.multiplier)) + self.multiplier

    module = Module(forward, conv=nn.ConvTranspose3d(2, 4, 3, 2, 1, 1), multiplier=torch.randn(4, 1, 1, 1))
    return kernels(check(module, torch.rand(2, 2, 2, 3, 5), gradients=False))


def test_a_convolution_takes_a_pool_with_its_chains() -> None:
    def bent(x: torch.Tensor, multiplier: torch.Tensor) -> torch.Tensor:
        return F.leaky_relu(F.leaky_relu(x, 0.2) * multiplier, 0.2)

    def scaled(x: torch.Tensor, multiplier: torch.Tensor) -> torch.Tensor:
        return x * multiplier - 1

    one = "conv_transpose3d_leaky_relu_mul_max_pool3d_add"
    assert pooled(lambda x: F.max_pool3d(x, 2), bent) == [one]
    assert pooled(lambda x: F.max_pool3d(x, (1, 3, 4)), bent) == [one]  # a rest of each row is in no window
    assert pooled(lambda x: F.avg_pool3d(x, 2), scaled) == ["conv_transpose3d_mul_sub_avg_pool3d_add"]
    assert pooled(lambda x: F.avg_pool3d(x, 2, divisor_override=3), scaled) == [
        "conv_transpose3d_mul_sub_avg_pool3d_add"
    ]
    two = ["conv_transpose3d_leaky_relu_mul", "max_pool3d_add"]
    assert pooled(lambda x: F.max_pool3d(x, 2, 1), bent) == two
    assert pooled(lambda x: F.max_pool3d(x, 2, padding=1), bent) == two
    assert pooled(lambda x: F.max_pool3d(x, (3, 1, 1), ceil_mode=True), bent) == two
    assert pooled(lambda x: F.max_pool3d(x, (4, 6, 5)), bent) == two  # of more elements than are written out
    assert pooled(lambda x: F.avg_pool3d(x, 2), bent) == ["conv_transpose3d_leaky_relu_mul", "avg_pool3d_add"]


def test_what_is_read_beside_its_pool_is_convolved_once() -> None:
    def forward(self: Module, x: torch.Tensor) -> torch.Tensor:
        y = self.conv(x).relu()
        return F.max_pool3d(y, 2).sum() + y.mean()

    plan = check(Module(forward, conv=nn.Conv3d(2, 4, 3)), torch.rand(2, 2, 6, 6, 6), gradients=False)
    assert sum(isinstance(step, Fused) and isinstance(step.compute, Convolution) for step in plan.steps) == 1
    assert "max_pool3d" in kernels(plan)


def test_a_pool_inside_of_a_convolution_reads_what_its_windows_share() -> None:
    def forward(self: Module, x: torch.Tensor) -> torch.Tensor:
        return F.max_pool3d(self.conv(x) + self.other, 2)

    module = Module(forward, conv=nn.Conv3d(2, 4, 3), other=torch.randn(1, 4, 1, 1, 4))
    assert kernels(check(module, torch.rand(2, 2, 6, 6, 6), gradients=False)) == ["conv3d_add", "max_pool3d"]


NORMS: dict[str, tuple[Callable[..., torch.Tensor], dict[str, object], tuple[int, ...]]] = {
    "layer_norm": (lambda m, x: m.norm(x).tanh(), {"norm": nn.LayerNorm(6)}, (3, 5, 6)),
    "layer_norm_2d": (lambda m, x: m.norm(x) * 2, {"norm": nn.LayerNorm([5, 6])}, (3, 5, 6)),
    "of_a_norm": (lambda m, x: m.norm(m.norm(x).tanh()), {"norm": nn.LayerNorm(6)}, (3, 5, 6)),
    "of_a_softmax": (lambda m, x: F.layer_norm(F.softmax(x * 2, -1), (6,)), {}, (3, 5, 6)),
    "group_norm": (lambda m, x: F.silu(m.norm(x)), {"norm": nn.GroupNorm(2, 6)}, (3, 6, 4, 5)),
    "instance_norm": (lambda m, x: m.norm(x) / 2, {"norm": nn.InstanceNorm2d(4)}, (3, 4, 5, 6)),
    "instance_norm_affine": (lambda m, x: m.norm(x), {"norm": nn.InstanceNorm2d(4, affine=True)}, (3, 4, 5, 6)),
    "rms_norm": (lambda m, x: F.rms_norm(x, (6,), m.weight, 1e-6), {"weight": torch.rand(6)}, (3, 5, 6)),
    "rms_by_hand": (lambda m, x: x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5), {}, (3, 5, 6)),
    "batch_norm": (lambda m, x: F.relu(m.norm(x)), {"norm": nn.BatchNorm2d(4).eval()}, (3, 4, 5, 6)),
    "standardised": (
        lambda m, x: (x - x.mean((1, 2), keepdim=True)) / (x.std((1, 2), keepdim=True) + 1),
        {},
        (3, 4, 5),
    ),
}


@pytest.mark.parametrize("name", sorted(NORMS))
def test_norms_are_one_kernel(name: str) -> None:
    function, parameters, shape = NORMS[name]
    plan = check(Module(function, **parameters), torch.randn(shape))
    assert len(kernels(plan)) == 1
    assert not calls(plan)


BATCH_NORMS: dict[str, tuple[Callable[..., torch.Tensor], nn.Module, tuple[int, ...]]] = {
    "chain": (lambda m, x: F.relu(m.norm(x)) * 2, nn.BatchNorm2d(4), (3, 4, 5, 7)),
    "rows": (lambda m, x: F.gelu(m.norm(x)), nn.BatchNorm1d(6), (5, 6)),
    "lines": (lambda m, x: m.norm(x.sigmoid()), nn.BatchNorm1d(6, momentum=0.3), (2, 6, 5)),
    "volumes": (lambda m, x: m.norm(x).tanh() + x, nn.BatchNorm3d(3), (2, 3, 3, 2, 5)),
    "not_affine": (lambda m, x: m.norm(x), nn.BatchNorm2d(4, affine=False), (3, 4, 5, 7)),
    "without_buffers": (lambda m, x: m.norm(x + 1), nn.BatchNorm2d(4, track_running_stats=False), (3, 4, 5, 7)),
    "one_channel": (lambda m, x: m.norm(x), nn.BatchNorm2d(1), (3, 1, 5, 7)),
    "one_sample": (lambda m, x: m.norm(x), nn.BatchNorm2d(4), (1, 4, 5, 7)),
    "flattened": (lambda m, x: m.norm(x).flatten(1).exp(), nn.BatchNorm2d(4), (3, 4, 5, 7)),
}


@pytest.mark.parametrize("name", sorted(BATCH_NORMS))
def test_batch_norm_in_training_is_one_kernel_that_reads_the_batch_twice(name: str) -> None:
    function, norm, shape = BATCH_NORMS[name]
    plan = check(Module(function, norm=norm.train()), torch.randn(shape) * 3 + 2)
    assert len(kernels(plan)) == 1
    assert set(calls(plan)) <= {"add"}  # of num_batches_tracked
    (step,) = (step for step in plan.steps if isinstance(step, Fused))
    assert isinstance(step.compute, Program)
    assert len(passes(step.compute)) == 2
    assert len(step.updates) == (0 if name == "without_buffers" else 2)


def test_a_pool_reads_what_batch_norm_reads_and_its_statistics() -> None:
    def forward(self: Module, x: torch.Tensor) -> torch.Tensor:
        return F.max_pool2d(F.elu(self.norm(self.conv(x))), 3, 2, 1).exp()

    module = Module(forward, conv=nn.Conv2d(2, 4, 1), norm=nn.BatchNorm2d(4))
    plan = check(module, torch.randn(3, 2, 7, 9), gradients=False)
    assert kernels(plan) == ["bias_batch_norm_elu_max_pool2d_exp"]
    (step,) = (step for step in plan.steps if isinstance(step, Fused))
    assert step.statistics is not None
    of_rows = [o.name for o in step.all_operands] + [o.name for o in step.compute.operands if o.name in step.saved]
    assert of_rows[-2:] == ["row_product", "row_inverse_root"]
    assert len(passes(step.statistics)) == 1


def test_the_bias_before_batch_norm_moves_the_running_mean_alone() -> None:
    module = Module(lambda m, x: m.norm(m.conv(x)), conv=nn.Conv2d(2, 4, 1), norm=nn.BatchNorm2d(4))
    plan = check(module, torch.randn(3, 2, 7, 9))
    (step,) = (step for step in plan.steps if isinstance(step, Fused))
    assert isinstance(step.compute, Program)
    readers = [r.name for r in step.compute.results if "conv_bias" in reads(r.expr)]
    assert readers == ["new_norm_running_mean"]
    assert not [r.name for r in step.compute.reductions if "conv_bias" in reads(r.expr)]


def test_running_statistics_are_updated_once_and_in_order() -> None:
    """By two kernels that compute the same norm, by a norm that is called twice, by one whose value nobody reads."""

    def twice(self: Module, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = self.norm(x)
        return F.softmax(y.relu(), 1), y.exp()

    def again(self: Module, x: torch.Tensor) -> torch.Tensor:
        one, other = self.norm(x).relu(), self.norm(x * 3 + 1)
        return one + other

    def unread(self: Module, x: torch.Tensor) -> torch.Tensor:
        self.norm(x)
        return x * 2

    for function in (twice, again, unread):
        norm = nn.BatchNorm2d(4, momentum=0.3)
        check(Module(function, norm=norm), torch.randn(3, 4, 5, 7), gradients=function is not unread)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 4), st.integers(1, 4), st.integers(2, 6), st.floats(-1e4, 1e4))
def test_what_is_added_to_a_channel_moves_the_running_mean_alone(n: int, c: int, s: int, shift: float) -> None:
    norm, x = nn.BatchNorm1d(c), torch.randn(n, c, s, generator=torch.Generator().manual_seed(n + 8 * c + 64 * s))
    plan = planned(norm, x)

    def found(x: torch.Tensor) -> list[torch.Tensor]:
        state = {name: each.double() for name, each in norm.state_dict().items()}
        tensors = {plan.graph.inputs[0].name: x, **{p.value.name: state[p.names[0]] for p in plan.graph.parameters}}
        return [*run(plan, tensors), tensors["running_mean"], tensors["running_var"]]

    (one, mean, variance), (other, moved, same) = found(x.double()), found(x.double() + shift)
    torch.testing.assert_close(other, one, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(same, variance, rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(moved, mean + 0.1 * shift, rtol=1e-6, atol=1e-9)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 4095), st.integers(0, 2), st.floats(10.0, 300.0), st.floats(-30.0, 30.0))
def test_one_sample_far_off_costs_a_channel_no_digits(row: int, place: int, off: float, mean: float) -> None:
    """In float32, wherever it is: what sums are taken around is never that sample."""
    n, c = 4096, 3
    x = torch.randn(n, c, generator=torch.Generator().manual_seed(row)) + mean
    x[(0, n // 2, n - 1)[place] if row % 2 else row, 1] += off
    (step,) = planned(nn.BatchNorm1d(c, affine=False, track_running_stats=False), x).steps
    assert isinstance(step, Fused) and isinstance(step.compute, Program)
    given = {each.name: x.numpy().reshape(-1) for each in step.compute.operands}
    found = evaluate_program(step.compute, given)[step.result]
    exact = F.batch_norm(x.double(), None, None, training=True)
    error = (torch.from_numpy(found).reshape(n, c) - exact).norm(dim=0) / exact.norm(dim=0)
    assert float(error.max()) < 2e-5 * max(1.0, abs(mean) / 10)


def test_what_a_norm_of_long_rows_reads_is_read_beside_convolutions_and_pools() -> None:
    """Elements within a tensor are read by programs alone."""
    x, y = torch.randn(1, 2, 184, 184), torch.randn(1, 2, 182, 182)
    beside = Module(lambda m, x, y: m.conv(x) + F.instance_norm(y), conv=nn.Conv2d(2, 2, 3))
    assert kernels(check(beside, x, y, gradients=False)) == ["conv2d", "instance_norm_add"]
    pooled = Module(
        lambda m, x, y: F.max_pool2d(F.instance_norm(x), 2) + F.max_pool2d(F.instance_norm(y), 2, padding=1)
    )
    check(pooled, x, y, gradients=False)


def test_batch_norm_of_reductions_and_of_pools() -> None:
    def forward(self: Module, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.norm(F.softmax(x, 1)).mean((2, 3)))

    check(Module(forward, norm=nn.BatchNorm2d(4), second=nn.BatchNorm1d(4)), torch.randn(3, 4, 5, 7))
    pooled = Module(lambda m, x: m.norm(F.avg_pool2d(x, 2)), norm=nn.BatchNorm2d(4))
    check(pooled, torch.randn(3, 4, 6, 8), gradients=False)


def test_the_shift_of_a_norm_takes_no_gradient() -> None:
    module = Module(lambda m, x: m.norm(x * m.scale), norm=nn.BatchNorm2d(4), scale=torch.randn(4, 1, 1))
    plan = check(module, torch.randn(3, 4, 5, 7))
    (step,) = (step for step in plan.steps if isinstance(step, Fused))
    assert sorted(step.wanted) == ["inputs_0", "norm_bias", "norm_weight", "scale"]

    before_a_pool = Module(lambda m, x: F.max_pool2d(m.norm(x), 2), norm=nn.BatchNorm2d(4))
    plan = check(before_a_pool, torch.randn(3, 4, 6, 8), gradients=False)
    (step,) = (step for step in plan.steps if isinstance(step, Fused))
    shift = [o.name for o in step.compute.operands if o.constant]
    assert shift == ["row_larger"] and set(shift) < step.saved.keys()
    text = emit(plan, "norm")
    assert "grad_row_product" in text and "grad_row_larger" not in text


REDUCTIONS: dict[str, Callable[..., torch.Tensor]] = {
    "softmax_channels": lambda m, x: F.softmax(x * 2, dim=1).sigmoid(),
    "log_softmax": lambda m, x: F.log_softmax(x.relu(), dim=-1),
    "logsumexp": lambda m, x: torch.logsumexp(x, dim=(2, 3), keepdim=True).relu(),
    "mean_and_minus": lambda m, x: x - x.mean(dim=1, keepdim=True),
    "sum": lambda m, x: (x * 3).sum(dim=(-1, -2)).tanh(),
    "amax": lambda m, x: torch.amax(x, dim=1) + 1,
    "amin": lambda m, x: torch.amin(x, dim=(2, 3), keepdim=True) * 2,
    "whole": lambda m, x: x.square().mean(),
    "transposed": lambda m, x: x.transpose(1, 3).exp() + x.permute(0, 3, 2, 1),
    "vector_norm": lambda m, x: x / torch.linalg.vector_norm(x, dim=1, keepdim=True),
}


@pytest.mark.parametrize("name", sorted(REDUCTIONS))
def test_reductions_are_one_kernel(name: str) -> None:
    plan = check(Module(REDUCTIONS[name]), torch.randn(3, 4, 5, 6))
    assert len(kernels(plan)) == 1
    assert not calls(plan)


def test_reductions_of_other_dims_are_kernels_of_their_own() -> None:
    plan = check(Module(lambda m, x: F.softmax(F.softmax(x, 1), 2)), torch.randn(3, 4, 5))
    assert len(kernels(plan)) == 2


def test_a_mean_that_is_spread_again_without_its_dim() -> None:
    check(Module(lambda m, x: x - x.mean(2)[:, :, None]), torch.randn(3, 4, 5))


def test_what_no_rule_covers_stays_a_call_between_kernels() -> None:
    plan = check(Module(lambda m, x: torch.cumsum(x.tanh(), 1) * 2), torch.randn(3, 4))
    assert calls(plan) == ["cumsum"]
    assert kernels(plan) == ["tanh", "mul"]


def test_conditions_live_inside_of_kernels() -> None:
    plan = check(Module(lambda m, x: torch.where((x > 0) & (x < 1), x * 2, x.sin()) * (x > -1)), torch.randn(5, 7))
    assert kernels(plan) == ["gt_lt_bitwise_and_mul_sin_where"]


def test_several_outputs_and_a_residual() -> None:
    def forward(self: Module, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.linear(x)
        return F.silu(y) + x, y.softmax(-1)

    plan = check(Module(forward, linear=nn.Linear(6, 6)), torch.randn(4, 6))
    assert calls(plan) == ["linear"]
    assert len(kernels(plan)) == 2


def test_a_tensor_read_in_two_ways_is_not_called_as_the_result() -> None:
    class Product(nn.Module):
        def forward(self, mul: torch.Tensor) -> torch.Tensor:
            return mul * mul.transpose(1, 2)

    plan = check(Product(), torch.randn(2, 4, 4))
    (step,) = plan.steps
    assert isinstance(step, Fused) and step.result == "mul_2" and "mul_2" not in step.operands


def test_channels_last_stays_channels_last() -> None:
    x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    plan = planned(Module(lambda m, x: x.relu() + 1), x)
    assert plan.types[plan.graph.outputs[0]].strides == x.stride()


@pytest.mark.parametrize("gpu", GPUS, ids=lambda gpu: gpu.short_name)
def test_convolutions_fit_in_the_shared_memory_of_every_gpu(gpu: Gpu) -> None:
    of = convolution((2, 8, 16, 64, 64), (64, 8, 3, 3, 3), [1] * 3, [0] * 3, [1] * 3, 1)
    for each in (tile(of, 4, gpu), tile(input_gradient(of), 4, gpu), divide(of, 4, gpu)):
        assert each is not None
        taken = each.shared_bytes + STATIC_SHARED
        assert taken <= gpu.shared_memory_per_block_bytes
        assert each.blocks * (taken + SHARED_RESERVED_BYTES) <= gpu.shared_memory_per_sm_bytes


def test_a_convolution_that_fits_nowhere_stays_with_pytorch() -> None:
    graph = trace(nn.Sequential(nn.Conv3d(3, 4, 3), nn.ReLU()), [torch.rand(2, 3, 4, 5, 6)])
    tiny = replace(H200, shared_memory_per_block_bytes=8 * 1024)
    assert calls(fuse(graph, gpu=tiny)) == ["conv3d"] and calls(fuse(graph)) == []


def test_a_convolution_of_two_dims_takes_the_chain_behind_it() -> None:
    for dtype in (torch.float32, torch.float16):
        module = nn.Sequential(nn.Conv2d(3, 4, 3, 2), nn.ReLU()).to(dtype)
        plan = fuse(trace(module, [torch.rand(2, 3, 7, 9, dtype=dtype)]))
        assert calls(plan) == [] and kernels(plan) == ["conv2d_relu"]


def test_what_several_kernels_read_is_convolved_once() -> None:
    """A convolution and what all of them have behind it."""

    def forward(self: Module, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = F.relu(self.conv(x))
        return y.tanh(), y.mean(dim=(2, 3)), y.amax(dim=1)

    plan = check(Module(forward, conv=nn.Conv2d(3, 4, 3)), torch.randn(2, 3, 7, 9), gradients=False)
    assert kernels(plan) == ["conv2d_relu", "tanh", "mean", "amax"]


def test_a_convolution_whose_readers_meet_again_stays_in_their_kernel() -> None:
    module = Module(lambda m, x: (y := m.conv(x)).tanh() * F.mish(y), conv=nn.Conv2d(3, 4, 3))
    assert kernels(check(module, torch.randn(2, 3, 7, 9), gradients=False)) == ["conv2d_tanh_mish_mul"]


@pytest.mark.parametrize("order", ["contiguous", "channels last"])
def test_norms_of_long_rows_read_memory_twice(order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums of differences to the first element of a row, and of their squares: one pass takes both."""
    monkeypatch.setattr(reductions, "LONG_ROW", 24)
    monkeypatch.setattr(reductions, "LONG_ACROSS", 24)
    form = torch.channels_last if order == "channels last" else torch.contiguous_format
    x = (torch.randn(2, 4, 5, 6) + 3).contiguous(memory_format=form)
    for norm in (nn.GroupNorm(2, 4), nn.InstanceNorm2d(4)):
        plan = check(nn.Sequential(nn.Tanh(), norm, nn.Sigmoid()), x)
        (step,) = plan.steps
        assert isinstance(step, Fused) and isinstance(step.compute, Program) and len(passes(step.compute)) == 2
    short = fuse(trace(nn.Sequential(nn.Tanh(), nn.GroupNorm(4, 4)), [x[:, :, :, :4].contiguous(memory_format=form)]))
    (step,) = short.steps
    assert isinstance(step, Fused) and isinstance(step.compute, Program) and len(passes(step.compute)) == 3


def test_a_transposed_convolution_whose_weight_is_more_than_shared_memory_stays_with_pytorch() -> None:
    """Channels-last, and its chain one kernel. Not where float32 is kept, in which PyTorch has no tensor cores."""
    for kernel, theirs in ((4, True), (3, False)):
        module = nn.Sequential(nn.ConvTranspose2d(64, 64, kernel, 2, 1), nn.Tanh())
        graph = trace(module, [torch.rand(2, 64, 8, 9)])
        assert calls(fuse(graph)) == ["conv_transpose2d"] * theirs
        assert not calls(fuse(graph, tf32=False))


@pytest.mark.parametrize("pools", [False, True])
def test_a_kernel_reads_no_more_tensors_than_an_operator_takes(pools: bool) -> None:
    """A sum of 50 products would be an operator of 101 arguments, where PyTorch allows 64."""

    def forward(self: Module, x: torch.Tensor) -> torch.Tensor:
        y = F.max_pool2d(x, 2) if pools else x[..., :2, :2]
        for i in range(50):
            y = y + torch.sin(getattr(self, f"p{i}")) * getattr(self, f"q{i}")
        return y

    module = Module(forward, **{f"{n}{i}": torch.randn(3, 2, 2) for n in "pq" for i in range(50)})
    plan = check(module, torch.randn(2, 3, 4, 4), gradients=not pools)
    read = [len(step.operands) for step in plan.steps if isinstance(step, Fused)]
    assert 3 < len(read) < 8 and max(read) <= MOST_OPERANDS


@pytest.mark.parametrize("pools", [False, True])
def test_a_stream_that_blocks_add_to_is_written_where_several_kernels_read_it(pools: bool) -> None:
    """Behind a pool too: the n-th block of timm's Xception read what n blocks had added, and pooled anew."""

    def forward(self: Module, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(x, 3, 1, 1) if pools else x.cos()
        for conv in self.convs:
            x = x + conv(F.relu(x))
        return x

    module = Module(forward, convs=nn.ModuleList(nn.Conv2d(96, 96, 1) for _ in range(6)))
    plan = check(module, torch.randn(2, 96, 8, 8), gradients=not pools)
    assert max(len(step.operands) for step in plan.steps if isinstance(step, Fused)) <= 4


def test_a_moving_mean_is_written_once_where_its_channel_is_repeated() -> None:
    """MONAI's attention: a batch norm of one channel gates eight. Who carried plans out here added up eight of it."""

    def forward(self: Module, y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(self.norm(y)) * x

    check(Module(forward, norm=nn.BatchNorm2d(1)), torch.randn(2, 1, 4, 4) + 3, torch.randn(2, 8, 4, 4))
