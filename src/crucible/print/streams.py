"""Stages that a bulk copy brings a part of, what is asked for ahead of them, and sums that move on, for compute
capability 9.0."""

from __future__ import annotations

import itertools

from crucible.kernel import nodes as ir
from crucible.kernel.index import ZERO, Compare, quotient
from crucible.print.words import UNIT, Words
from crucible.target import sm90
from crucible.target.cuda import block, indented, unrolled


def begun(words: Words, of: ir.Pipeline, slot: str) -> list[str]:
    """Where a stage of several arrays begins. Reckoned where they are touched, nvcc 13.0 makes other code of it."""
    if not of.carries:
        return []
    at = words.names.give((of, "at"), "at")
    words.tiles |= dict.fromkeys(of.tiles, at)
    return [f"uint4* const {at} = {words.names.of(of)} + {slot} * {words.names.of((of, 'stage_units'))};"]


def carry(words: Words, node: ir.Carry) -> list[str]:
    """Who asks says how many bytes come before any of them can."""
    of, names = node.pipeline, words.names
    full = f"{names.of((of, 'full'))} + {names.of((of, 'slot'))}"
    of_unit = UNIT // ir.ITEM_BYTES[node.source.dtype]
    many = words.index(quotient(node.elements, of_unit))
    source = words.offset(node.source.of, quotient(node.source.at, of_unit))
    place = words.index(node.to.at[0], 1)
    to = f"{words.tiles[node.to.tile]} + {names.of(node.to.tile)}{f' + {place}' if place != '0' else ''}"
    names.enter()
    units, from_ = names.give((node, "units"), "units"), names.give((node, "from"), "from_units")
    lines = [
        f"const int {units} = {many};",
        f"const uint4* {from_} = {source};",
        f"mbarrier_expect_tx({full}, {units} * {UNIT});",
        f"bulk_copy({to}, {from_}, {units} * {UNIT}, {full});",
    ]
    names.leave()
    return block(f"if ({words.condition((Compare('==', node.thread, ZERO), *node.who))})", lines)


def move_on(words: Words, node: ir.MoveOn) -> list[str]:
    sums, size, i = words.element(node.sums), node.sums.vector, words.counter("i")
    lines = unrolled(i, str(node.by), [f"{sums}[{i}] = 0;"])
    if node.by < size:
        to, source = f"{sums}[{size - 1} - {i}]", f"{sums}[{size - node.by - 1} - {i}]"
        moved = f"{to} = moved_on({source}, {to}, blockIdx.z);  // 0, but the compiler does not know"
        lines = [*unrolled(i, str(size - node.by), [moved]), *lines]
    return lines


def settled(words: Words, node: ir.Products) -> list[str]:
    """All sums of a batch are there from here on: in a loop, as nvcc 13.0 makes words of them before that else."""
    if not node.settles:
        return []
    words.called[sm90.settle(node.into.sizes[-1:])] = None
    lines, i = list[str](), words.counter("i")
    *outer, count = node.into.sizes[:-1] or (1,)
    for at in itertools.product(*map(range, outer)):
        sums = f"{words.names.of(node.into)}{''.join(f'[{each}]' for each in at)}"
        each = f"settle({sums}{f'[{i}]' * (len(node.into.sizes) > 1)});"
        lines += unrolled(i, str(count), [each])
    return lines


# ahead


def ahead(words: Words, node: ir.Ahead) -> list[str]:
    """Functions of the kernel, as what is foreseen is: one counts on, one does what is said."""
    walk, names = node.walk, words.names
    variables = [walk.item, *(each.variable for each in walk.levels)]
    given = [names.give(each, f"{walk.name}_{each.name}") for each in variables]
    begun = [f"{given[0]} = {words.index(walk.first)}", *(f"{each} = 0" for each in given[1:])]
    move_on, do = names.give((walk, "on"), "advance"), names.give((walk, "do"), f"{walk.name}_round")
    names.enter()
    on = [*_placed(words, walk, tuple((each.count, each.ends) for each in walk.levels), ()), *_counted_on(words, walk)]
    names.leave()
    names.enter()
    over = f"if ({given[0]} >= {words.index(walk.items, 1)}) return;"
    done = [over, *_placed(words, walk, node.body, node.body)]
    names.leave()
    return [
        f"int {', '.join(begun)};",
        f"const auto {move_on} = [&] {{  // from round to round",
        *indented(on),
        "};",
        f"const auto {do} = [&] {{",
        *indented(done),
        "};",
    ]


def _placed(words: Words, walk: ir.Walk, read: object, body: ir.Body) -> list[str]:
    """Those variables of an item that are read."""
    return words.body((*ir.needed(walk.placed, read), *body))


def _counted_on(words: Words, walk: ir.Walk) -> list[str]:
    """By one, from the innermost loop on."""
    item, (first, *inner) = words.names.of(walk.item), walk.levels
    outer = words.names.of(first.variable)
    by, over = words.index(walk.by), _over(words, first)
    lines = [f"if ({over}) {outer} = 0, {item} += {by};"]
    for each in inner:
        lines = block(f"if ({_over(words, each)})", [f"{words.names.of(each.variable)} = 0;", *lines])
    return lines


def _over(words: Words, level: ir.Level) -> str:
    """Whether it is its last round."""
    ends = f" || ({words.condition(level.ends)})" if level.ends else ""
    return f"++{words.names.of(level.variable)} == {words.index(level.count, 1)}{ends}"


def advance(words: Words, node: ir.Advance) -> list[str]:
    return [f"{words.names.of((node.walk, each))}();" for each in ("on", "do")]


def prefetch(words: Words, node: ir.Prefetch) -> list[str]:
    if node.by_line:
        return [f"prefetch_line({words.address(node.source)});"]
    bytes_ = words.index(node.elements * ir.ITEM_BYTES[node.source.dtype])
    return [f"prefetch({words.address(node.source)}, {bytes_});"]
