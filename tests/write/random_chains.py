"""Random chains over the vocabulary, as trees of names that become an expression or a PyTorch function."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import strategies as st
from vocabulary import BINARY, UNARY

from crucible.algebra.expression import Expr, constant, tensor

Tree = Any
"""A leaf's name, a number, or an operation's name and subtrees."""
INPUTS = {name: tensor(name) for name in ("x", "y")}


def trees(jumps: bool = True, leaves: int = 5, without: str = "") -> st.SearchStrategy[Tree]:
    """Chains of x and y; without `jumps` all operations are continuous."""
    numbers = st.sampled_from([-2.0, -0.5, 0.0, 0.25, 1.0, 3.0])
    unary = st.sampled_from([name for name, case in UNARY.items() if name != without and (jumps or not case.jumps)])
    binary = st.sampled_from([name for name, case in BINARY.items() if jumps or not case.jumps])
    return st.recursive(
        st.sampled_from(["x", "x", "y"]) | numbers,
        lambda below: st.tuples(unary, below) | st.tuples(unary, below) | st.tuples(binary, below, below),
        max_leaves=leaves,
    )


def ours(tree: Tree) -> Expr:
    """The expression."""
    match tree:
        case str():
            return INPUTS[tree]
        case float():
            return constant(tree)
        case name, below:
            return UNARY[name].ours(ours(below))
        case name, left, right:
            return BINARY[name].ours(ours(left), ours(right))
    raise AssertionError(tree)


def torchs(tree: Tree, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """PyTorch's value."""
    match tree:
        case str():
            return {"x": x, "y": y}[tree]
        case float():
            return torch.full_like(x, tree)
        case name, below:
            return UNARY[name].torchs(torchs(below, x, y))
        case name, left, right:
            return BINARY[name].torchs(torchs(left, x, y), torchs(right, x, y))
    raise AssertionError(tree)
