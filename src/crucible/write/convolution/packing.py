"""Weights in the order in which tensor cores take them."""

from __future__ import annotations

from crucible.target.cuda import CUDA_TYPES, converted
from crucible.write.convolution.correlation import Correlation
from crucible.write.convolution.pieces import WORDS
from crucible.write.convolution.tiling import Tiling
from crucible.write.kernel import BLOCK, Buffer, Entry, Kernel, entered

THREADS = 256


def packed(name: str, tiling: Tiling) -> Buffer:
    """[group][tile of channels][step][product][16 channels][lane][4 words]; what lies outside of the weight is 0."""
    of = tiling.of
    words = of.groups * tiling.channel_tiles * tiling.steps * tiling.step_weight_words
    return Buffer(name, "int32", words)


def pack(name: str, tiling: Tiling, weight: str, dtype: str, math: str, buffer: Buffer) -> Kernel:
    """The kernel that writes them, multiplied as `pieces.WORDS` says: a thread a word."""
    of, half = tiling.of, dtype != "float32"
    offsets = ", ".join(str(product.weight) for product in of.products)
    word = (
        "raw(at(channel, input)) | static_cast<unsigned>(raw(at(channel, input + 1))) << 16"
        if half
        else f"{WORDS[math].convert}(at(channel, input))"
    )
    inside, place = weight_place(of, "made", "read")
    lines = [
        f"    constexpr int taps[{len(of.products)}] = {{{offsets}}};",
        f"    const int word = {BLOCK} * {THREADS} + threadIdx.x;",
        f"    if (word >= {buffer.elements}) return;",
        "    const int corner = word % 4, lane = word / 4 % 32;",
        f"    const int tile = word / 128 % {tiling.channels // 16}, rest = word / {tiling.channels * 8};",
        f"    const int tap = taps[rest % {len(of.products)}], step = rest / {len(of.products)} % {tiling.steps};",
        f"    const int part = rest / {len(of.products) * tiling.steps};  // a tile of channels of a group",
        f"    const int group = part / {tiling.channel_tiles};",
        f"    const int channel = part % {tiling.channel_tiles} * {tiling.channels} + tile * 16 + lane / 4"
        " + corner % 2 * 8;",
        f"    const int input = (step * 8 + lane % 4 + corner / 2 * 4) * {tiling.unit // 4};",
        "    const auto at = [&](int made, int read) {",
        f"        const bool inside = {inside};",
        f"        return inside ? weight[{place} + tap] : {converted('0.0f', 'float32', dtype)};",
        "    };",
        f"    packed[word] = static_cast<int>({word});",
    ]
    note = f"The weight in the order in which tensor cores take it: {len(of.products)} taps, tiles of 16 channels."
    return packer(name, dtype, note, lines, WORDS[math].preamble, weight, buffer)


def packer(name: str, dtype: str, note: str, lines: list[str], preamble: tuple[str, ...], weight: str, buffer: Buffer,
           *, is_light: bool = True) -> Kernel:  # fmt: skip
    """A kernel whose threads put a word each of `weight` into `packed`."""
    parameters = ((f"const {CUDA_TYPES[dtype]}* __restrict__", "weight"), ("int* __restrict__", "packed"))
    entry, blocks = Entry(parameters, tuple(lines), (f"// {note}",)), -(-buffer.elements // THREADS)
    return entered(name, entry, preamble, (weight,), (buffer.name,), blocks, THREADS, is_light=is_light)


def weight_place(of: Correlation, made: str, read: str) -> tuple[str, str]:
    """Whether there is a weight between an output and an input channel of `group`, by their words, and its place but
    for the tap's."""
    group_stride, made_stride, read_stride = of.weight_strides
    inside, group = f"{made} < {of.out_channels} && {read} < {of.in_channels}", "group"
    if of.merged > 1:
        outputs, inputs = of.apart.out_channels, of.apart.in_channels
        inside += f" && {made} / {outputs} == {read} / {inputs}"
        group = f"(group * {of.merged} + {made} / {outputs})"
        made, read = f"{made} % {outputs}", f"{read} % {inputs}"
    of_made = f"{made} * {made_stride}LL"
    if of.folds:
        channels = of.out_channels // len(of.folds)
        of_made = f"{made} % {channels} * {made_stride}LL + {made} / {channels}"
    return inside, f"{group} * {group_stride}LL + {of_made} + {read} * {read_stride}LL"
