"""Windows that slide along a pipeline, and products of matrices in shared memory, for compute capability 9.0."""

from __future__ import annotations

import itertools
from typing import Literal

from crucible.gpus import WARP
from crucible.kernel import memory as asked
from crucible.kernel import nodes as ir
from crucible.kernel.index import ZERO, Index, Number, Variable, lift
from crucible.kernel.places import CORE_ROWS, WARPGROUP
from crucible.print import bulk, dealing, sharing, streams
from crucible.print.words import UNIT, Words
from crucible.target import sm90
from crucible.target.cuda import block, indented

MULTIPLIED = {"tf32": "tf32", "float16": "f16", "bfloat16": "bf16"}
"""What instructions call the types."""


# barriers


def begin(words: Words, offset: int) -> str:
    """Where something lies in what a launch asks for."""
    memory = words.names.of("memory")
    return f"{memory} + {offset // UNIT}" if offset else memory


def pipeline(words: Words, of: ir.Pipeline) -> list[str]:
    names, placed = words.names, asked.memory(words.kernel)
    at = f"reinterpret_cast<unsigned long long*>({begin(words, placed.barriers)})"
    if of.in_bulk:
        return bulk.pipeline(words, of, begin(words, placed.begins[of]), at)
    ring, units = names.give(of, of.name), names.give((of, "stage_units"), "stage_units")
    full, empty = (names.give((of, word), word) for word in ("full", "empty"))
    turns, s = names.give((of, "turns"), "turns") if of.turns else "", words.counter("s")
    threads = {full: of.producers + of.carries, empty: of.consumers}
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
    if of.ends:
        met = names.give((of, "met"), "met")
        lines.append(f"unsigned long long* {met} = {empty} + {of.stages};  // by all who read")
        begins.append(f"mbarrier_init({met}, {of.consumers});")
    if of.fed_by:
        more, begun = sharing.begin(words, of, ring, f"{met} + 1" if of.ends else f"{empty} + {of.stages}")
        lines, begins = [*lines, *more], [*begins, *begun]
    if of.provides:
        provided = names.give((of, "provided"), "provided")
        lines.append(f"unsigned long long* {provided} = {turns} + {of.teams};  // what consumers store")
        begins.append(f"mbarrier_init({provided}, {of.consumers});")
    told = [f"{_who_fences(words, of)}fence_proxy_async();", "__syncthreads();"]
    return [*lines, *_slack(words, of), *block("if (threadIdx.x == 0)", begins), *told]


def _who_fences(words: Words, of: ir.Pipeline) -> str:
    """Consumers that provide something do so then: here they would wait for what they load for it."""
    return f"if ({_warp(words)} >= {of.consumers // WARP}) " if of.provides else ""


def _warp(words: Words) -> str:
    """The number of a thread's warp, where the kernel has one that the compiler knows to be a warp's."""
    roles = [node for node in words.kernel.body if isinstance(node, ir.Roles)]
    named = [node.variable for node in words.kernel.body if isinstance(node, ir.Let) and node.of_warp]
    return words.index(roles[0].warp) if roles and roles[0].warp in named else ""


def _slack(words: Words, of: ir.Pipeline) -> list[str]:
    """What nobody stores, of all stages."""
    if of.margins:
        return _margins(words, of, of.margins)
    if of.cleared:
        return _cleared(words, of)
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


def _cleared(words: Words, of: ir.Pipeline) -> list[str]:
    """The first array of all stages."""
    p, own, units = words.counter("p"), of.offsets[1] // UNIT, of.offsets[-1] // UNIT
    head = f"for (int {p} = threadIdx.x; {p} < {of.stages * own}; {p} += {words.kernel.threads})"
    return [f"{head} {words.names.of(of)}[{p} / {own} * {units} + {p} % {own}] = uint4{{}};  // what nobody stores"]


def _margins(words: Words, of: ir.Pipeline, given: ir.Margins) -> list[str]:
    """Both ends of each row, where it has such. Its kind stands first: nvcc 13.0 makes other code else."""
    names, count = words.names, of.stages * of.offsets[-1] // UNIT // given.pitch
    names.enter()
    p = names.give(given.row, given.row.name)
    kind = f"const {words.begun(given.kind)} = {words.index(given.kind_of)};"
    row, spot = words.counter("row"), words.counter("spot")
    ends = [(ZERO, given.first), (given.end, Number(given.pitch))]
    lines = [
        f"for (int {spot} = {words.index(begin)}; {spot} < {words.index(end, 1)}; ++{spot}) {row}[{spot}] = uint4{{}};"
        for begin, end in ends
        if begin != end
    ]
    head = f"for (int {p} = threadIdx.x; {p} < {count}; {p} += {words.kernel.threads})"
    names.leave()
    if not lines:
        return []
    return block(head, [kind, f"uint4* const {row} = {names.of(of)} + {p} * {given.pitch};", *lines])


def counters(words: Words, of: ir.Pipeline, role: ir.Role, first: int) -> list[str]:
    """What threads of a role count as they come to its stages."""
    if any(isinstance(each, ir.Deal) for each in ir.every(role.body)):
        return dealing.counters(words, of, first)
    if any(isinstance(each, ir.Share) for each in ir.every(role.body)):
        return sharing.counters(words, of, role, first)
    names, slides = words.names, [each for each in ir.every(role.body) if isinstance(each, ir.Slide)]
    stage = names.give((of, "stage"), "stage")
    if not slides:
        filler = names.give((of, "filler"), "filler")
        own = [f"const int {filler} = {_group(words, role, first, of.producers)};  // of a stage in turn"]
        return [*(own if of.fillers > 1 else []), f"int {stage} = 0;"]
    team, turn = names.give((of, "team"), "team"), names.give((of, "turn"), "turn")
    more = f", {names.give((of, 'passed'), 'passed')} = 0" if any(each.task for each in slides) else ""
    return [f"const int {team} = {_group(words, role, first, WARPGROUP)};", f"int {stage} = 0, {turn} = 0{more};"]


def _group(words: Words, role: ir.Role, first: int, threads: int) -> str:
    """The number of a group of so many among those of a role."""
    warp = _warp(words)
    if not warp:
        return f"{f'(threadIdx.x - {first})' if first else 'threadIdx.x'} / {threads}"
    own = f"{warp} % {role.threads // WARP}" if first and first % role.threads == 0 else f"({warp} - {first // WARP})"
    return f"{own if first else warp} / {threads // WARP}"


def fill(words: Words, node: ir.Fill) -> list[str]:
    """Of those who fill stages in turn warps know the slot before whose turn it is: nvcc 13.0 makes other code else."""
    of, names = node.pipeline, words.names
    stage = names.of((of, "stage"))
    names.enter()
    slot = names.give((of, "slot"), "slot")
    words.tiles = dict.fromkeys(of.tiles, f"{names.of(of)} + {slot} * {names.of((of, 'stage_units'))}")
    begun = streams.begun(words, of, slot)
    waits = [] if any(isinstance(each, ir.Vacant) for each in ir.every(node.body)) else [vacant(words, of)]
    at = f"const int {slot} = {stage} % {of.stages};"
    lines = [*begun, *waits, *words.body(node.body), f"mbarrier_arrive({names.of((of, 'full'))} + {slot});"]
    names.leave()
    in_turn = f"if ({stage} % {of.fillers} == {names.of((of, 'filler'))})"
    if of.fillers == 1:
        lines = ["{", *indented([at, *lines]), "}"]
    elif _is_of_warps(of):
        lines = ["{", *indented([at, *block(in_turn, lines)]), "}"]
    else:
        lines = block(in_turn, [at, *lines])
    return [*lines, *([] if node in words.counted else [f"++{stage};"])]


def _is_of_warps(of: ir.Pipeline) -> bool:
    """Whether its stages are filled by some warps of a warpgroup each."""
    return of.fillers > 1 and of.producers < WARPGROUP


def counted_on(words: Words, body: ir.Body) -> str:
    """What else a loop counts on by: stages that warps fill, one a round, whoever does."""
    *_, last = body
    if not isinstance(last, ir.Fill) or not _is_of_warps(last.pipeline):
        return ""
    words.counted.add(last)
    return f", ++{words.names.of((last.pipeline, 'stage'))}"


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
    lets_go = (
        f"for (int {s} = 0; {s} < {leave}; ++{s})"
        f" mbarrier_arrive({names.of((of, 'empty'))} + ({stage} + {s}) % {of.stages});"
    )
    body = [f"const int {leave} = {left};  // stages that no later window has", *_passed(words, of, s)]
    if node.task:
        body += _tasks(words, node, node.task, lets_go)
    else:
        waits = [_waits_for_turn(words, of), *_waits(words, of, min(of.fillers, of.window))]
        body += [*words.body(node.before), *waits, *words.body(node.products), lets_go, *words.body(node.behind)]
    names.leave()
    lines = block(f"for ({head}; {number} < {count}; ++{number}, ++{turn}, ++{stage})", body)
    return [*lines, *([f"{stage} += {of.window - 1};"] if of.window > 1 else [])]


def _tasks(words: Words, node: ir.Slide, task: Variable, lets_go: str) -> list[str]:
    """Of a window; it goes on when the products of the last one are made."""
    of, names = node.pipeline, words.names
    begin, waits = words.body(node.begin), _waits(words, of, of.window)[::-1]
    names.enter()
    own, passed = names.give(task, task.name), names.of((of, "passed"))
    lines = [
        *words.body(node.before),
        _waits_for_turn(words, of, passed),
        *words.body(node.products),
        *block(f"if ({own} == {node.tasks - 1})", [lets_go]),
        *words.body(node.behind),
    ]
    names.leave()
    head = f"for (int {own} = 0; {own} < {node.tasks}; ++{own}, ++{passed})"
    return [*begin, *waits, "#pragma unroll 1", *block(head, lines), *words.body(node.end)]


def rest(words: Words, role: ir.Role) -> list[str]:
    """Behind a role's last window of several tasks: another team may have one more, and waits for each of its turns."""
    slides = [node for node in ir.every(role.body) if isinstance(node, ir.Slide) and node.task]
    if not slides:
        return []
    of, names = slides[0].pipeline, words.names
    passed, all_ = names.of((of, "passed")), words.counter("all")
    rounds = f"({names.of((of, 'turn'))} + {of.teams - 1}) / {of.teams} * {slides[0].tasks}"
    head = f"for (const int {all_} = {rounds}; {passed} < {all_}; ++{passed})"
    return block(head, [_waits_for_turn(words, of, passed), _next_turn(words, of)])


def provide(words: Words, node: ir.Provide) -> list[str]:
    return ["fence_proxy_async();", f"mbarrier_arrive({words.names.of((node.pipeline, 'provided'))});"]


def provided(words: Words, node: ir.Provided) -> str:
    return f"mbarrier_wait({words.names.of((node.pipeline, 'provided'))}, 0);"


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


def _waits_for_turn(words: Words, of: ir.Pipeline, number: str = "") -> str:
    """A team does, with the number of its turn."""
    turn, team, turns = (words.names.of((of, word)) for word in ("turn", "team", "turns"))
    return f"mbarrier_wait({turns} + {team}, {number or f'{turn} / {of.teams}'} % 2 ^ ({team} == 0));"


def _next_turn(words: Words, of: ir.Pipeline) -> str:
    turns, team = (words.names.of((of, word)) for word in ("turns", "team"))
    return f"mbarrier_arrive({turns} + ({team} + 1) % {of.teams});"


def _waits(words: Words, of: ir.Pipeline, newest: int) -> list[str]:
    """For the newest stage of each group that fills some, which fills its own in order; or for so many."""
    names, lines = words.names, list[str]()
    stage, full = (names.of((of, word)) for word in ("stage", "full"))
    for back in range(newest):
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
        base = (
            words.tiles[tile]
            if of.carries
            else (f"{names.of(of)} + {_slot(words, of, node.behind)} * {names.of((of, 'stage_units'))}")
        )
        offset = names.of(tile) if of.offsets[of.tiles.index(tile)] else "0"
        moved = "".join(f" + {each}" for each in (offset, at) if each != "0")
    name = names.give(matrix, matrix.name)
    if matrix.eight != CORE_ROWS:
        apart = f"{matrix.pitch}, {matrix.eight}"
        return [f"const unsigned long long {name} = make_smem_desc_apart({base}{moved}, {apart});"]
    return [f"const unsigned long long {name} = make_smem_desc({base}{moved}, {matrix.pitch});"]


def _slot(words: Words, of: ir.Pipeline, behind: int | Index) -> str:
    """Of the stage so much behind the oldest of a window."""
    if of.moves or not isinstance(behind, int):
        return sharing.slot(words, of, words.index(lift(behind), 1))
    if of.is_shared:
        return dealing.slot(words, of, behind)
    stage = words.names.of((of, "stage"))
    return f"({stage} + {behind}) % {of.stages}" if behind else f"{stage} % {of.stages}"


def products(words: Words, node: ir.Products) -> list[str]:
    """All of a batch; the next team's turn is when it is on its way."""
    names = words.names
    of = next((each for each in words.pipelines if each.turns), None)
    turn = [_next_turn(words, of)] if of else []
    names.enter()
    body = words.body(node.body)
    names.leave()
    settled = streams.settled(words, node)
    if node.waits == "later":
        return [*settled, "wgmma_fence();", *body, "wgmma_commit();"]
    of_each = 0 if node.waits == "all" else len(node.into.sizes) - 1
    every = itertools.product(*map(range, node.into.sizes[:of_each]))
    words.called[sm90.wgmma_wait(node.into.sizes[of_each:])] = None
    waits = [f"wgmma_wait({names.of(node.into)}{''.join(f'[{each}]' for each in at)});" for at in every]
    return [*settled, "wgmma_fence();", *body, "wgmma_commit();", *turn, *waits]


def product(words: Words, node: ir.Product) -> list[str]:
    of = node.columns[0].of.dtype
    rows: Literal["held", "described"] = "held" if isinstance(node.rows, ir.Element) else "described"
    name, text = next(iter(sm90.wgmma(2 * node.made, MULTIPLIED[of], rows, node.into.vector).items()))
    words.called[text] = None
    adds = "false" if node.adds is None else added(words, node) or "true"
    operands = ", ".join(_operand(words, each) for each in (node.rows, node.columns))
    return [f"{name}({words.element(node.into)}, {operands}, {adds});"]


def added(words: Words, node: ir.Product | ir.Collect) -> str:
    """Where sums that were there are added to; nothing where they always are."""
    if not node.adds:
        return ""
    each = (words.condition(condition) for condition in (node.adds, node.or_where))
    return " || ".join(filter(None, each))


def _operand(words: Words, operand: tuple[ir.Matrix, int] | ir.Element) -> str:
    if isinstance(operand, ir.Element):
        return words.element(operand)
    matrix, moved = operand
    return f"{words.names.of(matrix)} + {moved}" if moved else words.names.of(matrix)
