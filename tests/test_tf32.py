"""TF32 as PyTorch's older flags and its newer `fp32_precision` say it: the newer makes the older raise when read."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

import crucible
from crucible import tf32
from support import PLAIN

MATMUL, CUDNN = torch.backends.cuda.matmul, torch.backends.cudnn
WAYS: dict[str, tuple[Callable[[], None], tuple[bool, bool]]] = {
    "as it comes": (lambda: None, (True, False)),
    "older, all": (lambda: _older(True, True), (True, True)),
    "older, none": (lambda: _older(False, False), (False, False)),
    "by a word": (lambda: torch.set_float32_matmul_precision("high"), (True, True)),
    "products": (lambda: setattr(MATMUL, "fp32_precision", "tf32"), (True, True)),
    "convolutions": (lambda: setattr(CUDNN.conv, "fp32_precision", "ieee"), (False, False)),
    "cuDNN": (lambda: _for_all_below(CUDNN, "ieee"), (False, False)),
    "everything": (lambda: _for_all_below(torch.backends, "tf32"), (True, True)),
}


def _older(convolutions: bool, products: bool) -> None:
    CUDNN.allow_tf32, MATMUL.allow_tf32 = convolutions, products


def _for_all_below(where: Any, how: str) -> None:
    """For operations of which nothing is said by themselves."""
    CUDNN.conv.fp32_precision = CUDNN.rnn.fp32_precision = MATMUL.fp32_precision = "none"
    where.fp32_precision = how


def _said() -> list[str]:
    return [each.fp32_precision for each in (CUDNN.conv, CUDNN.rnn, MATMUL)]


@pytest.fixture(autouse=True)
def as_it_comes() -> Iterator[None]:
    """Before and behind each test."""

    def reset() -> None:
        torch.backends.fp32_precision = CUDNN.fp32_precision = MATMUL.fp32_precision = "none"
        torch.set_float32_matmul_precision("highest")
        _older(True, False)

    reset()
    yield
    reset()


@pytest.mark.parametrize("way", WAYS)
def test_each_way_of_saying_it_is_read_and_is_there_again(way: str) -> None:
    say, expected = WAYS[way]
    say()
    before = _said()
    assert (tf32.in_convolutions(), tf32.in_products()) == expected
    for convolutions, products in ((True, True), (False, False), (True, False)):
        with tf32.allowed(convolutions, products):
            assert (CUDNN.allow_tf32, MATMUL.allow_tf32) == (convolutions, products)  # and both can be read
            assert (tf32.in_convolutions(), tf32.in_products()) == (convolutions, products)
        assert (tf32.in_convolutions(), tf32.in_products()) == expected
        assert _said() == before


def test_it_is_there_again_behind_what_raises() -> None:
    MATMUL.fp32_precision = "tf32"
    with pytest.raises(ValueError, match="halfway"), tf32.allowed(False, False):
        raise ValueError("halfway")
    assert MATMUL.fp32_precision == "tf32"


def test_a_module_is_fused_where_the_newer_way_was_taken() -> None:
    MATMUL.fp32_precision = CUDNN.conv.fp32_precision = "tf32"
    x = torch.randn(2, 4, 6)
    module = nn.Sequential(nn.Conv1d(4, 4, 3), nn.LeakyReLU(0.1))
    fused = crucible.fuse(module, x, emulate=True)
    torch.testing.assert_close(fused(x), module(x), atol=5e-3, rtol=5e-3)


def test_a_candidate_may_take_the_newer_way(judge_source: Callable[..., crucible.Verdict]) -> None:
    head = "import torch\ntorch.backends.cuda.matmul.fp32_precision = 'tf32'\n"
    head += "torch.backends.cudnn.conv.fp32_precision = 'ieee'\n"
    verdict = judge_source(head + PLAIN.read_text())
    assert verdict.evaluation, verdict.outcome.words
    changes = "torch.backends.cudnn.allow_tf32: True -> False", "torch.backends.cuda.matmul.allow_tf32: False -> True"
    assert set(changes) <= {finding.evidence for finding in verdict.findings}
