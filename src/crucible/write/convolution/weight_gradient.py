"""The gradient of a convolution's weight: channels of the output's gradient times shifted channels of the input, added
up over batch and space.

    grad_weight[o, i, tap] = sum over n and q of grad[n, o, q] * in[n, i, q * in_stride + shift]

Of a transposed convolution it is the same with input and gradient in each other's place, so one form is enough. Blocks
share the positions among them, each keeps its part of the weight in registers to the end, and a second kernel adds the
parts up in a fixed order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from crucible.gpus import H200, Gpu
from crucible.target.cuda import CUDA_TYPES, block, indented, unrolled
from crucible.write.convolution.correlation import Correlation
from crucible.write.convolution.front import words
from crucible.write.convolution.fused import arithmetic
from crucible.write.convolution.halo import DIMS, THREADS, Halo, decoded
from crucible.write.convolution.pieces import COPY_AHEAD, LOAD_MATRIX, LOAD_TURNED, Words
from crucible.write.convolution.questions import NO_FRONTS, Fronts
from crucible.write.convolution.spreading import SpreadHalo
from crucible.write.convolution.tiling import WARPS
from crucible.write.convolution.upstream import Upstream
from crucible.write.convolution.weight_division import Division
from crucible.write.convolution.windows import WHOLE, Spreads
from crucible.write.kernel import Buffer, Kernel, Lowered
from crucible.write.program import Operand


def weight_parts(
    name: str,
    of: Correlation,
    source: Operand,
    grad: Operand,
    result: str,
    division: Division,
    spreads: Spreads = WHOLE,
    *,
    exact: bool = False,
    fronts: Fronts = NO_FRONTS,
    gpu: Gpu = H200,
) -> Lowered:
    """The kernel that writes what each block has of the gradient `result`, and the buffer of that; `grad` is laid over
    the correlation's `out_shape`. `exact`, the spreads and the chains in front, of one of both, as in `Convolution`."""
    math_ = arithmetic(source.dtype, exact=exact)
    of_source, of_grad = (words(math_, source.dtype, front, f"{name}_staged") for front in fronts)
    body = _Body(name, of, source, grad, result, division, of_source, of_grad, gpu, spreads)
    return Lowered((body.kernel(),), (body.partial,))


@dataclass(frozen=True)
class _Body:
    name: str
    of: Correlation
    source: Operand
    grad: Operand
    result: str
    division: Division
    words: Words
    words_of_grad: Words
    gpu: Gpu
    spreads: Spreads

    @property
    def half(self) -> bool:
        return self.source.dtype != "float32"

    @property
    def blocks_a_part(self) -> int:
        return max(1, min(self.division.items, self.gpu.sms * self.division.blocks // self.division.parts))

    @property
    def partial(self) -> Buffer:
        """[block of a part][part][tap and eight input channels][channel][8]"""
        words = self.blocks_a_part * self.division.parts * self.division.part_words
        return Buffer(f"{self.result}_parts", "float32", words)

    @property
    def choices(self) -> tuple[str, ...]:
        """The tensor that says which element has a window's gradient, if there is one."""
        return tuple(each.choices for each in self.spreads if each and each.choices)

    def kernel(self) -> Kernel:
        division, type_ = self.division, CUDA_TYPES[self.source.dtype]
        head = [
            f"// The gradient of a weight of {len(self.of.products)} taps: a block adds up {division.channels} x"
            f" {division.n_tiles * 8} channels over boxes of {'x'.join(map(str, division.box))} positions.",
            f"__global__ void __launch_bounds__({THREADS}, {division.blocks}) {self.name}(",
            f"        const {type_}* __restrict__ source, const {type_}* __restrict__ grad,",
            f"        {'const unsigned char* __restrict__ choices, ' * len(self.choices)}"
            "float* __restrict__ partial) {",
        ]
        text = "\n".join([*head, *indented(self._lines()), "}"])
        copies = "copy_ahead(" in text
        own = dict.fromkeys((*self.words.preamble, *self.words_of_grad.preamble))
        preamble = [*own, LOAD_MATRIX] + [LOAD_TURNED] * self.half + [COPY_AHEAD] * copies
        return Kernel(self.name, text, tuple(preamble), (self.source.name, self.grad.name, *self.choices),
                      (self.partial.name,), (division.parts * self.blocks_a_part, 1, 1), THREADS,
                      division.shared_bytes)  # fmt: skip

    def _lines(self) -> list[str]:
        division = self.division
        lines = [
            "extern __shared__ uint4 memory[];",
            "unsigned* halo = reinterpret_cast<unsigned*>(memory);  // of the input, and gradients behind it",
            *([f"unsigned* coming = halo + {division.turn_words};  // the next ones"] * division.ahead),
            "const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;",
            f"const int part = blockIdx.x % {division.parts};",
            f"const int first_step = part % {division.in_tiles} * {division.staged};",
            f"const int first_channel = part / {division.in_tiles} % {division.out_tiles} * {division.channels};",
            *([f"const int group = part / {division.in_tiles * division.out_tiles};"] * (self.of.groups > 1)),
            f"int own[{division.tiles_a_warp}];  // where a lane begins to read, of each tile of its warp",
            *unrolled("j", str(division.tiles_a_warp), self._own()),
            f"float sums[{division.tiles_a_warp}][{division.m_tiles}][4] = {{}};",
        ]
        first = f"static_cast<int>(blockIdx.x) / {division.parts}"
        held = self._spread.held() if self._spread and self._spread.is_held else []
        if division.ahead or held:
            lines += [*held, "{", *indented(self._ask(first)), "}"]
        each = f"for (int item = {first}; item < {division.items}; item += {self.blocks_a_part})"
        lines += block(each, self._item())
        return [*lines, *self._store()]

    def _own(self) -> list[str]:
        division = self.division
        position = "lane % 16" if self.half else "lane % 4"
        unit = f"tile % {division.n_tiles}" if self.half else f"tile % {division.n_tiles} * 2 + lane / 16"
        word = "" if self.half else " + lane / 4 % 4"
        return [
            f"const int tile = min(warp + j * {WARPS}, {division.tiles - 1});",
            f"const int tap = tile / {division.n_tiles};",
            f"own[j] = {self._shift()} + (({unit}) * {division.points} + {position}) * 4{word};",
        ]

    def _shift(self) -> str:
        """How many words of the halo `tap` is from the first one, a choice a dim: a table that is read at a place which
        the compiler does not know would lie in memory."""
        each = [[tap.shift for tap in axis.phases[0]] for axis in self.of.axes]
        first, terms = [axis.shifts[0] for axis in self.of.axes], []
        for dim, word in enumerate(decoded("tap", [len(shifts) for shifts in each])):
            words = [self.division.shift_words((*first[:dim], shift, *first[dim + 1 :])) for shift in each[dim]]
            text = str(words[-1])
            for number in reversed(range(len(words) - 1)):
                text = f"{word} == {number} ? {words[number]} : {text}"
            terms.append(f"({text})")
        return " + ".join(terms)

    def _place(self, item: str) -> list[str]:
        division = self.division
        words = decoded(item, (self.of.batch, *division.boxes))
        lines = [f"const int n = {words[0]};"]
        for name, word, size in zip(DIMS[-len(self.of.axes) :], words[1:], division.box, strict=True):
            lines.append(f"const int box_{name} = {word if word == '0' else f'({word}) * {size}'};")
        return lines

    @property
    def _halo(self) -> Halo:
        return Halo(self.of, self.source, self.division, self.words.convert)

    @cached_property
    def _spread(self) -> SpreadHalo | None:
        """What fills the halo where the source is one of windows."""
        spread = self.spreads[0]
        return SpreadHalo(self.of, self.source, self.division, self.words, spread, "choices") if spread else None

    @property
    def _upstream(self) -> Upstream:
        division = self.division
        return Upstream(
            self.of, self.grad, division, division.channels, division.pitch, self.words_of_grad, self.spreads[1]
        )

    def _ask(self, item: str) -> list[str]:
        if self._spread:
            return [*self._place(item), *self._spread.load("source", "first_step")]
        lines = [*self._place(item), *self._halo.ask("source", "first_step")]
        return [*lines, f"unsigned* grads = coming + {self.division.halo_words};", *self._upstream.ask()]

    def _ready(self) -> list[str]:
        """The item's box is there."""
        grads = f"unsigned* grads = halo + {self.division.halo_words};"
        if not self.division.ahead:
            lines = [*self._place("item"), "__syncthreads();  // the item before is done with"]
            return [*lines, grads, *self._filled()]
        lines = ["{  // what was coming is there", "    unsigned* const before = halo;"]
        lines += ["    halo = coming, coming = before;", "}", grads, "wait_for_copies();"]
        lines += [*self._halo.settled(), *self._upstream.settled(), "__syncthreads();"]
        return [*lines, *self._next()]

    def _next(self) -> list[str]:
        after = f"item + {self.blocks_a_part}"
        return block(f"if ({after} < {self.division.items})", self._ask(f"({after})"))

    def _filled(self) -> list[str]:
        """Halo and gradients; what is spread was loaded before, if threads can hold it, and they load the next."""
        spread, upstream = self._spread, self._upstream
        if spread is None or not spread.is_held:
            return [*(spread or self._halo).fill("source", "first_step"), *upstream.fill(), "__syncthreads();"]
        asked = upstream.fill() if self.half else upstream.ask()  # copies go on beside the stores
        came = [] if self.half else ["wait_for_copies();", *upstream.settled()]
        return [*asked, *spread.store(), *came, "__syncthreads();", *self._next()]

    def _item(self) -> list[str]:
        division, lines = self.division, self._ready()
        rows = math.prod(division.box[:-1])
        steps = zip(decoded("row", division.box[:-1]), division.steps_of_outputs, strict=False)
        at = [f"({word}) * {step * 4}" for word, step in steps if word != "0"]
        inner = [f"const unsigned* at = halo + {' + '.join(at) or '0'};", *self._row()]
        return [*lines, "#pragma unroll 1", *block(f"for (int row = 0; row < {rows}; ++row)", inner)]

    def _row(self) -> list[str]:
        """One row of positions, as many at a time as a tensor-core instruction adds up."""
        division = self.division
        words_a_row = division.box[-1] * 4 // division.unit
        a_at = f"lane % 16 * {division.pitch} + lane / 16 * 4 + row * {words_a_row} + k * 8"
        positions = division.depth
        moved = f"k * {positions * 4}"
        if self.half:
            read = [f"load_turned(b, at + own[j] + {moved});"]
        else:
            read = [f"b[0] = at[own[j] + {moved}];", f"b[1] = at[own[j] + {moved} + 16];"]
        name = self.words.name
        lines = [
            f"uint4 a[{division.m_tiles}];",
            *unrolled("i", str(division.m_tiles), [f"a[i] = load_matrix(grads + i * {16 * division.pitch} + {a_at});"]),
            *unrolled("j", str(division.tiles_a_warp), [
                "unsigned b[2];", *read,
                *unrolled("i", str(division.m_tiles), [f"{name}::multiply(sums[j][i], a[i], b);"]),
            ]),
        ]  # fmt: skip
        return ["#pragma unroll 2", *block(f"for (int k = 0; k < {division.box[-1] // positions}; ++k)", lines)]

    def _store(self) -> list[str]:
        division = self.division
        into = f"blockIdx.x / {division.parts} * {division.parts * division.part_words} + part * {division.part_words}"
        corner = f"(tile * {division.channels} + i * 16 + lane / 4) * 8 + lane % 4 * 2"
        inner = [
            f"float* to = into + {corner};",
            "*reinterpret_cast<float2*>(to) = make_float2(sums[j][i][0], sums[j][i][1]);",
            "*reinterpret_cast<float2*>(to + 64) = make_float2(sums[j][i][2], sums[j][i][3]);",
        ]
        tile = [f"const int tile = warp + j * {WARPS};"]
        loop = unrolled("i", str(division.m_tiles), inner)
        tile += block(f"if (tile < {division.tiles})", loop)
        return [f"float* into = partial + {into};", *unrolled("j", str(division.tiles_a_warp), tile)]
