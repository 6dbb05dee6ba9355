"""Pointwise chains: one value computed from other values at the same place.

    x, bias = tensor("x"), parameter("bias")
    chain = (x.leaky_relu(0.2) + bias).clamp(-1, 1).gelu()

An expression is frozen, and equal expressions are one object: a chain is a graph, what it shares is stored once. What
each operation means stands elsewhere: what it is made of in `operations`, its derivative in `pullback`, its range in
`ranges`, its C++ in `cuda`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias
from weakref import WeakValueDictionary

Attribute: TypeAlias = float | str
Scalar: TypeAlias = "Expr | float"
DTYPES = ("float32", "float16", "bfloat16")
LEAVES = ("tensor", "parameter", "constant")


@dataclass(frozen=True, eq=False, repr=False, slots=True, weakref_slot=True)
class Expr:
    """A value for each element. Built by `tensor`, `parameter`, `constant` and the methods below, never directly.

    The methods are PyTorch's, with PyTorch's defaults. Comparisons give conditions: 1 where they hold, else 0.
    """

    kind: str
    """The operation, by PyTorch's name, or one of LEAVES."""
    args: tuple[Expr, ...]
    """What it is computed from."""
    attributes: tuple[Attribute, ...]
    """Numbers and names that belong to the operation: a slope, a bound, a dtype; of a leaf its name and dtype."""

    def __reduce__(self) -> tuple[Any, ...]:
        return make, (self.kind, self.args, *self.attributes)

    def __bool__(self) -> bool:
        raise TypeError(f"{self!r} is a value for each element, neither true nor false: use where()")

    def __repr__(self) -> str:
        return f"<{self.kind} expression>"  # text.text() writes it out

    # arithmetic

    def __add__(self, other: Scalar) -> Expr:
        return make("add", (self, lift(other)))

    def __radd__(self, other: float) -> Expr:
        return lift(other) + self

    def __sub__(self, other: Scalar) -> Expr:
        return make("sub", (self, lift(other)))

    def __rsub__(self, other: float) -> Expr:
        return lift(other) - self

    def __mul__(self, other: Scalar) -> Expr:
        return make("mul", (self, lift(other)))

    def __rmul__(self, other: float) -> Expr:
        return lift(other) * self

    def __truediv__(self, other: Scalar) -> Expr:
        return make("div", (self, lift(other)))

    def __rtruediv__(self, other: float) -> Expr:
        return lift(other) / self

    def __pow__(self, exponent: Scalar) -> Expr:
        return self.pow(exponent)

    def __neg__(self) -> Expr:
        return make("neg", (self,))

    def __abs__(self) -> Expr:
        return make("abs", (self,))

    def pow(self, exponent: Scalar) -> Expr:
        """The exponents that PyTorch computes in another way (square, square root, reciprocal, ...) become that."""
        special = {2.0: "square", 0.5: "sqrt", -0.5: "rsqrt", -1.0: "reciprocal"}
        if exponent == 1.0:
            return self
        if not isinstance(exponent, Expr) and exponent in special:
            return make(special[exponent], (self,))
        return make("pow", (self, lift(exponent)))

    def minimum(self, other: Scalar) -> Expr:
        return make("minimum", (self, lift(other)))

    def maximum(self, other: Scalar) -> Expr:
        return make("maximum", (self, lift(other)))

    def fma(self, factor: Scalar, term: Scalar) -> Expr:
        """self * factor + term, rounded once."""
        return make("fma", (self, lift(factor), lift(term)))

    def cast(self, dtype: str) -> Expr:
        """Rounded to `dtype`, to nearest even; the value stays in a float register."""
        if dtype not in DTYPES:
            raise ValueError(f"cannot round to {dtype!r}: choose one of {', '.join(DTYPES)}")
        return make("cast", (self,), dtype)

    # conditions

    def __lt__(self, other: Scalar) -> Expr:
        return make("lt", (self, lift(other)))

    def __le__(self, other: Scalar) -> Expr:
        return make("le", (self, lift(other)))

    def __gt__(self, other: Scalar) -> Expr:
        return make("gt", (self, lift(other)))

    def __ge__(self, other: Scalar) -> Expr:
        return make("ge", (self, lift(other)))

    def equals(self, other: Scalar) -> Expr:
        return make("eq", (self, lift(other)))

    def differs(self, other: Scalar) -> Expr:
        return make("ne", (self, lift(other)))

    def __and__(self, other: Expr) -> Expr:
        return make("and", (self, other))

    def __or__(self, other: Expr) -> Expr:
        return make("or", (self, other))

    def __invert__(self) -> Expr:
        return make("not", (self,))

    # functions of one argument without attributes

    def square(self) -> Expr:
        return make("square", (self,))

    def sqrt(self) -> Expr:
        return make("sqrt", (self,))

    def rsqrt(self) -> Expr:
        return make("rsqrt", (self,))

    def reciprocal(self) -> Expr:
        return make("reciprocal", (self,))

    def sign(self) -> Expr:
        """-1, 0 or 1; 0 for NaN, as torch.sign."""
        return make("sign", (self,))

    def exp(self) -> Expr:
        return make("exp", (self,))

    def expm1(self) -> Expr:
        return make("expm1", (self,))

    def log(self) -> Expr:
        return make("log", (self,))

    def log1p(self) -> Expr:
        return make("log1p", (self,))

    def sin(self) -> Expr:
        return make("sin", (self,))

    def cos(self) -> Expr:
        return make("cos", (self,))

    def erf(self) -> Expr:
        return make("erf", (self,))

    def tanh(self) -> Expr:
        return make("tanh", (self,))

    def sigmoid(self) -> Expr:
        return make("sigmoid", (self,))

    def relu(self) -> Expr:
        return make("relu", (self,))

    def detach(self) -> Expr:
        """The same number, of which no gradient goes back."""
        return make("detach", (self,))

    def relu6(self) -> Expr:
        return make("hardtanh", (self,), 0.0, 6.0)

    def silu(self) -> Expr:
        return make("silu", (self,))

    def mish(self) -> Expr:
        return make("mish", (self,))

    def hardsigmoid(self) -> Expr:
        return make("hardsigmoid", (self,))

    def hardswish(self) -> Expr:
        return make("hardswish", (self,))

    def tanhshrink(self) -> Expr:
        return make("tanhshrink", (self,))

    def logsigmoid(self) -> Expr:
        return make("logsigmoid", (self,))

    def softsign(self) -> Expr:
        return make("softsign", (self,))

    # functions with attributes

    def clamp(self, low: float | None = None, high: float | None = None) -> Expr:
        """Bounds are numbers; either may be left out."""
        return make("clamp", (self,), -INFINITY if low is None else low, INFINITY if high is None else high)

    def hardtanh(self, low: float = -1.0, high: float = 1.0) -> Expr:
        """As clamp, but its derivative at the bounds is 0, not 1."""
        return make("hardtanh", (self,), low, high)

    def leaky_relu(self, slope: float = 0.01) -> Expr:
        return make("leaky_relu", (self,), slope)

    def prelu(self, weight: Expr) -> Expr:
        return make("prelu", (self, weight))

    def elu(self, alpha: float = 1.0) -> Expr:
        return make("elu", (self,), alpha, 1.0, 1.0)

    def selu(self) -> Expr:
        return make("elu", (self,), 1.6732632423543772, 1.0507009873554805, 1.0)

    def celu(self, alpha: float = 1.0) -> Expr:
        return make("elu", (self,), alpha, 1.0, 1.0 / alpha)

    def gelu(self, approximate: str = "none") -> Expr:
        if approximate not in ("none", "tanh"):
            raise ValueError(f"GELU has no form {approximate!r}: choose 'none' or 'tanh'")
        return make("gelu" if approximate == "none" else "gelu_tanh", (self,))

    def softplus(self, beta: float = 1.0, threshold: float = 20.0) -> Expr:
        return make("softplus", (self,), beta, threshold)

    def hardshrink(self, bound: float = 0.5) -> Expr:
        return make("hardshrink", (self,), bound)

    def softshrink(self, bound: float = 0.5) -> Expr:
        return make("softshrink", (self,), bound)

    def threshold(self, threshold: float, value: float) -> Expr:
        return make("threshold", (self,), threshold, value)

    def dropout(self) -> Expr:
        """In evaluation mode: the value itself."""
        return self


INFINITY = float("inf")
_KNOWN: WeakValueDictionary[tuple[object, ...], Expr] = WeakValueDictionary()


def make(kind: str, args: tuple[Expr, ...] = (), *attributes: float | str) -> Expr:
    """The expression of this form: the one object of its kind, arguments and attributes."""
    kept = tuple(value if isinstance(value, str) else float(value) for value in attributes)
    key = (kind, args, repr(kept))  # repr tells 0.0 from -0.0, and one NaN equals another
    return _KNOWN.setdefault(key, Expr(kind, args, kept))


def tensor(name: str, dtype: str = "float32") -> Expr:
    """An input with a value for each element, read as it is stored in `dtype`."""
    return make("tensor", (), name, dtype)


def parameter(name: str, dtype: str = "float32") -> Expr:
    """An input that many elements share (one for each channel, one for all): how it broadcasts is the writer's
    business, that it costs no traffic is what counts here."""
    return make("parameter", (), name, dtype)


def constant(value: float) -> Expr:
    """A number."""
    return make("constant", (), float(value))


def where(condition: Expr, one: Scalar, other: Scalar) -> Expr:
    """`one` where the condition holds, else `other`."""
    return make("where", (condition, lift(one), lift(other)))


def lift(value: Scalar) -> Expr:
    """Numbers as constants, expressions as they are."""
    return value if isinstance(value, Expr) else constant(value)


def number(expr: Expr) -> float | None:
    """The value of a constant."""
    return float(expr.attributes[0]) if expr.kind == "constant" else None


def name_of(leaf: Expr) -> str:
    """The name of a tensor or a parameter."""
    return str(leaf.attributes[0])


def nodes(*roots: Expr) -> Iterator[Expr]:
    """Every value below and including the roots, once, arguments first, in the order in which they are written."""
    seen: set[Expr] = set()
    stack = [(root, False) for root in reversed(roots)]
    while stack:
        node, ready = stack.pop()
        if node in seen:
            continue
        if ready:
            seen.add(node)
            yield node
        else:
            stack.append((node, True))
            stack += [(arg, False) for arg in reversed(node.args)]


def inputs(*roots: Expr) -> tuple[Expr, ...]:
    """The tensors and parameters that the roots depend on."""
    return tuple(node for node in nodes(*roots) if node.kind in ("tensor", "parameter"))


def substitute(expr: Expr, replaced: Mapping[Expr, Expr]) -> Expr:
    """The expression with some of its values replaced; what replaces them is taken as it is."""
    done = dict(replaced)
    for node in nodes(expr):
        if node not in done:
            args = tuple(done[arg] for arg in node.args)
            done[node] = node if args == node.args else make(node.kind, args, *node.attributes)
    return done[expr]
