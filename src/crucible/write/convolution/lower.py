"""The kernel of a convolution that multiplies, and which division it takes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from crucible.errors import MisuseError
from crucible.gpus import Gpu
from crucible.target.cuda import block, unrolled
from crucible.write.convolution.correlation import Product
from crucible.write.convolution.front import note
from crucible.write.convolution.fused import Convolution
from crucible.write.convolution.halo import STEP_UNITS, THREADS, UNITS, decoded, times
from crucible.write.convolution.naming import with_names
from crucible.write.convolution.packing import packed
from crucible.write.convolution.pieces import ACCUMULATE, LOAD_MATRIX, READ
from crucible.write.convolution.placing import Placing
from crucible.write.convolution.questions import Multiplying, answered
from crucible.write.convolution.scene import Scene
from crucible.write.convolution.spreading import SPREAD
from crucible.write.convolution.staging import Staging
from crucible.write.convolution.tail import Tail
from crucible.write.convolution.tile_choice import tile
from crucible.write.convolution.tiling import Tiling
from crucible.write.convolution.warpgroup.kinds import KINDS, for_warpgroups
from crucible.write.kernel import Kernel, Lowered


def multiplied(conv: Convolution, tiling: Tiling, gpu: Gpu) -> Lowered:
    """The kernel that multiplies, and its buffers: that of the weight in order, which it reads, is the first. One whose
    kind puts the weight in order itself has none."""
    return with_names(conv, lambda conv: _lowered(conv, tiling, gpu))


def _lowered(conv: Convolution, tiling: Tiling, gpu: Gpu) -> Lowered:
    for kind in KINDS:
        if kind.lower and isinstance(tiling, kind.divisions):
            return kind.lower(conv, tiling, gpu)
    scene = Scene(conv, tiling, packed(conv.name, tiling), gpu)
    _check_shared_memory(scene)
    body = _Body(scene, Staging(scene), Tail(scene))
    return Lowered((body.kernel(),), (scene.packed, *scene.partials, *scene.row_parts), tuple(body.notes()))


def chosen(conv: Convolution, gpu: Gpu) -> Tiling | None:
    """The division that was measured as fastest, or else that of least estimated time, among warps or warpgroups; None
    where there is none."""
    measured: Tiling | None = answered(gpu, Multiplying(conv, _tensors(conv)))
    if measured is not None:
        return measured
    pool, spread = conv.pool.sizes if conv.pool else (), conv.spread.sizes if conv.spread else ()
    tensors, slots = _tensors(conv), conv.chain_slots
    unit = UNITS[conv.source.dtype]
    warps = tile(conv.correlation, unit, gpu, pool, spread, tensors=max(1, tensors), chain_slots=slots)
    warpgroups = for_warpgroups(conv, gpu)
    if warps is None or warpgroups is None:
        return warps or warpgroups
    clocks = warps.total_clocks_with(tensors, products=conv.products, chain_slots=slots)
    return warps if warpgroups.total_clocks > clocks else warpgroups


def _tensors(conv: Convolution) -> int:
    """Of the output's size, that the chain reads and writes."""
    return len(conv.loaded) + sum(not each.sums for each in conv.results)


def _check_shared_memory(scene: Scene) -> None:
    """Raises MisuseError where a block's sums do not fit beside its tiles: such a kernel would not start."""
    tiling, sums = scene.tiling, 4 * len(scene.sums) * scene.tiling.channels
    most = scene.gpu.shared_memory_per_block_bytes
    if tiling.shared_bytes + sums > most:
        raise MisuseError(
            f"{scene.conv.name}: {len(scene.sums)} sums for each of {tiling.channels} channels take {sums} bytes of"
            f" shared memory beside {tiling.shared_bytes}, and a block of {scene.gpu.name} has {most}: give it a tiling"
            " of fewer positions, or add some of them up elsewhere"
        )


@dataclass(frozen=True)
class _Body:
    """The kernel that multiplies."""

    scene: Scene
    staging: Staging
    tail: Tail

    def kernel(self) -> Kernel:
        tiling, lines = self.scene.tiling, self._lines()
        choosing = self.scene.choosing.preamble if self.scene.choosing else []
        before = [*self.scene.words.preamble, *self.staging.preamble, LOAD_MATRIX, READ, ACCUMULATE]
        before += [*choosing, *self.tail.preamble]
        return self.scene.kernel(self.notes(), lines, before, (tiling.blocks, THREADS), tiling.shared_bytes)

    def notes(self) -> list[str]:
        """How the work is laid out, in words."""
        of, tiling = self.scene.conv.correlation, self.scene.tiling
        box = "x".join(map(str, tiling.box))
        phases = f" of {math.prod(of.phases)} phases" if math.prod(of.phases) > 1 else ""
        kept = "stay" if tiling.is_resident else f"come {tiling.staged} of {tiling.steps} steps at a time"
        folded = f" (of {len(tiling.of.folds)} taps at once, in the place of channels)" if tiling.of.folds else ""
        between = f" ({of.merged} groups at once, with zeros between)" if of.merged > 1 else ""
        ahead = " The next inputs are loaded beside the multiplication." if tiling.ahead else ""
        choosing = [self.scene.choosing.note()] if self.scene.choosing else []
        spread = [SPREAD] if self.scene.conv.spread else []
        front = [] if self.scene.conv.front is None else [note(self.scene.conv.front)]
        return [
            f"{list(of.in_shape)} to {list(of.out_shape)} by {len(tiling.of.products)} products{folded} of"
            f" {of.in_channels} channels{between}, {self.scene.words.about}, sums in fp32.",
            f"A block makes {tiling.channels} channels{phases} at {box} positions; its inputs are in shared memory"
            f" with their halo, its weights {kept} there ({tiling.shared_bytes // 1024} KiB).{ahead}",
            *front,
            *choosing,
            *spread,
        ]

    def _lines(self) -> list[str]:
        tiling = self.scene.tiling
        lines = [
            *self.staging.memory(),
            "const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;",
            f"const int column = warp % {tiling.columns}, row = warp / {tiling.columns} % {tiling.rows};",
        ]
        if len(tiling.teams) > 1:
            lines.append(f"const int team = warp / {tiling.columns * tiling.rows};  // takes some of the phases")
        lines += self._places()
        if not self.tail.in_registers:
            lines += Placing(self.scene).places()
        lines.append(f"const int part = blockIdx.x % {self.scene.parts};")
        if tiling.of.groups > 1:
            lines.append(f"const int group = part / {tiling.channel_tiles};")
        lines.append(f"const int first_channel = part % {tiling.channel_tiles} * {tiling.channels};")
        if self.scene.sums:
            lines += self.tail.totals()
        if self.tail.in_registers:
            lines += self.tail.row_parts.shared()
        lines += self.staging.first()
        step = self.scene.blocks_a_part
        each = f"for (int item = {self.staging.first_item}; item < {tiling.items}; item += {step})"
        lines += block(each, self._item())
        return [*lines, *(self.tail.store_totals() if self.scene.sums else [])]

    def _places(self) -> list[str]:
        """Where the 16 bytes of each lane are in the halo, which tensor cores are given two tiles at a time: of both
        units of channels the eight positions of a tile."""
        tiling = self.scene.tiling
        pairs = -(-tiling.n_tiles // 2)
        last = math.prod(tiling.box) - 1
        inner = [
            f"const int position = min((column * {tiling.n_tiles} + j * 2 + lane / 16) * 8 + lane % 8, {last});",
            f"place[j] = ({self._halo_index(decoded('position', tiling.box))}) * 4"
            f" + lane / 8 % 2 * {tiling.points * 4};",
        ]
        head = f"int place[{pairs}];  // in the halo, of the 16 bytes that a lane takes of each two tiles"
        return [head, *unrolled("j", str(pairs), inner)]

    def _halo_index(self, at: Sequence[str]) -> str:
        steps = self.scene.tiling.steps_of_outputs
        terms = [times(f"({word})", step) for word, step in zip(at, steps, strict=True) if word != "0"]
        return " + ".join(terms) or "0"

    # multiplying

    def _item(self) -> list[str]:
        tiling = self.scene.tiling
        lines = self.staging.place("item")
        lines.append(f"float sums[{tiling.slots}][{tiling.m_tiles}][{tiling.n_tiles}][4] = {{}};")
        inner = [*self.staging.ready(), *self._multiplied()]
        if not tiling.is_resident:
            inner = block(
                f"for (int step = 0; step < {tiling.steps}; step += {tiling.staged})", self.staging.one_by_one(inner)
            )
        lines += inner
        return lines + self.tail.lines()

    def _multiplied(self) -> list[str]:
        """Over the steps that are staged."""
        tiling = self.scene.tiling
        unit_words = tiling.points * 4
        lines = [
            f"const unsigned* own = weights + s * {tiling.step_weight_words}"
            f" + row * {tiling.m_tiles * 128} + lane * 4;",
            f"const unsigned* at = halo + s * {STEP_UNITS * unit_words};",
            f"unsigned b[{tiling.n_tiles}][2];",
        ]
        teams = [self._products(team, unit_words) for team in range(len(tiling.teams))]
        if len(teams) == 1:
            lines += teams[0]
        else:
            for number, of_team in enumerate(teams):
                lines += block(f"{'else ' if number else ''}if (team == {number})", of_team)
        more = f" && step + s < {tiling.steps}" if tiling.steps % tiling.staged else ""
        return ["#pragma unroll 1", *block(f"for (int s = 0; s < {tiling.staged}{more}; ++s)", lines)]

    def _products(self, team: int, unit_words: int) -> list[str]:
        """Each neighbour is read once for all phases that take it."""
        tiling = self.scene.tiling
        by_shift: dict[tuple[int, ...], list[tuple[int, Product]]] = {}
        for number, product in tiling.products_of(team):
            by_shift.setdefault(product.shift, []).append((number, product))
        lines = []
        for shift, products in sorted(by_shift.items()):
            lines.append(f"read(at + {tiling.shift_words(shift)}, place, b);")
            for number, product in products:
                slot = tiling.teams[team].index(product.phase)
                lines.append(
                    f"accumulate<{self.scene.words.name}>(own + {number * tiling.channels * 8}, b, sums[{slot}]);"
                )
        return lines
