"""Weights in the order in which stages take them from memory, each in one copy."""

from __future__ import annotations

from collections.abc import Sequence

from crucible.target.cuda import converted
from crucible.write.convolution.halo import STEP_UNITS
from crucible.write.convolution.packing import THREADS, packer
from crucible.write.convolution.pieces import WORDS
from crucible.write.convolution.warpgroup.packing import conversions
from crucible.write.convolution.warpgroup.streams import Streams
from crucible.write.kernel import BLOCK, Buffer, Kernel


def packed(name: str, streams: Streams) -> Buffer:
    """[tile of channels][part][step][tap][unit of input channels][block][channels][4 words]; what is missing is 0."""
    return Buffer(name, "int32", streams.channel_tiles * streams.packed_units * 4)


def pack(name: str, streams: Streams, weight: str, dtype: str, math: str, buffer: Buffer) -> Kernel:
    """The kernel that writes them: a thread a word."""
    of, half, parts = streams.of, dtype != "float32", streams.parts
    _, made, read = of.weight_strides
    offsets = [offset for part in parts for _, blocks in part.taps for offset in blocks]
    firsts = [sum(len(part.taps) * part.blocks for part in parts[:number]) for number in range(len(parts))]
    word = (
        "raw(at(input)) | static_cast<unsigned>(raw(at(input + 1))) << 16"
        if half
        else f"{WORDS[math].convert}(at(input))"
    )
    lines = [
        f"    constexpr int offsets[{len(offsets)}] = {{{', '.join(map(str, offsets))}}};  // part by part",
        f"    const int word = {BLOCK} * {THREADS} + threadIdx.x;",
        f"    if (word >= {buffer.elements}) return;",
        f"    const int of_tile = word % {streams.packed_units * 4};",
        *_of_part("begin", [4 * begin for begin in streams.begins], streams),
        *_of_part("first", firsts, streams),
        f"    constexpr int taps = {len(parts[0].taps)};",
        *_of_part("blocks", [part.blocks for part in parts], streams),
        f"    const int column = (of_tile - begin) / 4 % (blocks * {streams.channels});",
        f"    const int rest = (of_tile - begin) / (4 * blocks * {streams.channels});",
        f"    const int unit = rest % {STEP_UNITS}, tap = rest / {STEP_UNITS} % taps;",
        f"    const int step = rest / ({STEP_UNITS} * taps);",
        f"    const int offset = offsets[first + tap * blocks + column / {streams.channels}];",
        f"    const int channel = word / {streams.packed_units * 4} * {streams.channels}"
        f" + column % {streams.channels};",
        f"    const int input = ((step * {STEP_UNITS} + unit) * 4 + word % 4) * {streams.unit // 4};",
        "    const auto at = [&](int read) {",
        f"        const bool inside = offset >= 0 && channel < {of.out_channels} && read < {of.in_channels};",
        f"        return inside ? weight[channel * {made}LL + read * {read}LL + offset]"
        f" : {converted('0.0f', 'float32', dtype)};",
        "    };",
        f"    packed[word] = static_cast<int>({word});",
    ]
    note = f"The weight in the order in which warpgroups take it: {len(of.products)} taps, tiles of {streams.channels}"
    return packer(name, dtype, f"{note} channels.", lines, conversions(math), weight, buffer)


def _of_part(name: str, values: Sequence[int], streams: Streams) -> list[str]:
    """Of the part that a word is of."""
    *others, word = map(str, values)
    for value, end in zip(others[::-1], streams.begins[:0:-1], strict=True):
        word = word if value == word else f"of_tile < {4 * end} ? {value} : {word}"
    return [f"    const int {name} = {word};"]
