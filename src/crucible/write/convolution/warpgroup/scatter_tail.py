"""Sums of a row of inputs, added up where they belong in shared memory, and rows that are finished written out.

A row lies in shared memory as [every second output][8 channels], those at even places and then those at odd ones: a
lane has two neighbouring inputs, so lanes that add to different outputs at once are at a distance of two outputs and
meet in no bank. In each round a lane adds to two neighbouring outputs, the taps that lead there added up before, and no
other lane to the same; the order of sums is always the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from crucible.target.cuda import block, converted
from crucible.target.names import MARK
from crucible.write.convolution.fused import PRODUCT
from crucible.write.convolution.halo import times
from crucible.write.convolution.row_parts import chains
from crucible.write.convolution.rows import plain
from crucible.write.convolution.scene import Scene
from crucible.write.convolution.warpgroup.scatter import CHANNELS, POSITIONS, TEAMS, Scatter
from crucible.write.convolution.warpgroup.walks import THREADS, WARPS
from crucible.write.cuda import emit
from crucible.write.program import Operand, Result

PLACES = """\
__device__ __forceinline__ float2 taken(const float* place) {  // of two channels
    return *reinterpret_cast<const float2*>(place);
}
__device__ __forceinline__ void put(float* place, float first, float second) {
    *reinterpret_cast<float2*>(place) = make_float2(first, second);
}"""


@dataclass
class Adding:
    """Text behind the products of a row."""

    scene: Scene
    division: Scatter
    preamble: list[str] = field(default_factory=list)

    # before and behind all rows of an item

    def before(self) -> list[str]:
        """What a thread knows throughout: its place in a row, and how a row is written out."""
        return [f"const int own_place = (warp % {WARPS} * 8 + lane / 4) * {CHANNELS} + lane % 4 * 2;  // in a row"]

    def clear(self, everyone: int) -> list[str]:
        """Rows that sums are added to."""
        division = self.division
        if not division.pending:
            return []
        threads = TEAMS * THREADS
        return [
            f"for (int p = threadIdx.x; p < {division.rows_words}; p += {threads}) rows[p] = 0;",
            f"together<{everyone}, {threads}>();",
        ]

    def rest(self, everyone: int) -> list[str]:
        """Rows that no input is left for: written out as they are."""
        division = self.division
        if not division.pending:
            return []
        threads, size = TEAMS * THREADS, division.size(division.inner)
        each = [
            *self._to_row(f"last_row + place / {size}"),
            *self._to_plane(f"place % {size}"),
            f"const float* from = rows + ((last_row + place / {size}) % {division.pending} * {size} + place % {size})"
            f" * {division.row_words};",
            *self._written(),
        ]
        if division.inner is not None and self._planes != str(size):
            each = block(f"if (place % {size} < {self._planes})", each)
        return [
            f"together<{everyone}, {threads}>();",
            *block(f"for (int place = team; place < {division.pending * size}; place += {TEAMS})", each),
            f"together<{everyone}, {threads}>();",
        ]

    def _to_row(self, word: str) -> list[str]:
        """The output that a row of inputs is the last one of."""
        behind = self.division.axis(self.division.outer).shifts[-1]
        return [f"const int to_row = {word}{f' - {behind}' if behind else ''};"]

    def _to_plane(self, word: str) -> list[str]:
        if self.division.inner is None:
            return []
        dim = self.scene.dims[self.division.inner]
        return [f"const int to_plane = box_{dim} + {word};"]

    # a row

    def lines(self) -> list[str]:
        """Sums of one place of the inner dim to the rows of the outer one, by turns of the warpgroups."""
        division = self.division
        turn = [
            f"mbarrier_wait(turns + team, turn % {TEAMS} ^ (team == 0));",
            f"float* ready = finished + (team * 2 + turn % 2) * {division.row_words};",
            *block("if (mine)", self._rounds()),
            f"mbarrier_arrive(turns + (team + 1) % {TEAMS});",
            *block("if (mine)", self._leaves()),
            "++turn;",
        ]
        if division.inner is None:
            return turn
        dim, behind = self.scene.dims[division.inner], division.axis(division.inner).shifts[-1]
        place = f"plane - {behind} - box_{dim}" if behind else f"plane - box_{dim}"
        return [f"const int z = {place};  // of the box", *block(f"if (z >= 0 && z < {self._planes})", turn)]

    @property
    def _planes(self) -> str:
        """Places of the inner dim that a box has."""
        division = self.division
        assert division.inner is not None
        outputs, size = division.axis(division.inner).outputs, division.size(division.inner)
        return f"min({size}, {outputs} - box_{self.scene.dims[division.inner]})" if outputs % size else str(size)

    def _rounds(self) -> list[str]:
        division, lines = self.division, list[str]()
        size = division.size(division.inner)
        for outer in range(division.pending):  # that behind them has the place of the first
            number = f"(row + team{f' + {outer}' if outer else ''}) % {division.pending}"
            place = f"({number} * {size} + z)" if division.inner is not None else f"({number})"
            lines.append(f"float* row_{outer} = rows + {place} * {division.row_words};")
        for turn in range(division.rounds):
            edge = self._edge() if turn == 0 else []
            lines += [*self._round(turn), *edge, "team_together(team);"]
        self.preamble.append(PLACES)
        return lines

    def _round(self, number: int) -> list[str]:
        """What is there is read before any of it is written, or each sum would wait for the one before."""
        taken, put = list[str](), list[str]()
        for e in (2 * number, 2 * number + 1):
            offset = e % 2 * self.division.half_words + e // 2 * CHANNELS
            at = f"own_place + {offset}" if offset else "own_place"
            for outer in range(self.division.pending + 1):
                for place, old, values in self._added(outer, e, is_first=number == 0):
                    if old:
                        was = f"was_{number}_{len(taken)}"
                        taken.append(f"const float2 {was} = taken({old} + {at});")
                        values = [
                            f"{was}.{way}{f' + {value}' if value else ''}"
                            for way, value in zip("xy", values, strict=True)
                        ]
                    put.append(f"put({place} + {at}, {', '.join(value or '0.0f' for value in values)});")
        return [*taken, *put]

    def _added(self, outer: int, e: int, *, is_first: bool) -> list[tuple[str, str, list[str]]]:
        """To the output `e` behind the first that a lane's inputs reach: where to, what it is added to, if to anything,
        and the sums. What is first added to a row that is finished goes to another place, and its own is that of the
        row that begins."""
        pending, values = self.division.pending, self._values(outer, e)
        if outer == 0 and is_first:
            begun = [("row_0", "", self._values(pending, e))] if pending else []
            return [("ready", "row_0" if pending else "", values), *begun]
        if not values[0] or (is_first and outer == pending):
            return []
        row = "ready" if outer == 0 else "row_0" if outer == pending else f"row_{outer}"
        return [(row, row, values)]

    def _values(self, outer: int, e: int) -> list[str]:
        """Sums of both channels that lead there from this lane's two inputs; empty where none do."""
        found: list[list[str]] = [[], []]
        for number, (of_outer, behind) in enumerate(self.division.across):
            for second in (0, 1):
                if of_outer == outer and behind + second == e:
                    for channel in (0, 1):
                        found[channel].append(f"sums[phase][{number * 4 + second * 2 + channel}]")
        return [" + ".join(each) for each in found]

    def _edge(self) -> list[str]:
        """Outputs behind those that the first round adds to."""
        division = self.division
        beyond = division.reached - POSITIONS
        if not beyond:
            return []
        at = f"p / 4 % 2 * {division.half_words} + ({POSITIONS} + p / 4) / 2 * {CHANNELS} + p % 4 * 2"
        lines = [f"const int beyond = {at};", "put(ready + beyond, 0.0f, 0.0f);"]
        if division.pending:
            was = "const float2 was = taken(row_0 + beyond);"
            lines[1:] = [was, "put(ready + beyond, was.x, was.y);", "put(row_0 + beyond, 0.0f, 0.0f);"]
        return block(f"if (const int p = threadIdx.x % {THREADS}; p < {beyond * 4})", lines)

    # a finished row

    def _leaves(self) -> list[str]:
        return [
            *self._to_row("row + team"),
            *self._to_plane("z"),
            "const float* from = ready;",
            *self._written(),
        ]

    def _written(self) -> list[str]:
        """Of the row `from`: a thread takes four channels of an output, so that lanes store neighbours."""
        division = self.division
        dim = self.scene.dims[division.outer]
        outputs, size = division.axis(division.outer).outputs, division.size(division.outer)
        end = f"min({outputs}, box_{dim} + {size})" if outputs % size else f"box_{dim} + {size}"
        axis, last = division.axis(division.last), self.scene.dims[-1]
        inside = f"min({division.box[-1]}, {axis.outputs} - box_{last})"
        count = str(division.box[-1]) if axis.outputs % division.box[-1] == 0 else inside
        column = f"to_column - first_column{f' + {axis.shifts[-1]}' if axis.shifts[-1] else ''}"
        channels = division.of.out_channels
        each = ["const int c = first_channel + w_half * 4 + k;", "const float product = values.at[k];", *self._chain()]
        if channels % CHANNELS:
            each.insert(1, f"if (c >= {channels}) break;")
        body = [
            f"const int to_column = box_{last} + w;",
            f"const int column = {column};",
            f"const Pack<float, 4> values = *reinterpret_cast<const Pack<float, 4>*>(from + column % 2"
            f" * {division.half_words} + column / 2 * {CHANNELS} + w_half * 4);",
            "#pragma unroll",
            *block("for (int k = 0; k < 4; ++k)", each),
        ]
        half = "const int w_half = threadIdx.x / 64 % 2;"
        loop = block(f"for (int w = threadIdx.x % 64; w < {count}; w += 64)", body)
        return block(f"if (to_row >= box_{dim} && to_row < {end})", [half, *loop])

    @cached_property
    def _shape(self) -> tuple[int, ...]:
        return self.scene.conv.made_shape

    def _chain(self) -> list[str]:
        scene = self.scene
        names = {each.name: f"{each.name}_value" for each in scene.operands} | {PRODUCT: "product"}
        lines = [
            f"const float {each.name}_value = {converted(self._element(each), each.dtype, 'float32')};"
            for each in scene.operands
        ]
        found = emit(chains(scene.conv), names, mark=MARK)
        self.preamble += found.preamble
        lines += found.statements
        for each in scene.elementwise:
            lines.append(f"{self._element(each)} = {converted(f'{each.name}_is', 'float32', each.dtype)};")
        return lines

    def _element(self, tensor: Operand | Result) -> str:
        """Of an operand or a result, at the output of this thread."""
        division, strides = self.division, plain(tensor.strides, self._shape)
        terms = [f"n * {strides[0]}LL" if strides[0] else "", times("c", strides[1])]
        terms.append(times("to_row", strides[2 + division.outer]))
        if division.inner is not None:
            terms.append(times("to_plane", strides[2 + division.inner]))
        terms.append(times("to_column", strides[-1]))
        return f"{tensor.name}[{' + '.join(filter(None, terms)) or '0'}]"
