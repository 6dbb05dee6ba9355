"""What stands around a kernel's statements: its signature, its constants, what comes before it in the file."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from crucible.graph import ITEM_BYTES
from crucible.write.cuda import emit
from crucible.write.expression import tensor
from crucible.write.families.layout import INT_LIMIT
from crucible.write.families.passes import fresh
from crucible.write.families.scene import Scene
from crucible.write.families.source import CUDA_TYPES, HELPERS, INCLUDES, STEPS, combining, indented

_SAID = {
    "packs": "of a thread",
    "vector": "neighbours that a thread takes at once",
    "team": "threads that share a row",
    "groups": "of threads, which share the columns",
    "lanes": "threads side by side",
    "block_rows": "of a block",
    "row_blocks": "blocks that share a part of the columns",
    "chunks": "blocks that share a row",
    "chunk_columns": "of a block",
}


def function(
    scene: Scene, name: str, comment: list[str], body: list[str], given: tuple[Sequence[str], Sequence[str]]
) -> str:
    """The whole text. Where packs are read, two instances of one function, since a pointer into the middle of a tensor
    may not be aligned to a pack."""
    reads, writes = given
    dtypes = {each.name: each.dtype for each in scene.tensors}
    types = {each: CUDA_TYPES[dtypes.get(each, scene.program.precision)] for each in (*reads, *writes)}
    parameters = [f"const {types[each]}* __restrict__ {scene.words[each]}" for each in reads]
    parameters += [f"{types[each]}* __restrict__ {scene.words[each]}" for each in writes]
    entry = _signature(f"__global__ void __launch_bounds__({scene.geometry.threads}) {name}", parameters)
    packed = [each for each in (*reads, *writes) if each in scene.packed]
    if not packed:
        return "\n".join([*comment, *entry, *indented(body), "}"])
    inner = fresh(f"{name}_block", scene.taken)
    bytes_ = max(scene.geometry.vector * ITEM_BYTES[dtypes[each]] for each in packed)
    passed = ", ".join(scene.words[each] for each in (*reads, *writes))
    choice = [
        f"if (are_aligned<{bytes_}>({', '.join(scene.words[each] for each in packed)})) {{",
        f"    {inner}<true>({passed});",
        "} else {  // a tensor that begins in the middle of another",
        f"    {inner}<false>({passed});",
        "}",
    ]
    first = ["template <bool aligned>", *_signature(f"__device__ __forceinline__ void {inner}", parameters)]
    return "\n".join([*comment, *first, *indented(body), "}", "", *entry, *indented(choice), "}"])


def _signature(head: str, parameters: list[str]) -> list[str]:
    line = f"{head}({', '.join(parameters)}) {{"
    if len(line) <= 120:
        return [line]
    return [f"{head}(", *(f"    {each}," for each in parameters[:-1]), f"    {parameters[-1]}) {{"]


def constants(scene: Scene, text: str) -> list[str]:
    """The sizes that the text reads, by name."""
    program, geometry = scene.program, scene.geometry
    counts = {
        "threads": geometry.threads,
        "lanes": geometry.lanes,
        "groups": geometry.team,
        "team": geometry.team,
        "vector": geometry.vector,
        "packs": geometry.packs,
    }
    sizes = {
        "rows": program.row_count,
        scene.columns: program.column_count,
        "block_rows": geometry.block_rows,
        "row_blocks": math.ceil(program.row_count / geometry.block_rows),
        "chunks": geometry.chunks,
        "chunk_columns": geometry.chunk,
        "step": geometry.tile,
        **dict(sorted(scene.offsets.constants.items())),
    }
    said = {**_SAID, "step": "columns that a block takes at once" if geometry.looped else "of a block"}
    words = set(re.findall(r"\w+", text))
    lines = []
    for name, value in [*sizes.items(), *counts.items()]:
        if name in words:
            type_ = "int" if name in counts else "unsigned" if value < INT_LIMIT else "size_t"
            lines.append(f"constexpr {type_} {name} = {value};{f'  // {said[name]}' if name in said else ''}")
    return lines


def preamble(scene: Scene, text: str) -> tuple[str, ...]:
    """Includes, then device functions, each before those that call it."""
    helpers = dict(HELPERS)
    for kind in STEPS:
        helpers |= combining(kind)
    wanted = _words(text) & helpers.keys()
    while (more := wanted | {word for name in wanted for word in _words(helpers[name]) & helpers.keys()}) != wanted:
        wanted = more
    functions = dict(scene.preamble)
    if any("max_nan" in _words(each) for each in (text, *(helpers[name] for name in wanted))):
        functions |= dict.fromkeys(_largest(scene.program.precision))
    dtypes = {each.dtype for each in scene.tensors}
    includes = [INCLUDES[dtype] for dtype in INCLUDES if dtype in dtypes]
    includes += [each for each in functions if each.startswith("#include")]
    own = [each for each in functions if not each.startswith("#include")]
    return tuple(dict.fromkeys([*includes, *own, *(helpers[name] for name in helpers if name in wanted)]))


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text))


def _largest(precision: str) -> tuple[str, ...]:
    """The function that a maximum calls."""
    return emit({"larger": tensor("a").maximum(tensor("b"))}, precision=precision).preamble
