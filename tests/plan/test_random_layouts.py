"""Random graphs of views, calls of PyTorch and kernels: values, gradients, strides of results, and that none raises.

`random_layouts.py` draws as many as asked for by hand."""

from __future__ import annotations

import pytest
from random_layouts import faults

from support import some

FOUND = (7010, 7017, 7024, 7027, 739945125, 739945144, 20261127092)
"""What runs found: a norm of nothing but a number, a result that is an expanded view, a split into one part, the mean
of a matrix beside that of its transpose; a view of an expanded view, and what PyTorch lays like one; a product with its
own transpose, taken from that."""


@pytest.mark.parametrize("seed", [*FOUND, *some(range(20), 3)])
def test_a_graph_is_written_as_eager_computes_it(seed: int) -> None:
    assert faults(seed) == ""
