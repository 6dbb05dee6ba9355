"""What a forward changes: buffers, whose new values steps make, and when they are put in place."""

from __future__ import annotations

from collections.abc import Mapping

from crucible.graph import Ref
from crucible.plan.steps import Call, Fused, Plan


def read_by(plan: Plan) -> set[str]:
    """The tensors that any step takes."""
    return {name for step in plan.steps for name in step.reads}


def waiting(plan: Plan) -> dict[str, str]:
    """New values of buffers that nothing reads any more, with these: all are copied at the end, in one kernel in the
    stead of one for each layer."""
    last = {name: place for place, step in enumerate(plan.steps) for name in step.reads}
    steps = [(place, step) for place, step in enumerate(plan.steps) if isinstance(step, Fused)]
    return {n: buffer for place, step in steps for n, buffer in step.updates.items() if last.get(buffer, 0) <= place}


def counted(plan: Plan) -> dict[str, int]:
    """Values that are a buffer and a number more, and nothing but that buffer's new value, as batch norm's count of
    batches: added in place they take one kernel in the stead of two."""
    new = {mutation.value: mutation.buffer for mutation in plan.graph.mutations}
    read = read_by(plan)
    found = {}
    for step in plan.steps:
        if not isinstance(step, Call) or step.operation.target != "aten.add.Tensor":
            continue
        name, args = step.results[0], step.operation.args
        is_last = name in new and name not in read and name not in plan.graph.outputs
        if is_last and args["self"] == Ref(new[name]) and type(args["other"]) is int and args["alpha"] == 1:
            found[name] = args["other"]
    return found


def at_the_end(plan: Plan, added: Mapping[str, int]) -> tuple[list[tuple[str, str]], dict[int, list[str]]]:
    """What changes behind all steps: buffers and the values that are copied into them, and by each number the buffers
    that it is added to."""
    copied, more = [], dict[int, list[str]]()
    for mutation in plan.graph.mutations:
        if mutation.value in added:
            more.setdefault(added[mutation.value], []).append(mutation.buffer)
        else:
            copied.append((mutation.buffer, mutation.value))
    return copied, more


def of_kernels(plan: Plan, copied: list[tuple[str, str]]) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Of what is copied into buffers at the end, what kernels of ours made, each for a buffer of its own, and the rest:
    the former share no memory with buffers, and one launch copies them all."""
    made = {name for step in plan.steps if isinstance(step, Fused) for name in step.results}
    buffers = [buffer for buffer, _ in copied]
    together = [pair for pair in copied if pair[1] in made and buffers.count(pair[0]) == 1]
    return together, [pair for pair in copied if pair not in together]


def detached(step: Fused) -> set[str]:
    """The tensors that a step takes detached: what it makes of these alone takes no gradient either."""
    return set() if step.wanted else {step.operands[each.name] for each in step.all_operands if each.constant}
