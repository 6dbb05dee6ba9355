"""Rounding to a contract's mantissa: exact where it can be, at most half a unit off, and only where cores round."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from crucible.judge.oracle import noise
from crucible.judge.oracle.noise import RoundedOperands, cut_mantissa, perturbed, round_mantissa

BITS = st.sampled_from([7, 10, 16, 22])
FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)
quick = settings(deadline=None, max_examples=200)


def rounded(value: float, bits: int, dtype: torch.dtype = torch.float32) -> float:
    return float(round_mantissa(torch.tensor([value], dtype=dtype), bits))


def unit(value: float, bits: int) -> float:
    """The distance between neighbours of `bits` mantissa bits around a float32 value."""
    return 2.0 ** (max(math.frexp(value)[1] - 1, -126) - bits)


def ones(*shape: int) -> torch.Tensor:
    """What rounds to exactly one at ten bits."""
    return torch.full(shape, 1 + 2.0**-12)


@quick
@given(FLOATS, BITS)
def test_rounding_twice_changes_nothing(value: float, bits: int) -> None:
    once = rounded(value, bits)
    assert rounded(once, bits) == once


@quick
@given(FLOATS, BITS)
def test_rounding_moves_by_half_a_unit_at_most(value: float, bits: int) -> None:
    result = rounded(value, bits)
    if math.isinf(result):
        assert abs(value) >= (2 - 2.0 ** -(bits + 1)) * 2.0**127
    else:
        assert abs(result - value) <= unit(value, bits) / 2


@quick
@given(FLOATS, BITS)
def test_cutting_goes_towards_zero_by_less_than_a_unit(value: float, bits: int) -> None:
    cut = float(cut_mantissa(torch.tensor([value]), bits))
    assert abs(cut) <= abs(value) and abs(cut - value) < unit(value, bits)
    assert float(cut_mantissa(torch.tensor([cut]), bits)) == cut


@quick
@given(FLOATS, BITS)
def test_rounding_is_symmetric_in_sign(value: float, bits: int) -> None:
    assert rounded(-value, bits) == -rounded(value, bits)
    assert math.copysign(1, rounded(-value, bits)) == -math.copysign(1, rounded(value, bits))


@quick
@given(st.data(), BITS, st.integers(-120, 120))
def test_representable_values_stay(data: st.DataObject, bits: int, exponent: int) -> None:
    value = data.draw(st.integers(-(2 ** (bits + 1)) + 1, 2 ** (bits + 1) - 1)) * 2.0 ** (exponent - bits)
    assert rounded(value, bits) == value
    assert rounded(value, bits, torch.float64) == value


@quick
@given(st.data(), BITS, st.integers(-100, 100), st.sampled_from([-1, 1]))
def test_ties_go_away_from_zero(data: st.DataObject, bits: int, exponent: int, sign: int) -> None:
    whole = data.draw(st.integers(2**bits, 2 ** (bits + 1) - 1))
    scale = sign * 2.0 ** (exponent - bits)
    assert rounded((whole + 0.5) * scale, bits) == (whole + 1) * scale


@quick
@given(FLOATS)
def test_seven_bits_are_bfloat16_except_at_ties(value: float) -> None:
    tensor = torch.tensor([value])
    if int(tensor.view(torch.int32)) & 0xFFFF != 0x8000:
        assert torch.equal(round_mantissa(tensor, 7), tensor.to(torch.bfloat16).float())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_infinities_and_nan_stay(dtype: torch.dtype) -> None:
    value = torch.tensor([torch.inf, -torch.inf, torch.nan, 1.0], dtype=dtype)
    result = round_mantissa(value, 10)
    assert result.dtype == dtype
    torch.testing.assert_close(result, value, rtol=0, atol=0, equal_nan=True)


def test_whole_float32_and_integers_are_left_alone() -> None:
    for value, bits in [(torch.tensor([1 + 2.0**-23]), 23), (torch.tensor([123456789]), 7)]:
        assert round_mantissa(value, bits) is value


PRODUCTS: dict[str, Callable[[Callable[..., torch.Tensor]], torch.Tensor]] = {
    "mm": lambda m: m(4, 4) @ m(4, 4),
    "bmm": lambda m: torch.bmm(m(2, 4, 4), m(2, 4, 4)),
    "mv": lambda m: m(4, 4) @ m(4),
    "dot": lambda m: torch.dot(m(4), m(4)),
    "vdot": lambda m: torch.vdot(m(4), m(4)),
    "einsum": lambda m: torch.einsum("ij,kj->ik", m(4, 4), m(4, 4)),
    "linear": lambda m: F.linear(m(4, 4), m(4, 4), torch.zeros(4)),
    "addmm": lambda m: torch.addmm(torch.zeros(4, 4), m(4, 4), m(4, 4)),
    "baddbmm": lambda m: torch.baddbmm(torch.zeros(2, 4, 4), m(2, 4, 4), m(2, 4, 4)),
    "mm out": lambda m: torch.mm(m(4, 4), m(4, 4), out=torch.empty(4, 4)),
    "addmm_": lambda m: torch.zeros(4, 4).addmm_(m(4, 4), m(4, 4)),
    "addmv_": lambda m: torch.zeros(4).addmv_(m(4, 4), m(4)),
    "baddbmm_": lambda m: torch.zeros(2, 4, 4).baddbmm_(m(2, 4, 4), m(2, 4, 4)),
    "addbmm_": lambda m: torch.zeros(4, 4).addbmm_(m(2, 4, 4), m(2, 4, 4)),
    "conv1d": lambda m: F.conv1d(m(1, 2, 8), m(2, 2, 3)),
    "conv3d": lambda m: F.conv3d(m(1, 2, 4, 4, 4), m(2, 2, 3, 3, 3)),
    "conv_transpose2d": lambda m: F.conv_transpose2d(m(1, 2, 4, 4), m(2, 2, 3, 3)),
    "attention": lambda m: F.scaled_dot_product_attention(m(1, 1, 4, 4), m(1, 1, 4, 4), m(1, 1, 4, 4)),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_read_rounded_operands(name: str) -> None:
    with RoundedOperands(10):
        result = PRODUCTS[name](ones)
    assert torch.equal(result, PRODUCTS[name](torch.ones))
    assert not torch.equal(result, PRODUCTS[name](ones))


@pytest.mark.parametrize("training", [True, False])
def test_attention_modules_read_rounded_operands(training: bool) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 5, 8)
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True).train(training)
    with torch.no_grad():
        exact = layer(x)
        with RoundedOperands(10):
            result = layer(x)
    assert 1e-5 < float((result - exact).abs().max()) < 1e-2


def test_a_bias_is_not_rounded() -> None:
    x, weight, bias = torch.zeros(1, 2, 4, 4), torch.zeros(2, 2, 3, 3), ones(2)
    with RoundedOperands(10):
        convolved = F.conv2d(x, weight, bias)
        linear = F.linear(torch.zeros(3, 4), torch.zeros(2, 4), bias)
    assert convolved.unique().tolist() == linear.unique().tolist() == [1 + 2.0**-12]


def test_elementwise_operations_and_sums_are_not_rounded() -> None:
    x = ones(64)
    with RoundedOperands(7):
        assert torch.equal(x + x, 2 * ones(64))
        assert float((x * x)[0]) == 1 + 2.0**-11
        assert float(x.sum()) == 64 * (1 + 2.0**-12)


def test_gradients_of_a_linear_layer_come_from_rounded_operands() -> None:
    torch.manual_seed(0)
    x, weight, bias, pulled = (torch.randn(*s, dtype=torch.float64) for s in [(5, 8), (3, 8), (3,), (5, 3)])
    leaves = [t.requires_grad_() for t in (x, weight, bias)]
    with RoundedOperands(10):
        out = F.linear(*leaves)
        dx, dweight, dbias = torch.autograd.grad(out, leaves, pulled)
    low = [round_mantissa(t.detach(), 10) for t in (x, weight, pulled)]
    torch.testing.assert_close(out, low[0] @ low[1].T + bias)
    torch.testing.assert_close(dx, low[2] @ low[1])
    torch.testing.assert_close(dweight, low[2].T @ low[0])
    torch.testing.assert_close(dbias, pulled.sum(0))
    assert not torch.allclose(dx, pulled @ weight, rtol=1e-7)


def test_gradients_of_a_convolution_come_from_rounded_operands() -> None:
    torch.manual_seed(0)
    x, weight = (torch.randn(*s, dtype=torch.float64, requires_grad=True) for s in [(2, 3, 6, 6), (4, 3, 3, 3)])
    pulled = torch.randn(2, 4, 4, 4, dtype=torch.float64)
    with RoundedOperands(7):
        found = torch.autograd.grad(F.conv2d(x, weight), [x, weight], pulled)
    low = [round_mantissa(t.detach(), 7).requires_grad_() for t in (x, weight)]
    expected = torch.autograd.grad(F.conv2d(*low), low, round_mantissa(pulled, 7))
    for got, want in zip(found, expected, strict=True):
        torch.testing.assert_close(got, want)


def test_results_are_rounded_on_request() -> None:
    x = torch.tensor([[1.0, 2.0], [4.0, 3.0]])
    with RoundedOperands(7, results=True):
        total = x + 2.0**-9
        in_place = torch.zeros(2).add_(1 + 2.0**-9)
        values, indices = torch.max(x * (1 + 2.0**-9), dim=1)
        view = ones(4).view(2, 2)
    assert torch.equal(total, x)
    assert in_place.tolist() == [1.0, 1.0]
    assert values.tolist() == [2.0, 4.0]
    assert indices.tolist() == [1, 0]
    assert view.dtype == torch.float32


EQUAL = torch.full((16, 3, 5), 0.7)
SUMS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "mean": lambda x: torch.cat([x, -x]).mean((0, 2)),
    "variance": lambda x: x.var(2),
    "batch norm": lambda x: F.batch_norm(x, None, None, training=True),
    "layer norm": lambda x: F.layer_norm(x, (5,)),
    "group norm": lambda x: F.group_norm(x, 3),
    "instance norm": lambda x: F.instance_norm(x),
}


@pytest.mark.parametrize("name", SUMS)
def test_sums_are_as_if_added_up_in_another_order(name: str) -> None:
    """By a unit or two of what they add up: behind a norm of equal numbers that is some hundred times as much."""
    exact = SUMS[name](EQUAL.double())
    with RoundedOperands(23, seed=0):
        one = SUMS[name](EQUAL)
    with RoundedOperands(23, seed=1):
        other = SUMS[name](EQUAL)
    assert not one.equal(other)
    amplified = (1e-5) ** -0.5 if name.endswith("norm") else 1.0
    assert 0 < float((one - exact).abs().max()) < 2**-22 * amplified


def test_gradients_of_norms_are_sums_too() -> None:
    x, weight = (torch.randn(8, 3, 5).requires_grad_(), torch.ones(3, requires_grad=True))
    found = []
    for seed in (None, 1):
        with RoundedOperands(23, seed=seed):
            y = F.batch_norm(x, None, None, weight, training=True)
            found.append(torch.autograd.grad(y.square().sum(), (x, weight)))
    for one, other in zip(*found, strict=True):
        assert not one.equal(other)
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def test_what_is_no_float32_sum_is_as_it_was() -> None:
    running = torch.zeros(3)
    x = torch.tensor([torch.inf, 2.0, -torch.inf])
    with RoundedOperands(23, seed=0):
        assert torch.equal(x * 2, torch.tensor([torch.inf, 4.0, -torch.inf]))
        assert x[:2].sum() == torch.inf and torch.tensor([3, 4]).sum() == 7
        assert EQUAL.double().mean() == EQUAL[0, 0, 0].double()
        F.batch_norm(EQUAL, running, torch.ones(3), training=True)
    torch.testing.assert_close(running, torch.full((3,), 0.07))


def test_without_the_request_results_keep_their_bits() -> None:
    with RoundedOperands(7):
        assert torch.equal(torch.ones(2) + 2.0**-9, torch.full((2,), 1 + 2.0**-9))


@quick
@given(st.sampled_from([2.0**-8, 2.0**-11, 2.0**-22]), st.integers(0, 2**31))
def test_perturbed_values_stay_within_reach(reach: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    value = torch.randn(257, generator=generator)
    moved = perturbed(value, reach, generator)
    assert moved.dtype == value.dtype
    assert ((moved.double() - value.double()).abs() <= value.double().abs() * (reach + 2.0**-24)).all()
    assert (moved != value).float().mean() > 0.5


def test_what_is_moved_in_parts_is_each_element_moved_by_a_number_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise, "_AT_ONCE", 64)
    value = torch.ones(3, 50)
    moved = perturbed(value, 2.0**-8, torch.Generator().manual_seed(0), dtype=torch.float64)
    assert (moved.shape, moved.dtype) == (value.shape, torch.float64)
    assert moved.unique().numel() == 150
    assert 2.0**-9 < float((moved - 1).abs().max()) <= 2.0**-8


def test_integers_are_never_perturbed() -> None:
    for value in (torch.arange(5), torch.tensor([True, False])):
        assert perturbed(value, 0.5, torch.Generator()) is value


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sixteen_bits_are_perturbed_as_float32(dtype: torch.dtype) -> None:
    moved = perturbed(torch.ones(1000, dtype=dtype), 2.0**-12, torch.Generator().manual_seed(0))
    assert moved.dtype == torch.float32
    assert 0 < float((moved - 1).abs().max()) <= 2.0**-12


def test_zeros_and_infinities_are_not_perturbed() -> None:
    value = torch.tensor([0.0, torch.inf, -torch.inf])
    assert torch.equal(perturbed(value, 0.1, torch.Generator().manual_seed(0)), value)


def test_doubles_stay_doubles() -> None:
    assert perturbed(torch.ones(3, dtype=torch.float64), 1e-9, torch.Generator()).dtype == torch.float64
