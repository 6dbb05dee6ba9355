"""The gradient of a convolution's weight by warps: channels of the output's gradient times shifted channels of the
input, added up over batch and space.

    grad_weight[o, i, tap] = sum over n and q of grad[n, o, q] * in[n, i, q * in_stride + shift]

Of a transposed convolution it is the same with input and gradient in each other's place, so one form is enough. Blocks
share the positions among them, each keeps its part of the weight in registers to the end, and a second kernel adds the
parts up in a fixed order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

from crucible.algebra.buffer import Buffer
from crucible.algebra.convolution.windows import Spread
from crucible.algebra.program import Operand
from crucible.gpus import Gpu
from crucible.kernel import nodes as ir
from crucible.kernel.builder import Builder
from crucible.kernel.index import ZERO, Compare, Either, Index, Number, Place, Range, Size, Smaller
from crucible.kinds.convolution.halo import Halo, source_of
from crucible.kinds.convolution.spread import SpreadHalo
from crucible.kinds.convolution.staged import Item, Staged, pack
from crucible.kinds.convolution.upstream import Grad, Upstream
from crucible.kinds.indices import decoded, total
from crucible.schedule.convolution.halo import STEP_UNITS, THREADS
from crucible.schedule.convolution.questions import WeightGradient
from crucible.schedule.convolution.tiling import WARPS
from crucible.schedule.convolution.weight_division import Division


def blocks_a_part(division: Division, gpu: Gpu) -> int:
    return max(1, min(division.items, gpu.sms * division.blocks // division.parts))


def partial_of(division: Division, result: str, gpu: Gpu) -> Buffer:
    """[block of a part][part][tap and eight input channels][channel][8]"""
    return Buffer(f"{result}_parts", "float32", blocks_a_part(division, gpu) * division.parts * division.part_words)


def weight_parts(question: WeightGradient, division: Division, partial: Buffer) -> ir.Kernel:
    """The kernel that writes what each block has of the gradient."""
    return _Body(question, division, partial).kernel()


def _elements(operand: Operand, shape: Sequence[int], spread: Spread | None) -> int:
    """From the first to the last, of windows where it is of those."""
    whole = [n // size for n, size in zip(shape[2:], spread.sizes, strict=True)] if spread else shape[2:]
    sizes = zip((*shape[:2], *whole), operand.strides, strict=True)
    return 1 + sum((size - 1) * stride for size, stride in sizes)


class _Body:
    """One kernel while it is made."""

    def __init__(self, question: WeightGradient, division: Division, partial: Buffer) -> None:
        self.question, self.of, self.division = question, question.of, division
        self.math = question.math
        self.k, self.kept = Builder(keeps_loops=True), ir.HELD[self.math]
        self.blocks = partial.elements // division.part_words
        """Of all parts."""
        self.partial = ir.Tensor(partial.name, "float32", "write", partial.elements)
        self.source = self._tensor(question.source, self.of.in_shape, question.spreads[0])
        self.grad = self._tensor(question.grad, self.of.out_shape, question.spreads[1])
        named = [each.choices for each in question.spreads if each and each.choices]
        shared = self.source if question.spreads[0] else self.grad
        self.choices = ir.Tensor(named[0], "uint8", "read", shared.elements) if named else None
        self.turns = self._turns()
        shape = (Number(division.tiles_a_warp), Number(division.m_tiles), Number(4))
        self.sums = ir.Fragment("sums", "float32", shape)
        self.own = ir.Fragment("own", "int32", (Number(division.tiles_a_warp),))

    def _tensor(self, operand: Operand, shape: Sequence[int], spread: Spread | None) -> ir.Tensor:
        return ir.Tensor(operand.name, operand.dtype, "read", _elements(operand, shape, spread))

    def _turns(self) -> ir.Turns:
        division = self.division
        sizes = {"halo": division.halo_words, "grads": division.channels * division.pitch}

        def tiles(prefix: str) -> tuple[ir.Shared, ...]:
            return tuple(ir.Shared(f"{prefix}{name}", self.kept, (Number(n),)) for name, n in sizes.items())

        return ir.Turns("memory", tiles(""), tiles("coming_") if division.ahead else ())

    # the kernel

    def kernel(self) -> ir.Kernel:
        division = self.division
        self._begin()
        self._items()
        self._store()
        note = (
            f"The gradient of a weight of {len(self.of.products)} taps: a block adds up {division.channels} x"
            f" {division.n_tiles * 8} channels over boxes of {'x'.join(map(str, division.box))} positions."
        )
        choices = [self.choices] if self.choices else []
        return ir.Kernel(
            self.question.name, (self.source, self.grad, *choices, self.partial), self.sizes, self.blocks, THREADS,
            "long long", self.k.body, (note,), together=division.blocks,
        )  # fmt: skip

    def _begin(self) -> None:
        k, division, block = self.k, self.division, Place("block", self.blocks)
        k.add(ir.Declare(self.turns))
        self.lane = k.let("lane", Place("thread", THREADS) % 32, "int")
        self.warp = k.let("warp", Place("thread", THREADS) // 32, "int")
        self.part = k.let("part", block % division.parts, "int")
        self.first_step = k.let("first_step", self.part % division.in_tiles * division.staged, "int")
        channel = self.part // division.in_tiles % division.out_tiles * division.channels
        self.first_channel = k.let("first_channel", channel, "int")
        apart = self.of.groups > 1
        self.group = k.named("group", self.part // (division.in_tiles * division.out_tiles)) if apart else ZERO
        k.add(ir.Declare((self.own,)))
        with k.unrolled("j", Number(division.tiles_a_warp)) as j:
            self._own(j)
        k.add(ir.Declare((self.sums,), "sum"))
        self._stagings()

    def _stagings(self) -> None:
        question, division, k = self.question, self.division, self.k
        (front, front_of_grad), (spread, spread_of_grad) = question.fronts, question.spreads
        dtype, grad = question.source.dtype, question.grad
        source = source_of(question.source, self.source, self.of, division, self.group, self.first_step)
        given = k, self.of, division, source, Staged(k, dtype, self.math, front), self.turns
        self.halo = None if spread else Halo(*given, self.lane)
        some = Item(ZERO, (ZERO,) * len(self.of.axes))
        self.spread = SpreadHalo(*given, spread, self.choices if spread.choices else None, some) if spread else None
        strides = Size("grad_image_stride", grad.strides[0]), Size("grad_channel_stride", grad.strides[1])
        choices = self.choices if spread_of_grad and spread_of_grad.choices else None
        of_grad = Grad(
            self.grad, grad.strides, *strides, self.first_channel, self.group, spread_of_grad, choices
        )  # fmt: skip
        self.upstream = Upstream(
            k, self.of, division, of_grad, Staged(k, dtype, self.math, front_of_grad), self.turns
        )  # fmt: skip
        self.sizes = (*source.sizes, *strides)

    # where a lane reads

    def _own(self, j: Index) -> None:
        """Where it begins, of a tile of its warp."""
        k, division, lane = self.k, self.division, self.lane
        tile = k.let("tile", Smaller(self.warp + j * WARPS, Number(division.tiles - 1)), "int")
        tap = k.let("tap", tile // division.n_tiles, "int")
        unit, word = tile % division.n_tiles * 2 + lane // 16, lane // 4 % 4
        position = lane % 4
        if self.kept == "halves":
            unit, position, word = tile % division.n_tiles, lane % 16, ZERO
        place = self._shift(tap) + (unit * division.points + position) * 4 + word
        k.add(ir.Value(ir.Element(self.own, (j,)), place, declares=False))

    def _shift(self, tap: Index) -> Index:
        """How many words of the halo a tap is from the first one, a choice a dim: a table that is read at a place which
        the compiler does not know would lie in memory."""
        each = [[tap.shift for tap in axis.phases[0]] for axis in self.of.axes]
        first, terms = [axis.shifts[0] for axis in self.of.axes], list[Index]()
        for dim, number in enumerate(decoded(tap, [len(shifts) for shifts in each])):
            words = [self.division.shift_words((*first[:dim], shift, *first[dim + 1 :])) for shift in each[dim]]
            found: Index = Number(words[-1])
            for one in reversed(range(len(words) - 1)):
                found = Either((Compare("==", number, Number(one)),), Number(words[one]), found)
            terms.append(found)
        return total(terms)

    def _held(self, j: Index) -> Index:
        division, units = self.division, self.division.staged * STEP_UNITS
        shift = max(division.shift_words(product.shift) for product in self.of.products)
        is_half = self.kept == "halves"
        most = shift + ((units - 1) * division.points + (15 if is_half else 3)) * 4 + (0 if is_half else 3)
        return ir.Held(Range(0, most, 4 if is_half else 1), ir.Element(self.own, (j,)))

    # boxes

    def _items(self) -> None:
        k, division = self.k, self.division
        first = k.let("block", Place("block", self.blocks), "int") // division.parts
        self.step = self.blocks // division.parts
        is_held = self.spread is not None and self.spread.is_held
        if self.spread and is_held:
            self.spread.declare()
        if division.ahead or is_held:
            with k.scope():
                self._ask(self._item(first))
        with k.loop("item", first, Number(division.items), Number(self.step), "int") as item:
            if division.ahead:
                self._turn(item)
            else:
                here = self._item(item)
                k.add(ir.Sync("the item before is done with"))
                self._fill(item, here)
            self._multiply()

    def _item(self, number: Index) -> Item:
        division = self.division
        image, *boxes = decoded(number, (self.of.batch, *division.boxes))
        names = ("box_d", "box_h", "box_w")[-len(boxes) :]
        places = zip(names, boxes, division.box, strict=True)
        image = self.k.let("n", image, "int")
        return Item(image, tuple(self.k.let(name, at * size, "int") for name, at, size in places))

    def _ask(self, item: Item) -> None:
        if self.spread:
            self.spread.load(item)
        elif self.halo:
            self.halo.ask(item)
            self.upstream.ask(item)

    def _turn(self, item: Index) -> None:
        """What was coming is there, and what follows is asked for."""
        assert self.halo is not None, "what is spread is not loaded ahead"
        self.k.add(ir.Turn(self.turns))
        self.halo.settle()
        self.upstream.settle()
        self.k.add(ir.Sync())
        self._next(item)

    def _next(self, item: Index) -> None:
        k = self.k
        following = item + self.step
        with k.when((Compare("<", following, Number(self.division.items)),)):
            self._ask(self._item(k.let("next", following, "int")))

    def _fill(self, item: Index, here: Item) -> None:
        """Halo and gradients; what is spread was loaded before, if threads can hold it, and they load the next."""
        k, spread, upstream = self.k, self.spread, self.upstream
        if not spread or not spread.is_held:
            (spread or cast(Halo, self.halo)).fill(here)
            upstream.fill(here)
            k.add(ir.Sync())
            return
        if self.kept == "halves":
            upstream.fill(here)
            spread.store(here)
        else:  # copies go on beside the stores
            upstream.ask(here)
            spread.store(here)
            k.add(ir.Turn(self.turns))
            upstream.settle()
        k.add(ir.Sync())
        self._next(item)

    # products

    def _multiply(self) -> None:
        k, division = self.k, self.division
        halo, (*outer, _) = self.turns.tiles[0], division.box
        with k.loop("row", ZERO, Number(math.prod(outer)), type="int", together=1) as row:
            places = zip(decoded(row, outer), division.steps_of_outputs, strict=False) if outer else ()
            at = ir.Pointer("at", halo, total([word * (step * 4) for word, step in places]))
            k.add(ir.Declare(at))
            steps = Number(division.box[-1] // division.depth)
            with k.loop("k", ZERO, steps, type="int", together=2) as number:
                self._step(row, at, number)

    def _step(self, row: Index, at: ir.Pointer, number: Index) -> None:
        """As many positions of a row as a tensor-core instruction adds up."""
        k, division, lane = self.k, self.division, self.lane
        grads, words_a_row = self.turns.tiles[1], division.box[-1] * 4 // division.unit
        a = ir.Fragment("a", self.kept, (Number(division.m_tiles), Number(4)), packed=True)
        of_lane = lane % 16 * division.pitch + lane // 16 * 4 + row * words_a_row + number * 8
        k.add(ir.Declare((a,)))
        with k.unrolled("i", Number(division.m_tiles)) as i:
            spot = ir.InShared(grads, (i * (16 * division.pitch) + of_lane,))
            k.add(ir.LoadMatrix(ir.Element(a, (i,)), spot))
        math_ = cast(ir.Math, self.math)
        with k.unrolled("j", Number(division.tiles_a_warp)) as j:
            b = pack("b", self.kept, 2)
            k.add(ir.Declare((b,)))
            self._columns(b, at, self._held(j) + number * (division.depth * 4))
            with k.unrolled("i", Number(division.m_tiles)) as i:
                into = ir.Element(self.sums, (j, i))
                k.add(ir.WarpMma(into, ir.Element(a, (i,)), ir.Element(b), math_))

    def _columns(self, b: ir.Fragment, at: ir.Pointer, place: Index) -> None:
        """Of eight channels, at as many positions."""
        if self.kept == "halves":
            self.k.add(ir.LoadMatrix(ir.Element(b), ir.InShared(at, (place,)), turned=True))
            return
        for half in (0, 1):
            self.k.add(ir.Load(ir.Element(b, (Number(half),)), ir.InShared(at, (place + half * 16,))))

    def _store(self) -> None:
        k, division, lane = self.k, self.division, self.lane
        words = division.part_words
        of_block = Place("block", self.blocks) // division.parts * (division.parts * words)
        into = ir.Pointer("into", self.partial, of_block + self.part * words)
        k.add(ir.Declare(into))
        with k.unrolled("j", Number(division.tiles_a_warp)) as j:
            tile = k.let("tile", self.warp + j * WARPS, "int")
            with k.when((Compare("<", tile, Number(division.tiles)),)), k.unrolled("i", Number(division.m_tiles)) as i:
                corner = (tile * division.channels + i * 16 + lane // 4) * 8 + lane % 4 * 2
                to = ir.Pointer("to", into, corner)
                k.add(ir.Declare(to))
                for row in (0, 1):
                    pair = pack("pair", "float32", 2)
                    k.add(ir.Declare((pair,)))
                    for c in (0, 1):
                        one = ir.Element(self.sums, (j, i, Number(row * 2 + c)))
                        k.add(ir.Convert(ir.Element(pair, (Number(c),)), one))
                    k.add(ir.Store(ir.Element(pair), ir.Global(to, Number(row * 64)), plainly=True))
