"""Windows that slide along a pipeline, and products of matrices in shared memory, for compute capability 9.0."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Literal

from crucible.gpus import WARP
from crucible.kernel import memory as asked
from crucible.kernel import nodes as ir
from crucible.print import bulk, dealing
from crucible.print.words import UNIT, Words
from crucible.target import sm90
from crucible.target.cuda import block, indented

WARPGROUP = 128
"""Threads."""
MULTIPLIED = {"tf32": "tf32", "float16": "f16", "bfloat16": "bf16"}
"""What instructions call the types."""


# barriers


def begin(words: Words, offset: int) -> str:
    """Where something lies in what a launch asks for."""
    memory = words.names.of("memory")
    return f"{memory} + {offset // UNIT}" if offset else memory


def pipeline(words: Words, of: ir.Pipeline) -> list[str]:
    names, placed = words.names, asked.memory(words.kernel)
    at = f"reinterpret_cast<unsigned long long*>({begin(words, placed.bytes - asked.BARRIER * of.barriers)})"
    if of.in_bulk:
        return bulk.pipeline(words, of, begin(words, placed.begins[of]), at)
    ring, units = names.give(of, of.name), names.give((of, "stage_units"), "stage_units")
    full, empty = (names.give((of, word), word) for word in ("full", "empty"))
    turns, s = names.give((of, "turns"), "turns") if of.turns else "", words.counter("s")
    threads = {full: of.producers, empty: of.consumers}
    inits = [f"mbarrier_init({each} + {s}, {count});" for each, count in threads.items()]
    begins = block(f"for (int {s} = 0; {s} < {of.stages}; ++{s})", inits)
    offsets = [
        f"{names.give(tile, tile.name)} = {offset // UNIT}" for tile, offset in zip(of.tiles, of.offsets, strict=False)
    ]
    lines = [
        f"uint4* {ring} = {begin(words, placed.begins[of])};  // stages: {', '.join(each.note for each in of.tiles)}",
        f"constexpr int {units} = {of.offsets[-1] // UNIT};  // of {UNIT} bytes",
        f"constexpr int {', '.join(offsets)};  // in a stage",
        f"unsigned long long* {full} = {at};  // each stage",
        f"unsigned long long* {empty} = {full} + {of.stages};",
    ]
    if turns:
        lines.append(f"unsigned long long* {turns} = {empty} + {of.stages};  // of warpgroups to multiply")
        begins.append(f"for (int {s} = 0; {s} < {of.teams}; ++{s}) mbarrier_init({turns} + {s}, {WARPGROUP});")
    if of.brings:
        brings = names.give((of, "brings"), "brings")
        lines.append(f"unsigned long long* {brings} = {turns} + {of.teams};  // to each warp")
        begins.append(f"for (int {s} = 0; {s} < {of.consumers // WARP}; ++{s}) mbarrier_init({brings} + {s}, 1);")
    told = ["fence_proxy_async();", "__syncthreads();"]
    return [*lines, *_slack(words, of), *block("if (threadIdx.x == 0)", begins), *told]


def _slack(words: Words, of: ir.Pipeline) -> list[str]:
    """What nobody stores, of all stages."""
    if not of.slack:
        return []
    rows = of.tiles[0].sizes[-2]
    assert all(each.sizes[-2] == rows for each in of.tiles)
    p, more, count = words.counter("p"), of.slack, of.stages * of.offsets[-1] // UNIT // rows * of.slack
    at = f"{p} / {more} * {rows} + {rows - more} + {p} % {more}" if more > 1 else f"{p} * {rows} + {rows - more}"
    head = f"for (int {p} = threadIdx.x; {p} < {count}; {p} += {words.kernel.threads})"
    if more == rows:
        return [f"{head} {words.names.of(of)}[{p}] = uint4{{}};  // what nobody stores stays 0"]
    return [f"{head} {words.names.of(of)}[{at}] = uint4{{}};  // read, and thrown away"]


def counters(words: Words, of: ir.Pipeline, role: ir.Role, first: int) -> list[str]:
    """What threads of a role count as they come to its stages."""
    if any(isinstance(each, ir.Deal) for each in ir.every(role.body)):
        return dealing.counters(words, of, first)
    names, thread = words.names, f"(threadIdx.x - {first})" if first else "threadIdx.x"
    stage = names.give((of, "stage"), "stage")
    if not any(isinstance(each, ir.Slide) for each in ir.every(role.body)):
        filler = names.give((of, "filler"), "filler")
        own = [f"const int {filler} = {thread} / {of.producers};  // of a stage in turn"] if of.fillers > 1 else []
        return [*own, f"int {stage} = 0;"]
    team, turn = names.give((of, "team"), "team"), names.give((of, "turn"), "turn")
    return [f"const int {team} = {thread} / {WARPGROUP};", f"int {stage} = 0, {turn} = 0;"]


def fill(words: Words, node: ir.Fill) -> list[str]:
    of, names = node.pipeline, words.names
    stage = names.of((of, "stage"))
    names.enter()
    slot = names.give((of, "slot"), "slot")
    words.tiles = dict.fromkeys(of.tiles, f"{names.of(of)} + {slot} * {names.of((of, 'stage_units'))}")
    waits = [] if any(isinstance(each, ir.Vacant) for each in ir.every(node.body)) else [vacant(words, of)]
    lines = [
        f"const int {slot} = {stage} % {of.stages};",
        *waits,
        *words.body(node.body),
        f"mbarrier_arrive({names.of((of, 'full'))} + {slot});",
    ]
    names.leave()
    if of.fillers > 1:
        lines = block(f"if ({stage} % {of.fillers} == {names.of((of, 'filler'))})", lines)
    else:
        lines = ["{", *indented(lines), "}"]
    return [*lines, f"++{stage};"]


def vacant(words: Words, of: ir.Pipeline) -> str:
    names = words.names
    stage, slot, empty = (names.of((of, word)) for word in ("stage", "slot", "empty"))
    return f"mbarrier_wait({empty} + {slot}, {stage} / {of.stages} % 2 ^ 1);  // with what was in it before"


def slide(words: Words, node: ir.Slide) -> list[str]:
    """Who passes a window by waits for those who fill it as well: else it might let the stage that was in its place
    before go, of which others are not done."""
    of, names = node.pipeline, words.names
    stage, turn = (names.of((of, word)) for word in ("stage", "turn"))
    names.enter()
    head = f"int {names.give(node.variable, node.variable.name)} = 0"
    number, count = names.of(node.variable), words.index(node.count, 1)
    leave, s = names.give((of, "leave"), "leave"), words.counter("s")
    left = f"{number} + 1 < {count} ? 1 : {of.window}" if of.window > 1 else "1"
    body = [
        f"const int {leave} = {left};  // stages that no later window has",
        *_passed(words, of, s),
        *words.body(node.before),
        *_waits(words, of),
        *words.body(node.products),
        f"for (int {s} = 0; {s} < {leave}; ++{s})"
        f" mbarrier_arrive({names.of((of, 'empty'))} + ({stage} + {s}) % {of.stages});",
        *words.body(node.behind),
    ]
    names.leave()
    lines = block(f"for ({head}; {number} < {count}; ++{number}, ++{turn}, ++{stage})", body)
    return [*lines, *([f"{stage} += {of.window - 1};"] if of.window > 1 else [])]


def _passed(words: Words, of: ir.Pipeline, s: str) -> list[str]:
    """By the teams whose turn it is not."""
    names = words.names
    stage, turn, team, full, empty = (names.of((of, word)) for word in ("stage", "turn", "team", "full", "empty"))
    names.enter()
    slot = names.give((of, "slot"), "slot")
    each = [
        f"const int {slot} = ({stage} + {s}) % {of.stages};",
        f"mbarrier_wait({full} + {slot}, ({stage} + {s}) / {of.stages} % 2);",
        f"mbarrier_arrive({empty} + {slot});",
    ]
    names.leave()
    passed = [*block(f"for (int {s} = 0; {s} < {names.of((of, 'leave'))}; ++{s})", each), "continue;"]
    return block(f"if ({turn} % {of.teams} != {team})", passed)


def bring(words: Words, node: ir.Bring) -> list[str]:
    """A lane says how many bytes come before any of them can."""
    of, own = node.copies[0][0].dtype, f"{words.names.of((node.pipeline, 'brings'))} + threadIdx.x / {WARP}"
    bytes_ = node.count * ir.ITEM_BYTES[of]
    all_ = words.index(node.lanes * len(node.copies) * bytes_)
    copies = [
        f"bulk_copy({words.address(to)}, {words.address(source)}, {words.index(bytes_)}, {own});"
        for to, source in node.copies
    ]
    expected = f"if (threadIdx.x % {WARP} == 0) mbarrier_expect_tx({own}, {all_});"
    return [expected, *block(f"if ({words.condition(node.who)})", copies)]


def brought(words: Words, node: ir.Brought) -> str:
    of, names = node.pipeline, words.names
    phase = f"{names.of((of, 'turn'))} / {of.teams} % 2"
    return f"mbarrier_wait({names.of((of, 'brings'))} + threadIdx.x / {WARP}, {phase});  // for what is brought"


def _waits(words: Words, of: ir.Pipeline) -> list[str]:
    """For a team's turn, and the newest stage of each group that fills some: it fills its own in order."""
    names = words.names
    stage, turn, team, full = (names.of((of, word)) for word in ("stage", "turn", "team", "full"))
    lines = [f"mbarrier_wait({names.of((of, 'turns'))} + {team}, {turn} / {of.teams} % 2 ^ ({team} == 0));"]
    for back in range(min(of.fillers, of.window)):
        moved = of.window - 1 - back
        at = f"({stage} + {moved})" if moved else stage
        lines.append(f"mbarrier_wait({full} + {at} % {of.stages}, {at} / {of.stages} % 2);")
    return lines


# products


def describe(words: Words, node: ir.Describe) -> list[str]:
    matrix, names = node.matrix, words.names
    tile = matrix.of
    at = words.index(node.at)
    if tile.at_launch:
        base, unit = names.of(tile), UNIT // ir.ITEM_BYTES[tile.dtype]
        moved = "" if at == "0" else f" + {words.index(node.at * unit)}"
    else:
        of = next(each for each in words.pipelines if tile in each.tiles)
        base = f"{names.of(of)} + {_slot(words, of, node.behind)} * {names.of((of, 'stage_units'))}"
        offset = names.of(tile) if of.offsets[of.tiles.index(tile)] else "0"
        moved = "".join(f" + {each}" for each in (offset, at) if each != "0")
    name = names.give(matrix, matrix.name)
    return [f"const unsigned long long {name} = make_smem_desc({base}{moved}, {matrix.pitch});"]


def _slot(words: Words, of: ir.Pipeline, behind: int) -> str:
    """Of the stage so much behind the oldest of a window."""
    if of.is_shared:
        return dealing.slot(words, of, behind)
    stage = words.names.of((of, "stage"))
    return f"({stage} + {behind}) % {of.stages}" if behind else f"{stage} % {of.stages}"


def products(words: Words, node: ir.Products) -> list[str]:
    """All of a batch; the next team's turn is when it is on its way."""
    names = words.names
    of = next((each for each in words.pipelines if each.turns), None)
    turn = []
    if of:
        turn = [f"mbarrier_arrive({names.of((of, 'turns'))} + ({names.of((of, 'team'))} + 1) % {of.teams});"]
    names.enter()
    body = words.body(node.body)
    names.leave()
    if node.waits == "later":
        return ["wgmma_fence();", *body, "wgmma_commit();"]
    every: Iterable[tuple[int, ...]] = itertools.product(*map(range, node.into.sizes[:-1]))
    if node.waits == "all":
        every = [()]
        words.called.pop(sm90.wgmma_wait(node.into.sizes[-1:]))
        words.called[sm90.wgmma_wait(node.into.sizes)] = None
    waits = [f"wgmma_wait({names.of(node.into)}{''.join(f'[{each}]' for each in at)});" for at in every]
    return ["wgmma_fence();", *body, "wgmma_commit();", *turn, *waits]


def product(words: Words, node: ir.Product) -> list[str]:
    of = node.columns[0].of.dtype
    rows: Literal["held", "described"] = "held" if isinstance(node.rows, ir.Element) else "described"
    functions = sm90.wgmma(2 * node.into.vector, MULTIPLIED[of], rows)
    words.called |= dict.fromkeys(functions.values())
    adds = "false" if node.adds is None else added(words, node) or "true"
    operands = ", ".join(_operand(words, each) for each in (node.rows, node.columns))
    return [f"{next(iter(functions))}({words.element(node.into)}, {operands}, {adds});"]


def added(words: Words, node: ir.Product | ir.Collect) -> str:
    """Where sums that were there are added to; nothing where they always are."""
    each = (words.condition(condition) for condition in (node.adds or (), node.or_where))
    return " || ".join(filter(None, each))


def _operand(words: Words, operand: tuple[ir.Matrix, int] | ir.Element) -> str:
    if isinstance(operand, ir.Element):
        return words.element(operand)
    matrix, moved = operand
    return f"{words.names.of(matrix)} + {moved}" if moved else words.names.of(matrix)
