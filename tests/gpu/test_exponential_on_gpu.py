"""The instruction behind exp on a small interval is right to the units that its error is reckoned with."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

sys.path.append(str(Path(__file__).parents[1] / "write"))

from building import load
from test_cuda import inline
from test_exponential import INTERVALS

from crucible.algebra.exponential import UNITS, by_power_of_two, error_of_power
from crucible.algebra.expression import make, tensor

X = tensor("x")
CHAINS = [make("exp2_approx", (X,)), by_power_of_two(X)]


def test_it_is_right_to_its_units_and_exp_to_its_bound() -> None:
    run = load(**inline("powers", CHAINS), extra_cuda_cflags=["-O3"]).run
    x = torch.cat([torch.linspace(-86, 86, 2**24), torch.linspace(-1, 1, 2**22)]).cuda()
    exact = x.double().exp2()
    unit = torch.exp2(torch.floor(torch.log2(exact)) - 23)
    assert ((run(x, x, 0).double() - exact).abs() / unit).max() <= UNITS
    for low, high in INTERVALS:
        x = torch.linspace(low, high, 2**22).cuda()
        assert (run(x, x, 1).double() - x.double().exp()).abs().max() <= error_of_power(low, high)
    beyond = torch.tensor([float("nan"), float("inf"), -float("inf")]).cuda()
    assert torch.equal(run(beyond, beyond, 1).isnan().cpu(), torch.tensor([True, False, False]))
