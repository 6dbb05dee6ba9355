"""The second kernel of a weight's gradient: it adds up what blocks made of each element, in a fixed order."""

from __future__ import annotations

from collections.abc import Sequence

from crucible.target.cuda import CUDA_TYPES, INCLUDES, converted
from crucible.write.convolution.correlation import Correlation
from crucible.write.convolution.halo import THREADS
from crucible.write.convolution.packing import weight_place
from crucible.write.kernel import BLOCK, Buffer, Entry, Kernel, entered


def finish(
    name: str,
    of: Correlation,
    partial: Buffer,
    result: str,
    dtype: str,
    blocks: int,
    taps: Sequence[int],
    place: Sequence[str],
    tap: str,
) -> Kernel:
    """The kernel `name` that writes `result` of `dtype`, laid like the weight: 32 elements a block, each by eight
    threads that take every eighth of `blocks` parts. `partial` is [block][word]; `place` are the lines that say of a
    `word` its `channel`, `input` and `group`, and `tap` its number in `taps`, the offsets of their weights."""
    inside, into = weight_place(of, "channel", "input")
    words = partial.elements // blocks
    lines = [
        "    __shared__ float totals[8][32];",
        f"    constexpr int taps[{len(taps)}] = {{{', '.join(map(str, taps))}}};",
        f"    const int lane = threadIdx.x % 32, slice = threadIdx.x / 32, word = {BLOCK} * 32 + lane;",
        "    float total = 0;",
        f"    for (int b = slice; b < {blocks}; b += 8) total += partial[b * {words}LL + word];",
        "    totals[slice][lane] = total;",
        "    __syncthreads();",
        "    if (slice) return;",
        "#pragma unroll",
        "    for (int s = 1; s < 8; ++s) total += totals[s][lane];",
        *(f"    {line}" for line in place),
        f"    if ({inside}) {{",
        f"        const int tap = taps[{tap}];",
        f"        result[{into} + tap] = {converted('total', 'float32', dtype)};",
        "    }",
    ]
    parameters = (("const float* __restrict__", "partial"), (f"{CUDA_TYPES[dtype]}* __restrict__", "result"))
    note = f"// Adds up what {blocks} blocks made of each element of the weight's gradient."
    entry = Entry(parameters, tuple(lines), (note,), has_shared=True)
    preamble = (INCLUDES[dtype],) if dtype in INCLUDES else ()
    return entered(name, entry, preamble, (partial.name,), (result,), words // 32, THREADS)
