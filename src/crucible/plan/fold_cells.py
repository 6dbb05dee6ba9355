"""Recurrent cells by their formulas: products, and gates that one kernel computes.

PyTorch's cells are two products and a kernel of its own. By their formulas the products with what comes from outside
are one for all turns of a loop (`batched.py`), and gates are computed where the products lie (`within.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from crucible.graph import Operation, Ref
from crucible.plan.rewriting import Maker, Rewriting

Formula = Callable[[Maker, str, str, Sequence[str]], list[str]]
"""From the products with the input and with the state, and the states before: those behind."""


def cell(work: Rewriting, operation: Operation) -> bool:
    """Whether a recurrent cell was written by its formula."""
    formula = _FORMULAS.get(operation.kind)
    given = operation.args.get("input")
    if formula is None or not isinstance(given, Ref) or len(work.shape(given.name)) != 2:
        return False
    tensors = [*(work.values[name].tensor for name in operation.inputs), *(each.tensor for each in operation.outputs)]
    if len({each.dtype for each in tensors}) > 1:  # under autocast products are narrow, and states are not
        return False
    states = [each.name for each in _all(operation.args["hx"])]
    make = Maker(work, operation.outputs[0].tensor.dtype)
    layers = [("w_ih", "b_ih", given.name), ("w_hh", "b_hh", states[0])]
    products = [_product(make, operation, *layer) for layer in layers]
    found = formula(make, products[0], products[1], states)
    work.finish_each(operation, found, f"{operation.kind} by its formula")
    return True


def _all(states: object) -> list[Ref]:
    return [each for each in (states if isinstance(states, tuple) else (states,)) if isinstance(each, Ref)]


def _product(make: Maker, operation: Operation, weight: str, bias: str, given: str) -> str:
    of, added = operation.args[weight], operation.args.get(bias)
    assert isinstance(of, Ref)
    return make.linear(given, of.name, added.name if isinstance(added, Ref) else None)


def _gates(make: Maker, product: str, count: int) -> list[str]:
    size = make.shape(product)[1] // count
    strides = (size * count, 1)
    return [make.slice(product, 1, n * size, (n + 1) * size, strides=strides) for n in range(count)]


def _lstm(make: Maker, outer: str, inner: str, states: Sequence[str]) -> list[str]:
    """Hochreiter and Schmidhuber 1997, with forget gates; in PyTorch's order of gates."""
    i, f, g, o = _gates(make, make.binary("add", outer, inner), 4)
    kept = make.binary("mul", make.unary("sigmoid", f), states[1])
    cell = make.binary("add", kept, make.binary("mul", make.unary("sigmoid", i), make.unary("tanh", g)))
    return [make.binary("mul", make.unary("sigmoid", o), make.unary("tanh", cell)), cell]


def _gru(make: Maker, outer: str, inner: str, states: Sequence[str]) -> list[str]:
    """Cho et al. 2014, with the reset behind the product, as PyTorch and cuDNN have it."""
    pairs = zip(_gates(make, outer, 3), _gates(make, inner, 3), strict=True)
    (r_outer, r_inner), (z_outer, z_inner), (n_outer, n_inner) = pairs
    reset = make.unary("sigmoid", make.binary("add", r_outer, r_inner))
    update = make.unary("sigmoid", make.binary("add", z_outer, z_inner))
    new = make.unary("tanh", make.binary("add", n_outer, make.binary("mul", reset, n_inner)))
    return [make.binary("add", new, make.binary("mul", update, make.binary("sub", states[0], new)))]


def _plain(kind: str) -> Formula:
    """Elman 1990."""
    return lambda make, outer, inner, states: [make.unary(kind, make.binary("add", outer, inner))]


_FORMULAS: dict[str, Formula] = {
    "lstm_cell": _lstm,
    "gru_cell": _gru,
    "rnn_tanh_cell": _plain("tanh"),
    "rnn_relu_cell": _plain("relu"),
}
