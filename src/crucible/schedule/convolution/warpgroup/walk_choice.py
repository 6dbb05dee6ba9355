"""Which convolutions `walks` serves, and what a division is to know of the chain behind the products.

That runs in registers where the outputs of a channel in a plane are one run of whole 16 bytes: the tile leaves run by
run, 16 bytes a lane. Tensors of the output's size that the chain reads come in bulk copies, a run each, into the tile
that its results then take; they are on their way while the tensor cores multiply.

Bulk copies out of the tile are 2 to 4 % faster where nothing comes (P90's forward, H200), and 2 % slower where the next
tensors wait for them (its chain's gradient). compute-sanitizer does not see what they write."""

from __future__ import annotations

from crucible.algebra.convolution.fused import Convolution, is_of_channel
from crucible.algebra.operations import BRANCHING, LONG, cost
from crucible.algebra.program import Operand, Result, contiguous, reads
from crucible.gpus import Gpu
from crucible.graph import ITEM_BYTES
from crucible.schedule.convolution.halo import UNITS
from crucible.schedule.convolution.row_parts import adds_up_beside
from crucible.schedule.convolution.rows import plain
from crucible.schedule.convolution.warpgroup.walks import Chain, Walks, best_walks, walk
from crucible.schedule.machine import machine_of
from crucible.schedule.pays import walking_pays

MOST_LOADS = 2


def division(conv: Convolution, gpu: Gpu) -> Walks | None:
    """How warpgroups would share a convolution; None where they do not serve it: GPUs without them, strided or
    grouped inputs, pools, reductions of rows other than sums beside a result, weights that do not stay in shared
    memory; and where others are known to be faster, whatever the estimate."""
    of = conv.correlation
    if not adds_up_beside(conv) or conv.pool or conv.spread or conv.crossings:
        return None
    if not walking_pays(machine_of(gpu), of.in_channels, len(of.axes), ITEM_BYTES[conv.source.dtype]):
        return None
    return walk(of, UNITS[conv.source.dtype], gpu, chain_of(conv), exact=conv.keeps_float32)


def best_divisions_of(conv: Convolution, count: int, gpu: Gpu) -> list[Walks]:
    """So many of least estimated time."""
    exact = conv.keeps_float32
    return best_walks(conv.correlation, UNITS[conv.source.dtype], count, gpu, chain_of(conv), exact=exact)


def chain_of(conv: Convolution) -> Chain:
    """What a division is to know of the chain."""
    sums, loaded = sum(each.sums for each in conv.results) + len(conv.reductions), brought(conv)
    slots, functions = cost(*conv.exprs, of=BRANCHING), cost(*conv.exprs, of=LONG - BRANCHING)
    of_channel = sum(map(is_of_channel, conv.operands))
    numbers = 2 * of_channel + 3 * sums
    if loaded is not None:
        return Chain(sums, len(loaded), slots=slots, functions=functions, numbers=numbers)
    loads = len(conv.operands) - of_channel
    return Chain(sums, loads, by_rows=True, slots=slots, functions=functions, numbers=numbers)


def brought(conv: Convolution) -> tuple[Operand, ...] | None:
    """What of a chain's operands bulk copies bring, the others being a number a channel; None where the chain cannot
    run in registers: tensors laid otherwise than the output, numbers of images, several results or types."""
    read = frozenset[str]().union(*map(reads, conv.exprs))
    loaded = tuple(each for each in conv.operands if each.name in read and not is_of_channel(each))
    written = [each for each in conv.results if not each.sums]
    whole = contiguous(conv.made_shape)
    tensors: list[Operand | Result] = [*loaded, *written]
    if len(written) > 1 or len(loaded) > MOST_LOADS or len({each.dtype for each in tensors}) > 1:
        return None
    return loaded if all(plain(each.strides, conv.made_shape) == whole for each in tensors) else None
