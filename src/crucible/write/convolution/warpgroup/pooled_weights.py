"""A weight in the order in which tensor cores take it, by the kernel that multiplies by it.

A thread takes one tap of every so many channels, so that loads are of neighbours and where they go is computed once.
The first loads begin before anything else does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from crucible.target.cuda import CUDA_TYPES, block, converted, unrolled
from crucible.write.convolution.direction import Direction
from crucible.write.convolution.halo import STEP_UNITS
from crucible.write.convolution.scene import Scene
from crucible.write.convolution.warpgroup.pooled import ENTRY, PooledWalks
from crucible.write.convolution.warpgroup.pooled_staging import unit_of
from crucible.write.convolution.warpgroup.pooled_tail import PooledTail
from crucible.write.convolution.warpgroup.walks import ROWS, WARPS
from crucible.write.program import Operand, reads

MOST_TOGETHER = 64
"""Elements of the weight that a thread loads at once: there are no sums yet."""


@dataclass(frozen=True)
class PooledWeights:
    """Text of the warpgroups that multiply."""

    scene: Scene
    tail: PooledTail

    @property
    def _walks(self) -> PooledWalks:
        assert isinstance(self.scene.tiling, PooledWalks)
        return self.scene.tiling

    @cached_property
    def _kernel_taps(self) -> int:
        return math.prod(axis.kernel for axis in self._walks.of.axes)

    @cached_property
    def _apart(self) -> int:
        """From one channel of a thread to its next: a power of two, as the channels of a tile are."""
        most = min(self._walks.channels, self._walks.groups * WARPS * 32 // self._kernel_taps)
        return 1 << most.bit_length() - 1

    @property
    def _made(self) -> int:
        """Channels of a thread."""
        return self._walks.channels // self._apart

    @property
    def _pieces(self) -> int:
        """Units of input channels, of each of its channels, that a thread orders."""
        return self._made * self._walks.steps * STEP_UNITS

    @property
    def _together(self) -> int:
        """Of them, those that it has on their way at once."""
        most = max(1, MOST_TOGETHER // self._walks.unit)
        return -(-self._pieces // -(-self._pieces // most))

    @property
    def _orders(self) -> str:
        """Whether a thread orders weights."""
        return f"threadIdx.x < {self._apart * self._kernel_taps}"

    def asked(self) -> list[str]:
        """The first loads, beside which shared memory is prepared."""
        type_ = CUDA_TYPES[self.scene.conv.source.dtype]
        return [
            "// The thread's tap and first channel of the weight, which it puts in order.",
            f"const int tap = threadIdx.x % {self._kernel_taps}, made = threadIdx.x / {self._kernel_taps};",
            f"{type_} values[{self._together}][{self._walks.unit}];",
            *block(f"if ({self._orders})", self._loaded("0")),
            *self._signs_asked(),
        ]

    def lines(self) -> list[str]:
        """The weight to shared memory, by the warpgroups that multiply."""
        walks, kernel = self._walks, self._walks.of.axes[-1].kernel
        table = sum((entry << 1 | upper) << 4 * tap for tap, (entry, upper) in enumerate(walks.last_taps))
        lines = [
            f"const int last = {hex(table)}ull >> tap % {kernel} * 4 & 15;  // the matrix, and its half",
            f"uint4* const of_tap = weights + (tap / {kernel} * {walks.entries_a_tap} + last / 2) * {ENTRY}"
            f" + last % 2 * 8 + {self._row('made') if self._rows_apart else '0'};",
            *self._turned(),
            *self._stored("0"),
        ]
        if self._together < self._pieces:
            head = f"for (int begin = {self._together}; begin < {self._pieces}; begin += {self._together})"
            lines += block(head, [*self._loaded("begin"), *self._stored("begin")])
        return ["// The weight in the order in which tensor cores take it.", *block(f"if ({self._orders})", lines)]

    @property
    def _way(self) -> Direction | None:
        """Where channels' weights are turned round: those of falling ones."""
        way = self.tail.running.direction
        return way if way and way.turns else None

    @property
    def _deciding(self) -> list[Operand]:
        """What signs are read from."""
        read = frozenset[str]().union(*map(reads, self._way.signs)) if self._way else frozenset[str]()
        return [each for each in self.scene.operands if each.name in read]

    def _signs_asked(self) -> list[str]:
        lines, count = list[str](), str(self._made)
        for each in self._deciding:
            read = self.tail.of_row(each, f"first_channel + m * {self._apart} + made")
            lines += [f"float {each.name}_made[{count}];", *unrolled("m", count, [f"{each.name}_made[m] = {read};"])]
        return lines

    def _turned(self) -> list[str]:
        """Of each channel of a thread the bits of its weights that are turned round."""
        if self._way is None:
            return []
        names = {each.name: f"{each.name}_value" for each in self._deciding}
        each = [f"const float {value} = {name}_made[m];" for name, value in names.items()]
        bits = "0x80008000u" if self.scene.half else "0x80000000u"
        each += [*self._way.lines(names), f"turned[m] = falls ? {bits} : 0u;"]
        return [f"unsigned turned[{self._made}];", *unrolled("m", str(self._made), each)]

    def _piece(self, begin: str) -> list[str]:
        number = "k" if begin == "0" else f"({begin} + k)"
        return [f"const int u = {number} / {self._made}, m = {number} % {self._made};"]

    def _loaded(self, begin: str) -> list[str]:
        """Of input channels and channels that are not there: 0."""
        walks, dtype = self._walks, self.scene.conv.source.dtype
        _, made, read = walks.of.weight_strides
        channel = f"first_channel + m * {self._apart} + made"
        tests = [f"begin + k < {self._pieces}"] * (begin != "0" and self._pieces % self._together != 0)
        tests += [f"{channel} < {walks.of.out_channels}"] * (walks.of.out_channels % walks.channels != 0)
        tests += [f"u * {walks.unit} + j < {walks.of.in_channels}"] * (
            walks.of.in_channels % (walks.unit * STEP_UNITS) != 0
        )
        at = f"(u * {walks.unit} + j) * {read} + ({channel}) * {made} + tap"
        value = f"{self.scene.packed.name}[{at}]"
        if tests:
            value = f"{' && '.join(tests)} ? {value} : {converted('0.0f', 'float32', dtype)}"
        each = [*self._piece(begin), *unrolled("j", str(walks.unit), [f"values[k][j] = {value};"])]
        return unrolled("k", str(self._together), each)

    def _stored(self, begin: str) -> list[str]:
        """A unit of 16 bytes at once, to where tensor cores take it from."""
        walks, scene = self._walks, self.scene
        parts = [f"{part} ^ turned[m]" if self._way else part for part in unit_of("values[k]", scene)]
        terms = [
            f"u / {STEP_UNITS} * {walks.entries * ENTRY}" if walks.steps > 1 else "",
            f"u % {STEP_UNITS} * {ROWS}",
            f"m * {self._apart * (2 if walks.pairs else 1)}"
            if self._rows_apart
            else self._row(f"(m * {self._apart} + made)"),
        ]
        store = f"of_tap[{' + '.join(filter(None, terms))}] = make_uint4({', '.join(parts)});"
        if self._pieces % self._together and begin != "0":
            store = f"if (begin + k < {self._pieces}) {store}"
        return unrolled("k", str(self._together), [*self._piece(begin), store])

    @property
    def _rows_apart(self) -> bool:
        """Whether the rows of a thread's channels are all equally far apart."""
        return not self._walks.pairs or self._apart % 8 == 0

    def _row(self, channel: str) -> str:
        """Of a matrix of weights: of two phases, each eight channels are followed by their others."""
        return f"{channel} / 8 * 16 + {channel} % 8" if self._walks.pairs else channel
