"""What a thread holds for each of its windows, as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from crucible.write.expression import Expr, name_of, number
from crucible.write.pooling.frame import Frame, unrolled
from crucible.write.pooling.loops import over_window
from crucible.write.program import Operand


def declared(frame: Frame, variable: str, start: str, type_: str = "") -> str:
    """A variable, one for each of a thread's windows."""
    type_ = type_ or frame.real
    if frame.lanes == 1:
        return f"{type_} {variable} = {start};"
    return f"{type_} {variable}[{frame.lanes}] = {{{', '.join([start] * frame.lanes)}}};"


def of_element(frame: Frame, variable: str) -> str:
    """The variable of the window that element k of a row is in."""
    size = frame.windows[-1].size
    return variable if frame.lanes == 1 else f"{variable}[k / {size}]" if size > 1 else f"{variable}[k]"


def of_lane(frame: Frame, variable: str) -> str:
    """The variable of window j."""
    return variable if frame.lanes == 1 else f"{variable}[j]"


def over_lanes(frame: Frame, inner: Sequence[str]) -> list[str]:
    """For each of a thread's windows."""
    return list(inner) if frame.lanes == 1 or not inner else unrolled("j", frame.lanes, inner)


def spread(frame: Frame, body: Sequence[str]) -> list[str]:
    """The body for each of a thread's windows that are not neighbours in the input."""
    if frame.spread is None:
        return list(body)
    dim = frame.dims[frame.spread]
    return unrolled("j", frame.spread_by, [f"const int {dim} = first_{dim} + j;", *body])


def computed(
    frame: Frame, results: Mapping[str, Expr], names: Mapping[str, str]
) -> tuple[list[str], dict[str, str], list[str]]:
    """Statements, the word for each result (its name, unless it is the value of a leaf), and what they call."""
    leaves = {name: expr for name, expr in results.items() if not expr.args and number(expr) is None}
    emitted = frame.chain({name: expr for name, expr in results.items() if name not in leaves}, names)
    words = {name: name for name in results} | {
        n: names.get(name_of(leaf), name_of(leaf)) for n, leaf in leaves.items()
    }
    return list(emitted.statements), words, list(emitted.preamble)


def chosen(frame: Frame, kept: Sequence[Operand], index: str, names: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """PyTorch's choice among the elements of each window: `best`, the value of the chain before, `choice`, the
    element's number by `index`, and `<name>_chosen`, what operands hold there. It is the first of the largest, or the
    last NaN. And what it calls."""
    lines = [declared(frame, "best", "-INFINITY"), declared(frame, "choice", "-1", "int")]
    lines += [declared(frame, f"{each.name}_chosen", "0") for each in kept]
    statements, words, preamble = computed(frame, {"value": frame.pool.before}, names)
    word = words["value"]
    best, choice = of_element(frame, "best"), of_element(frame, "choice")
    values = {best: word, choice: index}
    values |= {of_element(frame, f"{each.name}_chosen"): f"{each.name}_value" for each in kept}
    # selects, not branches: nvcc makes one branch of `||` for each element
    choosing = [f"const bool taken = ({choice} < 0) | ({word} > {best}) | isnan({word});"]
    choosing += [f"{variable} = taken ? {new} : {variable};" for variable, new in values.items()]
    return [*lines, *over_window(frame, [frame.pool.before], [*statements, *choosing])], preamble


def summed(frame: Frame, names: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """`total`: the sum of the chain before over each window. And what it calls."""
    statements, words, preamble = computed(frame, {"value": frame.pool.before}, names)
    element = [*statements, f"{of_element(frame, 'total')} += {words['value']};"]
    return [declared(frame, "total", "0"), *over_window(frame, [frame.pool.before], element)], preamble
