"""A transposed convolution with a pool over its phases as a kernel for warpgroups, which puts the weight in order
itself."""

from __future__ import annotations

from dataclasses import dataclass

from crucible.gpus import Gpu
from crucible.target.cuda import block
from crucible.write.convolution.fused import Convolution
from crucible.write.convolution.halo import STEP_UNITS
from crucible.write.convolution.pieces import WORDS
from crucible.write.convolution.scene import Scene
from crucible.write.convolution.warpgroup import pieces
from crucible.write.convolution.warpgroup.lower import Body
from crucible.write.convolution.warpgroup.pooled import ENTRY, PooledWalks
from crucible.write.convolution.warpgroup.pooled_staging import SHARES, PooledPlanes
from crucible.write.convolution.warpgroup.pooled_tail import PooledTail
from crucible.write.convolution.warpgroup.pooled_weights import PooledWeights
from crucible.write.convolution.warpgroup.walks import ROWS, STAGING_REGISTERS, THREADS, WARPS
from crucible.write.kernel import Buffer, Lowered


def lower_pooled(conv: Convolution, walks: PooledWalks, gpu: Gpu) -> Lowered:
    """The kernel; chains are taken as they are."""
    scene = Scene(conv, walks, Buffer(conv.weight.name, conv.source.dtype, 0), gpu)
    tail = PooledTail(scene)
    body = PooledBody(scene, walks, PooledPlanes(scene), tail, PooledWeights(scene, tail))
    return Lowered((body.kernel(),), (), tuple(body.notes()))


@dataclass(frozen=True)
class PooledBody(Body):
    """The kernel that multiplies."""

    walks: PooledWalks
    tail: PooledTail
    weights: PooledWeights

    def notes(self) -> list[str]:
        walks, of = self.walks, self.walks.of
        box = "x".join(map(str, walks.box))
        walked = f", along {walks.walk} planes" if len(walks.box) == 3 else ""
        pairs = " (a lane has two neighbours of a channel at once)" if walks.pairs else ""
        return [
            f"{list(of.in_shape)} to {list(of.out_shape)} by {len(of.products)} products of {of.in_channels} channels,"
            f" {WORDS[self.scene.conv.math].about}, sums in fp32; warpgroup instructions, on compute capability 9.0"
            " alone.",
            f"A block makes {walks.channels} channels of {box} windows at a time{walked}: {walks.groups} warpgroups in"
            f" turn, the elements of a window one after another{pairs}, while another one loads planes of input into"
            f" {walks.slots} slots; its weights stay in shared memory ({walks.shared_bytes // 1024} KiB).",
            self.tail.running.note(),
        ]

    def _lines(self) -> list[str]:
        walks = self.walks
        multiply = [
            f"setmaxnreg_inc<{walks.registers}>();",
            "const int team = warp / 4;",
            *self.weights.lines(),
            "fence_proxy_async();",
            "mbarrier_arrive(ordered);",
            *self.tail.before(),
            "mbarrier_wait(ordered, 0);",
            *self._multiply(),
        ]
        loads = [f"setmaxnreg_dec<{STAGING_REGISTERS}>();", *self.staging.lines()]
        ring = f"ring + {walks.slots * walks.slot_units}"
        return [
            *self._memory(),
            f"unsigned long long* loaded = reinterpret_cast<unsigned long long*>({ring});  // each slot",
            *self._barriers(),
            "const int lane = threadIdx.x % 32;",
            # nvcc sees that all lanes agree, and keeps planes, turns and what follows from them in uniform registers,
            # which products are described by: half the instructions between two of them
            "const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);",
            f"const int part = blockIdx.x % {self.scene.parts};",
            f"const int first_channel = part * {walks.channels};",
            *self.weights.asked(),
            *self.tail.asked(),
            *self._start(),
            *self._divided(multiply, loads),
        ]

    def _barriers(self) -> list[str]:
        last = f"unsigned long long* ordered = turns + {self.walks.groups};  // are the weights"
        return [*super()._barriers(), last]

    def _start(self) -> list[str]:
        walks = self.walks
        prepare = [
            f"for (int s = 0; s < {walks.slots}; ++s) mbarrier_init(loaded + s, {THREADS // SHARES}),"
            f" mbarrier_init(done + s, {walks.groups * THREADS});",
            f"for (int s = 0; s < {walks.groups}; ++s) mbarrier_init(turns + s, {THREADS});",
            f"mbarrier_init(ordered, {walks.groups * THREADS});",
        ]
        zeros = f"for (int p = threadIdx.x; p < {walks.weight_units}; p += {walks.threads}) weights[p] = uint4{{}};"
        return [
            *([zeros] if walks.has_gaps else []),
            *self.staging.slack(walks.threads),
            *block("if (threadIdx.x == 0)", prepare),
            # the others do so with the weights: here it would wait for the loads of those
            f"if (warp >= {walks.groups * WARPS}) fence_proxy_async();",
            "__syncthreads();",
        ]

    # multiplying

    def _multiply(self) -> list[str]:
        walks = self.walks
        plane = block("for (int t = 0; t < planes; ++t, ++turn, ++plane)", self._plane())
        item = [
            *self.staging.item(),
            f"const int planes = {self.staging.planes};",
            *self.tail.before_item(),
            *plane,
            *([f"plane += {walks.span - 1};"] if walks.span > 1 else []),
        ]
        rounds = f"(turn + {walks.groups - 1}) / {walks.groups}"
        rest = f"for (const int all = {rounds} * {walks.passes}; passes < all; ++passes)"
        return [
            "int plane = 0, turn = 0, passes = 0;  // of all items; of this warpgroup",
            *self.staging.each_item(item),
            *block(rest, [self._turn, self._next]),  # the others may have one more turn
        ]

    @property
    def _turn(self) -> str:
        return "mbarrier_wait(turns + team, passes % 2 ^ (team == 0));  // for its turn"

    @property
    def _next(self) -> str:
        return f"mbarrier_arrive(turns + (team + 1) % {self.walks.groups});"

    def _plane(self) -> list[str]:
        """Of windows: made by the warpgroup whose turn it is, passed by the others."""
        walks = self.walks
        planes = [f"(plane + {number})" if number else "plane" for number in range(walks.span)]
        own = [
            f"float sums[{walks.columns_of_b // 2}];",
            self._turn,
            *self._products(),
            *block(f"if (own == {walks.passes - 1})", [self._left()]),
            *self.tail.elements(),
        ]
        return [
            *self._passed(),
            *(["const int box_d = first_plane + t;"] if len(walks.box) == 3 else []),
            *self.tail.begun(),
            *(f"mbarrier_wait(loaded + {each} % {walks.slots}, {each} / {walks.slots} % 2);" for each in planes),
            "#pragma unroll 1",
            *block(f"for (int own = 0; own < {walks.passes}; ++own, ++passes)", own),
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

    def _described(self, plane: int) -> str:
        walks = self.walks
        moved = f"(plane + {plane})" if plane else "plane"
        step = f" + s * {STEP_UNITS * walks.points}" if walks.steps > 1 else ""
        at = f"ring + {moved} % {walks.slots} * {walks.slot_units}{step}"
        return f"const unsigned long long b_{plane} = make_smem_desc({at}, {walks.points});"

    def _products(self) -> list[str]:
        """Of pass `own`, each in one go: where they begin outside of branches, nvcc makes them wait for each other."""
        walks, lines = self.walks, list[str]()
        for number, taps in enumerate(walks.multiplied):
            test = f"if (own == {number})" if number + 1 < walks.passes else ""
            lines += block(f"else {test}".strip() if number else test, self._of_pass(taps))
        return lines

    def _of_pass(self, taps: tuple[tuple[int, int, int], ...]) -> list[str]:
        """The next warpgroup's follow when the last of them is on its way."""
        walks, name = self.walks, pieces.multiply(self.scene.conv.math)
        several = walks.steps > 1
        lines = [
            f"const unsigned long long a = make_smem_desc(weights{f' + s * {walks.entries * ENTRY}' * several},"
            f" {ROWS});"
        ]
        lines += [self._described(plane) for plane in sorted({plane for plane, _, _ in taps})]
        for number, (plane, at, entry) in enumerate(taps):
            adds = "true" if number else "s > 0" if several else "false"
            lines.append(f"{name}(sums, a + {entry * ENTRY}, b_{plane} + {at}, {adds});")
        if several:
            lines = block(f"for (int s = 0; s < {walks.steps}; ++s)", lines)
        return ["wgmma_fence();", *lines, "wgmma_commit();", self._next, "finish_products(sums);"]
