"""How weights lie in the order in which warpgroup instructions take them from shared memory, or stages from memory."""

from __future__ import annotations

from crucible.algebra.buffer import Buffer
from crucible.schedule.convolution.warpgroup.scatter import Scatter
from crucible.schedule.convolution.warpgroup.streams import Streams
from crucible.schedule.convolution.warpgroup.walks import Walks


def packed(name: str, division: Walks | Streams | Scatter) -> Buffer:
    """Of a convolution; what lies outside of the weight is 0. Of float32 kept exact a tile, or of
    streams a stage, has all higher words, and behind them the lower ones.

    Of streams whose stages have scales what these are follows: [tile of channels][part][step].

    Walks: [tile of channels][step][product][unit of input channels][64 channels][4 words]. Streams, each part in one
    copy: [tile of channels][part][step][word][tap][unit of input channels][block][channels][4 words]. Scatter: [tile of
    channels][step][unit of input channels][tap][8 channels][4 words].
    """
    words = division.weight_words if isinstance(division, Scatter) else division.packed_units * 4
    if isinstance(division, Streams) and division.scaled:
        words += division.stages
    return Buffer(f"{name}_packed", "int32", division.channel_tiles * words)
