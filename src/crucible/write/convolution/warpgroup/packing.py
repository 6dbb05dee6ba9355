"""Weights in the order in which warpgroup instructions take them from shared memory."""

from __future__ import annotations

from crucible.target.cuda import converted
from crucible.write.convolution.halo import STEP_UNITS
from crucible.write.convolution.packing import THREADS, packer
from crucible.write.convolution.pieces import BITS, WORDS
from crucible.write.convolution.warpgroup.pieces import HIGHER_AND_LOWER
from crucible.write.convolution.warpgroup.walks import ROWS, Walks
from crucible.write.kernel import BLOCK, Buffer, Kernel


def conversions(math: str) -> tuple[str, ...]:
    """What of `pieces.WORDS` is not the instruction itself; of float32 kept exact, how it is divided in two."""
    if math == "fp32":
        return BITS, HIGHER_AND_LOWER
    return tuple(part for part in WORDS[math].preamble if "mma.sync" not in part)


def packed(name: str, walks: Walks) -> Buffer:
    """[tile of channels][step][product][unit of input channels][64 channels][4 words]; what lies outside is 0. Of
    float32 kept exact a tile has all higher words, and behind them the lower ones."""
    return Buffer(name, "int32", walks.channel_tiles * walks.packed_units * 4)


def pack(name: str, walks: Walks, weight: str, dtype: str, math: str, buffer: Buffer) -> Kernel:
    """The kernel that writes them: a thread a word."""
    of, half = walks.of, dtype != "float32"
    _, made, read = of.weight_strides
    taps = len(of.products)
    offsets = ", ".join(str(product.weight) for product in of.products)
    word = (
        "raw(at(input)) | static_cast<unsigned>(raw(at(input + 1))) << 16"
        if half
        else f"{WORDS[math].convert}(at(input))"
    )
    tile, divided = taps * walks.steps, list[str]()
    if walks.exact:
        word, divided = f"is_lower ? lower({word}) : higher({word})", [f"    const bool is_lower = rest / {tile} % 2;"]
    lines = [
        f"    constexpr int taps[{taps}] = {{{offsets}}};",
        f"    const int word = {BLOCK} * {THREADS} + threadIdx.x;",
        f"    if (word >= {buffer.elements}) return;",
        f"    const int unit = word / {4 * ROWS} % {STEP_UNITS}, rest = word / {4 * ROWS * STEP_UNITS};",
        f"    const int tap = taps[rest % {taps}], step = rest / {taps} % {walks.steps};",
        *divided,
        f"    const int channel = rest / {tile * walks.words} * {ROWS} + word / 4 % {ROWS};",
        f"    const int input = ((step * {STEP_UNITS} + unit) * 4 + word % 4) * {walks.unit // 4};",
        "    const auto at = [&](int read) {",
        f"        const bool inside = channel < {of.out_channels} && read < {of.in_channels};",
        f"        return inside ? weight[channel * {made}LL + read * {read}LL + tap]"
        f" : {converted('0.0f', 'float32', dtype)};",
        "    };",
        f"    packed[word] = static_cast<int>({word});",
    ]
    note = f"The weight in the order in which warpgroups take it: {taps} taps, tiles of {ROWS} channels."
    return packer(name, dtype, note, lines, conversions(math), weight, buffer)
