"""What a launch asks for of shared memory: arrays one behind the other, then barriers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from crucible.gpus import WARP
from crucible.kernel import nodes as ir

BARRIER = 8
"""Bytes."""
Asked: TypeAlias = ir.Shared | ir.Pipeline | ir.Turns


@dataclass(frozen=True)
class Memory:
    """Where things lie in it, in bytes."""

    begins: dict[Asked, int]
    barriers: int
    """Where barriers begin."""
    has_barriers: bool
    """Else pipelines have theirs beside it."""
    bytes: int
    """All of it."""


def memory(kernel: ir.Kernel) -> Memory:
    """Of a kernel; empty where its launch asks for none. Barriers lie in it where arrays do beside a pipeline."""
    begins: dict[Asked, int] = {}
    declared, end = _declared(kernel), 0
    last = [what for what, _ in declared if isinstance(what, ir.Shared) and what.is_last]
    for what, threads in declared:
        if what not in last:
            begins[what] = end
            end += what.bytes * (threads // WARP if isinstance(what, ir.Shared) and what.per_warp else 1)
    barriers = max(end, _in_the_place_of_stages(kernel))
    rings = [what for what in begins if isinstance(what, ir.Pipeline)]
    has_barriers = any(isinstance(each, ir.Shared) for each in begins) or any(each.moves for each in rings)
    end = barriers + has_barriers * BARRIER * sum(each.barriers for each in rings)
    for what in last:
        begins[what] = end
        end += what.bytes
    return Memory(begins, barriers, has_barriers, end)


def _in_the_place_of_stages(kernel: ir.Kernel) -> int:
    """Bytes of arrays over a pipeline, which is the first thing that a launch asks for."""
    declared = [node.what for node in ir.every(kernel.body) if isinstance(node, ir.Declare)]
    over = [each for each in declared if isinstance(each, ir.Shared) and each.over and each.base is each]
    return max((each.bytes for each in over), default=0)


def _declared(kernel: ir.Kernel) -> list[tuple[Asked, int]]:
    """With the threads that have it."""
    found: list[tuple[Asked, int]] = []
    bodies = [(kernel.body, kernel.threads)]
    bodies += [(role.body, role.threads) for each in kernel.body if isinstance(each, ir.Roles) for role in each.roles]
    for body, threads in bodies:
        for each in (node.what for node in body if isinstance(node, ir.Declare)):
            if isinstance(each, ir.Pipeline | ir.Turns) or (
                isinstance(each, ir.Shared) and each.at_launch and not each.over
            ):
                found.append((each, threads))
    return found


def pipelines(kernel: ir.Kernel) -> tuple[ir.Pipeline, ...]:
    declared = [node.what for node in kernel.body if isinstance(node, ir.Declare)]
    found = [each for each in declared if isinstance(each, ir.Pipeline)]
    return (*found, *(each.fed_by for each in found if each.fed_by))
