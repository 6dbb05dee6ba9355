"""How the gradient of a weight is divided among blocks and warps, by an estimate."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from crucible.algebra.convolution.correlation import Correlation
from crucible.algebra.convolution.windows import WHOLE, Spreads
from crucible.errors import MisuseError
from crucible.gpus import H200, Gpu
from crucible.schedule import cost
from crucible.schedule.convolution.estimate import least, read_sectors
from crucible.schedule.convolution.halo import IN_FLIGHT, STEP_UNITS, THREADS, UNITS, Boxes
from crucible.schedule.convolution.tiling import WARPS, blocks_that_fit
from crucible.schedule.machine import machine_of


@dataclass(frozen=True)
class Division(Boxes):
    """What a block takes; the last dim of the box is a multiple of `depth`."""

    channels: int
    """Of the gradient, a multiple of 16."""
    ahead: bool = False
    """Whether the next box is loaded beside the multiplication (of float32 alone)."""
    blocks: int = 1
    """That share a multiprocessor."""
    spread: tuple[int, ...] = ()
    """The windows over whose elements the input is spread when it is staged, along each dim."""
    sms: int = 132
    """Of the GPU."""

    @property
    def in_flight(self) -> int:
        """A block alone has twice the registers."""
        return IN_FLIGHT * (2 if self.blocks == 1 else 1)

    @property
    def depth(self) -> int:
        """Positions that one tensor-core instruction adds up."""
        return self.unit * 2

    @property
    def n_tiles(self) -> int:
        """Tiles of eight input channels."""
        return self.staged * self.unit * STEP_UNITS // 8

    @property
    def m_tiles(self) -> int:
        return self.channels // 16

    @property
    def tiles(self) -> int:
        """Of taps and input channels, dealt to the warps."""
        return len(self.of.products) * self.n_tiles

    @property
    def tiles_a_warp(self) -> int:
        return -(-self.tiles // WARPS)

    @property
    def sums(self) -> int:
        return self.tiles_a_warp * self.m_tiles * 4

    @property
    def points(self) -> int:
        """From one unit to the next: 16 words beyond a turn of the banks, as two units are read at once."""
        points = math.prod(self.stored)
        return points + (4 - points) % 8

    @property
    def pitch(self) -> int:
        """Words of a channel of the gradient: 4 beyond a multiple of 8, for loads of eight rows without conflicts."""
        words = math.prod(self.box) * 4 // self.unit
        return words + (4 - words) % 8

    @property
    def turn_words(self) -> int:
        """Of a box: its halo, and the gradients behind it."""
        return self.halo_words + self.channels * self.pitch

    @property
    def shared_bytes(self) -> int:
        return 4 * self.turn_words * (2 if self.ahead else 1)

    @property
    def in_tiles(self) -> int:
        return -(-self.steps // self.staged)

    @property
    def out_tiles(self) -> int:
        return -(-self.of.out_channels // self.channels)

    @property
    def parts(self) -> int:
        """Of the weight, each made by blocks of its own."""
        return self.of.groups * self.out_tiles * self.in_tiles

    @property
    def part_words(self) -> int:
        return self.tiles * self.channels * 8

    @property
    def total_clocks(self) -> float:
        """Estimate for all multiprocessors together: see `schedule.cost`."""
        return self.total_clocks_with(products=1)

    def total_clocks_with(self, products: int) -> float:
        """The same where so many products take the place of one."""
        m, depths = self.machine, math.prod(self.box) / self.depth
        tensor_cores = products * cost.warp_products(m, WARPS) * self.tiles_a_warp * self.m_tiles * depths
        fragments = WARPS * (4 * self.m_tiles + 2 * self.tiles_a_warp) * depths
        passed, issued, waited = map(sum, zip(self._staged(), self._upstream(), strict=True))
        work = cost.Work(tensor_cores, fragments, passed, issued, waited + cost.depth_steps(m, depths), self._traffic())
        clocks = work.total(m, self.items * self.parts, self.blocks, self.sms)
        return cost.strided(m, clocks, not self.spread and any(axis.in_stride > 1 for axis in self.of.axes))

    def _staged(self) -> tuple[float, float, float]:
        """Wavefronts, instructions' clocks and waiting until a box of the input has come."""
        units = self.staged * STEP_UNITS
        if self.spread:
            rounds = max(self.spread_rounds(self.spread), 1)
            passed, issued = self.spread_passes(self.spread, units), self.spread_clocks(self.spread, self.staged)
            return passed, issued, cost.load_rounds(self.machine, rounds)
        positions = math.prod(self.halo)
        issued = cost.staged_units(self.machine, units * positions, ahead=self.ahead)
        waited = 0 if self.ahead else cost.load_rounds(self.machine, self.load_rounds)
        return self.loaded(units, self.ahead), issued, waited

    def _upstream(self) -> tuple[float, float, float]:
        """The same of the gradient."""
        each = self.channels * math.prod(self.box) * 4 / self.unit / 32
        rounds = -(-self.channels * math.prod(self.box) // (THREADS * IN_FLIGHT))
        waited = 0 if self.ahead else cost.load_rounds(self.machine, rounds)
        return 3 * each, cost.upstream_words(self.machine, each), waited

    def _traffic(self) -> float:
        """Clocks for what is read of both."""
        item = 16 // self.unit
        shape = [axis.extent for axis in self.of.axes]
        read = read_sectors(self.halo, shape, item)
        if self.spread:
            whole = [n // size for n, size in zip(shape, self.spread, strict=True)]
            read = sum(read_sectors(self.windows(self.spread), whole, bytes_) for bytes_ in (item, 1))
        grads = read_sectors(self.box, [axis.outputs for axis in self.of.axes], item)
        channels = min(self.staged * self.unit * STEP_UNITS, self.of.in_channels)
        return cost.sector_traffic(self.machine, read * channels + grads * self.channels)


@lru_cache(maxsize=256)
def divide(of: Correlation, unit: int, gpu: Gpu = H200, spreads: Spreads = WHOLE) -> Division | None:
    """The division of least estimated time on a GPU; None where none fits. Raises MisuseError for several phases: the
    gradient of a transposed convolution's weight is that of `input_gradient`, with input and gradient exchanged.
    What is spread over windows when it is staged is not loaded ahead."""
    if math.prod(of.phases) != 1:
        raise MisuseError("a weight's gradient is taken of a correlation of one phase: exchange input and gradient")
    return min(_divisions(of, unit, gpu, spreads), key=lambda each: each.total_clocks, default=None)


def best_divisions(of: Correlation, unit: int, count: int, gpu: Gpu = H200, spreads: Spreads = WHOLE) -> list[Division]:
    """So many of least estimated time, no two alike but for their boxes."""
    return least(
        _divisions(of, unit, gpu, spreads),
        count,
        lambda each: (each.channels, each.staged, each.blocks, each.ahead, math.prod(each.box) // 96),
    )


def _divisions(of: Correlation, unit: int, gpu: Gpu, spreads: Spreads) -> Iterator[Division]:
    steps = -(-of.in_channels // (unit * STEP_UNITS))
    depth, machine = unit * 2, machine_of(gpu)
    widths = sorted({min(-(-of.axes[-1].steps // depth) * depth, width) for width in (16, 32, 64, 128, 256)})
    outer = [sorted({min(axis.steps, n) for n in (1, 2, 4, 8)}) for axis in of.axes[:-1]]
    for channels, staged, *rest, width in itertools.product((16, 32, 64), (1, 2, 4, 8), *outer, widths):
        if staged <= steps and not (channels > 16 and channels >= 2 * of.out_channels):
            for ahead in (False, True) if unit == UNITS["float32"] and spreads == WHOLE else (False,):
                spread = spreads[0].sizes if spreads[0] else ()
                box = (*rest, width)
                found = Division(of, unit, staged, box, channels, ahead, spread=spread, sms=gpu.sms, machine=machine)
                blocks = blocks_that_fit(found.shared_bytes, found.sums, gpu)
                if blocks and math.prod(found.box) <= 512:
                    yield replace(found, blocks=blocks)
