"""Pools backward where no element is in two windows: one kernel.

A thread reads the elements of its windows, computes the chain before and finds the largest again, and writes the
gradients of all elements that are nearest to its windows. What many elements share is added up by blocks, or gets a
part from each window; programs add the parts up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from crucible.write.expression import Expr, inputs, name_of, substitute
from crucible.write.kernel import Lowered
from crucible.write.pool import Pool
from crucible.write.pooling.average import COUNT, TOTAL, average, count
from crucible.write.pooling.forward import comment
from crucible.write.pooling.frame import Frame, framed, kernel, noted, used
from crucible.write.pooling.items import BLOCK_SUM, Rows, rows_of, windows
from crucible.write.pooling.lanes import chosen, computed, declared, of_element, of_lane, over_lanes, summed
from crucible.write.pooling.loops import (
    after_values,
    beginnings,
    element_of,
    in_cell,
    in_space,
    inside,
    outer_place,
    over_cell,
    pack,
    row,
    row_start,
    value,
)
from crucible.write.pooling.targets import SHARE, Slopes, Target, differentiated, of_elements, of_items, still
from crucible.write.program import Operand
from crucible.write.stages import partials
from crucible.write.steps import Steps


def one_pass(pool: Pool, wanted: Sequence[str], upstream: str) -> Steps:
    """The steps for a pool whose outer dims are collapsed."""
    above = Operand(upstream, pool.result.dtype, pool.result.strides)
    found = differentiated(pool, wanted, above, through=pool.kind == "max")
    frame = framed(pool, [each.name for each in (*pool.operands, *pool.after_operands, above)])
    items = windows(frame)
    before = [each for each in pool.operands if each.name in found.of_before]
    after = [each for each in pool.after_operands if each.name in found.of_after]
    together = items.by_rows and any(still(pool, each) for each in (*before, *after))
    rows = rows_of(items) if together else None
    targets = [of_elements(pool, o) if pool.moves(o) else of_items(items, rows, o) for o in before]
    targets += [of_items(items, rows, each) for each in after]
    if not targets:
        return Steps((), (), ())
    work = _Pass(frame, found, above, targets, rows)
    lowered = work.lowered(f"{pool.name}_backward")
    parts = [each for each in targets if each.parts]
    programs = [step for each in parts for step in each.adding(pool)]
    results = tuple(f"grad_{each.operand.name}" for each in targets)
    return Steps((lowered, *programs), (*(each.buffer() for each in parts), *partials(programs)), results)


@dataclass
class _Pass:
    """The body of the kernel, written step by step."""

    frame: Frame
    found: Slopes
    above: Operand
    targets: list[Target]
    rows: Rows | None
    preamble: list[str] = field(default_factory=list)
    words: dict[str, str] = field(default_factory=dict)
    """What windows hand on to their elements is called."""

    def __post_init__(self) -> None:
        pool, found = self.frame.pool, self.found
        self.frame = replace(self.frame, tensors=(*self.frame.tensors, *(t.written.name for t in self.targets)))
        self.maximum = pool.kind == "max"
        self.elements = [t for t in self.targets if t.by == "element"]
        self.still = [t for t in self.targets if t.operand in pool.operands and t.by != "element"]
        self.blocks = [t for t in self.targets if t.by == "block"]
        self.of_window = [found.of_pooled] if found.of_before else []
        self.of_window += found.of_after.values()
        self.slopes = list(found.of_before.values())
        again = (self.maximum and self.slopes) or any(pool.pooled in inputs(expr) for expr in self.of_window)
        self.again = [pool.before] if again else []
        exprs = [*self.again, *self.slopes, *self.of_window]
        self.read = [*used(pool.operands, *exprs), *used(pool.after_operands, *exprs), self.above]
        self.names = {each.name: f"{each.name}_value" for each in (*pool.operands, *pool.after_operands, self.above)}

    def lowered(self, name: str) -> Lowered:
        body = self._in_grid(self._head(), self._item())
        read = {each.name: each.dtype for each in self.read}
        writes = {each.written.name: each.written.dtype for each in self.targets}
        grid = (self.rows.blocks, self.rows.threads) if self.rows else (windows(self.frame).blocks, None)
        text = kernel(name, self.frame, body, self.preamble, read, writes, *grid)
        note = self._note()
        return Lowered((noted(text, comment(note)),), notes=(note,))

    def _note(self) -> str:
        windows_ = "its window" if self.frame.lanes == 1 else f"its {self.frame.lanes} windows"
        notes = [f"A thread writes the gradients of all elements of {windows_}, in one pass."]
        for way, by in (("block", "each block"), ("item", "each window"), ("element", "each element")):
            if names := [t.operand.name for t in self.targets if t.parts and t.by == way]:
                notes.append(f"The gradient of {', '.join(names)} is added up from parts of {by}.")
        return " ".join(notes)

    def _in_grid(self, head: list[str], item: list[str]) -> list[str]:
        if self.rows is None:
            return [*windows(self.frame).begin([*head, *item]), *head, *item]
        self.preamble.append(BLOCK_SUM)
        totals = {self.frame.parameters[t.written.name]: f"{t.operand.name}_total" for t in self.blocks}
        return self.rows.summing(head, item, totals)

    def _head(self) -> list[str]:
        """What a batch and a channel share."""
        lines = beginnings(self.frame, [*self.again, *self.slopes])
        for target in self.elements:
            lines += outer_place(self.frame, target.written.name, target.written.strides)
        return lines

    def _item(self) -> list[str]:
        lines = self._again() if self.again else []
        lines += self._windows()
        spread = self.elements or (self.still and not self.maximum)
        return [*lines, *(self._spread() if spread else [])]

    def _again(self) -> list[str]:
        """The pool's value once more."""
        frame = self.frame
        kept = [each for each in used(frame.pool.operands, *self.slopes) if frame.pool.moves(each)]
        way = chosen(frame, kept, in_cell(frame), self.names) if self.maximum else summed(frame, self.names)
        self.preamble += way[1]
        return way[0]

    # what each window gives

    def _windows(self) -> list[str]:
        frame, pool = self.frame, self.frame.pool
        results: dict[str, Expr] = {f"{name}_gradient": expr for name, expr in self.found.of_after.items()}
        if self.maximum:
            results |= {f"{name}_gradient": expr for name, expr in self.found.of_before.items()}
        elif self.found.of_before:
            results["share"] = average(pool, self.found.of_pooled)
        pooled = average(pool, TOTAL) if not self.maximum else pool.pooled
        results = {name: substitute(expr, {pool.pooled: pooled}) for name, expr in results.items()}
        exprs = list(results.values())
        first, lines = after_values(frame, exprs, (*pool.after_operands, self.above))
        lines = [*(count(frame) if any(COUNT in inputs(expr) for expr in exprs) else []), *lines]
        statements, words, preamble = computed(frame, results, self._lane_names())
        self.preamble += preamble
        lines += statements
        handed = self._handed_on()
        outside = [f"{frame.real} {name}_of[{frame.lanes}];" for name in handed if frame.lanes > 1]
        lines += [f"{name}_of[j] = {words[name]};" for name in handed if frame.lanes > 1]
        self.words = words
        from_windows = [t for t in self.targets if t.operand in pool.after_operands]
        from_windows += self.still if self.maximum else []
        lines += [self._given(target, words[f"{target.operand.name}_gradient"]) for target in from_windows]
        return [*first, *outside, *over_lanes(frame, lines)]

    def _handed_on(self) -> list[str]:
        """What windows hand on to their elements."""
        if self.maximum:
            return [f"{target.operand.name}_gradient" for target in self.elements]
        return ["share"] if self.found.of_before else []

    def _of_window(self, name: str) -> str:
        """What was handed on, of the window that an element is in."""
        return self.words[name] if self.frame.lanes == 1 else of_element(self.frame, f"{name}_of")

    def _lane_names(self) -> dict[str, str]:
        frame = self.frame
        words = {
            name_of(frame.pool.pooled): of_lane(frame, "best"),
            name_of(TOTAL): of_lane(frame, "total"),
            name_of(COUNT): "count",
        }
        moving = [each for each in frame.pool.operands if frame.pool.moves(each)]
        there = {each.name: of_lane(frame, f"{each.name}_chosen") for each in moving}
        return {**self.names, **words, **there}

    def _given(self, target: Target, word: str) -> str:
        """What a window gives to the gradient of what it shares."""
        return f"{target.operand.name}_total += {word};" if target.by == "block" else self._stored(target, word)

    def _stored(self, target: Target, word: str) -> str:
        written = target.written
        place = f"{self.frame.parameters[written.name]}[{self.frame.of_window(written.strides)}]"
        return f"{place} = {self.frame.stored(written.dtype, word)};"

    # what each element gets

    def _spread(self) -> list[str]:
        """Writes the gradients of a window's elements, and of those that no window has."""
        frame = self.frame
        packs = [target for target in self.elements if frame.row_packed(target.written)]
        inner, words = (self._of_chosen(), {}) if self.maximum else self._of_each()
        for target in self.elements:
            packed = f"{target.written.name}_row.at[k]"
            place = packed if target in packs else element_of(frame, target.written)
            word = f"{target.operand.name}_gradient"
            word = f"chosen ? {self._of_window(word)} : 0" if self.maximum else words[word]
            inner.append(f"{place} = {frame.stored(target.written.dtype, word)};")
        rows = [f"{pack(frame, t.written)} {t.written.name}_row;" for t in packs]
        return self._with_sums(self._with_rows(inner, rows, [self._row_stored(target) for target in packs]))

    def _of_chosen(self) -> list[str]:
        return [f"const bool chosen = {of_element(self.frame, 'choice')} == {in_cell(self.frame)};"]

    def _of_each(self) -> tuple[list[str], dict[str, str]]:
        """The gradients of an element, from its share of its window's."""
        frame = self.frame
        share = self._of_window("share")
        share = f"{inside(frame)} ? {share} : 0" if inside(frame) else share
        results = {f"{name}_gradient": expr for name, expr in self.found.of_before.items()}
        statements, words, preamble = computed(frame, results, {**self.names, name_of(SHARE): "element_share"})
        self.preamble += preamble
        lines = [value(frame, each) for each in self._sloping()]
        lines += [f"const {frame.real} element_share = {share};", *statements]
        for target in self.still:
            name = target.operand.name
            total = f"{name}_total" if target.by == "block" else of_element(frame, f"{name}_sum")
            lines.append(f"{total} += {words[f'{name}_gradient']};")
        return lines, words

    def _sloping(self) -> list[Operand]:
        """The operands that an average's slopes read at each element."""
        return [each for each in used(self.frame.pool.operands, *self.slopes) if self.frame.pool.moves(each)]

    def _with_rows(self, inner: list[str], before: list[str], after: list[str]) -> list[str]:
        """In loops, with the rows that an average's slopes read again, unless those of one dim are still there."""
        frame = self.frame
        there = self.maximum or (self.again and len(frame.windows) == 1)
        read = [] if there else [row(frame, each) for each in self._sloping() if frame.row_packed(each)]
        begins = [] if self.again else row_start(frame)
        return [*begins, *over_cell(frame, inner, ([*read, *before], after))]

    def _with_sums(self, lines: list[str]) -> list[str]:
        """With what an average's elements give to the gradients of what they share."""
        sums = [] if self.maximum else [target for target in self.still if target.by == "item"]
        before = [declared(self.frame, f"{target.operand.name}_sum", "0") for target in sums]
        after = [self._stored(target, of_lane(self.frame, f"{target.operand.name}_sum")) for target in sums]
        return [*before, *lines, *over_lanes(self.frame, after)]

    def _row_stored(self, target: Target) -> str:
        frame, written = self.frame, target.written
        to = f"{frame.parameters[written.name]} + {in_space(frame, written.name, written.strides)}"
        return f"write_row<aligned>({to}, {written.name}_row);"
