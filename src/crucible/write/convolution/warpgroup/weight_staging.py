"""How planes of the input come into their slots for the gradient of a weight: a copy for each tap of a row, in units of
four words whose positions are those that one instruction adds up."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from crucible.target.cuda import CUDA_TYPES, block, indented, unrolled
from crucible.write.convolution.halo import decoded, times
from crucible.write.convolution.pieces import WORDS
from crucible.write.convolution.warpgroup.walks import WARPS
from crucible.write.convolution.warpgroup.weight_shape import COLUMNS, TEAMS, WeightShape
from crucible.write.program import Operand


def read(declared: Sequence[str], lines: Sequence[str]) -> list[str]:
    """The lines, behind those of the integers `declared` that they read."""
    words = set(re.findall(r"\w+", "\n".join(lines)))
    return [*(line for line in declared if line.split()[2] in words), *lines]


@dataclass(frozen=True)
class Copies:
    """Text of the warpgroup that stages."""

    walks: WeightShape
    source: Operand
    math: str

    def item(self, item: str = "item") -> list[str]:
        """Where an item is."""
        walks = self.walks
        words = decoded(item, (walks.of.batch, *walks.places))
        sizes = (walks.walk, walks.rows, walks.width)
        lines = [f"const int n = {words[0]};"]
        for name, word, size in zip(("first_plane", "box_h", "box_w"), words[1:], sizes, strict=True):
            lines.append(f"const int {name} = {word if word == '0' else f'({word}) * {size}'};")
        return lines

    @property
    def planes(self) -> str:
        """Of positions, of an item."""
        walks = self.walks
        planes = walks.outputs[0]
        return str(walks.walk) if planes % walks.walk == 0 else f"min({walks.walk}, {planes} - first_plane)"

    def each_item(self, lines: list[str]) -> list[str]:
        """The loop over the block's items."""
        walks = self.walks
        first, step = f"static_cast<int>(blockIdx.x) / {walks.parts}", walks.blocks_a_part
        return block(f"for (int item = {first}; item < {walks.items}; item += {step})", lines)

    def memory(self) -> list[str]:
        """Behind the slots, and behind the other barriers: planes as they lie in memory."""
        walks = self.walks
        if not walks.raw:
            return []
        return [
            f"uint4* brought = ring + {walks.slots * walks.slot_units};  // planes as they lie in memory",
            "unsigned long long* came = multiplied + 1;  // each of them",
            f"unsigned long long* taken = came + {walks.raw};  // by all that stage",
        ]

    def lines(self) -> list[str]:
        """All planes of all items."""
        walks = self.walks
        first = [f"const int thread = threadIdx.x - {TEAMS * WARPS * 32};"]
        if walks.has_bringer:
            branch = f"if (thread >= {self._threads})"
            return [*first, *block(branch, self._brings())[:-1], *block("} else", self._stages())]
        return [*first, *(self._bring() if walks.raw else []), *self._stages()]

    def _stages(self) -> list[str]:
        walks, strides = self.walks, self.source.strides
        origin = f"const auto* origin = source + n * {strides[0]}LL + first_input * {strides[1]}LL;"
        plane = block(f"for (int t = 0; t < {self._count}; ++t, ++plane)", self._plane())
        which = origin.replace("origin = source", "origin_of_choices = choices")
        origins = [] if walks.raw else [origin, which] if walks.windows else [origin]
        each = [*origins, *plane]
        first = ["int plane = 0;"]
        if walks.raw and not walks.has_bringer:
            first.append(f"for (int k = 1; k < {walks.raw}; ++k) bring();")
        return [*first, *self.each_item(read(self.item(), each))]

    @property
    def _threads(self) -> int:
        """That stage."""
        return self.walks.staging_warps * 32

    @property
    def _count(self) -> str:
        """Planes of input of an item."""
        more, stride = self.walks.span - self.walks.strides[0], self.walks.strides[0]
        return " ".join([times(f"({self.planes})", stride), *([f"+ {more}"] if more else [])])

    def _bring(self) -> list[str]:
        """By the first warp, beside what it stages."""
        return [
            self._next,
            "const auto bring = [&] {",
            f"    if (thread >= 32 || next_item >= {self.walks.items}) return;",
            *indented(self._brought()),
            "};",
        ]

    def _brings(self) -> list[str]:
        """By a warp of its own."""
        return [self._next, *block(f"while (next_item < {self.walks.items})", self._brought())]

    @property
    def _next(self) -> str:
        first = f"static_cast<int>(blockIdx.x) / {self.walks.parts}"
        return f"int next_item = {first}, next_t = 0, next_plane = 0;  // to be brought"

    def _brought(self) -> list[str]:
        """A lane a channel: those rows of the next plane that there are, when what was in its place has been read."""
        walks, source = self.walks, self.source
        width = walks.extents[2]
        strides = (0, 0, 0, *source.strides[2:])[-3:]
        places = f"n * {source.strides[0]}LL + (first_input + c) * {source.strides[1]}LL"
        to = f"brought + place * {walks.raw_units} + c * {walks.raw_pitch} + (row - top) * {width * walks.item // 16}"
        copy = f"bulk_copy({to}, source + {places} + d * {strides[0]} + row * {strides[1]}, bytes, came + place);"
        channels = walks.channel_tiles * COLUMNS
        count = str(channels)
        if walks.of.in_channels % channels:
            count = f"min({channels}, {walks.of.in_channels} - first_input)"
        lines = [
            f"const int d = {self._moved('first_plane', 0)} + next_t, top = {self._moved('box_h', 1)};",
            f"const int row = max(top, 0), rows = min(top + {walks.staged_rows}, {walks.extents[1]}) - row;",
            f"const bool inside = static_cast<unsigned>(d) < {walks.extents[0]} && rows > 0;",
            f"const int bytes = inside ? rows * {width * walks.item} : 0, channels = {count};",
            f"const int place = next_plane % {walks.raw};",
            f"mbarrier_wait(taken + place, next_plane / {walks.raw} % 2 ^ 1);",
            "if (lane == 0) mbarrier_expect_tx(came + place, bytes * channels);",
            "__syncwarp();",
            *block("if (inside)", [f"for (int c = lane; c < channels; c += 32) {copy}"]),
            "++next_plane;",
            f"if (++next_t == {self._count}) next_t = 0, next_item += {walks.blocks_a_part};",
        ]
        return read(self.item("next_item"), lines)

    def _plane(self) -> list[str]:
        """Pieces are loaded first, then the slot is waited for, then they are stored."""
        walks, type_ = self.walks, CUDA_TYPES[self.source.dtype]
        together, threads = walks.pieces_together, self._threads
        rounds = -(-walks.pieces // threads)
        guard = f"if (p < {walks.pieces})" if walks.pieces % (threads * together) else ""
        number = f"const int p = {'thread' if together == rounds else 'first'} + k * {threads};"
        lines = [
            f"Pack<{type_}, {walks.loads}> found[{together}][{walks.piece_loads}];",
            *([f"Pack<unsigned char, {walks.loads}> chosen[{together}][{walks.piece_loads}];"] * bool(walks.windows)),
            *unrolled("k", str(together), [number, *read(self._piece(), self._loaded())]),
            f"mbarrier_wait(done + slot, plane / {walks.slots} % 2 ^ 1);  // with what was in the slot before",
            *unrolled("k", str(together), [number, *block(guard, read(self._piece(), self._stored()))]),
        ]
        if together < rounds:
            lines = block(f"for (int first = thread; first < {walks.pieces}; first += {together * threads})", lines)
        first = self._moved("first_plane", 0)
        if walks.raw:
            place, parity = f"plane % {walks.raw}", f"plane / {walks.raw} % 2"
            bring = [] if walks.has_bringer else ["bring();"]
            lines = [*bring, f"mbarrier_wait(came + {place}, {parity});", *lines, f"mbarrier_arrive(taken + {place});"]
        lines = [
            f"const int slot = plane % {walks.slots};",
            *lines,
            "fence_proxy_async();",
            "mbarrier_arrive(loaded + slot);",
        ]
        return read([f"const int d = {first} + t;"], lines)

    def _moved(self, word: str, dim: int) -> str:
        """From a position to the first that its taps read."""
        first = self.walks.taps[dim].first
        moved = f" {'-' if first < 0 else '+'} {abs(first)}" if first else ""
        return times(word, self.walks.strides[dim]) + moved

    def _piece(self) -> list[str]:
        """Which one p is: channels lie beside each other, so that stores of 16 bytes have no bank conflicts."""
        walks = self.walks
        words = decoded("p", (walks.channel_tiles, walks.staged_rows, walks.pieces_a_row, COLUMNS))
        return [f"const int {name} = {word};" for name, word in zip(("tile", "row", "b", "c"), words, strict=True)]

    def _loaded(self) -> list[str]:
        walks, strides = self.walks, self.source.strides
        names = ("d", "h", "w")[-len(walks.of.axes) :]
        tests = [f"p < {walks.pieces}"] if walks.pieces % (self._threads * walks.pieces_together) else []
        if walks.of.in_channels % (walks.channel_tiles * COLUMNS):
            tests.append(f"first_input + tile * {COLUMNS} + c < {walks.of.in_channels}")
        tests += [
            f"static_cast<unsigned>({name}) < {extent}"
            for name, extent in zip("dh", walks.extents, strict=False)
            if name in names
        ]
        start = f"box_w + b * {walks.piece}"
        lines = []
        if "h" in names:
            lines.append(f"const int h = {self._moved('box_h', 1)} + row;")
        before = walks.before - walks.taps[2].first
        lines.append(f"const int w = {times(f'({start})', walks.strides[2])} - {before};")
        if walks.raw:
            place = f"brought + plane % {walks.raw} * {walks.raw_units} + (tile * {COLUMNS} + c) * {walks.raw_pitch}"
            row = f"row * {walks.extents[2]} + w" if "h" in names else "w"
            origin = f"reinterpret_cast<const {CUDA_TYPES[self.source.dtype]}*>({place}) + {row}"
        else:
            terms = [f"(tile * {COLUMNS} + c) * {strides[1]}LL"]
            terms += [times(name, stride) for name, stride in zip(names, strides[2:], strict=True)]
            origin = f"origin + {' + '.join(terms)}"
            if walks.windows:
                lines.append(f"const auto* which = origin_of_choices + {' + '.join(terms)};")
        lines.append(f"const bool inside = {' && '.join(tests) or 'true'};")
        guard = " && ".join(["inside", *self._within()])
        type_ = f"const Pack<{CUDA_TYPES[self.source.dtype]}, {walks.loads}>*"
        each = [
            "found[k][v] = {};",
            f"if ({guard}) found[k][v] = *reinterpret_cast<{type_}>(from + v * {walks.loads});",
        ]
        if walks.windows:
            packs = f"const Pack<unsigned char, {walks.loads}>*"
            each.append("chosen[k][v] = {};")
            each.append(f"if ({guard}) chosen[k][v] = *reinterpret_cast<{packs}>(which + v * {walks.loads});")
        return [*lines, f"const auto* from = {origin};",
                *unrolled("v", str(walks.piece_loads), each)]  # fmt: skip

    def _within(self) -> list[str]:
        """What tells whether load v lies in its row, asked of those alone that may not."""
        walks = self.walks
        low, high = walks.safe_loads
        if low == 0 and high == walks.piece_loads:
            return []
        asked = f"static_cast<unsigned>(w + v * {walks.loads}) < {walks.extents[2]}"
        safe = [*([f"v >= {low}"] if low else []), *([f"v < {high}"] if high < walks.piece_loads else [])]
        return [f"({' && '.join(safe)} || {asked})" if high > low else asked]

    def _stored(self) -> list[str]:
        walks = self.walks
        place = f"(b * {walks.piece_words // 4} * {walks.staged_rows} + row) * {walks.row_units} + c"
        tile = f" + tile * {walks.tile_units}" if walks.channel_tiles > 1 else ""
        lines = [f"uint4* to = ring + slot * {walks.slot_units}{tile} + {place};"]
        if not walks.windows:
            return [*lines, *self._copied(len(walks.taps[2].numbers))]
        groups, count = walks.windows.groups, len(walks.windows.elements) // walks.windows.groups
        each = [
            f"const int first = g * {walks.windows.spread.sizes[-1]};  // of the elements that differ no further",
            *self._copied(count),
            f"to += {count * COLUMNS};",
        ]
        loop = block(f"for (int g = 0; g < {groups}; ++g)", each)
        return [*lines, "#pragma unroll 1  // registers do not hold all words at once", *loop]

    def _copied(self, taps: int) -> list[str]:
        """For the first so many taps."""
        walks, lines = self.walks, []
        for step in range(walks.piece_words // 8):
            for half in range(2):
                for tap in range(taps):
                    words = [self._word(walks.word(step, half, number), tap) for number in range(4)]
                    at = (step * 2 + half) * walks.half_units + tap * COLUMNS
                    lines.append(f"to[{at}] = make_uint4({', '.join(words)});")
        return lines

    def _word(self, word: int, tap: int) -> str:
        """Of a piece, as one tap reads it."""
        walks, taps = self.walks, self.walks.taps[2]
        shift = taps.shifts[tap] if taps.shifts else tap * taps.spacing
        each = []
        for number in range(walks.per_word):
            at = walks.before + (word * walks.per_word + number) * walks.strides[2] + shift
            place = f"[k][{at // walks.loads}].at[{at % walks.loads}]"
            value = f"{WORDS[self.math].convert}(found{place})"
            if walks.windows:
                number = walks.windows.elements[tap].number
                value = f"(chosen{place} == first{f' + {number}' if number else ''} ? {value} : 0u)"
            each.append(value)
        return each[0] if len(each) == 1 else f"{each[0]} | static_cast<unsigned>({each[1]}) << 16"
