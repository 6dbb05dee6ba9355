"""Missing and wrong gradients: which, by which factor, cut off where."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from explaining import claims, compared, oracle, why

import crucible
from crucible.judge.verdict.evidence import Compared, Finding
from crucible.judge.verdict.verdict import Wrong
from support import SMALL_TASK, write

CANDIDATE = """
import torch
import torch.nn.functional as F
from torch import nn


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale, bias):
        ctx.save_for_backward(x, scale)
        return x * scale + bias

    @staticmethod
    def backward(ctx, grad):
        x, scale = ctx.saved_tensors
        return {backward}


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, negative_slope):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.scale = nn.Parameter(torch.randn(out_features))
        self.bias = nn.Parameter(torch.randn(out_features))
        self.negative_slope = negative_slope

    def forward(self, x):
        y = F.leaky_relu({linear}, self.negative_slope)
        return Scale.apply(y, self.scale, self.bias)
"""
RIGHT = "grad * scale, (grad * x).sum(0), grad.sum(0)"
CASES = {
    "right": (RIGHT, "self.linear(x)"),
    "mean_for_sum": ("grad * scale, (grad * x).sum(0), grad.mean(0)", "self.linear(x)"),
    "no_chain_factor": ("grad, (grad * x).sum(0), grad.sum(0)", "self.linear(x)"),
    "zero_gradient": ("grad * scale, torch.zeros_like(scale), grad.sum(0)", "self.linear(x)"),
    "stops": ("None, (grad * x).sum(0), grad.sum(0)", "self.linear(x)"),
    "detached": (RIGHT, "self.linear(x).detach()"),
}


@pytest.fixture(scope="module")
def found(
    judge_batch: Callable[..., crucible.Run], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[Finding, ...]]:
    """The findings of all cases, judged in training."""
    folder = tmp_path_factory.mktemp("gradients")
    files: list[Path] = []
    for name, (backward, linear) in CASES.items():
        files.append(write(folder / f"{name}.py", CANDIDATE.format(backward=backward, linear=linear)))
    return dict(judge_batch(SMALL_TASK, files, training=True).explanations)


def test_right_gradients_have_no_cause(found: dict[str, tuple[Finding, ...]]) -> None:
    assert "gradient" not in claims(found["right"])


def test_a_mean_for_a_sum_is_told_by_the_size_that_it_divides_by(found: dict[str, tuple[Finding, ...]]) -> None:
    first = found["mean_for_sum"][0]
    assert (
        "gradient of bias is 0.25 times what it should be: it is divided by 4, the size of dimension 0" in first.claim
    )
    assert "all other gradients are right" in first.evidence
    assert "a mean was taken for a sum" in first.remedy


def test_a_missing_chain_factor_is_no_constant(found: dict[str, tuple[Finding, ...]]) -> None:
    """The scale of each feature is another one, so it is told by feature."""
    words = claims(found["no_chain_factor"])
    assert "gradient of linear.weight" in words
    assert "each index of dimension 0 (of 2) is off by a constant factor" in words


def test_a_gradient_of_zeros_is_told(found: dict[str, tuple[Finding, ...]]) -> None:
    assert found["zero_gradient"][0].claim.startswith("gradient of scale is zero: backward gives it")


def test_a_backward_that_stops_is_told_with_what_it_cuts_off(found: dict[str, tuple[Finding, ...]]) -> None:
    first = found["stops"][0]
    assert first.claim == ("no gradient reaches input[0], linear.bias, linear.weight: its own backward stops before")
    assert "3 missing; reached: gradient of scale, gradient of bias" in first.evidence
    source = CANDIDATE.format(backward="", linear="").split("\n")
    assert "def backward" in source[first.line - 1]


def test_a_detached_graph_is_told_with_its_line(found: dict[str, tuple[Finding, ...]]) -> None:
    first = found["detached"][0]
    assert first.claim.startswith("no gradient reaches input[0], linear.bias, linear.weight")
    assert ".detach()" in first.evidence


def test_a_factor_that_is_no_size_is_told_as_it_is() -> None:
    want = oracle(6, 7, 11)
    output = compared(oracle(4, 6).float(), oracle(4, 6), "output")

    def first(factor: float) -> str:
        gradient = compared((factor * want).float(), want, "gradient of weight")
        backward = Compared((gradient,), 4.0)
        forward = Compared((output,), 4.0)
        return why(Wrong("gradient", "off"), forward=forward, backward=backward)[0].claim

    assert first(24.0).endswith("it is multiplied by 24, the sizes of dimensions 0 and 1 of output")
    assert first(1.7) == "gradient of weight is 1.7 times what it should be"
    assert first(-1.0) == "gradient of weight is -1 times what it should be"


def test_a_gradient_wrong_in_one_row_is_told_by_the_row() -> None:
    want = oracle(6, 70)
    got = want.clone()
    got[2] = oracle(70, seed=5)
    gradient = compared(got.float(), want, "gradient of weight")
    found = why(Wrong("gradient", "off"), backward=Compared((gradient,), 4.0))
    assert "gradient of weight is wrong only at index 2 of dimension 0 (of 2)" in found[0].claim
