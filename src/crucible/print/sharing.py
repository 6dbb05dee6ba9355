"""Windows that all warpgroups share step by step, what they do ahead of a step, and planes that bulk copies bring, for
compute capability 9.0."""

from __future__ import annotations

from dataclasses import replace

from crucible.gpus import WARP
from crucible.kernel import nodes as ir
from crucible.kernel.index import OPPOSITE, quotient
from crucible.kernel.places import WARPGROUP
from crucible.print import streams
from crucible.print.words import UNIT, Words
from crucible.target.cuda import block, indented


def counters(words: Words, of: ir.Pipeline, role: ir.Role, first: int) -> list[str]:
    """A window's oldest stage, and which task a team takes next."""
    names, thread = words.names, f"(threadIdx.x - {first})" if first else "threadIdx.x"
    lines = [f"int {names.give((of, 'stage'), 'stage')} = 0;"]
    if any(isinstance(each, ir.Share) and each.task for each in ir.every(role.body)):
        lines.append(f"int {names.give((of, 'turn'), 'turn')} = {thread} / {WARPGROUP};  // the next task of this team")
    return lines


def share(words: Words, node: ir.Share) -> list[str]:
    of, names = node.pipeline, words.names
    stage, left = names.of((of, "stage")), of.window - of.moves
    names.enter()
    number = names.give(node.variable, node.variable.name)
    count, k = words.index(node.count, 1), words.counter("k")
    leave = f"{number} + 1 < {count} ? {of.moves} : {of.window}" if left else f"{of.window}"
    empty = names.of((of, "empty"))
    begun = streams.begun(words, of, slot(words, of, "0"))
    body = [*begun, *_waits(words, node, number, k), *_tasks(words, node)]
    body.append(f"const int {(leaving := names.give((of, 'leave'), 'leave'))} = {leave};  // that no later window has")
    body.append(f"for (int {k} = 0; {k} < {leaving}; ++{k}) mbarrier_arrive({empty} + ({stage} + {k}) % {of.stages});")
    names.leave()
    on = f"{stage} += {of.moves}" if of.moves > 1 else f"++{stage}"
    lines = block(f"for (int {number} = 0; {number} < {count}; ++{number}, {on})", body)
    return [*lines, *([f"{stage} += {left};"] if left else [])]


def _waits(words: Words, node: ir.Share, number: str, k: str) -> list[str]:
    """For the stages that are new: all of the first window."""
    of = node.pipeline
    stage, full = words.names.of((of, "stage")), words.names.of((of, "full"))
    if of.window == 1:
        return [f"mbarrier_wait({full} + {stage} % {of.stages}, {stage} / {of.stages} % 2);"]
    old = of.window - of.moves
    wait = f"mbarrier_wait({full} + ({stage} + {k}) % {of.stages}, ({stage} + {k}) / {of.stages} % 2);"
    return [f"for (int {k} = {f'{number} ? {old} : 0' if old else '0'}; {k} < {of.window}; ++{k}) {wait}"]


def _tasks(words: Words, node: ir.Share) -> list[str]:
    of, names = node.pipeline, words.names
    names.enter()
    if node.task is None:
        return words.inside("", node.body)
    turn, tasks = names.of((of, "turn")), words.index(node.tasks, 1)
    begun = f"const int {names.give(node.task, node.task.name)} = {turn};"
    lines = [*([begun] if ir.mentions(node.body, node.task) else []), *words.body(node.body)]
    names.leave()
    return [*block(f"for (; {turn} < {tasks}; {turn} += {of.teams})", lines), f"{turn} -= {tasks};"]


def slot(words: Words, of: ir.Pipeline, behind: str) -> str:
    """Of the stage so much behind the oldest of a window."""
    stage = words.names.of((of, "stage"))
    return f"({stage} + {behind}) % {of.stages}" if behind != "0" else f"{stage} % {of.stages}"


# ahead


def foresee(words: Words, node: ir.Foresee) -> list[str]:
    """Functions of the kernel: written twice where they are called, nvcc 13.0 makes other code of them."""
    steps, names = node.steps, words.names
    item, window = (names.give(each, f"{steps.name}_{each.name}") for each in (steps.item, steps.window))
    lines = [f"int {item} = {words.index(steps.first)}, {window} = 0;"]
    for each in (node for node in ir.every(node.body) if isinstance(node, ir.Fetch)):
        lines.append(f"int {names.give((each.pipeline, 'stage'), 'brought')} = 0;  // stages")
    going = f"{item} < {words.index(steps.items, 1)}"
    if node.is_all:
        return [*lines, *block(f"while ({going})", [*_within(words, node), _next(words, steps, "")])]
    ask = names.give(steps, f"{steps.name}_step")
    after = list[str]()
    if steps.task:
        task, move_on = names.give(steps.task, f"{steps.name}_{steps.task.name}"), names.give((steps, "on"), "move_on")
        lines.append(f"int {task} = {words.index(steps.team)};")
        lines.append(f"const auto {move_on} = [&] {{  // to a step that there is")
        lines += [*indented(block(f"while ({going})", _moves(words, steps))), "};"]
        after = [f"{task} += {steps.teams};", f"{move_on}();"]
    within = [*_within(words, node), *(after or [_next(words, steps, "")])]
    if node.who:
        others = tuple(replace(each, sign=OPPOSITE[each.sign]) for each in node.who)
        within = [f"if ({words.condition(others, ' || ')} || {item} >= {words.index(steps.items, 1)}) return;", *within]
    else:
        within = block(f"if ({going})", within)
    lines += [f"const auto {ask} = [&] {{", *indented(within), "};"]
    return [*lines, *([f"{names.of((steps, 'on'))}();"] if steps.task else [])]


def _within(words: Words, node: ir.Foresee) -> list[str]:
    return _placed(words, node.steps, (node.body, node.steps.windows if node.steps.task is None else ()), node.body)


def _placed(words: Words, steps: ir.Steps, read: object, body: ir.Body) -> list[str]:
    """Those variables of an item that are read."""
    return words.body((*(each for each in steps.placed if ir.mentions(read, each.variable)), *body))


def _moves(words: Words, steps: ir.Steps) -> list[str]:
    assert steps.task
    names = words.names
    names.enter()
    lines = _placed(words, steps, (steps.windows, steps.tasks), ())
    windows, tasks, task = names.give(object(), "windows"), names.give(object(), "tasks"), names.of(steps.task)
    lines += [
        f"const int {windows} = {words.index(steps.windows)}, {tasks} = {words.index(steps.tasks)};",
        f"if ({task} < {tasks}) break;",
        f"{task} -= {tasks};",
        _next(words, steps, windows),
    ]
    names.leave()
    return lines


def _next(words: Words, steps: ir.Steps, windows: str) -> str:
    item, window = words.names.of(steps.item), words.names.of(steps.window)
    last = windows or words.index(steps.windows, 1)
    return f"if (++{window} == {last}) {window} = 0, {item} += {words.index(steps.by)};"


def ask(words: Words, node: ir.Ask) -> list[str]:
    return [f"{words.names.of(node.steps)}();"]


# planes that are brought


def begin(words: Words, of: ir.Pipeline, ring: str, barriers: str) -> tuple[list[str], list[str]]:
    """What feeds a pipeline, behind its stages and its barriers: what is declared, and what begins them."""
    names, by = words.names, of.fed_by
    assert by
    full, empty = (names.give((by, word), f"{by.name}_{word}") for word in ("full", "empty"))
    s, units, place = words.counter("s"), by.offsets[-1] // UNIT, of.stages * of.offsets[-1] // UNIT
    lines = [
        f"uint4* {names.give(by, by.name)} = {ring} + {place};  // stages: {by.tiles[0].note}, of {units} units",
        f"unsigned long long* {full} = {barriers};",
        f"unsigned long long* {empty} = {full} + {by.stages};",
    ]
    inits = f"mbarrier_init({full} + {s}, {by.producers}), mbarrier_init({empty} + {s}, {by.consumers});"
    return lines, [f"for (int {s} = 0; {s} < {by.stages}; ++{s}) {inits}"]


def fetch(words: Words, node: ir.Fetch) -> list[str]:
    of, names = node.pipeline, words.names
    (tile,) = of.tiles
    stage = names.of((of, "stage"))
    names.enter()
    place, bytes_, count = (names.give((of, word), word) for word in ("place", "bytes", "copies"))
    full, empty = (names.of((of, word)) for word in ("full", "empty"))
    many = words.index(node.elements * ir.ITEM_BYTES[tile.dtype])
    lane, number = words.index(node.lane, 1), names.give(node.number, node.number.name)
    unit = words.index(quotient(node.to.at[0], UNIT // ir.ITEM_BYTES[tile.dtype]))
    copy = f"bulk_copy({_stage(words, of, place)} + {unit}, {words.address(node.source)}, {bytes_}, {full} + {place});"
    guard = words.condition(node.guard)
    lines = [
        f"const int {place} = {stage} % {of.stages};",
        f"const int {bytes_} = {f'{guard} ? {many} : 0' if guard else many}, {count} = {words.index(node.count)};",
        f"mbarrier_wait({empty} + {place}, {stage} / {of.stages} % 2 ^ 1);",
        f"if ({lane} == 0) mbarrier_expect_tx({full} + {place}, {bytes_} * {count});",
        "__syncwarp();",
        *block(
            f"if ({guard})" if guard else "",
            [f"for (int {number} = {lane}; {number} < {count}; {number} += {WARP}) {copy}"],
        ),
        f"++{stage};",
    ]
    names.leave()
    return lines


def _stage(words: Words, of: ir.Pipeline, place: str) -> str:
    return f"{words.names.of(of)} + {place} * {of.offsets[-1] // UNIT}"


def drain(words: Words, node: ir.Drain, feeds: ir.Pipeline) -> list[str]:
    """While a stage is filled of it, whose number it has."""
    of, names = node.pipeline, words.names
    stage, (tile,) = names.of((feeds, "stage")), of.tiles
    names.enter()
    place = names.give((of, "place"), "place")
    words.tiles[tile] = _stage(words, of, place)
    lines = [
        f"const int {place} = {stage} % {of.stages};",
        f"mbarrier_wait({names.of((of, 'full'))} + {place}, {stage} / {of.stages} % 2);",
        *words.body(node.body),
        f"mbarrier_arrive({names.of((of, 'empty'))} + {place});",
    ]
    names.leave()
    return ["{", *indented(lines), "}"]


def meet(words: Words, node: ir.Meet) -> list[str]:
    """Who is done arrives, and waits for nobody."""
    of = node.pipeline
    met, all_ = words.names.of((of, "met")), [each for each in ir.every(words.kernel.body) if isinstance(each, ir.Meet)]
    phase = next(n for n, each in enumerate(all_) if each is node) % 2
    done = [f"if ({words.condition(node.done)}) return;"] if node.done else []
    return [f"mbarrier_arrive({met});", *done, f"mbarrier_wait({met}, {phase});"]
