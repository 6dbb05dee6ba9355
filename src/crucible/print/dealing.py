"""Windows that slide along a pipeline of which each is of all warpgroups, for compute capability 9.0."""

from __future__ import annotations

from crucible.kernel import nodes as ir
from crucible.kernel.index import value_of
from crucible.kernel.places import WARPGROUP
from crucible.print.words import Words
from crucible.target.cuda import block, indented


def counters(words: Words, of: ir.Pipeline, first: int) -> list[str]:
    """Slots and whose tasks are counted along: from a window's number they took 845 clocks of 5065 for a phase of P38's
    second pass on the H200."""
    names, thread = words.names, f"(threadIdx.x - {first})" if first else "threadIdx.x"
    slot, lap, task = (names.give((of, word), word) for word in ("slot", "lap", "first"))
    return [
        f"int {slot} = 0, {lap} = 0;  // of a window's oldest stage: its slot, how often that was filled before",
        f"int {task} = {thread} / {WARPGROUP};  // of a window's tasks, that this warpgroup begins with",
    ]


def slot(words: Words, of: ir.Pipeline, behind: int) -> str:
    """Of the stage so much behind the oldest of a window."""
    return words.names.of((of, f"slot_{behind}" if behind else "slot"))


def deal(words: Words, node: ir.Deal) -> list[str]:
    """Of a single window there is no loop."""
    of, names = node.pipeline, words.names
    names.enter()
    number = names.give(node.variable, node.variable.name)
    oldest, first = slot(words, of, 0), names.of((of, "first"))
    lines = list[str]()
    for behind in range(1, of.window):
        later, room = names.give((of, f"slot_{behind}"), f"slot_{behind}"), of.stages - behind
        lines.append(f"const int {later} = {oldest} < {room} ? {oldest} + {behind} : {oldest} - {room};")
    lines += _tasks(words, node, first)
    lines += [_moved_on(words, of, 1), f"if (({first} += {node.moved}) >= {of.teams}) {first} -= {of.teams};"]
    head = f"for (int {number} = 0; {number} < {words.index(node.count, 1)}; ++{number})"
    names.leave()
    lines = ["{", *indented(lines), "}"] if value_of(node.count) == 1 else block(head, lines)
    return [*lines, *([_moved_on(words, of, of.window - 1)] if of.window > 1 else [])]


def _moved_on(words: Words, of: ir.Pipeline, stages: int) -> str:
    oldest, lap = slot(words, of, 0), words.names.of((of, "lap"))
    return f"if (({oldest} += {stages}) >= {of.stages}) {oldest} -= {of.stages}, {lap} ^= 1;"


def _tasks(words: Words, node: ir.Deal, first: str) -> list[str]:
    """All that are a warpgroup's; where it has none, it passes the window."""
    teams, names = node.pipeline.teams, words.names
    names.enter()
    task, leaving = names.give(node.task, node.task.name), _leaving(words, node)
    if node.tasks > teams:
        lines = _task(words, node, block(f"if ({task} + {teams} >= {node.tasks})", leaving))
        lines = block(f"for (int {task} = {first}; {task} < {node.tasks}; {task} += {teams})", lines)
    else:
        is_read = ir.mentions((node.before, node.products, node.behind), node.task)
        lines = [*([f"const int {task} = {first};"] if is_read else []), *_task(words, node, leaving)]
    names.leave()
    if node.tasks >= teams:
        return lines
    passed = block("} else", [*_waits(words, node), *leaving])
    return [*block(f"if ({first} < {node.tasks})", lines)[:-1], *passed]


def _task(words: Words, node: ir.Deal, leaving: list[str]) -> list[str]:
    """What leaves with a window leaves behind the last of its products."""
    before = words.body(node.before)
    return [*before, *_waits(words, node), *words.body(node.products), *leaving, *words.body(node.behind)]


def _waits(words: Words, node: ir.Deal) -> list[str]:
    """For the newest stage, and with the first window those before it, which are there by then; but compute-sanitizer
    takes a phase that nobody waits for as an error."""
    of, names = node.pipeline, words.names
    full, lap, oldest = names.of((of, "full")), names.of((of, "lap")), slot(words, of, 0)
    slots = [slot(words, of, behind) for behind in range(of.window)]
    laps = [lap, *(f"{lap} ^ ({each} < {oldest})" for each in slots[1:])]
    *before, newest = (f"mbarrier_wait({full} + {each}, {of_slot});" for each, of_slot in zip(slots, laps, strict=True))
    first = "" if value_of(node.count) == 1 else f"if ({names.of(node.variable)} == 0) "
    return [*(f"{first}{each}" for each in before), newest]


def _leaving(words: Words, node: ir.Deal) -> list[str]:
    """Stages that no later window has."""
    of, names = node.pipeline, words.names
    arrives = [f"mbarrier_arrive({names.of((of, 'empty'))} + {slot(words, of, each)});" for each in range(of.window)]
    if of.window == 1 or value_of(node.count) == 1:
        return arrives
    is_last = f"if ({names.of(node.variable)} + 1 == {words.index(node.count, 1)})"
    return [arrives[0], *block(is_last, arrives[1:])]
