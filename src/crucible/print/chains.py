"""CUDA C++ for chains: statements in float or double, one for each named function and each value used twice."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from crucible.algebra.expression import Expr, constant, make, name_of, nodes, number
from crucible.algebra.interval import single
from crucible.algebra.operations import CONDITIONS, FUNCTIONS, NOUNS, define
from crucible.algebra.ranges import intervals
from crucible.algebra.text import ATOM, TERNARY, UNARY, Formula, infix

_CALLS = {
    "exp": "expf", "expm1": "expm1f", "log": "logf", "log1p": "log1pf", "sin": "sinf", "cos": "cosf", "erf": "erff",
    "tanh": "tanhf", "sqrt": "sqrtf", "rsqrt": "rsqrtf", "pow": "powf", "abs": "fabsf", "fma": "fmaf",
    "maximum": "max_nan", "minimum": "min_nan", "exp2_approx": "exp2_approx",
}  # fmt: skip
_FAST_CALLS = {"exp": "__expf", "log": "__logf", "sin": "__sinf", "cos": "__cosf", "pow": "__powf", "div": "__fdividef"}
_DOUBLE_CALLS = {**{kind: call.removesuffix("f") for kind, call in _CALLS.items()}, "exp2_approx": "exp2"}
_SIGNS = {"and": "&&", "or": "||", "not": "!"}
_ROUNDED = {
    "float16": "__half2float(__float2half_rn({}))",
    "bfloat16": "__bfloat162float(__float2bfloat16_rn({}))",
}
_DOUBLE_ROUNDED = {
    "float32": "static_cast<double>(static_cast<float>({}))",
    **{dtype: f"static_cast<double>({words.format('static_cast<float>({})')})" for dtype, words in _ROUNDED.items()},
}
_PREAMBLE = {
    "__half2float": "#include <cuda_fp16.h>",
    "__bfloat162float": "#include <cuda_bf16.h>",
    "max_nan": """\
__device__ __forceinline__ float max_nan(float a, float b) {  // the larger; NaN if either is, unlike fmaxf
    float larger;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
    return larger;
}""",
    "min_nan": """\
__device__ __forceinline__ float min_nan(float a, float b) {  // the smaller; NaN if either is, unlike fminf
    float smaller;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(smaller) : "f"(a), "f"(b));
    return smaller;
}""",
    "exp2_approx": """\
__device__ __forceinline__ float exp2_approx(float x) {  // 2 to the power of x, right to 2 units in the last place
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
    return power;
}""",
    "reciprocal_approx": """\
__device__ __forceinline__ float reciprocal_approx(float x) {  // 1 / x, right to a unit in the last place
    float inverse;
    asm("rcp.approx.f32 %0, %1;" : "=f"(inverse) : "f"(x));
    return inverse;
}""",
}
_DOUBLE_PREAMBLE = {
    **_PREAMBLE,
    "max_nan": """\
__device__ __forceinline__ double max_nan(double a, double b) {  // the larger; NaN if either is, unlike fmax
    return a != a || a > b ? a : b;
}""",
    "min_nan": """\
__device__ __forceinline__ double min_nan(double a, double b) {  // the smaller; NaN if either is, unlike fmin
    return a != a || a < b ? a : b;
}""",
}
_INLINE = frozenset({"square", "sign"})
_LONG = 64  # characters, from which on a formula gets a name


@dataclass(frozen=True)
class Emitted:
    """C++ text of some chains."""

    preamble: tuple[str, ...]
    """Includes and device functions that the file needs once."""
    statements: tuple[str, ...]
    """Lines of a function's body, without indentation; comments among them."""
    names: tuple[str, ...] = ()
    """The variables that they declare, results among them."""


def emit(
    results: Mapping[str, Expr],
    names: Mapping[str, str] | None = None,
    *,
    reserved: Iterable[str] = (),
    fast: bool = False,
    precision: str = "float32",
) -> Emitted:
    """Statements that end with one variable for each result (`const float`, or `const bool` for conditions).

    With precision="float64" everything is computed in double, and no function is fast.
    `names` gives the C++ expression, a float or double, that reads each tensor and parameter, by name; without one it
    is the name itself. It may be read several times: name what is costly to read.
    No variable is called as a word in it, nor as one in `reserved` (any text: statements that come before, say).
    What several results share is computed once. The same text on every run.

    fast=True takes the GPU's approximate functions, for contracts that allow it. Their errors by the CUDA programming
    guide: __expf 2 + |1.173 x| units in the last place, __logf 2^-21.41 (absolute, near 1) or 3 units, __sinf and
    __cosf 2^-21.19 (absolute, on ±π; unusable far outside), __powf that of its exponential and logarithm, __fdividef
    2 units, but 0 where the divisor is beyond 2^126. By default exp, log, erf, tanh, sin and cos are right to
    2 units, pow to 4, division and square root are correctly rounded; but a division whose divisor is known to be
    2^-100 at least (1 + exp(-x), say) is right to 2 units. Multiply-adds are contracted into fmaf.
    Raises ValueError for fast functions in double.
    """
    if fast and precision == "float64":
        raise ValueError("there are no fast functions in float64: leave out fast=True")
    writer = _Writer(dict(names or {}), fast, precision)
    writer.taken |= set(re.findall(r"\w+", " ".join(reserved)))
    writer.write(dict(results))
    lines = tuple(writer.statements)
    used = set(re.findall(r"\w+", "\n".join(lines)))
    preamble = _DOUBLE_PREAMBLE if precision == "float64" else _PREAMBLE
    return Emitted(tuple(text for name, text in preamble.items() if name in used), lines, tuple(writer.declared))


def literal(value: float, precision: str = "float32") -> str:
    """The shortest decimal that gives this float32, 0.2f or 1e-05f, or this float64, 0.2; INFINITY, NAN."""
    rounded = value if precision == "float64" else single(value)
    if not math.isfinite(rounded):
        return "NAN" if math.isnan(rounded) else "INFINITY" if rounded > 0 else "-INFINITY"
    if precision == "float64":
        return repr(float(value))
    digits = next(text for p in range(1, 10) if single(float(text := f"{rounded:.{p}g}")) == rounded)
    return f"{float(digits)!r}f" if 1e-4 <= abs(rounded) < 1e7 or not rounded else f"{digits}f"


class _Writer:
    """Statements written so far."""

    def __init__(self, names: dict[str, str], fast: bool, precision: str) -> None:
        self.names, self.precision = names, precision
        self.type = "double" if precision == "float64" else "float"
        self.calls = _DOUBLE_CALLS if precision == "float64" else {**_CALLS, **(_FAST_CALLS if fast else {})}
        self.rounded = _DOUBLE_ROUNDED if precision == "float64" else _ROUNDED
        self.may_approximate = not fast and precision == "float32"
        self.plain_divisors: set[Expr] = set()
        self.statements: list[str] = []
        self.declared: list[str] = []
        self.formulas: dict[Expr, Formula] = {}
        self.squares: dict[str, str] = {}
        self.taken = set(self.calls.values()) if precision == "float64" else set[str]()  # `exp = exp(x)` reads itself

    def write(self, results: dict[str, Expr]) -> None:
        labels: dict[Expr, str] = {}
        flat: dict[Expr, Expr] = {}
        roots = {name: _flattened(expr, flat, labels) for name, expr in results.items()}
        contracted = _contracted(list(roots.values()), labels)
        roots = {name: contracted[root] for name, root in roots.items()}
        if self.may_approximate:
            self.plain_divisors = _plain_divisors(tuple(roots.values()))
        named = {contracted[node]: label for node, label in labels.items() if node in contracted}
        self._claim(results, roots)
        uses = _uses(list(roots.values()))
        own = {root: name for name, root in reversed(roots.items())}
        for node in nodes(*roots.values()):
            self._node(node, named.get(node), uses[node], own)
        for name, root in roots.items():
            if own[root] != name or not root.args:
                self._declare(name, root, self.formulas[root])

    def _claim(self, results: dict[str, Expr], roots: dict[str, Expr]) -> None:
        """Words that variables must not be called."""
        leaves = [node for node in nodes(*roots.values()) if node.kind in ("tensor", "parameter")]
        for words in [*results, *(self.names.get(name_of(leaf), name_of(leaf)) for leaf in leaves)]:
            self.taken |= set(re.findall(r"\w+", words))

    def _node(self, node: Expr, label: str | None, uses: int, own: dict[Expr, str]) -> None:
        if node.kind == "polynomial":
            self.formulas[node] = Formula(self._polynomial(node, own.get(node)))
            return
        formula = self._formula(node, [self.formulas[arg] for arg in node.args])
        self.formulas[node] = formula
        if node.args and (node in own or label or uses > 1 or self._is_long(formula)):
            self._declare(own.get(node) or self._name(label or NOUNS.get(node.kind, node.kind)), node, formula)

    def _is_long(self, formula: Formula) -> bool:
        return len(formula.words) > _LONG

    def _declare(self, name: str, node: Expr, formula: Formula) -> None:
        type_ = "bool" if node.kind in CONDITIONS else self.type
        self.statements.append(f"const {type_} {name} = {formula.words};")
        self.declared.append(name)
        self.formulas[node] = Formula(name)

    def _name(self, wanted: str) -> str:
        count, name = 1, wanted
        while name in self.taken:
            count += 1
            name = f"{wanted}_{count}"
        self.taken.add(name)
        return name

    def _formula(self, node: Expr, args: list[Formula]) -> Formula:
        match node.kind:
            case "tensor" | "parameter":
                words = self.names.get(name_of(node), name_of(node))
                return Formula(words if re.fullmatch(r"\w+(\[[^][]*\])*", words) else f"({words})")
            case "constant":
                words = self._number(float(node.attributes[0]))
                return Formula(words, UNARY if words.startswith("-") else ATOM)
            case "where":
                one, other = args[1].within(1), args[2].within(TERNARY)
                return Formula(f"{args[0].within(1)} ? {one} : {other}", TERNARY)
            case "reciprocal" if node.args[0] in self.plain_divisors:
                return Formula(f"reciprocal_approx({args[0].words})")
            case "div" if node.args[1] in self.plain_divisors:
                return _times(args[0], Formula(f"reciprocal_approx({args[1].words})"))
            case "reciprocal":
                return self._formula(make("div", (constant(1.0), *node.args)), [Formula(self._number(1.0)), *args])
            case "cast":
                dtype = str(node.attributes[0])
                return Formula(self.rounded[dtype].format(args[0].words)) if dtype in self.rounded else args[0]
            case kind if kind in self.calls:
                return Formula(f"{self.calls[kind]}({', '.join(arg.words for arg in args)})")
        formula = infix(node.kind, args, _SIGNS)
        if formula is None:
            raise ValueError(f"{node.kind} has no C++ text")
        return formula

    def _polynomial(self, node: Expr, name: str | None) -> str:
        """Horner's rule a line each; gives the variable's name."""
        kind = str(node.attributes[0])
        low, high, error, linear, offset, power, stride, *coefficients = (float(a) for a in node.attributes[1:])
        x = self._variable(node.args[0])
        variable = x if stride == 1 else self._square(x)
        name, fma = name or self._name(kind), self.calls["fma"]
        self.statements.append(
            f"// {kind} on [{low:g}, {high:g}]: off by at most {error:.2g} (proven, rounding included)"
        )
        self.statements.append(f"{self.type} {name} = {self._number(coefficients[-1])};")
        self.declared.append(name)
        for coefficient in reversed(coefficients[:-1]):
            self.statements.append(f"{name} = {fma}({name}, {variable}, {self._number(coefficient)});")
        if power:
            factor = variable if power == stride else x if power == 1 else self._square(x)
            times = x if linear == 1 else f"{self._number(linear)} * {x}"
            rest = f"{fma}({self._number(linear)}, {x}, {self._number(offset)})" if offset else times
            rest = rest if linear else self._number(offset)
            last = f"{fma}({name}, {factor}, {rest})" if linear or offset else f"{name} * {factor}"
            self.statements.append(f"{name} = {last};")
        return name

    def _variable(self, node: Expr) -> str:
        """The value under a name of its own."""
        formula = self.formulas[node]
        if not re.fullmatch(r"\w+", formula.words):
            self._declare(self._name(NOUNS.get(node.kind, node.kind if node.args else "x")), node, formula)
        return self.formulas[node].words

    def _square(self, x: str) -> str:
        if x not in self.squares:
            self.squares[x] = self._name(f"{x}_squared")
            self.statements.append(f"const {self.type} {self.squares[x]} = {x} * {x};")
            self.declared.append(self.squares[x])
        return self.squares[x]

    def _number(self, value: float) -> str:
        return literal(value, self.precision)


def _flattened(expr: Expr, flat: dict[Expr, Expr], labels: dict[Expr, str]) -> Expr:
    """By primitives and polynomials alone; `labels` says which values functions became."""
    for node in nodes(expr):
        if node in flat:
            continue
        args = tuple(flat[arg] for arg in node.args)
        same = make(node.kind, args, *node.attributes)
        if node.kind in FUNCTIONS and node.kind != "polynomial":
            flat[node] = _flattened(define(same), flat, {})
            if node.kind not in _INLINE and flat[node].args:
                labels.setdefault(flat[node], node.kind)
        else:
            flat[node] = same
    return flat[expr]


def _contracted(roots: list[Expr], labels: dict[Expr, str]) -> dict[Expr, Expr]:
    """Sums with a product that nobody else reads become fma."""
    uses = _uses(roots)
    done: dict[Expr, Expr] = {}
    for node in nodes(*roots):
        args = tuple(done[arg] for arg in node.args)
        done[node] = make(node.kind, args, *node.attributes)
        if node.kind not in ("add", "sub"):
            continue
        products = [arg.kind == "mul" and uses[arg] == 1 and arg not in labels for arg in node.args]
        if not any(products):
            continue
        place = 1 if products[1] and not products[0] else 0
        (a, b), rest = done[node.args[place]].args, args[1 - place]
        if node.kind == "sub":
            a, rest = (a, -rest) if place == 0 else (_negated(a), rest)
        done[node] = a.fma(b, rest)
    return done


def _plain_divisors(roots: tuple[Expr, ...]) -> set[Expr]:
    """Those by whose approximate reciprocals is multiplied. Constants, which a float32 may only be near, are none."""
    ranges = intervals(roots)
    divisors = (node.args[-1] for node in ranges if node.kind in ("div", "reciprocal"))
    return {node for node in divisors if node.args and ranges[node].is_plain_divisor}


def _times(a: Formula, b: Formula) -> Formula:
    product = infix("mul", [a, b])
    assert product is not None
    return product


def _negated(value: Expr) -> Expr:
    known = number(value)
    return -value if known is None else constant(-known)


def _uses(roots: list[Expr]) -> dict[Expr, int]:
    """How often each value is read; a root once by whoever asked for it."""
    uses = dict.fromkeys(nodes(*roots), 0)
    for node in uses:
        for arg in node.args:
            uses[arg] += 1
    for root in roots:
        uses[root] += 1
    return uses
