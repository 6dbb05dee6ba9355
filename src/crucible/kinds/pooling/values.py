"""What a thread finds of each of its windows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from crucible.algebra.expression import Expr, name_of, tensor
from crucible.algebra.program import Operand
from crucible.algebra.sinking import LARGEST, SMALLEST
from crucible.kernel import nodes as ir
from crucible.kernel.index import Index, Range
from crucible.kinds.pooling.average import TOTAL
from crucible.kinds.pooling.frame import Frame
from crucible.kinds.pooling.loops import over_window

BEST = tensor("the value of the chosen element")
GATHERED: Mapping[Expr, tuple[str, str]] = {
    LARGEST: ("largest", "max"),
    SMALLEST: ("smallest", "min"),
    TOTAL: ("total", "sum"),
}
"""What is gathered over a window: its name, and how."""
CHOICE = "choice"


def gather(frame: Frame, inner: Expr, wanted: Sequence[Expr]) -> None:
    """Reductions of a value over the elements of each window; expressions read them as these leaves."""
    for leaf in wanted:
        name, kind = GATHERED[leaf]
        frame.leaves[name_of(leaf)] = frame.own(name)
        frame.k.add(ir.Declare((frame.leaves[name_of(leaf)],), kind))
    with over_window(frame, [inner]):
        value = frame.computed({"value": inner})["value"]
        for leaf in wanted:
            frame.k.add(ir.Accumulate(GATHERED[leaf][1], frame.register(frame.leaves[name_of(leaf)]), value))


def choose(frame: Frame, kept: Sequence[Operand], number: Callable[[Frame], Index]) -> ir.Fragment:
    """PyTorch's choice among the elements of each window. Expressions read BEST, the value of the chain before, and of
    operands `kept` what they hold there. Gives the element's number by `number`."""
    k, before = frame.k, frame.pool.before
    best, choice = frame.own("best"), frame.own(CHOICE, "int32")
    along = {each.name: frame.own(f"{each.name}_chosen") for each in kept}
    k.add(ir.Declare((best,), "max"), ir.Declare((choice,), "none"))
    k.add(*(ir.Declare((each,), "sum") for each in along.values()))
    with over_window(frame, [before]):
        value = frame.computed({"value": before})["value"]
        pairs = tuple((frame.register(each), frame.register(frame.leaves[name])) for name, each in along.items())
        k.add(ir.Choose(frame.register(best), frame.register(choice), value, number(frame), pairs))
    frame.leaves |= {name_of(BEST): best, **along}
    return choice


def chosen(frame: Frame, choice: ir.Fragment) -> ir.Held:
    """Its number, as an index."""
    return ir.Held(Range(-1, frame.pool.elements() - 1), frame.register(choice))
