"""What chains read and compute behind the products of warpgroups, by name."""

from __future__ import annotations

from crucible.algebra.convolution.fused import PRODUCT, Convolution, is_of_channel
from crucible.algebra.convolution.windows import CHOICE
from crucible.algebra.expression import Expr
from crucible.algebra.program import Reduction, Result, reads
from crucible.errors import MisuseError


def chains(conv: Convolution) -> dict[str, Expr]:
    """What is computed of each product, by the variable."""
    named: list[Result | Reduction] = [*conv.results, *conv.reductions, *conv.crossings]
    return {f"{each.name}_is": each.expr for each in named if each.expr is not CHOICE}


def adds_up_beside(conv: Convolution) -> bool:
    """Whether its reductions, if there are any, are what warpgroups add up beside one result that they write, or none,
    as norms want it of the tensor that they are taken of: sums of the product and of numbers of a channel. What reads
    another reduction waits for it, and numbers of an image change from item to item: neither stays in registers."""
    written = [each for each in conv.results if not each.sums]
    known = {PRODUCT, *(each.name for each in conv.operands if is_of_channel(each))}
    known -= {each.name for each in conv.reductions}
    are_sums = all(each.kind == "sum" and reads(each.expr) <= known for each in conv.reductions)
    return not conv.reductions or (len(written) <= 1 and are_sums)


def check_adds_up_beside(conv: Convolution) -> None:
    """Raises MisuseError where a division was given to reductions that it does not serve."""
    if not adds_up_beside(conv):
        raise MisuseError(
            f"{conv.name}: walks and streams add up, beside one result at most that they write, sums of the product and"
            " of numbers of a channel: give other reductions tiles"
        )


def crosses_alone(conv: Convolution) -> bool:
    """Whether its reductions over channels, if there are any, have no sums beside them, and read no other reduction."""
    names = {each.name for each in (*conv.reductions, *conv.crossings)}
    beside = conv.reductions or any(each.sums for each in conv.results)
    return not conv.crossings or not (beside or any(names & reads(each.expr) for each in conv.crossings))


def check_crosses_alone(conv: Convolution) -> None:
    """Raises MisuseError where a division was given to reductions over channels that it does not serve."""
    if not crosses_alone(conv):
        raise MisuseError(
            f"{conv.name}: streams reduce over channels where nothing is added up beside, and of the product: leave the"
            " sums to a program"
        )
