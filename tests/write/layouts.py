"""Programs in layouts and sizes that are hard for kernels: what `programs` leaves out."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace

from vocabulary import UNARY

from crucible.algebra.expression import Expr, parameter, substitute, tensor
from crucible.algebra.program import Operand, Program, Reduction, Result, contiguous

X = tensor("x")


def retyped(program: Program, dtype: str, precision: str = "float32") -> Program:
    """With tensors of another element type."""
    operands = tuple(replace(each, dtype=dtype) for each in program.operands)
    leaves = {each.leaf: new.leaf for each, new in zip(program.operands, operands, strict=True)}
    results = tuple(replace(each, dtype=dtype) for each in program.results)
    return with_leaves(replace(program, operands=operands, results=results, precision=precision), leaves)


def with_leaves(program: Program, leaves: dict[Expr, Expr]) -> Program:
    """With expressions that read other leaves."""
    return replace(
        program,
        reductions=tuple(replace(each, expr=substitute(each.expr, leaves)) for each in program.reductions),
        results=tuple(replace(each, expr=substitute(each.expr, leaves)) for each in program.results),
    )


def chain(shape: Sequence[int], *strides: Sequence[int], out: Sequence[int] | None = None) -> Program:
    """sigmoid(x * y + bias) or as much of it as there are strides."""
    leaves = [tensor("x"), tensor("y"), parameter("bias")][: len(strides)]
    value = leaves[0]
    value = value * leaves[1] if len(leaves) > 1 else value
    value = value + leaves[2] if len(leaves) > 2 else value
    names = ("x", "y", "bias")
    operands = [Operand(n, "float32", tuple(s), shared=n == "bias") for n, s in zip(names, strides, strict=False)]
    result = Result("out", "float32", tuple(out or contiguous(shape)), value.sigmoid())
    return Program("chain", tuple(shape), len(shape), tuple(operands), (), (result,))


def softmax(rows: int, columns: int, strides: tuple[int, int] | None = None, name: str = "softmax") -> Program:
    """With its maximum."""
    strides = strides or (columns, 1)
    largest = Reduction("largest", "max", X, constant=True)
    total = Reduction("total", "sum", (X - largest.leaf).exp())
    out = Result("out", "float32", strides, (X - largest.leaf).exp() / total.leaf)
    return Program(name, (rows, columns), 1, (Operand("x", "float32", strides),), (largest, total), (out,))


def sums(shape: tuple[int, ...], rows: int, strides: tuple[int, ...], also_elements: bool = False) -> Program:
    """The sum and the largest of each row, and perhaps what is summed: a gradient beside that of a parameter."""
    value = X * parameter("weight")
    operands = (
        Operand("x", "float32", strides),
        Operand("weight", "float32", (*contiguous(shape[:rows]), *(0 for _ in shape[rows:])), shared=True),
    )
    total, peak = Reduction("total", "sum", value), Reduction("peak", "max", value)
    laid = contiguous(shape[:rows])
    results = [Result("sum", "float32", laid, total.leaf), Result("high", "float32", laid, peak.leaf * 2)]
    if also_elements:
        results.append(Result("out", "float32", strides, value))
    return Program("sums", shape, rows, operands, (total, peak), tuple(results))


def relaid(program: Program, dims: Sequence[int], *names: str) -> Program:
    """With some tensors dense in another order of dims, given from the slowest to the fastest."""
    strides = dict(zip(dims, contiguous([program.shape[dim] for dim in dims]), strict=True))
    laid = tuple(strides[dim] for dim in range(len(program.shape)))
    return replace(
        program,
        operands=tuple(replace(o, strides=laid) if o.name in names else o for o in program.operands),
        results=tuple(replace(r, strides=laid) if r.name in names else r for r in program.results),
    )


def normalised(shape: Sequence[int], rows: int) -> Program:
    """Mean 0 and variance 1 of each row."""
    share = 1 / math.prod(shape[rows:])
    mean = Reduction("mean", "sum", X * share)
    squares = Reduction("squares", "sum", (X - mean.leaf).square())
    value = (X - mean.leaf) * (squares.leaf * share + 1e-5).rsqrt()
    laid = contiguous(shape)
    return Program(
        "norm",
        tuple(shape),
        rows,
        (Operand("x", "float32", laid),),
        (mean, squares),
        (Result("out", "float32", laid, value),),
    )


def one_of_each(rows: int, columns: int) -> Program:
    """Row results of every pass beside elements of every pass."""
    shape = (rows, columns)
    mean = Reduction("mean", "sum", X * (1 / max(columns, 1)))
    spread = Reduction("spread", "max", abs(X - mean.leaf))
    strides = contiguous(shape)
    results = (
        Result("first", "float32", strides, X.relu()),
        Result("second", "float32", strides, X - mean.leaf),
        Result("third", "float32", strides, (X - mean.leaf) / (spread.leaf + 1)),
        Result("mean_out", "float32", (1,), mean.leaf),
        Result("spread_out", "float32", (1,), spread.leaf * mean.leaf),
        Result("factor_out", "float32", (1,), parameter("factor") * 2),
    )
    operands = (Operand("x", "float32", strides), Operand("factor", "float32", (1, 0), shared=True))
    return Program("one_of_each", shape, 1, operands, (mean, spread), results)


def hard_names() -> Program:
    """Tensors called as kernels call things."""
    row, exp, load = tensor("row"), tensor("exp"), parameter("load")
    total = Reduction("column", "sum", row * exp.exp() + load)
    result = Result("tile", "float32", (5, 1), row * total.leaf)
    operands = (
        Operand("row", "float32", (5, 1)),
        Operand("exp", "float32", (5, 1)),
        Operand("load", "float32", (0, 1), shared=True),
    )
    return Program("softmax", (3, 5), 1, operands, (total,), (result,))


def vocabulary() -> Program:
    """Every function of one argument, in double."""
    x = tensor("x", "float64")
    results = [Result(f"out_{i}", "float64", (1,), case.ours(x)) for i, case in enumerate(UNARY.values())]
    return Program("vocabulary", (64,), 1, (Operand("x", "float64", (1,)),), (), tuple(results), "float64")


def random_program(seed: int) -> Program:
    """Any dims in any order, any broadcast, up to three reductions that may read earlier ones."""
    draw = random.Random(seed)
    shape = tuple(draw.choice((1, 2, 3, 4, 5, 8, 12, 33)) for _ in range(draw.randint(1, 4)))
    rows = draw.randint(0, len(shape)) if draw.random() < 0.8 else len(shape)

    def laid(over: Sequence[int]) -> tuple[int, ...]:
        """Dense, in any order of dims, elements shared along those left out."""
        strides, step = [0] * len(shape), 1
        for dim in draw.sample(sorted(over), len(over)):
            strides[dim], step = (step, step * shape[dim]) if shape[dim] > 1 else (step, step)
        return tuple(strides)

    dims = range(len(shape))
    operands = [Operand("x", draw.choice(("float32", "float16")), laid(dims))]
    for i in range(draw.randint(0, 3)):
        over = [dim for dim in dims if draw.random() < 0.6]
        operands.append(Operand(f"p{i}", "float32", laid(over), shared=len(over) < len(shape)))
    value = operands[0].leaf
    for each in operands[1:]:
        value = value * each.leaf + draw.choice((value.tanh(), value.leaky_relu(0.1), value.clamp(-1, 1).gelu()))
    reductions: list[Reduction] = []
    for i in range(draw.randint(0, 3) if rows < len(shape) else 0):
        reductions.append(Reduction(f"r{i}", draw.choice(("sum", "max")), value))
        if draw.random() < 0.7:
            value = draw.choice((value - reductions[-1].leaf, value * (1 + reductions[-1].leaf.square()).rsqrt()))
    results = [Result("out", draw.choice(("float32", "bfloat16")), laid(dims), value)]
    ends = [r.leaf for r in reductions]
    if ends:
        end = ends[0] * 2 if len(ends) == 1 else ends[0] - ends[-1]
        results.append(Result("end", "float32", contiguous(shape[:rows]), end))
        results = results if draw.random() < 0.7 else results[1:]
    return Program("random", shape, rows, tuple(operands), tuple(reductions), tuple(results))


LAYOUTS: dict[str, Callable[[], Program]] = {
    "dense": lambda: chain((7, 8, 9), (72, 9, 1), (72, 9, 1)),
    "one element": lambda: chain((1, 1), (0, 0)),
    "no dims": lambda: chain((), (), ()),
    "nothing": lambda: chain((3, 0, 4), (0, 4, 1)),
    "odd": lambda: chain((5, 1001), (1001, 1), (1001, 1), (0, 1)),
    "transposed": lambda: chain((24, 36), (1, 24), (36, 1)),
    "planes": lambda: chain((2, 6, 32), (192, 32, 1), (192, 32, 1), (0, 1, 0)),
    "odd planes": lambda: chain((2, 6, 49), (294, 49, 1), (294, 49, 1), (0, 1, 0)),
    "channels last": lambda: chain((2, 8, 15), (120, 1, 8), (120, 1, 8), (0, 1, 0), out=(120, 1, 8)),
    "one channels last": lambda: chain((2, 8, 15), (120, 1, 8), (120, 15, 1), (0, 1, 0)),
    "from channels last": lambda: relaid(
        chain((2, 16, 264), (4224, 264, 1), (4224, 264, 1), (0, 1, 0)), (0, 2, 1), "x"
    ),
    "to channels last": lambda: relaid(
        chain((2, 16, 264), (4224, 264, 1), (4224, 264, 1), (0, 1, 0)), (0, 2, 1), "out"
    ),
    "half from channels last": lambda: retyped(relaid(chain((2, 32, 272), (8704, 272, 1)), (0, 2, 1), "x"), "float16"),
    "odd from channels last": lambda: relaid(chain((3, 5, 301), (1505, 301, 1), (0, 1, 0)), (0, 2, 1), "x"),
    "even from channels last": lambda: relaid(chain((2, 12, 49), (588, 49, 1), (0, 1, 0)), (0, 2, 1), "x"),
    "turned from channels last": lambda: relaid(
        chain((2, 64, 264), (16896, 264, 1), (16896, 264, 1), (0, 1, 0)), (0, 2, 1), "x"
    ),
    "turned to channels last": lambda: relaid(chain((2, 96, 256), (24576, 256, 1)), (0, 2, 1), "out"),
    "turned halves": lambda: retyped(relaid(chain((2, 128, 352), (45056, 352, 1)), (0, 2, 1), "x"), "float16"),
    "turned odd planes": lambda: relaid(chain((3, 48, 343), (16464, 343, 1)), (0, 2, 1), "x"),
    "turned three": lambda: relaid(
        chain((2, 64, 264), (16896, 264, 1), (16896, 264, 1), (16896, 264, 1)), (0, 2, 1), "y"
    ),
    "turned norm of planes": lambda: relaid(normalised((2, 32, 4200), 2), (0, 2, 1), "x"),
    "turned doubles": lambda: retyped(
        relaid(chain((2, 32, 520), (16640, 520, 1)), (0, 2, 1), "x"), "float64", "float64"
    ),
    "sums in both orders": lambda: relaid(sums((16, 3, 304), 1, (304, 4864, 1), True), (1, 2, 0), "x"),
    "long sums in both orders": lambda: relaid(sums((24, 6, 9000), 1, (9000, 216000, 1), True), (1, 2, 0), "out"),
    "norm of planes, both orders": lambda: relaid(normalised((2, 16, 600), 2), (0, 2, 1), "x"),
    "norm of long planes, both orders": lambda: relaid(normalised((2, 8, 9001), 2), (0, 2, 1), "x"),
    "norm of groups, both orders": lambda: relaid(normalised((2, 3, 8, 264), 2), (0, 3, 1, 2), "x"),
    "norm of wide groups, both orders": lambda: relaid(normalised((2, 3, 40, 1264), 2), (0, 3, 1, 2), "x"),
    "softmax of channels, both orders": lambda: relaid(softmax(640, 72), (1, 0), "out"),
    "short rows of odd planes": lambda: softmax(4097, 10, (1, 4097)),
    "short rows in packs": lambda: softmax(9000, 16, (1, 9000)),
    "turned softmax of channels": lambda: relaid(softmax(680, 64), (1, 0), "out"),
    "turned softmax of odd planes": lambda: relaid(softmax(2050, 96), (1, 0), "out"),
    "turned norm of channels": lambda: relaid(normalised((1090, 96), 1), (1, 0), "x"),
    "turned half softmax of channels": lambda: retyped(relaid(softmax(640, 128), (1, 0), "out"), "float16"),
    "softmax of many channels, both orders": lambda: relaid(softmax(300, 3000), (1, 0), "x"),
    "every second": lambda: chain((16, 12), (24, 2), (24, 1)),
    "expanded": lambda: chain((6, 40), (1, 0), (0, 1)),
    "many blocks": lambda: chain((2, 70001), (70001, 1), (70001, 1), (0, 1)),
    "half": lambda: retyped(chain((3, 80), (80, 1), (80, 1), (0, 1)), "float16"),
    "bfloat16": lambda: retyped(chain((3, 80), (80, 1), (80, 1), (0, 1)), "bfloat16"),
    "double": lambda: retyped(chain((3, 81), (81, 1), (81, 1), (0, 1)), "float64", "float64"),
    "double softmax": lambda: retyped(softmax(5, 70), "float64", "float64"),
    "double along rows": lambda: retyped(softmax(70, 5, (1, 70)), "float64", "float64"),
    "half softmax": lambda: retyped(softmax(5, 72), "float16"),
    "bfloat16 softmax": lambda: retyped(softmax(9, 1000), "bfloat16"),
    "short rows": lambda: softmax(300, 3),
    "rows of a warp": lambda: softmax(301, 500),
    "rows of a block": lambda: softmax(3, 5000),
    "one row": lambda: softmax(1, 999),
    "long rows": lambda: softmax(5, 33001),
    "split rows": lambda: softmax(2, 40000),
    "split odd rows": lambda: softmax(1, 50021),
    "along rows": lambda: softmax(200, 20, (1, 200)),
    "along odd rows": lambda: softmax(201, 21, (1, 201)),
    "along rows, many columns": lambda: softmax(40, 900, (1, 40)),
    "along rows, split": lambda: softmax(36, 3001, (1, 36)),
    "along one row": lambda: sums((2, 5000), 1, (1, 2)),
    "sums over batch and planes": lambda: sums((6, 5, 3000), 1, (3000, 18000, 1), also_elements=True),
    "sums split": lambda: sums((3, 4, 9001), 1, (9001, 27003, 1), also_elements=True),
    "sums channels last": lambda: sums((48, 6, 300), 1, (1, 14400, 48), also_elements=True),
    "sums of features": lambda: sums((130, 700), 1, (1, 130)),
    "sums of everything": lambda: sums((70000,), 0, (1,)),
    "sums of nothing": lambda: sums((4, 0), 1, (0, 1), also_elements=True),
    "sums of no rows": lambda: sums((0, 4), 1, (4, 1)),
    "rows of one": lambda: sums((9, 1), 1, (1, 0), also_elements=True),
    "one of each": lambda: one_of_each(6, 90),
    "one of each, split": lambda: one_of_each(2, 40000),
    "hard names": hard_names,
    "double vocabulary": vocabulary,
    **{f"random {seed}": (lambda seed=seed: random_program(seed)) for seed in range(20)},  # type: ignore[misc]
}
