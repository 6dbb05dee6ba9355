"""Numbers that are moved into fp16's range, for compute capability 9.0."""

from __future__ import annotations

from crucible.gpus import WARP
from crucible.kernel import nodes as ir
from crucible.print.bulk import barrier_of
from crucible.print.words import Words


def largest(words: Words, node: ir.Largest) -> list[str]:
    into = words.element(node.into)
    return [f"{into} = largest_finite({words.element(node.value)}, {into});"]


def scale(words: Words, node: ir.Scale) -> list[str]:
    scratch = node.scratch
    at = (
        f"reinterpret_cast<float*>({words.tiles[scratch]} + {words.names.of(scratch)})"
        if scratch in words.tiles
        else ""
    )
    given = f"{words.element(node.largest)}, {at or words.names.of(scratch)}, {words.index(node.thread)}"
    made = f"fp16_scale<{barrier_of(words, node)}, {node.threads // WARP}>({given})"
    return [f"{words.into(node.into, declares=True)} = {made};"]


def split(words: Words, node: ir.SplitScaled) -> list[str]:
    made = f"fp16_{node.part}_of_pack({words.element(node.value)}, {words.element(node.scale)})"
    return [f"{words.into(node.into, declares=True)} = {made};"]
