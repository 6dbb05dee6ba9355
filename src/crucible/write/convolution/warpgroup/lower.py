"""The kernel of a convolution for warpgroups that multiplies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from crucible.errors import MisuseError
from crucible.gpus import Gpu
from crucible.target.cuda import block, unrolled
from crucible.target.sm90 import MAKE_SMEM_DESC
from crucible.write.convolution.fused import Convolution
from crucible.write.convolution.halo import STEP_UNITS, UNITS
from crucible.write.convolution.pieces import WORDS
from crucible.write.convolution.scene import Scene
from crucible.write.convolution.warpgroup import packing, pieces
from crucible.write.convolution.warpgroup.bulk import chain_of, tail_for
from crucible.write.convolution.warpgroup.held import held_products, multiply_held
from crucible.write.convolution.warpgroup.staging import Planes
from crucible.write.convolution.warpgroup.tail import WarpgroupTail
from crucible.write.convolution.warpgroup.walks import ROWS, STAGING_REGISTERS, THREADS, WARPS, Walks, walk
from crucible.write.kernel import Kernel, Lowered

ARCHITECTURE = "sm_90a"
Pass: TypeAlias = tuple[bool, bool]
"""Whether products are of the weights' lower words, and of the planes'."""
PASSES: tuple[Pass, ...] = ((True, False), (False, True), (False, False))
"""Of float32 kept exact, 2^-11 of a product first: tensor cores cut sums off at each addition, and so two in three of
these are of a sum that is 2^-11 of the last. By a model of that P90 is 6.7e-7 off, and 2.0e-6 with a tap's in turn."""


def division(conv: Convolution, gpu: Gpu) -> Walks | None:
    """How warpgroups would share a convolution; None where they do not serve it: GPUs without them, strided or
    grouped inputs, pools and reductions of rows, weights that do not stay in shared memory."""
    if conv.reductions or conv.pool or conv.spread:
        return None
    return walk(conv.correlation, UNITS[conv.source.dtype], gpu, chain_of(conv), exact=conv.math == "fp32")


def lower_for_warpgroups(conv: Convolution, walks: Walks, gpu: Gpu) -> Lowered:
    """The kernel; the chain is taken as it is. Raises MisuseError where what it reads does not fit in a block."""
    walks = fitted(conv, walks, gpu)
    scene = Scene(conv, walks, packing.packed(conv.name, walks), gpu)
    body = Body(scene, walks, Planes(scene), tail_for(scene))
    return Lowered((body.kernel(),), (scene.packed, *scene.partials), tuple(body.notes()))


def fitted(conv: Convolution, walks: Walks, gpu: Gpu) -> Walks:
    """With the chain as it is. Raises MisuseError where what it reads does not fit in a block."""
    walks = replace(walks, chain=chain_of(conv), exact=conv.math == "fp32")
    most = gpu.shared_memory_per_block_bytes
    if walks.shared_bytes > most:
        raise MisuseError(
            f"{conv.name}: its planes and {walks.tiles} tiles a warp take {walks.shared_bytes} bytes of shared memory,"
            f" and a block of {gpu.name} has {most}: give it smaller boxes"
        )
    return walks


def about(scene: Scene, walks: Walks, ways: str) -> list[str]:
    """How the work is laid out, in words."""
    of = walks.of
    box = "x".join(map(str, walks.box))
    walked = f", along {walks.walk} planes" if len(walks.box) == 3 else ""
    held = f", what rounding leaves of {walks.lower_held} taps in registers" if walks.lower_held else ""
    return [
        f"{list(of.in_shape)} to {list(of.out_shape)} by {len(of.products)} products of {of.in_channels} channels,"
        f" {WORDS[scene.conv.math].about}, sums in fp32; warpgroup instructions, on compute capability 9.0"
        " alone.",
        f"A block makes {ROWS} channels at {box} positions at a time{walked}: {walks.groups} warpgroups in turn,"
        f" while {'two others in turn load' if walks.stagers > 1 else 'another one loads'} planes of input into"
        f" {walks.slots} slots; its weights stay in shared memory"
        f" ({walks.shared_bytes // 1024} KiB){held}. {ways}",
    ]


@dataclass(frozen=True)
class Body:
    """The kernel that multiplies."""

    scene: Scene
    walks: Walks
    staging: Planes
    tail: WarpgroupTail

    def kernel(self) -> Kernel:
        walks, scene, lines = self.walks, self.scene, self._lines()
        before = [
            *packing.conversions(scene.conv.math),
            *pieces.BARRIERS,
            MAKE_SMEM_DESC,
            *pieces.BEGIN,
            *pieces.REGISTERS,
            *pieces.products(self._math, walks.columns_of_b),
            *([held_products(self._math, walks.columns_of_b, 1)[0]] if walks.lower_held else []),
            *self.tail.preamble,
        ]
        return scene.kernel(self.notes(), lines, before, (1, walks.threads), walks.shared_bytes,
                            blocks=self._blocks, architecture=ARCHITECTURE)  # fmt: skip

    @property
    def _blocks(self) -> int:
        return self.scene.parts * self.scene.blocks_a_part

    @property
    def _math(self) -> str:
        """Of an instruction."""
        return "tf32" if self.walks.exact else self.scene.conv.math

    def notes(self) -> list[str]:
        return about(self.scene, self.walks, self.tail.ways)

    def _lines(self) -> list[str]:
        walks, tile = self.walks, self.walks.tile_words
        lines = [
            *self._memory(),
            f"float* tile = reinterpret_cast<float*>(ring + {walks.slots * walks.slot_units});",
            f"unsigned long long* loaded = reinterpret_cast<unsigned long long*>(tile"
            f" + {walks.groups * WARPS * tile});  // each slot",
            *self._barriers(),
            "const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;",
            f"const int part = blockIdx.x % {self.scene.parts};",
            f"const int first_channel = part * {ROWS};",
            *self.tail.totals(),
            *self._start(),
        ]
        multiply = [
            f"setmaxnreg_inc<{walks.registers}>();",
            f"tile += warp * {tile};  // of this warp, for 16 channels",
            "const int team = warp / 4;",
            *self.tail.own_totals(),
            *self.tail.before(),
            *self._held(),
            *self._multiply(),
            *self.tail.after(),
        ]
        loads = [f"setmaxnreg_dec<{STAGING_REGISTERS}>();", *self.staging.lines()]
        return [*lines, *self._divided(multiply, loads), *self.tail.store_totals()]

    def _memory(self) -> list[str]:
        return [
            "extern __shared__ uint4 memory[];",
            "uint4* weights = memory;",
            f"uint4* ring = weights + {self.walks.weight_units};  // slots of planes",
        ]

    def _barriers(self) -> list[str]:
        """Behind `loaded`."""
        walks = self.walks
        turns = f"unsigned long long* turns = done + {walks.slots};  // of warpgroups to multiply"
        return [
            f"unsigned long long* done = loaded + {walks.slots};  // with each slot",
            *([turns] if walks.turns else []),
            *([f"unsigned long long* fetched = turns + {walks.groups};  // of each warp"] if walks.loads else []),
        ]

    def _divided(self, multiply: list[str], loads: list[str]) -> list[str]:
        """Among those that multiply and that which loads."""
        branch = f"if (warp < {self.walks.groups * WARPS})"
        return [*block(branch, multiply)[:-1], *block("} else", loads)]

    def _start(self) -> list[str]:
        walks = self.walks
        prepare = [
            f"for (int s = 0; s < {walks.slots}; ++s) mbarrier_init(loaded + s, {THREADS}),"
            f" mbarrier_init(done + s, {walks.groups * THREADS});",
        ]
        if walks.turns:
            prepare.append(f"for (int s = 0; s < {walks.turns}; ++s) mbarrier_init(turns + s, {THREADS});")
        if walks.loads:
            prepare.append(f"for (int s = 0; s < {walks.groups * WARPS}; ++s) mbarrier_init(fetched + s, 1);")
        return [
            *self._weights(),
            *self.staging.slack(walks.threads),
            *block("if (threadIdx.x == 0)", prepare),
            "fence_proxy_async();",
            "__syncthreads();",
        ]

    def _weights(self) -> list[str]:
        walks, scene = self.walks, self.scene
        begin = f"reinterpret_cast<const uint4*>({scene.packed.name}) + part * {walks.packed_units}"
        return [f"for (int p = threadIdx.x; p < {walks.weight_units}; p += {walks.threads}) weights[p] = ({begin})[p];"]

    def _held(self) -> list[str]:
        """Lower words of the last taps: what a lane has of the rows of an instruction whose first matrix is in
        registers."""
        walks, scene = self.walks, self.scene
        if not walks.lower_held:
            return []
        first = f"(part * {walks.packed_units} + {walks.weight_units} + warp % 4 * 16 + lane / 4) * 4 + lane % 4"
        return [
            f"const auto* own = reinterpret_cast<const unsigned*>({scene.packed.name}) + {first};",
            f"unsigned held[{walks.lower_held}][4];  // of each tap: two channels, two units",
            *unrolled(
                "tap",
                str(walks.lower_held),
                unrolled("i", "4", [f"held[tap][i] = own[((tap * {STEP_UNITS} + i / 2) * {ROWS} + i % 2 * 8) * 4];"]),
            ),
        ]

    # multiplying

    def _multiply(self) -> list[str]:
        walks = self.walks
        item = [
            *self.staging.item(),
            f"const int planes = {self.staging.planes};",
            *block("for (int t = 0; t < planes; ++t, ++turn, ++plane)", self._plane()),
            *([f"plane += {walks.span - 1};"] if walks.span > 1 else []),
        ]
        return ["int plane = 0, turn = 0;  // of all items", *self.staging.each_item(item)]

    def _plane(self) -> list[str]:
        """Of outputs: made by the warpgroup whose turn it is, passed by the others."""
        walks = self.walks
        return [
            *self._passed(),
            *(["const int box_d = first_plane + t;"] if len(walks.box) == 3 else []),
            *self.tail.ahead(),
            *self._products(),
            self._left(),
            *self.tail.lines(),
        ]

    def _passed(self) -> list[str]:
        """By the warpgroups whose turn it is not."""
        slots = self.walks.slots
        each = [
            f"const int slot = (plane + s) % {slots};",
            f"mbarrier_wait(loaded + slot, (plane + s) / {slots} % 2);  // or the plane before in it is not yet done"
            " with",
            "mbarrier_arrive(done + slot);",
        ]
        passed = [*block("for (int s = 0; s < leave; ++s)", each), "continue;"]
        return [
            f"const int leave = {self._leave()};  // planes of input that nothing later reads",
            *block(f"if (turn % {self.walks.groups} != team)", passed),
        ]

    def _left(self) -> str:
        """When their products are made."""
        return f"for (int s = 0; s < leave; ++s) mbarrier_arrive(done + (plane + s) % {self.walks.slots});"

    def _leave(self) -> str:
        return f"t + 1 < planes ? 1 : {self.walks.span}" if self.walks.span > 1 else "1"

    def _products(self) -> list[str]:
        """All taps of all channels, in one go; the next warpgroup's follow when the last of them is on its way."""
        walks = self.walks
        lines = [f"float sums[{walks.columns_of_b // 2}];", *self._waits(), "wgmma_fence();"]
        passes = PASSES if walks.exact else PASSES[-1:]
        if walks.steps == 1:
            lines += [f"const unsigned long long a = make_smem_desc(weights, {ROWS});", *self._taps(passes)]
        else:
            step = len(walks.of.products) * STEP_UNITS * ROWS
            first = f"const unsigned long long a = make_smem_desc(weights + s * {step}, {ROWS});"
            for together in (passes[:-1], passes[-1:]):
                if together:
                    lines += block(f"for (int s = 0; s < {walks.steps}; ++s)", [first, *self._taps(together)])
        return [
            *lines,
            "wgmma_commit();",
            f"mbarrier_arrive(turns + (team + 1) % {walks.groups});",
            "finish_products(sums);",
        ]

    def _waits(self) -> list[str]:
        """For a warpgroup's turn, and the newest plane of each that stages: it stages its own in order."""
        walks = self.walks
        lines = [f"mbarrier_wait(turns + team, turn / {walks.groups} % 2 ^ (team == 0));  // for its turn"]
        for back in range(min(walks.stagers, walks.span)):
            moved = walks.span - 1 - back
            plane = f"(plane + {moved})" if moved else "plane"
            lines.append(f"mbarrier_wait(loaded + {plane} % {walks.slots}, {plane} / {walks.slots} % 2);")
        return lines

    def _taps(self, passes: Sequence[Pass]) -> list[str]:
        """Of one step of channels, pass by pass, and plane by plane of the input."""
        by_plane: dict[int, list[tuple[int, int]]] = {}
        for number, product in enumerate(self.walks.of.products):
            plane, at = self.walks.place(product)
            by_plane.setdefault(plane, []).append((number, at))
        lines: list[str] = []
        starts = not self.walks.exact or len(passes) > 1  # the first product adds to nothing
        adds = "true" if not starts else "s > 0" if self.walks.steps > 1 else "false"
        for number, lower in enumerate(passes):
            for plane, taps in sorted(by_plane.items()):
                lines += [] if number else [self._described(plane)]
                for tap, at in taps:
                    lines.append(self._product(tap, f"b_{plane}", at, lower, adds))
                    adds = "true"
        return lines

    def _product(self, tap: int, described: str, place: int, lower: Pass, adds: str) -> str:
        """Of a tap's weights and a plane, of each the higher words or the lower ones; `adds` is whether to the sums."""
        walks = self.walks
        of_weight, of_plane = lower
        at = tap * STEP_UNITS * ROWS + of_weight * walks.word_units
        b = f"{described} + {place + of_plane * walks.plane_units}"
        first_held = len(walks.of.products) - walks.lower_held
        if of_weight and tap >= first_held:
            words = ", ".join(f"held[{tap - first_held}][{i}]" for i in range(4))
            return f"{multiply_held(self._math)}(sums, {words}, {b}, {adds});"
        return f"{pieces.multiply(self._math)}(sums, a + {at}, {b}, {adds});"

    def _described(self, plane: int) -> str:
        walks = self.walks
        moved = f"(plane + {plane})" if plane else "plane"
        step = f" + s * {STEP_UNITS * walks.points}" if walks.steps > 1 else ""
        at = f"ring + {moved} % {walks.slots} * {walks.slot_units}{step}"
        return f"const unsigned long long b_{plane} = make_smem_desc({at}, {walks.points});"
