"""Stages that bulk copies fill, and turns of warpgroups behind them, for compute capability 9.0."""

from __future__ import annotations

from crucible.gpus import WARP
from crucible.kernel import nodes as ir
from crucible.kernel.index import Condition
from crucible.kernel.places import WARPGROUP
from crucible.print.words import TYPES, UNIT, Words
from crucible.target.cuda import block, unrolled


def pipeline(words: Words, of: ir.Pipeline, begin: str, barriers: str) -> list[str]:
    """Its one tile lies as it is, and a stage is counted in elements of that; a warp arrives as one at a stage."""
    names, (tile,) = words.names, of.tiles
    ring, full, empty = names.give(of, of.name), *(names.give((of, word), word) for word in ("full", "empty"))
    type_, p, s = TYPES[tile.dtype], words.counter("p"), words.counter("s")
    inits = f"mbarrier_init({full} + {s}, {of.producers // WARP}), mbarrier_init({empty} + {s}, {of.consumers});"
    lines = [
        f"{type_}* {ring} = reinterpret_cast<{type_}*>({begin});  // stages: {tile.note}",
        f"unsigned long long* {full} = {barriers};  // each stage",
        f"unsigned long long* {empty} = {full} + {of.stages};",
    ]
    begins = [f"for (int {s} = 0; {s} < {of.stages}; ++{s}) {inits}"]
    if of.relays:
        turns = names.give((of, "turns"), "turns")
        lines.append(f"unsigned long long* {turns} = {empty} + {of.stages};  // of warpgroups")
        begins.append(f"for (int {s} = 0; {s} < {of.relays}; ++{s}) mbarrier_init({turns} + {s}, {WARPGROUP});")
    count = of.bytes // ir.ITEM_BYTES[tile.dtype]
    return [
        *lines,
        f"for (int {p} = threadIdx.x; {p} < {count}; {p} += {words.kernel.threads}) {ring}[{p}] = 0;",
        *block("if (threadIdx.x == 0)", begins),
        "fence_proxy_async();",
        "__syncthreads();",
    ]


def counters(words: Words, of: ir.Pipeline, role: ir.Role) -> list[str]:
    """Turns that a role's threads had, and stages that they came to: nvcc 13.0 makes other code of it the other way
    round."""
    turns = [each for each in ir.every(role.body) if isinstance(each, ir.InTurn)]
    lines = [f"int {words.names.give(each.turn, each.turn.name)} = 0;" for each in turns]
    return [*lines, f"int {words.names.give((of, 'stage'), 'stage')} = 0;"]


def fill(words: Words, node: ir.Fill) -> list[str]:
    return [*_stage(words, node.pipeline, "empty", " ^ 1"), *words.body(node.body), _on(words, node.pipeline)]


def drain(words: Words, node: ir.Drain) -> list[str]:
    of = node.pipeline
    waits = _stage(words, of, "full", "")
    words.names.enter()
    body = words.body(node.body)
    words.names.leave()
    goes = [] if any(isinstance(each, ir.Leave) for each in node.body) else leave(words, of)
    return [*waits, *_for(words, node.who, [*body, *goes], leave(words, of)), _on(words, of)]


def _stage(words: Words, of: ir.Pipeline, waits_for: str, parity: str) -> list[str]:
    names, (tile,) = words.names, of.tiles
    stage, slot, barrier = names.of((of, "stage")), names.give((of, "slot"), "slot"), names.of((of, waits_for))
    words.stages[tile] = f"{names.of(of)} + {slot} * {tile.sizes[0]}"
    return [
        f"const int {slot} = {stage} % {of.stages};",
        f"mbarrier_wait({barrier} + {slot}, {stage} / {of.stages} % 2{parity});",
    ]


def _on(words: Words, of: ir.Pipeline) -> str:
    return f"++{words.names.of((of, 'stage'))};"


def leave(words: Words, of: ir.Pipeline) -> list[str]:
    return [f"mbarrier_arrive({words.names.of((of, 'empty'))} + {words.names.of((of, 'slot'))});"]


def _for(words: Words, who: Condition, lines: list[str], others: list[str]) -> list[str]:
    """What some warpgroups do, and perhaps others."""
    if not who:
        return lines
    made = block(f"if ({words.condition(who)})", lines)
    return [*made[:-1], *block("} else", others)] if others else made


def send(words: Words, node: ir.Send) -> list[str]:
    """A lane says how many bytes all of its warp copy before any of them can come."""
    names, full = words.names, words.names.of((node.pipeline, "full"))
    bytes_ = names.give((node, "bytes"), "bytes")
    words.bytes_sent = bytes_
    counts = words.body(node.body)
    words.bytes_sent = ""
    return [
        f"int {bytes_} = 0;",
        *counts,
        f"{bytes_} = __reduce_add_sync(0xffffffffu, {bytes_});",
        f"if (threadIdx.x % {WARP} == 0) mbarrier_expect_tx({full} + {names.of((node.pipeline, 'slot'))}, {bytes_});",
        *words.body(node.body),
    ]


def stretch(words: Words, node: ir.Stretch) -> list[str]:
    """From the sixteen in which it begins to that in which it ends."""
    of = next(each for each in words.pipelines if node.to.tile in each.tiles)
    names, source, bytes_ = words.names, node.source, ir.ITEM_BYTES[node.source.dtype]
    unit = UNIT // bytes_
    begin, end = words.index(source.at, 2), words.index(source.at + node.count + (unit - 1))
    from_, size = names.give((node, "from"), "from"), names.give((node, "size"), "size")
    lines = [
        f"const {words.kernel.index} {from_} = {begin} / {unit} * {unit};",
        f"const int {size} = static_cast<int>(({end}) / {unit} * {unit} - {from_}) * {bytes_};",
    ]
    if words.bytes_sent:
        return [*lines, f"{words.bytes_sent} += {size};"]
    barrier = f"{names.of((of, 'full'))} + {names.of((of, 'slot'))}"
    return [*lines, f"bulk_copy({words.address(node.to)}, {names.of(source.of)} + {from_}, {size}, {barrier});"]


def in_turn(words: Words, node: ir.InTurn) -> list[str]:
    of, names = node.pipeline, words.names
    turns, team, turn = names.of((of, "turns")), names.of(node.team), names.of(node.turn)
    before, parts = words.body(node.before), list[list[str]]()
    for body in (node.body, node.behind):
        names.enter()
        parts.append(_for(words, node.who, words.body(body), []) if body else [])
        names.leave()
    return [
        f"mbarrier_wait({turns} + {team}, {turn} % 2 ^ ({team} == 0));",
        *before,
        *parts[0],
        f"mbarrier_arrive({turns} + ({team} + 1) % {of.relays});",
        *parts[1],
        f"++{turn};",
    ]


def sync(words: Words, node: ir.Sync) -> list[str]:
    if node.of == "role":
        return [f"together<{barrier_of(words, node)}, {_role_of(words, node)[1].threads}>();"]
    number, _ = _role_of(words, node)
    return [f"team_together(threadIdx.x / {WARPGROUP}{f' + {number}' if number else ''});"]


def barrier_of(words: Words, node: ir.Node) -> int:
    """The number of a role's barrier, behind those of its warpgroups; the block's, where there are no roles."""
    if not any(isinstance(each, ir.Roles) for each in words.kernel.body):
        return 0
    number, roles = _role_of(words, node)[0], _roles(words)
    return sum(role.threads for role in roles[: number + 1]) // WARPGROUP + 1 + number


def _role_of(words: Words, node: ir.Node) -> tuple[int, ir.Role]:
    """Its number, and the role that has the node."""
    every = enumerate(_roles(words))
    return next((i, role) for i, role in every if any(each is node for each in ir.every(role.body)))


def _roles(words: Words) -> tuple[ir.Role, ...]:
    return next(each.roles for each in words.kernel.body if isinstance(each, ir.Roles))


def collect(words: Words, node: ir.Collect, added: str) -> list[str]:
    """`added` are the words for where they are."""
    into, value, i = words.element(node.into), words.names.of(node.value), words.counter("i")
    before = "" if node.adds is None else f"{into}[{i}] + "
    if node.adds:
        before = f"({added} ? {into}[{i}] : 0.0f) + "
    times = f" * {words.element(node.factor)}" if node.factor else ""
    return unrolled(i, str(node.value.elements), [f"{into}[{i}] = {before}{value}[{i}]{times};"])
