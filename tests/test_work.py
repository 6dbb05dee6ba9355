"""What a module must move and compute: against sums done by hand."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.multiprocessing.reductions import StorageWeakRef

from crucible.contract import CONTRACTS
from crucible.roofline import Rates, Work, floor
from crucible.work import count

TASKS = Path(__file__).parents[1] / "tasks"
ON_META = torch.device("meta")
sizes = st.integers(1, 9)
brief = settings(max_examples=25, deadline=None)


def forward_work(function: Callable[..., Any], *sources: torch.Tensor) -> Work:
    """The forward of `function(*sources)`, without autograd."""

    def run() -> list[torch.Tensor]:
        out = function(*sources)
        return list(out) if isinstance(out, tuple | list) else [out]

    with torch.no_grad():
        (work,) = count(run, sources)
    assert work.covers == "forward"
    return work


def training_work(function: Callable[..., torch.Tensor], *sources: torch.Tensor) -> tuple[Work, Work]:
    """Forward, and forward with backward for the gradients of all sources that take one."""
    wanted = [t.requires_grad_() for t in sources if t.is_floating_point()]
    cotangent = torch.ones_like(function(*sources))

    def backward(outputs: list[torch.Tensor]) -> list[torch.Tensor]:
        return list(torch.autograd.grad(outputs, wanted, [cotangent]))

    first, both = count(lambda: [function(*sources)], sources, backward)
    assert (first.covers, both.covers) == ("forward", "forward+backward")
    return first, both


def task_work(name: str) -> tuple[Work, Work]:
    names: dict[str, Any] = {}
    exec((TASKS / name / "reference.py").read_text(encoding="utf-8"), names)
    with ON_META:
        model = names["Model"](*names["get_init_inputs"]())
        (x,) = names["get_inputs"]()
    sources = [x.requires_grad_(), *model.parameters()]
    cotangent = torch.empty_like(model(x))
    first, both = count(lambda: [model(x)], sources, lambda out: list(torch.autograd.grad(out, sources, [cotangent])))
    return first, both


@pytest.mark.parametrize(
    ("name", "sources", "outputs", "gflop", "time_ms", "limited_by"),
    [
        (
            "conv3d_leakyrelu_sum_clamp_gelu",
            128 * 8 * 16 * 64 * 64 + 64 * 8 * 27 + 64 + 64,
            128 * 64 * 14 * 62 * 62,
            190.452,
            0.478,
            "memory",
        ),
        (
            "convtranspose3d_leakyrelu_multiply_leakyrelu_maxpool",
            16 * 16 * 16 * 32 * 32 + 16 * 32 * 27 + 32 + 32,
            16 * 32 * 16 * 32 * 32,
            6.950,
            0.0167,
            "matrix products",
        ),
        (
            "avgpool3d_convtranspose3d_clamp_softmax_scale",
            32 * 32 * 32 * 64 * 64 + 32 * 64 * 27 + 64 + 64,
            32 * 64 * 32 * 64 * 64,
            55.597,
            0.379,
            "memory",
        ),
    ],
)
def test_the_shipped_tasks_at_full_size(
    name: str, sources: int, outputs: int, gflop: float, time_ms: float, limited_by: str
) -> None:
    """Two figures a task by hand, and its floor at the rates that were measured on an H200."""
    forward, both = task_work(name)
    assert forward.bytes_moved == 4 * (sources + outputs)
    assert forward.matrix_flops / 1e9 == pytest.approx(gflop, abs=1e-3)
    found = floor(forward, Rates(4250.0, 51.0, 416.0, 734.0, "measured"), CONTRACTS["tf32"])
    assert found.time_ms == pytest.approx(time_ms, rel=2e-3)
    assert found.limited_by == limited_by
    assert both.bytes_moved == 4 * (3 * sources + 2 * outputs)  # in, in again, gradients; out, cotangent
    assert both.matrix_flops == 3 * forward.matrix_flops


# --- bytes -----------------------------------------------------------------------------------------------------


@brief
@given(
    n=sizes,
    chain=st.lists(st.sampled_from([torch.exp, torch.relu, torch.neg, F.gelu, torch.Tensor.clone]), min_size=1),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
)
def test_a_pointwise_chain_of_any_length_moves_its_elements_twice(n: int, chain: Sequence[Any], dtype: Any) -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        for step in chain:
            x = step(x)
        return x

    work = forward_work(run, torch.ones(n, 3, dtype=dtype))
    assert work.bytes_moved == 2 * n * 3 * dtype.itemsize
    assert work.matrix_flops == 0
    assert work.other_flops == n * 3 * sum(step is not torch.Tensor.clone for step in chain)


STEPS: list[Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = [
    lambda x, y: x + y,
    lambda x, y: x @ y.T @ y,
    lambda x, y: x.add_(y),
    lambda x, y: x.t().contiguous().t(),
    lambda x, y: torch.where(x > 0, x, y),
    lambda x, y: x[:, :1] * y,
    lambda x, y: torch.cat([x, y], 1)[:, : x.shape[1]],
    lambda x, y: x[torch.zeros(x.shape[0], dtype=torch.long)],
    lambda x, y: torch.softmax(x, 1),
    lambda x, y: x.expand(2, *x.shape).sum(0),
    lambda x, y: y.copy_(x),
    lambda x, y: x.zero_() + 1,
]


@brief
@given(rows=sizes, columns=sizes, steps=st.lists(st.integers(0, len(STEPS) - 1), max_size=6))
def test_no_more_is_moved_than_all_sources_and_outputs(rows: int, columns: int, steps: list[int]) -> None:
    x, y = torch.rand(rows, columns), torch.rand(rows, columns)

    def run(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        for step in steps:
            x = STEPS[step](x, y)
        return x

    assert 0 <= forward_work(run, x, y).bytes_moved <= 4 * 3 * rows * columns


BYTES: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...], int]] = {
    "nothing is read": (lambda x: torch.zeros(3), (torch.ones(8),), 12),
    "a source is the output": (lambda x: x, (torch.ones(8),), 0),
    "a view of a source is the output": (lambda x: x.view(2, 4).t()[1:], (torch.ones(8),), 0),
    "one output twice": (lambda x: ((y := x + 1), y.view(2, 4), y[1:]), (torch.ones(8),), 64),
    "several outputs": (lambda x: (x + 1, x.sum()), (torch.ones(8),), 68),
    "an output shown in part": (lambda x: (x + 1)[:2], (torch.ones(8),), 40),
    "an output expanded": (lambda x: (x + 1).expand(100, 8), (torch.ones(8),), 64),
    "two halves": (lambda x: x[:4] + x[4:], (torch.ones(8),), 48),
    "overlapping slices": (lambda x: x[:5] + x[3:], (torch.ones(8),), 32 + 20),
    "a slice with steps": (lambda x: x[::2] + 1, (torch.ones(8),), 32),
    "a column": (lambda x: x[:, 1] + 1, (torch.ones(4, 4),), 32),
    "a slice, then all": (lambda x: (x[:2] + 1, x.sum()), (torch.ones(8),), 32 + 12),
    "all, then a slice": (lambda x: (x.sum(), x[:2] + 1), (torch.ones(8),), 32 + 12),
    "windows that miss some": (lambda x: x.as_strided((2, 4), (1, 1)) + 0, (torch.ones(8),), 20 + 32),
    "an empty slice": (lambda x: torch.cat([x[:0], x[2:4]]), (torch.ones(8),), 8 + 8),
    "bytes of a number": (lambda x: (x[:2] + 1, x.view(torch.uint8)[:3] + 1), (torch.ones(8),), 8 + 8 + 3),
    "windows": (lambda x: x.unfold(0, 3, 1) + 0, (torch.ones(8),), 32 + 4 * 18),
    "a source expanded": (lambda x, y: x.expand(8, 8) + y, (torch.ones(8), torch.ones(8, 8)), 32 + 512),
    "a tied source": (lambda x, y: x + y, ((t := torch.ones(8)), t), 64),
    "views of one storage as sources": (lambda x, y: x + y, ((t := torch.ones(9))[:8], t[1:]), 36 + 32),
    "an unread source": (lambda x, y: x + torch.zeros_like(y), (torch.ones(8), torch.ones(8)), 64),
    "a source for nothing": (lambda x, y: (y * 2, x + 1)[1], (torch.ones(8), torch.ones(8)), 64),
    "no elements": (lambda x, y: torch.cat([x, y]) + 1, (torch.ones(0), torch.ones(8)), 64),
    "integers": (lambda x: x * 2, (torch.ones(8, dtype=torch.int64),), 128),
    "booleans": (lambda x: x > 0, (torch.ones(8),), 40),
    "complex numbers": (lambda x: torch.view_as_real(x)[..., 0] * 2, (torch.ones(8, dtype=torch.complex64),), 64),
    "numbers and their real parts": (
        lambda x: (x[:2] * 2, torch.view_as_real(x)[..., 0] * 2),
        (torch.ones(8, dtype=torch.complex64),),
        16 + 24 + 16 + 32,
    ),
    "complex results": (lambda x: torch.view_as_complex(x) * 2, (torch.ones(8, 2),), 128),
    "a cast": (lambda x: x.to(torch.float16), (torch.ones(8),), 48),
    "a decision": (lambda x, y: x + 1 if y.sum() > 0 else x, (torch.ones(8), torch.ones(2)), 72),
    "few rows of a table": (lambda w, i: F.embedding(i, w), (torch.ones(100, 4), torch.arange(3)), 24 + 48 + 48),
    "more rows than there are": (
        lambda w, i: F.embedding(i % 2, w),
        (torch.ones(2, 4), torch.arange(30)),
        240 + 32 + 480,
    ),
    "more than there are, twice": (
        lambda w, i: F.embedding(i % 2, w) + F.embedding((i + 1) % 2, w),
        (torch.ones(2, 4), torch.arange(30)),
        240 + 32 + 480,
    ),
    "a gather from a slice": (lambda x, i: x[:2].take(i % 2), (torch.ones(100), torch.arange(30)), 240 + 8 + 120),
    "two gathers": (
        lambda w, i: F.embedding(i, w) + F.embedding(i + 3, w),
        (torch.ones(100, 4), torch.arange(3)),
        24 + 96 + 48,
    ),
    "gather": (lambda x, i: x.gather(1, i), (torch.ones(4, 100), torch.zeros(4, 2, dtype=torch.long)), 64 + 32 + 32),
    "index_select": (lambda x, i: x.index_select(0, i), (torch.ones(100, 4), torch.arange(3)), 24 + 96),
    "take": (lambda x, i: x.take(i), (torch.ones(100, 4), torch.arange(3)), 24 + 24),
    "index": (lambda x, i: x[i], (torch.ones(100, 4), torch.arange(3)), 24 + 96),
    "a gather and a sum": (
        lambda x, i: x.sum() + x[i],
        (torch.ones(10), torch.arange(3)),
        40 + 24 + 12,
    ),
    "in place, then out": (lambda x: x.add_(1), (torch.ones(8),), 64),
    "in place, seen through a view": (lambda x: (x[:2].mul_(2), x)[1], (torch.ones(8),), 16),
    "overwritten unread": (lambda x: x.zero_() + 1, (torch.ones(8),), 32),
    "overwritten, then gathered from": (lambda x, i: x.fill_(1).take(i), (torch.ones(8), torch.arange(3)), 24 + 12),
    "half overwritten, then read": (lambda x: (x[:4].fill_(1), x * 2)[1], (torch.ones(8),), 16 + 32),
    "read, then overwritten": (lambda x: ((y := x * 2), x.zero_())[0] + x.sum() * 0 + y, (torch.ones(8),), 64),
    "copied into": (lambda x, y: x.copy_(y), (torch.ones(8), torch.ones(8)), 64),
    "a buffer built up": (
        lambda x: [(b := torch.zeros(2, 8)), b[0].copy_(x), b[1].copy_(x * 2)][0],
        (torch.ones(8),),
        32 + 64,
    ),
    "in place without a result": (
        lambda x, y: [(z := x + 1), torch._foreach_add_([z], [y]), z][-1],
        (torch.ones(8), torch.ones(8)),
        96,
    ),
    "an out argument": (lambda x, y: torch.mul(x, 2, out=y), (torch.ones(8), torch.ones(8)), 64),
    "few rows changed": (
        lambda x, i, v: x.index_copy_(0, i, v),
        (torch.ones(100), torch.arange(3), torch.ones(3)),
        24 + 12,
    ),
    "a shape changed in place": (lambda x: x.unsqueeze_(0), (torch.ones(8),), 0),
    "expanded without end": (lambda x: x[:1].expand(1 << 40).sum(), (torch.ones(8, device="meta"),), 8),
    "a number from Python": (lambda x: x * torch.tensor([2.0]), (torch.ones(8),), 64),
    "random numbers": (lambda x: x * torch.rand(8), (torch.ones(8),), 64),
    "channels last": (
        lambda x: F.relu(x),
        (torch.ones(2, 3, 4, 4).to(memory_format=torch.channels_last),),
        2 * 4 * 96,
    ),
    "batch normalization in training": (
        lambda x, m, v: F.batch_norm(x, m, v, training=True),
        (torch.ones(4, 3), torch.zeros(3), torch.ones(3)),
        96 + 24,
    ),
}


@pytest.mark.parametrize("case", BYTES)
def test_bytes_by_hand(case: str) -> None:
    function, sources, expected = BYTES[case]
    assert forward_work(function, *sources).bytes_moved == expected


def test_nothing_given_and_nothing_returned() -> None:
    assert count(list, []) == (Work("forward", 0, 0, 0),)


def test_what_the_model_raises_passes_through() -> None:
    with pytest.raises(ZeroDivisionError):
        count(lambda: [torch.ones(1 // 0)], [])
    with pytest.raises(RuntimeError):  # a number of a tensor that has none
        forward_work(lambda x: x + x.sum().item(), torch.ones(8, device="meta"))


def test_the_fast_path_of_attention_is_put_back() -> None:
    forward_work(lambda x: x + 1, torch.ones(2))
    with contextlib.suppress(ZeroDivisionError):
        count(lambda: [torch.ones(1 // 0)], [])
    assert torch.backends.mha.get_fastpath_enabled()


# --- operations ------------------------------------------------------------------------------------------------


@brief
@given(m=sizes, n=sizes, k=st.integers(2, 9), b=sizes)  # einsum makes a pointwise product of k = 1
def test_a_product_is_2mnk(m: int, n: int, k: int, b: int) -> None:
    x, w, bias = torch.ones(b, m, k), torch.ones(k, n), torch.ones(n)
    cases: list[tuple[Callable[[], torch.Tensor], int]] = [
        (lambda: x[0] @ w, m),
        (lambda: x @ w, b * m),
        (lambda: torch.bmm(x, w.expand(b, k, n)), b * m),
        (lambda: F.linear(x, w.T, bias), b * m),
        (lambda: torch.zeros(m, n).addmm_(x[0], w), m),
        (lambda: torch.einsum("bmk,kn->bmn", x, w), b * m),
        (lambda: w.T @ x[0, 0], 1),
        (lambda: torch.addmv(bias, w.T, x[0, 0]), 1),
    ]
    for case, rows in cases:
        (work,) = count(lambda case=case: [case()], [x, w, bias])
        assert (work.matrix_flops, work.other_flops) == (2 * rows * n * k, 0)
    with torch.inference_mode():
        assert count(lambda: [F.linear(x, w.T)], [x, w])[0].matrix_flops == 2 * b * m * n * k
    assert forward_work(lambda a: a @ a, x[0, 0]).matrix_flops == 2 * k


def counted(run: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], x: torch.Tensor, w: torch.Tensor) -> int:
    """Twice the products of ones that reach an output: what a convolution of ones sums up to."""
    return round(2 * run(torch.ones_like(x), torch.ones_like(w)).sum().item())


@brief
@given(
    data=st.data(),
    transposed=st.booleans(),
    groups=st.integers(1, 2),
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    stride=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    dilation=st.integers(1, 2),
)
def test_a_convolution_counts_the_products_that_are_not_with_padding(
    data: Any, transposed: bool, groups: int, kernel: Any, stride: Any, dilation: int
) -> None:
    """The sum of a convolution of ones is the number of its products: no formula of our own to compare with."""
    padding = [data.draw(st.integers(0, 2)) for _ in range(2)]
    more: dict[str, Any] = {}
    if transposed:
        more = {"output_padding": [data.draw(st.integers(0, max(s, dilation) - 1)) for s in stride]}
    x = torch.rand(2, 2 * groups, 7, 6)
    w = torch.rand((2 * groups, 3, *kernel) if transposed else (3 * groups, 2, *kernel))
    conv: Any = F.conv_transpose2d if transposed else F.conv2d

    def run(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return conv(x, w, stride=stride, padding=padding, groups=groups, dilation=dilation, **more)

    expected = counted(run, x, w)
    forward, both = training_work(run, x, w)
    assert forward.matrix_flops == expected
    assert both.matrix_flops == 3 * expected
    x.requires_grad_(False)
    only_w = count(lambda: [run(x, w)], [x, w], lambda out: list(torch.autograd.grad(out[0].sum(), [w])))[1]
    assert only_w.matrix_flops == 2 * expected


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_convolutions_in_all_dimensions(dims: int) -> None:
    x, w = torch.rand(2, 3, *[5] * dims), torch.rand(4, 3, *[3] * dims)
    conv = (F.conv1d, F.conv2d, F.conv3d)[dims - 1]
    for arguments in ({}, {"padding": 1}, {"padding": "same"}, {"stride": 2}):
        run = lambda x, w, arguments=arguments: conv(x, w, **arguments)  # noqa: E731
        assert forward_work(run, x, w).matrix_flops == counted(run, x, w)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("grad", [False, True])
def test_attention_counts_two_products(causal: bool, grad: bool) -> None:
    q, k, v = torch.rand(2, 3, 8, 16), torch.rand(2, 3, 8, 16), torch.rand(2, 3, 8, 16)
    run = lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal)  # noqa: E731
    pairs = 8 * 9 // 2 if causal else 64
    expected = 2 * 2 * 3 * pairs * (16 + 16)
    if grad:
        forward, both = training_work(run, q, k, v)
        assert (forward.matrix_flops, both.matrix_flops) == (expected, 3 * expected)
    else:
        assert forward_work(run, q, k, v).matrix_flops == expected


def test_layers_made_of_products() -> None:
    lstm = nn.LSTM(4, 5, bidirectional=True)
    x = torch.rand(7, 3, 4)
    work = forward_work(lambda *_: lstm(x)[0], x, *lstm.parameters())
    assert work.matrix_flops == 2 * 7 * 3 * 2 * (4 * 5) * (4 + 5)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    y = torch.rand(2, 6, 8)
    work = forward_work(lambda *_: layer(y), y, *layer.parameters())
    assert work.matrix_flops == 2 * 2 * 6 * (8 * 24 + 8 * 8 + 2 * 8 * 16) + 2 * 2 * 2 * 6 * 6 * (4 + 4)


def test_operations_without_results_do_not_count() -> None:
    x, w = torch.rand(4, 4), torch.rand(4, 4)
    work = forward_work(lambda x, w: ((x @ w).exp(), x + 1)[1], x, w)
    assert work == Work("forward", 2 * 64, 0, 16)


@brief
@given(n=st.integers(1, 6))
def test_a_reduction_counts_what_it_reads(n: int) -> None:
    assert forward_work(torch.sum, torch.ones(n, 3)).other_flops == 3 * n
    assert forward_work(lambda x: F.avg_pool2d(x, 2), torch.ones(1, n, 4, 4)).other_flops == 16 * n
    assert forward_work(lambda x: x.unfold(0, 3, 1).sum(), torch.ones(3 * n)).other_flops == 3 * n


def test_moving_data_is_no_operation() -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        y = torch.cat([x.clone(), x.to(torch.float64).float()]).view(2, -1).t().contiguous()
        y = torch.zeros_like(y).copy_(y).flip(0).roll(1, 0)
        return F.pad(y, (1, 1))[torch.zeros(3, dtype=torch.long)]

    assert forward_work(run, torch.ones(8)).other_flops == 0


# --- backward --------------------------------------------------------------------------------------------------

N = 8
BACKWARD: dict[str, tuple[Callable[..., torch.Tensor], tuple[int, ...], int]] = {
    # sources of so many elements; elements that backward moves: read again + cotangent + gradients
    "linear in its input": (lambda x: x * 2, (N,), N + N),
    "a square": (lambda x: x * x, (N,), N + N + N),
    "through a saved result": (lambda x: torch.sigmoid(torch.tanh(x)), (N,), N + N + N),
    "a product of two": (lambda x, y: x * y, (N, N), 2 * N + N + 2 * N),
    "one of the sources": (lambda x, y: x * 3 + y.exp(), (N, N), N + N + 2 * N),
    "the cotangent itself": (lambda x: x + 1, (N,), 0),
    "half of a source": (lambda x: x[: N // 2] ** 2, (N,), N // 2 + N // 2 + N),
    "a sum": (lambda x: x.exp().sum(), (N,), N + 1 + N),
    "a shape alone": (lambda x: x.sum() * 2, (N,), 1 + 1),
}


@pytest.mark.parametrize("case", BACKWARD)
def test_backward_by_hand(case: str) -> None:
    function, lengths, moved = BACKWARD[case]
    forward, both = training_work(function, *(torch.rand(n) for n in lengths))
    assert both.bytes_moved - forward.bytes_moved == 4 * moved


def test_constants_are_no_cotangents() -> None:
    x, constant, cotangent = torch.rand(N, requires_grad=True), torch.rand(N), torch.rand(N)
    held = count(lambda: [x * constant], [x], lambda out: list(torch.autograd.grad(out, [x], [cotangent])))[1]
    assert held.bytes_moved == 4 * (2 * N + 2 * N)
    made = count(lambda: [x * 2], [x], lambda out: [cotangent * torch.tensor([2.0])])[1]
    assert made.bytes_moved == 4 * (2 * N + 2 * N)


def test_backward_of_a_table_reads_its_indices_and_writes_all_of_its_gradient() -> None:
    table, indices = torch.rand(100, 4), torch.arange(3)
    forward, both = training_work(lambda w, i: F.embedding(i, w), table, indices)
    assert forward.bytes_moved == 24 + 48 + 48
    assert both.bytes_moved == forward.bytes_moved + 24 + 48 + 1600


def test_backward_of_a_model_that_writes_in_place() -> None:
    def run(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return (x * w).mul_(2).relu_()

    forward, both = training_work(run, torch.rand(N), torch.rand(N))
    assert forward.bytes_moved == 4 * 3 * N
    assert both.bytes_moved == 4 * (3 * N + 2 * N + N + 2 * N)


@brief
@given(m=sizes, n=sizes, k=sizes)
def test_backward_of_a_product_is_two_products(m: int, n: int, k: int) -> None:
    forward, both = training_work(lambda x, w: x @ w, torch.rand(m, k), torch.rand(k, n))
    assert forward.matrix_flops == 2 * m * n * k
    assert both.matrix_flops == 3 * forward.matrix_flops
    assert forward.bytes_moved == 4 * (m * k + k * n + m * n)
    assert both.bytes_moved == 4 * (3 * (m * k + k * n) + 2 * m * n)


# --- kinds of tensors ------------------------------------------------------------------------------------------


class Small(nn.Module):
    """A bit of everything that can run without values."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.head = nn.Linear(4, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.gelu(self.norm(self.conv(x)))
        return self.head(F.max_pool2d(x, 2).mean((2, 3)))


def small_work(device: str) -> tuple[Work, ...]:
    with torch.device(device):
        model, x = Small(), torch.rand(2, 3, 8, 8)
    wanted = list(model.parameters())
    cotangent = torch.empty_like(model(x))
    return count(
        lambda: [model(x)],
        [x, *wanted, *model.buffers()],
        lambda out: list(torch.autograd.grad(out, wanted, [cotangent])),
    )


def test_real_meta_and_fake_tensors_agree() -> None:
    real = small_work("cpu")
    assert real == small_work("meta")
    with FakeTensorMode():
        assert real == small_work("cpu")
    assert real[0].matrix_flops < real[1].matrix_flops < 3 * real[0].matrix_flops  # x takes no gradient


def test_memory_is_freed_while_recording() -> None:
    made: list[StorageWeakRef] = []

    def run(x: torch.Tensor) -> torch.Tensor:
        for _ in range(40):
            x = x + 1
            made.append(StorageWeakRef(x.untyped_storage()))
            assert sum(not storage.expired() for storage in made) <= 2
        return x

    assert forward_work(run, torch.zeros(8)) == Work("forward", 64, 0, 40 * 8)


def test_memory_used_again_is_not_mistaken_for_what_was_there() -> None:
    def run(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        for _ in range(40):
            _ = y + 1  # for nothing
            del _
            x = x + 1
        return x

    assert forward_work(run, torch.zeros(8), torch.zeros(8)) == Work("forward", 64, 0, 40 * 8)


def test_recording_does_not_load_the_compiler() -> None:
    """PyTorch would, for a mode that does not say otherwise: seconds."""
    code = (
        "import sys, torch; from crucible.work import count; x = torch.ones(2);"
        "count(lambda: [x + 1], [x]); print('torch._dynamo' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
