"""Weights in the order in which warpgroups that multiply every input once keep them."""

from __future__ import annotations

from crucible.write.convolution.fused import Convolution
from crucible.write.convolution.halo import STEP_UNITS
from crucible.write.convolution.packing import THREADS, packer
from crucible.write.convolution.pieces import WORDS
from crucible.write.convolution.warpgroup.packing import conversions
from crucible.write.convolution.warpgroup.scatter import CHANNELS, UNIT, Scatter
from crucible.write.kernel import BLOCK, Buffer, Kernel


def pack(conv: Convolution, division: Scatter, buffer: Buffer) -> Kernel:
    """The kernel that puts the weight in order, a thread a word: [tile of channels][step][unit of input channels][tap]
    [8 channels][4 words]; what lies outside is 0. Of float32 kept exact a tile has all higher words, and behind them
    the lower ones."""
    of, name, columns = conv.correlation, f"{conv.name}_pack", division.every_column
    tile, value, divided = division.steps * STEP_UNITS, f"{WORDS[conv.math].convert}(value)", list[str]()
    if division.exact:
        divided = [f"    const bool is_lower = units / {tile} % 2;"]
        value = f"is_lower ? lower({value}) : higher({value})"
    _, made, read = of.weight_strides
    offsets = ", ".join(str(weight) for *_, weight in division.taps)
    lines = [
        f"    constexpr int taps[{len(division.taps)}] = {{{offsets}}};",
        f"    const int word = {BLOCK} * {THREADS} + threadIdx.x;",
        f"    if (word >= {buffer.elements}) return;",
        f"    const int column = word / {UNIT} % {columns}, units = word / {UNIT * columns};",
        f"    const int input = units % {tile} * {UNIT} + word % {UNIT};",
        *divided,
        f"    const int channel = units / {tile * division.words} * {CHANNELS} + column % {CHANNELS};",
        f"    const bool inside = channel < {of.out_channels} && input < {of.in_channels};",
        f"    const float value = inside ? weight[channel * {made}LL + input * {read}LL + taps[column / {CHANNELS}]]"
        " : 0.0f;",
        f"    packed[word] = static_cast<int>({value});",
    ]
    note = f"The weight in the order in which warpgroups take it: {len(division.taps)} taps of {CHANNELS} channels."
    return packer(name, "float32", note, lines, conversions(conv.math), conv.weight.name, buffer, is_light=False)
