"""Parts of a plane of outputs: planes of input, in the order in which all warps go through them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from crucible.kernel.index import Compare, Condition, Either, Index, Number
from crucible.kinds.convolution.streams.frame import Item
from crucible.schedule.convolution.warpgroup.streams import Streams


def of_part(values: Sequence[int], m: Index) -> Index:
    """The value of part m."""
    steps = {after - before for before, after in itertools.pairwise(values)}
    if len(steps) <= 1:
        return m * (steps.pop() if steps else 0) + values[0]
    found: Index = Number(values[-1])
    for number, each in reversed(list(enumerate(values[:-1]))):
        found = Either((Compare("==", m, Number(number)),), Number(each), found)
    return found


def depth(streams: Streams, item: Item, t: Index, m: Index) -> Index:
    """Which plane of input part m of plane t is."""
    axis = streams.of.axes[0]
    shifts = of_part([part.shift + axis.shifts[0] for part in streams.parts], m)
    return (item.starts[0] + t) * axis.in_stride + shifts


def is_over(streams: Streams, item: Item, t: Index, m: Index) -> Condition:
    """Whether an item is done before part m: some planes of input of its last plane of outputs are of later ones alone.
    Nowhere if there is none."""
    if streams.last_part + 1 == len(streams.parts):
        return ()
    last = item.planes + (streams.live - 2)
    return Compare("==", m, Number(streams.last_part + 1)), Compare("==", t, last)
