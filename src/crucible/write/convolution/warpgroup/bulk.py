"""Chains in registers, where the outputs of a channel in a plane are one run of whole 16 bytes: the tile leaves run by
run, 16 bytes a lane. Tensors of the output's size that the chain reads come in bulk copies, a run each, into the tile
that its results then take; they are on their way while the tensor cores multiply.

Bulk copies out of the tile are 2 to 4 % faster where nothing comes (P90's forward, H200), and 2 % slower where the next
tensors wait for them (its chain's gradient). compute-sanitizer does not see what they write."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from crucible.graph import ITEM_BYTES
from crucible.target.cuda import CUDA_TYPES, PACK, block, combining, converted, indented, unrolled
from crucible.write.convolution.fused import Convolution
from crucible.write.convolution.rows import Rows, plain
from crucible.write.convolution.scene import Scene
from crucible.write.convolution.warpgroup.pieces import COPY_IN
from crucible.write.convolution.warpgroup.tail import WarpgroupTail
from crucible.write.convolution.warpgroup.walks import ROWS, WARPS, Chain, Walks
from crucible.write.operations import BRANCHING, cost
from crucible.write.program import Operand, Result, contiguous, reads

BULK = 16
"""Bytes of which a bulk copy takes multiples."""
IN_RUNS = "What a warpgroup makes leaves run by run."
MOST_LOADS = 2
TOGETHER = 4
"""Rows, or some of short rows, that stand in the code one behind the other. Sixteen loads and then their stores took
6 % more of P90's forward."""


def tail_for(scene: Scene) -> WarpgroupTail:
    """In registers where the chain can run so."""
    assert isinstance(scene.tiling, Walks)
    return BulkTail(scene) if scene.tiling.in_bulk else WarpgroupTail(scene)


def chain_of(conv: Convolution) -> Chain:
    """What a division is to know of the chain."""
    sums, loaded = sum(each.sums for each in conv.results), brought(conv)
    slots = cost(*conv.exprs, of=BRANCHING)
    if loaded is not None:
        return Chain(sums, len(loaded), slots=slots)
    return Chain(sums, sum(not _is_of_channel(each) for each in conv.operands), by_rows=True, slots=slots)


def brought(conv: Convolution) -> tuple[Operand, ...] | None:
    """What of a chain's operands bulk copies bring, the others being a number a channel; None where the chain cannot
    run in registers: tensors laid otherwise than the output, numbers of images, several results or sizes of items."""
    read = frozenset[str]().union(*map(reads, conv.exprs))
    loaded = tuple(each for each in conv.operands if each.name in read and not _is_of_channel(each))
    written = [each for each in conv.results if not each.sums]
    whole = contiguous(conv.made_shape)
    tensors: list[Operand | Result] = [*loaded, *written]
    if len(written) > 1 or len(loaded) > MOST_LOADS or len({ITEM_BYTES[each.dtype] for each in tensors}) > 1:
        return None
    return loaded if all(plain(each.strides, conv.made_shape) == whole for each in tensors) else None


def _is_of_channel(operand: Operand) -> bool:
    """Whether a channel has one element of it, in all images."""
    return not any(stride for dim, stride in enumerate(operand.strides) if dim != 1)


@dataclass
class BulkTail(WarpgroupTail):
    """See above. Sums of a channel stay in registers from the first plane to the last."""

    @property
    def ways(self) -> str:
        comes = " What else its chain reads comes in bulk copies, beside its products." if self._brought else ""
        return f"{IN_RUNS}{comes}"

    @cached_property
    def _brought(self) -> tuple[Operand, ...]:
        return brought(self.scene.conv) or ()

    @cached_property
    def _runs(self) -> Rows | None:
        """Tensors as runs of whole 16 bytes; None where there are sums alone."""
        scene = self.scene
        tensors: list[Operand | Result] = [*scene.elementwise, *self._brought]
        if not tensors:
            return None
        laid = Rows(scene.tiling, (self._strides,), scene.dims, BULK // ITEM_BYTES[tensors[0].dtype])
        assert laid.vector == laid.most and laid.runs == 1
        return laid

    @property
    def _strides(self) -> tuple[int, ...]:
        return contiguous(self.scene.conv.made_shape)

    # before the first item and behind the last

    def before(self) -> list[str]:
        scene, of = self.scene, self.scene.conv.correlation
        own = "const int channel = first_channel + warp % 4 * 16 + lane / 4;"
        lines = [f"{own}  // and that + 8: of this lane's products"]
        for operand in scene.operands:
            if operand in self._brought:
                continue
            word, stride = operand.name, operand.strides[1]
            lines.append(f"float {operand.name}_values[2];")
            at = f"min(channel + i * 8, {of.out_channels - 1}) * {stride}" if stride else "0"
            read = converted(f"{word}[{at}]", operand.dtype, "float32")
            lines += unrolled("i", "2", [f"{operand.name}_values[i] = {read};"])
        return [*lines, *(f"float {each.name}_totals[2] = {{}};" for each in scene.sums)]

    def after(self) -> list[str]:
        """Sums take the place of what has left the tile: [sum][16 channels] of this warp."""
        lines = list[str]()
        for number, each in enumerate(self.scene.sums):
            self.preamble.append(combining("sum")["sum_over_team"])
            total = f"const float total = sum_over_team<4>({each.name}_totals[i]);  // a channel is four lanes'"
            at = f"tile[{number * 16} + lane / 4 + i * 8]"
            lines += unrolled("i", "2", [total, f"if (lane % 4 == 0) {at} = total;"])
        return lines

    def totals(self) -> list[str]:
        return []

    def own_totals(self) -> list[str]:
        return []

    def store_totals(self) -> list[str]:
        walks, scene = self._walks, self.scene
        if not scene.sums:
            return []
        words = walks.tile_words
        first = f"ring + {walks.slots * walks.slot_units}"
        lines = [f"const float* own = reinterpret_cast<const float*>({first}) + p / 16 * {words} + p % 16;"]
        for number, buffer in enumerate(scene.partials):
            into = f"{buffer.name}[(blockIdx.x / {scene.parts} * {scene.parts} + part) * {ROWS} + p]"
            each = [f"own[{g * WARPS * words + number * 16}]" for g in range(walks.groups)]
            lines.append(f"{into} = {' + '.join(each)};")
        return ["__syncthreads();", *block(f"if (const int p = threadIdx.x; p < {ROWS})", lines)]

    # a plane

    def ahead(self) -> list[str]:
        """What the chain reads: a lane a channel. All lanes have read and written the tile, and published that."""
        if not self._brought:
            return []
        self.preamble.append(COPY_IN)
        each = []
        for number, operand in enumerate(self._brought):
            from_ = f"{operand.name} + {self._begin}"
            each.append(f"copy_in({self._row(operand, number, 'lane')}, {from_}, {self._bytes}, coming);")
        channels, whole = str(16 * len(self._brought)), self.scene.conv.correlation.out_channels
        if whole % 64:
            inside = f"max(0, min(16, {whole} - first_channel - warp % 4 * 16))"
            channels = inside if len(self._brought) == 1 else f"{inside} * {len(self._brought)}"
        return [
            "unsigned long long* const coming = fetched + warp;",
            *self._left,
            f"if (lane == 0) expect(coming, {channels} * {self._bytes});",
            *self._of_lanes(each),
        ]

    def lines(self) -> list[str]:
        scene = self.scene
        self.preamble.append(PACK)
        of = scene.conv.correlation
        sums = [f"float {each.name}_total = 0;" for each in scene.sums]
        added = [f"{each.name}_totals[i] += {each.name}_total;" for each in scene.sums]
        each = [*self._of_channel(), *sums, *self._of_products(self._element()), *added]
        guard = f"if (channel + i * 8 < {of.out_channels})" if of.out_channels % 64 else ""
        lines = [f"mbarrier_wait(coming, turn / {self._walks.groups} % 2);"] if self._brought else []
        lines += [] if self._brought else self._left
        lines += unrolled("i", "2", block(guard, each))
        for result in scene.elementwise:
            lines += ["__syncwarp();", *self._stores(result)]
        if scene.elementwise or self._brought:
            lines += [*(["fence_proxy_async();"] if self._brought else []), "__syncwarp();"]
        return lines

    def _stores(self, result: Result) -> list[str]:
        """The warp's rows of the tile, whole ones or several at a time."""
        runs, item, channels = self._runs, ITEM_BYTES[result.dtype], self.scene.conv.correlation.out_channels
        assert runs is not None
        most = runs.run // runs.most
        lanes = next(lanes for lanes in (2, 4, 8, 16, 32) if lanes >= min(most, 32))
        rows, rounds = 32 // lanes, -(-most // lanes)
        row, piece = ("r", "lane") if rows == 1 else (f"(r + lane / {lanes})", f"lane % {lanes}")
        piece += f" + j * {lanes}" if rounds > 1 else ""
        tests = [f"{piece} < {f'left / {runs.most}' if self._left else most}"] if self._left or most % lanes else []
        tests += [f"{row} < rows"] if channels % 64 else []
        step, pitch = self._strides[1] * item // BULK, self._walks.pitch * 4 // BULK
        store = f"to[{row} * {step} + {piece}] = from[{row} * {pitch} + {piece}];"
        store = f"if ({' && '.join(tests)}) {store}" if tests else store
        each = unrolled("j", str(rounds), [store]) if rounds > 1 else [store]
        return ["{", *indented([
            "const int c = first_channel + warp % 4 * 16;",
            *([f"const int rows = {channels} - c;"] if channels % 64 else []),
            *runs.outer(),
            f"auto* to = reinterpret_cast<uint4*>({result.name} + {self._begin});",
            f"const auto* from = reinterpret_cast<const uint4*>({self._row(result, 0, '0')});",
            f"#pragma unroll {TOGETHER}",
            *block(f"for (int r = 0; r < 16; r += {rows})", each),
        ]), "}"]  # fmt: skip

    def _of_channel(self) -> list[str]:
        """What the chain reads of a channel, and its rows of tiles."""
        lines = [
            f"const float {each.name}_value = {each.name}_values[i];"
            for each in self.scene.operands
            if each not in self._brought
        ]
        named: list[tuple[Operand | Result, int]] = [(each, number) for number, each in enumerate(self._brought)]
        named += [(each, 0) for each in self.scene.elementwise]
        for each, number in named:
            lines.append(f"auto* {each.name}_row = {self._row(each, number, '(lane / 4 + i * 8)')};")
        return lines

    def _element(self) -> list[str]:
        """The chain at one place; what lies outside of the outputs reads zeros, and is not added up."""
        together = self._together
        inside = [*self._inside, *(self._ragged if self._brought or self.scene.sums else [])]
        guard = "if (inside) " if inside else ""
        lines = [f"const bool inside = {' && '.join(inside)};"] if inside else []
        for each in self._brought:
            type_ = CUDA_TYPES[each.dtype]
            lines.append(f"Pack<{type_}, {together}> {each.name}_pack{' = {}' if inside else ''};")
            lines.append(f"{guard}{each.name}_pack = {self._in_tile(type_, f'{each.name}_row')};")
        lines += [f"Pack<{CUDA_TYPES[r.dtype]}, {together}> {r.name}_pack;" for r in self.scene.elementwise]
        chain = [*self._chain(), *(f"{guard}{line}" for line in self._added())]
        if together == 1:
            lines += block("", [line.replace("[k]", "[0]") for line in chain])
        else:
            lines += unrolled("k", str(together), chain)
        for result in self.scene.elementwise:
            at = self._in_tile(CUDA_TYPES[result.dtype], f"{result.name}_row")
            lines.append(f"{guard}{at} = {result.name}_pack;")
        return lines

    # runs

    def _row(self, tensor: Operand | Result, number: int, channel: str) -> str:
        """A channel's place in the tile of that number."""
        type_, item = CUDA_TYPES[tensor.dtype], ITEM_BYTES[tensor.dtype]
        pitch = self._walks.pitch
        tile = f"tile + {number * 16 * pitch}" if number else "tile"
        return f"reinterpret_cast<{type_}*>({tile}) + {channel} * {pitch * 4 // item}"

    @property
    def _left(self) -> list[str]:
        """How much of a run is inside of the output, where that is not always all."""
        return self._runs.left() if self._runs else []

    @property
    def _bytes(self) -> str:
        """Of a run."""
        assert self._runs is not None
        return f"{'left' if self._left else self._runs.run} * {BULK // self._runs.most}"

    @property
    def _begin(self) -> str:
        """A run's first element."""
        assert self._runs is not None
        return self._runs.begin(self._strides)

    def _of_lanes(self, lines: list[str]) -> list[str]:
        """A lane a channel."""
        assert self._runs is not None
        channels = self.scene.conv.correlation.out_channels
        inside = "lane < 16" + (f" && first_channel + warp % 4 * 16 + lane < {channels}" if channels % 64 else "")
        where = ["const int c = first_channel + warp % 4 * 16 + lane;", *self._runs.outer()]
        return block(f"if ({inside})", [*where, *lines])

    @property
    def _ragged(self) -> list[str]:
        """Tests that a position of the box is an output, where boxes reach beyond them."""
        walks, dims = self._walks, self.scene.dims
        names = ["row_in", "w_in"][-len(walks.box) :]
        found = []
        for name, dim, axis, size, count in zip(
            names, dims[-2:], walks.of.axes[-2:], walks.box[-2:], walks.boxes[-2:], strict=True
        ):
            if count * size > axis.outputs:
                found.append(f"{name} < {axis.outputs} - box_{dim}")
        return found
