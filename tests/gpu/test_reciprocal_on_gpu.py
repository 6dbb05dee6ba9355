"""The instruction behind quotients is right to the unit that intervals reckon with, for every divisor there is."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

sys.path.append(str(Path(__file__).parents[1] / "write"))

from building import load
from test_cuda import inline

from crucible.algebra.expression import tensor
from crucible.algebra.interval import LEAST_DIVISOR, QUOTIENT_ULPS

X, Y = tensor("x"), tensor("y")


def test_quotients_are_right_to_their_units_and_none_is_above_what_is_divided() -> None:
    divided = load(**inline("quotients", [Y / X.clamp(LEAST_DIVISOR, float("inf"))]), extra_cuda_cflags=["-O3"]).run
    mantissas = torch.arange(2**23, dtype=torch.int32, device="cuda")
    for exponent in (27, 64, 126, 127, 128, 190, 252):
        divisors = (mantissas + (exponent << 23)).view(torch.float32)
        for number in (1.0, -1.75):
            values = torch.full_like(divisors, number)
            found, exact = divided(divisors, values, 0), values.double() / divisors.double()
            unit = torch.exp2(torch.floor(torch.log2(exact.abs())) - 23)
            off = float(((found.double() - exact).abs() / unit).max())
            assert off <= QUOTIENT_ULPS
            assert off <= (1.5 if number == 1.0 else 1.75 + 0.5), (exponent, number, off)
            if exponent >= 127:
                assert float(found.abs().max()) <= abs(number)
    beyond = torch.tensor([float("inf"), float("nan"), 2.0**127], device="cuda")
    found = divided(beyond, torch.full_like(beyond, -3.0), 0).cpu()
    assert found[0] == 0 and found[1].isnan() and float(found[2]) == -3 * 2.0**-127
