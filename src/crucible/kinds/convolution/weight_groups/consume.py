"""Warpgroups that multiply: the output's gradient in registers, of which what the next step takes is on its way beside
the products; in the end the sums of all, added up."""

from __future__ import annotations

import math
from dataclasses import replace

from crucible.kernel import nodes as ir
from crucible.kernel.builder import Builder
from crucible.kernel.index import ONE, ZERO, Compare, Condition, Index, Number, Place, Smaller, Variable
from crucible.kinds.convolution.weight_groups.frame import Frame, Item
from crucible.kinds.indices import decoded, total
from crucible.schedule.convolution.warpgroup.walks import ROWS, WARPS
from crucible.schedule.convolution.warpgroup.weight_moves import WARP_ROWS
from crucible.schedule.convolution.warpgroup.weight_shape import COLUMNS, TEAMS

HALVES = Number(2)
"""Of a warp's rows: a thread has one of each, eight apart."""
WORDS = Number(4)
"""Of the rows that a thread has for an instruction: of each half of them one of each half of K."""
LANES = WARPS * 32


class Consuming:
    """Their body while it is made."""

    def __init__(self, frame: Frame, k: Builder, lane: Index, warp: Index) -> None:
        self.frame, self.k, self.walks = frame, k, frame.walks
        self.lane, self.warp = lane, warp
        walks = self.walks
        self.sums = ir.Fragment("sums", "float32", (Number(walks.chunks), Number(walks.columns // 2)))
        dtype = "word" if frame.held == "tf32" else frame.held
        self.coming = ir.Fragment("coming", dtype, (HALVES, Number(walks.depths * 2)))
        self.words = ir.Fragment("words", frame.held, (Number(walks.depths), WORDS))
        self.moved: dict[str, Index] = {}
        """By how many positions a thread's rows are on, along planes and rows."""

    def consume(self) -> None:
        k, frame, walks = self.k, self.frame, self.walks
        self.team = k.let("team", self.warp // WARPS, "int")
        self._rows()
        frame.enter(k)
        k.add(ir.Declare((self.sums,), "sum"), ir.Declare((self.coming,)))
        ahead = self._foresee()
        k.add(ir.Ask(ahead))
        with frame.items(k) as item:
            planes = k.named("planes", frame.planes_of(item))
            steps = ONE if walks.each_once else k.named("steps", frame.steps_of(item))
            body, task = list[ir.Node](), None if walks.each_once else Variable("s", "int")
            with k.apart(body):
                self._step(ahead, task or self.team)
            k.add(ir.Share(frame.ring, Variable("t", "int"), planes, tuple(body), task, steps))
        self._leave()

    def _rows(self) -> None:
        """Which channels of the gradient a thread has, with those that are 8 on."""
        k, walks, of_warp = self.k, self.walks, self.warp % WARPS
        if not walks.moves:
            channel = self.frame.first_channel + of_warp * WARP_ROWS + self.lane // 4
            self.channel = k.let("channel", channel, "int")
            return
        warps = walks.whole.out_channels // WARP_ROWS
        self.channel = k.let("channel", of_warp % warps * WARP_ROWS + self.lane // 4, "int")
        self.move = k.let("move", of_warp // warps, "int")
        along = (range(1), *walks.moves.along)[-3:]
        for name, index, each in zip(("plane", "row"), decoded(self.move, walks.moves.places), along, strict=False):
            if len(each) > 1:
                self.moved[name] = k.let(f"{name}_move", index - -each[0] if each[0] else index, "int")

    # the gradient

    def _foresee(self) -> ir.Steps:
        """The words of each step of this warpgroup, before it comes to that."""
        k, frame, walks, body = self.k, self.frame, self.walks, list[ir.Node]()
        item = Variable("item", "int")
        placed = frame.item(item)
        ahead = frame.steps(frame.planes_of(placed), item, placed)
        if not walks.each_once:
            tasks = frame.steps_of(placed)
            ahead = replace(ahead, task=Variable("s", "int"), tasks=tasks, teams=TEAMS, team=self.team)
        with k.apart(body):
            self._load(placed, ahead.window, ahead.task or self.team)
        k.add(ir.Foresee(ahead, tuple(body)))
        return ahead

    def _load(self, item: Item, plane: Index, step: Index) -> None:
        """A lane's words are neighbours in memory; the order of the positions is that in which the input is staged."""
        k, walks, frame = self.k, self.walks, self.frame
        every = 4 * walks.vector * walks.per_word
        row: Index = ZERO
        if len(walks.of.axes) > 1:
            row = k.named("row", item.box[1] + step * walks.step_rows + self.moved.get("row", ZERO))
        column = k.let("w", item.box[2] + self.lane % 4 * (walks.vector * walks.per_word), "int")
        at = (item.box[0] + plane + self.moved.get("plane", ZERO), row, column)
        image, channel = frame.strides[1]
        inner = frame.operands[1].strides[2:]
        terms = [item.image * image, self.channel * channel]
        terms += [each * stride for each, stride in zip(at[-len(inner) :], inner, strict=True)]
        source = ir.Pointer("from", frame.grad, total(terms))
        k.add(ir.Declare(source))
        loads = walks.depths_a_row * 2 // walks.vector
        row_stride = inner[-2] if len(inner) > 1 else 0
        rows = Number(walks.step_rows)
        with k.unrolled("i", HALVES) as i, k.unrolled("r", rows) as r, k.unrolled("q", Number(loads)) as q:
            further = i * (8 * channel.value) + r * row_stride + q * every
            guard = self._there(at[0], row + r, column + q * every, i)
            self._words(ir.Global(source, further), guard, i, r * loads + q)

    def _words(self, source: ir.Global, guard: Condition, half: Index, number: Index) -> None:
        """A pack of them, moved on one by one: of packs that stay together nvcc 13.0 makes other code."""
        k, vector = self.k, self.walks.vector
        pack = ir.Fragment("pack", self.coming.dtype, (Number(vector),), packed=True)
        k.add(ir.Load(ir.Element(pack), source, guard, declares=True, branches=True))
        for word in map(Number, range(vector)):
            into = ir.Element(self.coming, (half, number * vector + word))
            k.add(ir.Convert(into, ir.Element(pack, (word,))))

    def _there(self, plane: Index, row: Index, column: Index, i: Index) -> Condition:
        """What tells whether there are words, asked where there may be none."""
        walks, of = self.walks, self.walks.of.out_channels
        outputs, tests = [axis.outputs for axis in walks.whole.axes], list[Compare]()
        if walks.moves and of < ROWS:
            tests.append(Compare("<", self.move, Number(walks.moves.count)))
        elif not walks.moves and of % ROWS:
            tests.append(Compare("<", self.channel + i * 8, Number(of)))
        if "plane" in self.moved:
            tests.append(Compare("in", plane, Number(outputs[0])))
        if "row" in self.moved:
            tests.append(Compare("in", row, Number(outputs[-2])))
        elif walks.places[1] * walks.rows > walks.outputs[1]:
            tests.append(Compare("<", row, Number(walks.outputs[1])))
        if walks.places[2] * walks.width > walks.outputs[2]:
            tests.append(Compare("<", column, Number(walks.outputs[2])))
        return tuple(tests)

    # products

    def _step(self, ahead: ir.Steps, step: Index) -> None:
        """What came is multiplied, while what the next step takes comes."""
        k, walks = self.k, self.walks
        k.add(ir.Declare((self.words,)))
        with k.unrolled("i", HALVES) as i, k.unrolled("k", Number(walks.depths * 2)) as word:
            came = ir.Element(self.coming, (i, word))
            k.add(ir.Convert(ir.Element(self.words, (word // 2, word % 2 * 2 + i)), came))
        k.add(ir.Ask(ahead))
        first = k.let("row", step * (walks.step_rows * walks.strides[1]), "int") if walks.steps > 1 else ZERO
        columns = [ir.Matrix(f"b_{number}", self.frame.planes, walks.half_units) for number in range(walks.outer)]
        for number, matrix in enumerate(columns):
            self._describe(matrix, number, first)
        with k.products(self.sums, "all"):
            for row in range(walks.step_rows):
                for depth in range(walks.depths_a_row):
                    self._products(row, depth, columns)

    def _describe(self, matrix: ir.Matrix, number: int, first: Index) -> None:
        """The input of an outer tap, of a step's first row."""
        walks = self.walks
        planes, rows, _ = walks.taps
        inner = 1 if walks.together else len(rows.numbers)
        tap: Index = Number(number)
        if walks.outer_parts > 1:
            tap = Smaller(self.frame.first_tap + number, Number(walks.all_outer - 1))
        behind, down = tap // inner * planes.spacing, tap % inner * rows.spacing
        at = (first + down) * walks.row_units
        self.k.add(ir.Describe(matrix, at, behind.value if isinstance(behind, Number) else behind))

    def _products(self, row: int, depth: int, columns: list[ir.Matrix]) -> None:
        """By one instruction's positions."""
        walks = self.walks
        rows = ir.Element(self.words, (Number(row * walks.depths_a_row + depth),))
        for tile in range(walks.channel_tiles):
            at = tile * walks.tile_units + depth * 2 * walks.half_units + row * walks.strides[1] * walks.row_units
            for number, matrix in enumerate(columns):
                into = ir.Element(self.sums, (Number(tile * walks.outer + number),))
                self.k.add(ir.Product(into, rows, (matrix, at)))

    # what is left

    def _leave(self) -> None:
        """The second warpgroup's sums go to the first one through shared memory, when nothing else there is read."""
        k, frame = self.k, self.frame
        second = (Compare("==", self.team, ONE),)
        size = Number(math.prod(self.sums.sizes) * LANES)
        note = "of the second warpgroup"
        totals = ir.Shared("totals", "float32", (size,), note, at_launch=True, over=(frame.ring, 0))
        k.add(ir.Meet(frame.ring), ir.Declare(totals))
        with k.when(second):
            self._each(totals, is_first=False)
        k.add(ir.Meet(frame.ring, second))
        self._each(totals, is_first=True)
        self._store()

    def _each(self, totals: ir.Shared, *, is_first: bool) -> None:
        """Of a thread's sums."""
        k, (chunks, count) = self.k, self.sums.shape
        thread = Place("thread", self.walks.threads) % LANES
        with k.unrolled("c", chunks) as c, k.unrolled("i", count) as i:
            sum_ = ir.Element(self.sums, (c, i))
            spot = ir.InShared(totals, ((c * self.sums.sizes[1] + i) * LANES + thread,))
            if is_first:
                other = ir.Element(ir.Fragment("other", "float32"))
                k.add(ir.Load(other, spot, declares=True), ir.Accumulate("sum", sum_, other))
            else:
                k.add(ir.Store(sum_, spot))

    def _store(self) -> None:
        """[eight input channels of a tap][channel][8]"""
        k, frame, walks, lane = self.k, self.frame, self.walks, self.lane
        into = ir.Pointer("into", frame.partial, frame.block * frame.part_words)
        k.add(ir.Declare(into))
        with k.unrolled("c", Number(walks.chunks)) as c, k.unrolled("j", Number(walks.inner)) as j:
            corner = ((c * walks.inner + j) * ROWS + self.warp % WARPS * WARP_ROWS + lane // 4) * COLUMNS + lane % 4 * 2
            to = ir.Pointer("to", into, corner)
            k.add(ir.Declare(to))
            for half in (0, 1):
                pair = ir.Fragment("pair", "float32", (Number(2),), packed=True)
                k.add(ir.Declare((pair,)))
                for one in (0, 1):
                    sum_ = ir.Element(self.sums, (c, j * 4 + (half * 2 + one)))
                    k.add(ir.Convert(ir.Element(pair, (Number(one),)), sum_))
                k.add(ir.Store(ir.Element(pair), ir.Global(to, Number(half * 8 * COLUMNS)), plainly=True))
