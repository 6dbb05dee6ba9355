"""A convolution whose weights are streamed, as kernels for warpgroups."""

from __future__ import annotations

from dataclasses import dataclass, replace

from crucible.errors import MisuseError
from crucible.gpus import Gpu
from crucible.target.cuda import block, unrolled
from crucible.target.sm90 import ARCHITECTURE
from crucible.write.convolution.fused import Convolution
from crucible.write.convolution.halo import STEP_UNITS
from crucible.write.convolution.pieces import WORDS
from crucible.write.convolution.scene import Scene
from crucible.write.convolution.warpgroup import pieces
from crucible.write.convolution.warpgroup.packing import conversions, packed
from crucible.write.convolution.warpgroup.stream_staging import Stages
from crucible.write.convolution.warpgroup.stream_tail import StreamTail
from crucible.write.convolution.warpgroup.streams import GROUPS, STAGERS, STAGING_REGISTERS, Part, Streams
from crucible.write.convolution.warpgroup.walks import THREADS, WARPS
from crucible.write.convolution.windows import SPREAD
from crucible.write.kernel import Kernel, Lowered


def lower_streams(conv: Convolution, streams: Streams, gpu: Gpu) -> Lowered:
    """The kernel; the chain is taken as it is. Raises MisuseError where its sums do not fit beside the slots."""
    if conv.spread and not (streams.spread == conv.spread.sizes and streams.begins_at_windows):
        raise MisuseError(
            f"{conv.name}: boxes {streams.box} begin inside of windows {conv.spread.sizes}, or are for others"
            f" ({streams.spread}): give it boxes of whole windows"
        )
    streams, most = replace(streams, sums=sum(each.sums for each in conv.results)), gpu.shared_memory_per_block_bytes
    if streams.shared_bytes > most:
        raise MisuseError(
            f"{conv.name}: {streams.slots} slots and {streams.sums} sums of each channel take {streams.shared_bytes}"
            f" bytes of shared memory, and a block of {gpu.name} has {most}: give it fewer slots"
        )
    scene = Scene(conv, streams, packed(conv.name, streams), gpu)
    body = _Body(scene, streams, Stages(scene), StreamTail(scene))
    return Lowered((body.kernel(),), (scene.packed, *scene.partials), tuple(body.notes()))


@dataclass(frozen=True)
class _Body:
    """The kernel that multiplies."""

    scene: Scene
    streams: Streams
    stages: Stages
    tail: StreamTail

    def kernel(self) -> Kernel:
        streams, math, lines = self.streams, self.scene.conv.math, self._lines()
        before = [*conversions(math), *pieces.BARRIERS, pieces.DESCRIBE_APART]
        before += [*pieces.BEGIN, *pieces.COPY_IN, *pieces.REGISTERS, pieces.held_sums(streams.held)]
        before += [pieces.MOVED_ON] if streams.live > 1 else []
        for part in streams.parts:
            before += pieces.products_of_positions(math, part.blocks * streams.channels, streams.held)
        before += [*self.stages.preamble, *self.tail.preamble]
        return self.scene.kernel(self.notes(), lines, before, (1, streams.threads),
                                 streams.shared_bytes, architecture=ARCHITECTURE)  # fmt: skip

    def notes(self) -> list[str]:
        """How the work is laid out, in words."""
        of, streams = self.streams.of, self.streams
        box = "x".join(map(str, streams.box))
        walked = f", along {streams.walk} planes" if streams.walk > 1 else ""
        planes = " Each plane of input is staged once for all planes of outputs that read it." if streams.once else ""
        planes += " The rows of the next stage are asked for ahead, to the L2 cache." if self.stages.fetches else ""
        return [
            f"{list(of.in_shape)} to {list(of.out_shape)} by {len(of.products)} products of {of.in_channels} channels,"
            f" {WORDS[self.scene.conv.math].about}, sums in fp32; warpgroup instructions, on compute capability 9.0"
            " alone.",
            f"A block makes {streams.channels} channels at {box} positions at a time{walked}: {GROUPS} warpgroups"
            f" multiply {streams.tiles} tiles of 64 positions each, while {STAGERS} load {streams.unit * STEP_UNITS}"
            f" channels of a plane at a time into {streams.slots} slots, the weights beside them in one copy"
            f" ({streams.shared_bytes // 1024} KiB).{planes}",
            *([SPREAD] if self.scene.conv.spread else []),
        ]

    def _lines(self) -> list[str]:
        streams = self.streams
        prepare = (
            f"for (int s = 0; s < {streams.slots}; ++s) mbarrier_init(loaded + s, {STAGERS * THREADS + 1}),"
            f" mbarrier_init(done + s, {GROUPS * THREADS});"
        )
        multiply = [
            f"setmaxnreg_inc<{streams.registers}>();",
            # told so, the compiler reckons descriptors once a warp: 3 instructions a product instead of 10
            "const int team = __shfl_sync(0xffffffff, warp / 4, 0);",
            *self.tail.own_totals(),
            *self._multiply(),
        ]
        loads = [f"setmaxnreg_dec<{STAGING_REGISTERS}>();", *self.stages.lines()]
        return [
            "extern __shared__ uint4 memory[];",
            "uint4* ring = memory;  // slots of planes, each with the weights that it is multiplied by",
            "unsigned long long* loaded = reinterpret_cast<unsigned long long*>(ring"
            f" + {streams.slots * streams.slot_units});  // each slot",
            f"unsigned long long* done = loaded + {streams.slots};  // with each slot",
            "const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;",
            f"const int part = blockIdx.x % {self.scene.parts};  // of the channels",
            f"const int first_channel = part * {streams.channels};",
            *self.tail.totals(),
            *self.stages.zeros(),
            *block("if (threadIdx.x == 0)", [prepare]),
            "fence_proxy_async();",
            "__syncthreads();",
            *block(f"if (warp < {GROUPS * WARPS})", multiply)[:-1],
            *block("} else", loads),
            *self.tail.store_totals(),
        ]

    def _multiply(self) -> list[str]:
        streams = self.streams
        parts = {number: self._stage(part) for number, part in enumerate(streams.parts)}
        finished = self.tail.lines()
        if streams.live > 1:
            finished = block(f"if (t >= {streams.live - 1})", finished)
        stages = self.stages.each_stage(self._begun(), parts, {streams.last_part: finished})
        return [
            *self._tiles(),
            f"float sums[{streams.tiles}][{streams.held}] = {{}};",
            *(["const unsigned none = blockIdx.z;  // 0, but the compiler does not know"] if streams.live > 1 else []),
            "int stage = 0;",
            *self.stages.each_item(stages),
        ]

    def _tiles(self) -> list[str]:
        """Where this warpgroup's are in a plane."""
        streams = self.streams
        across, down = streams.tiles_in_row, streams.tile_rows * streams.step_of_rows
        tile = f"(team * {streams.tiles} + i)"
        place = f"{tile} * {down}"
        if across > 1:
            place = f"{tile} / {across} * {down} + {tile} % {across} * {streams.tile_columns}"
        return [f"int place[{streams.tiles}];", *unrolled("i", str(streams.tiles), [f"place[i] = {place};"])]

    def _begun(self) -> list[str]:
        """A new plane of outputs: those that have sums already move on."""
        streams = self.streams
        own, held = streams.channels // 2, streams.held
        each = unrolled("j", str(own), ["sums[i][j] = 0;"])
        if held > own:
            moved = f"sums[i][{held - 1} - j] = moved_on(sums[i][{held - own - 1} - j], sums[i][{held - 1} - j], none);"
            each = [*unrolled("j", str(held - own), [moved]), *each]
        return unrolled("i", str(streams.tiles), each)

    def _stage(self, part: Part) -> list[str]:
        """All its products in one go."""
        streams = self.streams
        columns, slot = part.blocks * streams.channels, f"stage % {streams.slots}"
        name = pieces.multiply_positions(self.scene.conv.math, columns)
        first = f"const unsigned long long a = make_smem_desc(slot + place[i], {streams.points}, {streams.eight});"
        products = []
        for number, ((row, column), _) in enumerate(part.taps):
            weights = f"b + {number * STEP_UNITS * columns}"
            products.append(f"{name}(sums[i], a + {streams.place(row, column)}, {weights}, true);")
        return [
            f"const uint4* slot = ring + {slot} * {streams.slot_units};",
            f"mbarrier_wait(loaded + {slot}, stage / {streams.slots} % 2);",
            *unrolled("i", str(streams.tiles), ["settle(sums[i]);"]),
            "wgmma_fence();",
            f"const unsigned long long b = make_smem_desc(slot + {streams.plane_units}, {columns}, 8);",
            *unrolled("i", str(streams.tiles), [first, *products]),
            "wgmma_commit();",
            *unrolled("i", str(streams.tiles), ["finish_products(sums[i]);"]),
            f"mbarrier_arrive(done + {slot});",
            "++stage;",
        ]
