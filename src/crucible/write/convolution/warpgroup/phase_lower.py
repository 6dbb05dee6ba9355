"""The kernel of a convolution of several phases for warpgroups that multiplies."""

from __future__ import annotations

import math
import textwrap
from dataclasses import dataclass, replace

from crucible.gpus import Gpu
from crucible.target.cuda import block, unrolled
from crucible.write.convolution.correlation import Product
from crucible.write.convolution.fused import Convolution
from crucible.write.convolution.halo import STEP_UNITS, Halo
from crucible.write.convolution.pieces import WORDS
from crucible.write.convolution.scene import Scene
from crucible.write.convolution.warpgroup import packing, pieces
from crucible.write.convolution.warpgroup.lower import Body
from crucible.write.convolution.warpgroup.phase_tail import PhaseTail
from crucible.write.convolution.warpgroup.phases import PhaseWalks, fetched_by, issued_by
from crucible.write.convolution.warpgroup.staging import LANES, Planes
from crucible.write.convolution.warpgroup.walks import ROWS, STAGING_REGISTERS, THREADS
from crucible.write.kernel import Lowered
from crucible.write.program import Reduction


def lower_phases(conv: Convolution, walks: PhaseWalks, gpu: Gpu) -> Lowered:
    """The kernel; chains are taken as they are."""
    conv, walks = _of_rows(conv), replace(walks, fetched=fetched_by(conv), issued=issued_by(conv, walks.machine))
    scene = Scene(conv, walks, packing.packed(conv.name, walks), gpu)
    body = PhaseBody(scene, walks, PhasePlanes(scene), PhaseTail(scene))
    return Lowered((body.kernel(),), (scene.packed, *scene.row_parts), tuple(body.notes()))


def _of_rows(conv: Convolution) -> Convolution:
    """With sums over batch and space as sums of rows: the same parts, which whoever adds them up takes as blocks'."""
    sums = tuple(Reduction(each.name, "sum", each.expr) for each in conv.results if each.sums)
    results = tuple(each for each in conv.results if not each.sums)
    return replace(conv, results=results, reductions=(*conv.reductions, *sums))


@dataclass(frozen=True)
class PhasePlanes(Planes):
    """Staging for blocks that are dealt part by part."""

    def slack(self, threads: int) -> list[str]:
        """All that is never loaded is 0 once and for all."""
        walks = self._walks
        all_ = walks.slots * walks.slot_units
        return [f"for (int p = threadIdx.x; p < {all_}; p += {threads}) ring[p] = uint4{{}};"]

    def lines(self) -> list[str]:
        """Where the registers suffice, the next plane of an item is asked for before the slot of the one that came is
        waited for: else all that time, and that of its stores, was added to the time in which it comes."""
        walks, scene = self._walks, self.scene
        assert isinstance(walks, PhaseWalks)
        if not walks.asks_ahead:
            return super().lines()
        rounds, units = walks.rounds, walks.steps * STEP_UNITS
        count = f"{self.planes} + {walks.span - 1}" if walks.span > 1 else self.planes
        each = [
            *self.item(),
            f"const auto* origin = {scene.conv.source.name} + n * {scene.conv.source.strides[0]}LL;",
            f"const int planes = {count};",
            f"float asked[{rounds}][{units}][4];  // of the next plane",
            *block("for (int t = -1; t < planes; ++t)", self._stored_and_asked(rounds, units)),
        ]
        first = [f"const int thread = threadIdx.x - {walks.groups * LANES};", "int plane = 0;"]
        return [*first, *self.each_item(each)]

    def _stored_and_asked(self, rounds: int, units: int) -> list[str]:
        """A plane that came, and the next one."""
        walks, slots, conv = self._walks, self._walks.slots, self.scene.conv
        convert, staged = WORDS[conv.math].convert, math.prod(walks.staged_plane)
        at = f"const int p = thread + k * {LANES};"
        converted = ", ".join(f"{convert}(asked[k][u][{part}])" for part in range(4))
        values = Halo(walks.of, conv.source, walks, convert).values("0", "asked[k][u]")
        ask = [at, *self._place(), *unrolled("u", str(units), values)]
        stores = block(f"if (p < {staged})" if rounds * LANES > staged else "", self._stores(units))
        store = [
            f"const int slot = plane % {slots};",
            f"mbarrier_wait(done + slot, plane / {slots} % 2 ^ 1);  // with what was in the slot before",
            *unrolled("k", str(rounds), [at, *stores]),
            "fence_proxy_async();",
            "mbarrier_arrive(loaded + slot);",
            "++plane;",
        ]
        words = unrolled("u", str(units), [f"words[k][u] = uint4{{{converted}}};"])
        return [
            f"uint4 words[{rounds}][{units}];",
            *block("if (t >= 0)", unrolled("k", str(rounds), words)),
            f"const int d = first_plane + t{self._moved(0, 1)};",
            *block("if (t + 1 < planes)", unrolled("k", str(rounds), ask)),
            *block("if (t >= 0)", store),
        ]

    def each_item(self, lines: list[str]) -> list[str]:
        return block(f"for (int item = first_item; item < {self._walks.items}; item += blocks)", lines)


@dataclass(frozen=True)
class PhaseBody(Body):
    """The kernel that multiplies."""

    walks: PhaseWalks
    tail: PhaseTail

    def notes(self) -> list[str]:
        walks, of = self.walks, self.walks.of
        box = "x".join(map(str, walks.box))
        walked = f", along {walks.walk} planes" if len(walks.box) == 3 else ""
        count = walks.together * walks.last_phases
        dealt = " and ".join(map(str, walks.dealt))
        comes = " What else they read is on its way beside the products." if walks.fetched else ""
        shares = f" ({dealt} blocks for each share of them)" if walks.shares > 1 else ""
        return [
            f"{list(of.in_shape)} to {list(of.out_shape)} by {len(of.products)} products of {of.in_channels} channels,"
            f" {WORDS[self.scene.conv.math].about}, sums in fp32; warpgroup instructions, on compute capability 9.0"
            " alone.",
            f"A block makes {ROWS} channels of {count} phases{shares} at {box} positions at a time{walked}:"
            f" {walks.groups} warpgroups side by side, {walks.last_phases} phases each, while another one loads planes"
            f" of input into {walks.slots} slots; its weights stay in shared memory ({walks.shared_bytes // 1024} KiB)."
            f" Chains run where the products come to be.{comes}",
        ]

    @property
    def _blocks(self) -> int:
        return sum(self.walks.dealt)

    def _lines(self) -> list[str]:
        walks = self.walks
        ring = f"ring + {walks.slots * walks.slot_units}"
        taken = f"setmaxnreg_inc<{walks.registers}>();"
        multiply = [taken, "const int team = warp / 4;", *self.tail.before(), *self._multiply()]
        stage = [f"setmaxnreg_dec<{STAGING_REGISTERS}>();", *self.staging.lines()]
        return [
            *self._memory(),
            f"unsigned long long* loaded = reinterpret_cast<unsigned long long*>({ring});  // each slot",
            *self._barriers(),
            "const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;",
            *self._part(),
            *self._start(),
            *self._divided(multiply, stage),
        ]

    def _part(self) -> list[str]:
        """Of the work: a tile of channels, a share of the phases, and every so many items."""
        walks = self.walks
        begins = [sum(walks.dealt[:part]) for part in range(len(walks.dealt) + 1)]
        if len(walks.dealt) == 1:
            parts = ["const int part = 0, first_item = blockIdx.x, blocks = gridDim.x;"]
        else:
            words = ", ".join(map(str, begins))
            parts = textwrap.wrap(f"constexpr int begins[{len(begins)}] = {{{words}}};  // blocks of each part", 104)
            parts += [
                "int part = 0;",
                "while (static_cast<int>(blockIdx.x) >= begins[part + 1]) ++part;",
                "const int first_item = blockIdx.x - begins[part], blocks = begins[part + 1] - begins[part];",
            ]
        share = f"part % {walks.shares}" if walks.shares > 1 else "0"
        tile = f"part / {walks.shares} * {ROWS}" if walks.channel_tiles > 1 else "0"
        return [*parts, f"const int share = {share};  // of the phases", f"const int first_channel = {tile};"]

    def _start(self) -> list[str]:
        walks = self.walks
        prepare = [
            f"for (int s = 0; s < {walks.slots}; ++s) mbarrier_init(loaded + s, {THREADS}),"
            f" mbarrier_init(done + s, {walks.groups * THREADS});",
        ]
        return [
            *self._weights(),
            *self.staging.slack(walks.threads),
            *block("if (threadIdx.x == 0)", prepare),
            "fence_proxy_async();",
            "__syncthreads();",
        ]

    def _weights(self) -> list[str]:
        walks, taps = self.walks, self.walks.taps_of_shares
        unit = STEP_UNITS * ROWS
        packed = f"reinterpret_cast<const uint4*>({self.scene.packed.name})"
        if walks.channel_tiles > 1:
            packed += f" + part / {walks.shares} * {walks.packed_units}"
        if walks.shares == 1:
            return [f"for (int p = threadIdx.x; p < {walks.weight_units}; p += {walks.threads}) weights[p] = ({packed})[p];"]  # fmt: skip # noqa: E501
        firsts, counts = (", ".join(map(str, each)) for each in ([r.start for r in taps], list(map(len, taps))))
        at = f"p / own_units * {len(walks.of.products) * unit} + first_taps[share] * {unit} + p % own_units"
        loop = f"for (int p = threadIdx.x; p < {walks.steps} * own_units; p += {walks.threads})"
        return [
            f"constexpr int first_taps[{len(taps)}] = {{{firsts}}}, taps[{len(taps)}] = {{{counts}}};",
            f"const int own_units = taps[share] * {unit};",
            f"{loop} weights[p] = ({packed})[{at}];",
        ]

    # multiplying

    def _multiply(self) -> list[str]:
        """Slots and whose phases are counted along: from the plane's number, they took 845 clocks of 5065 for a phase
        of P38's second pass on the H200."""
        walks = self.walks
        item = [
            *self.staging.item(),
            f"const int planes = {self.staging.planes};",
            *self.tail.before_item(),
            *block("for (int t = 0; t < planes; ++t)", self._plane()),
            *([self._moved_on(walks.span - 1)] if walks.span > 1 else []),
            *self.tail.after_item(),
        ]
        return [
            "int slot = 0, lap = 0;  // of the plane: its slot, how often that was filled before",
            "int first = team;  // of a plane's phases, that this warpgroup begins with",
            *self.staging.each_item(item),
        ]

    def _moved_on(self, planes: int) -> str:
        slots = self.walks.slots
        return f"if ((slot += {planes}) >= {slots}) slot -= {slots}, lap ^= 1;"

    def _plane(self) -> list[str]:
        """Of inputs: every warpgroup makes each so many of its phases."""
        walks = self.walks
        return [
            *[self._slot_further(k) for k in range(1, walks.span)],
            *(["const int box_d = first_plane + t;"] if len(walks.box) == 3 else []),
            *self._turns(),
            self._moved_on(1),
            f"if ((first += {walks.rotated}) >= {walks.groups}) first -= {walks.groups};",
        ]

    def _slot_further(self, planes: int) -> str:
        slots = self.walks.slots
        return f"const int slot_{planes} = slot < {slots - planes} ? slot + {planes} : slot - {slots - planes};"

    def _turns(self) -> list[str]:
        """All of a plane's phases that are a warpgroup's; where it has none, it passes the plane."""
        walks = self.walks
        if walks.together > walks.groups:
            return block(f"for (int own = first; own < {walks.together}; own += {walks.groups})", self._turn())
        one = ["const int own = first;"] * (walks.together > 1) + self._turn()
        if walks.together == walks.groups:
            return one
        return [*block(f"if (first < {walks.together})", one)[:-1], *block("} else", [*self._loaded, *self._leaving()])]

    def _turn(self) -> list[str]:
        """One of the phases. What leaves with a plane leaves behind the last of its products."""
        walks = self.walks
        of_share = f"share * {walks.together} + own" if walks.together > 1 else "share"
        leaving = self._leaving()
        if walks.together > walks.groups:
            leaving = block(f"if (own + {walks.groups} >= {walks.together})", leaving)
        return [
            f"const int phase = {of_share};",
            *self.tail.ahead(),
            *self._products(),
            *leaving,
            *self.tail.lines(),
        ]

    def _leaving(self) -> list[str]:
        """Planes of input that nothing later reads."""
        rest = [f"mbarrier_arrive(done + slot_{k});" for k in range(1, self.walks.span)]
        return ["mbarrier_arrive(done + slot);", *(block("if (t + 1 == planes)", rest) if rest else [])]

    @property
    def _loaded(self) -> list[str]:
        """Waited for: the newest plane of input, and with an item's first plane of outputs those before it, which are
        there by then; but compute-sanitizer takes a phase that nobody waits for as an error."""
        slots = ["slot", *(f"slot_{k}" for k in range(1, self.walks.span))]
        waits = [
            f"mbarrier_wait(loaded + {each}, lap{f' ^ ({each} < slot)' if number else ''});"
            for number, each in enumerate(slots)
        ]
        *before, newest = waits
        return [*(f"if (t == 0) {each}" for each in before), newest]

    def _described(self, plane: int) -> str:
        walks = self.walks
        step = f" + s * {STEP_UNITS * walks.points}" if walks.steps > 1 else ""
        at = f"ring + slot{f'_{plane}' if plane else ''} * {walks.slot_units}{step}"
        return f"const unsigned long long b_{plane} = make_smem_desc({at}, {walks.points});"

    def _products(self) -> list[str]:
        """Of the phase whose turn it is, for all phases of the last dim."""
        walks = self.walks
        shares = [
            _chosen("own", [self._of_phase(share * walks.together + own) for own in range(walks.together)])
            for share in range(walks.shares)
        ]
        sums = f"float sums[{walks.last_phases}][{walks.columns_of_b // 2}];"
        return [sums, *self._loaded, *_chosen("share", shares)]

    def _of_phase(self, phase: int) -> list[str]:
        """All of it in one go."""
        walks = self.walks
        taps = walks.taps_of_shares[phase // walks.together]
        numbered = [(number - taps.start, product) for number, product in walks.numbered[phase]]
        lines = ["wgmma_fence();"]
        if walks.steps == 1:
            lines += [f"const unsigned long long a = make_smem_desc(weights, {ROWS});", *self._taps_of(numbered)]
        else:
            step = len(taps) * STEP_UNITS * ROWS
            first = f"const unsigned long long a = make_smem_desc(weights + s * {step}, {ROWS});"
            lines += block(f"for (int s = 0; s < {walks.steps}; ++s)", [first, *self._taps_of(numbered)])
        return [*lines, "wgmma_commit();"] + [
            f"finish_products(sums[{of_last}]);" for of_last in range(walks.last_phases)
        ]

    def _taps_of(self, numbered: list[tuple[int, Product]]) -> list[str]:
        """Of one step of channels, plane by plane of the input."""
        walks, name = self.walks, pieces.multiply(self.scene.conv.math)
        placed = sorted((walks.place(product), number, product.phase) for number, product in numbered)
        lines: list[str] = []
        begun: set[str] = set()
        for (plane, at), number, phase in placed:
            described = self._described(plane)
            lines += [described] * (described not in lines)
            sums = f"sums[{phase % walks.last_phases}]"
            adds = "true" if sums in begun else "s > 0" if walks.steps > 1 else "false"
            begun.add(sums)
            lines.append(f"{name}({sums}, a + {number * STEP_UNITS * ROWS}, b_{plane} + {at}, {adds});")
        return lines


def _chosen(name: str, ways: list[list[str]]) -> list[str]:
    """One of so many ways, by number."""
    if len(ways) == 1:
        return ways[0]
    lines = []
    for number, way in enumerate(ways):
        test = f"if ({name} == {number})" if number + 1 < len(ways) else ""
        opened = block(f"}} else {test}".rstrip() if number else test, way)
        lines += opened[:-1]
    return [*lines, "}"]
