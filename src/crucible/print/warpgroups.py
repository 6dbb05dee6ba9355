"""Pipelines, roles and products of tensor cores, for compute capability 9.0."""

from __future__ import annotations

import itertools
import math
from typing import Any

from crucible.kernel import memory as asked
from crucible.kernel import nodes as ir
from crucible.print import bulk, sharing, sliding
from crucible.print.words import TYPES, UNIT, Words
from crucible.target import sm90
from crucible.target.cuda import block, indented, unrolled

REGISTERS = 64 * 1024
"""Of a multiprocessor."""
HELD = {"tf32": "tf32", "halves": "bf16"}
"""PTX's types, by what registers hold of rows."""


def launched(kernel: ir.Kernel) -> dict[str, Any]:
    """What of a launch is other than usual: it has a multiprocessor for itself, and nothing beside it."""
    shared, has_ring = asked.memory(kernel).bytes, bool(asked.pipelines(kernel))
    return {"shared_bytes": shared, "architecture": sm90.ARCHITECTURE * has_ring, "entry": None} if shared else {}


def bounds(kernel: ir.Kernel) -> str:
    together = 1 if asked.pipelines(kernel) else kernel.together
    return f", {together}" if together else ""


# shared memory


def memory(words: Words) -> list[str]:
    """What arrays lie in that a launch asks for."""
    if not asked.memory(words.kernel).has_barriers:
        return []
    return [f"extern __shared__ uint4 {words.names.give('memory', 'memory')}[];"]


def array(words: Words, of: ir.Shared) -> list[str]:
    type_, begins = TYPES[of.dtype], asked.memory(words.kernel).begins
    begin = sliding.begin(words, begins[of.over[0] if of.over and isinstance(of.over[0], ir.Pipeline) else of])
    own = f" + threadIdx.x / 32 * {math.prod(of.sizes)}" if of.per_warp else ""
    note = f"  // {of.note}" if of.note else ""
    return [f"{type_}* {words.names.give(of, of.name)} = reinterpret_cast<{type_}*>({begin}){own};{note}"]


# barriers


def pipeline(words: Words, of: ir.Pipeline) -> list[str]:
    if asked.memory(words.kernel).has_barriers:
        return sliding.pipeline(words, of)
    names = words.names
    ring = names.give(of, of.name)
    full, empty, units = (names.give((of, word), word) for word in ("full", "empty", "stage_units"))
    s = words.counter("s")
    placed = zip(of.tiles, of.offsets, strict=False)
    offsets = [f"{names.give(tile, tile.name)} = {offset // UNIT}" for tile, offset in placed]
    inits = [f"mbarrier_init({full} + {s}, {of.producers});", f"mbarrier_init({empty} + {s}, {of.consumers});"]
    held = ", ".join(each.note for each in of.tiles)
    return [
        f"extern __shared__ uint4 {ring}[];  // stages: {held}",
        f"__shared__ unsigned long long {full}[{of.stages}], {empty}[{of.stages}];",
        f"constexpr int {units} = {of.offsets[-1] // UNIT};  // of {UNIT} bytes",
        f"constexpr int {', '.join(offsets)};  // in a stage",
        *block("if (threadIdx.x == 0)", block(f"for (int {s} = 0; {s} < {of.stages}; ++{s})", inits)),
        "fence_proxy_async();",
        "__syncthreads();",
    ]


def fill(words: Words, node: ir.Fill) -> list[str]:
    if node.pipeline.slides:
        return sliding.fill(words, node)
    if node.pipeline.in_bulk:
        return bulk.fill(words, node)
    return _stage(words, node, "empty", "full", " ^ 1")


def drain(words: Words, node: ir.Drain) -> list[str]:
    feeds = next((each for each in words.pipelines if each.fed_by is node.pipeline), None)
    if feeds:
        return sharing.drain(words, node, feeds)
    return bulk.drain(words, node) if node.pipeline.in_bulk else _stage(words, node, "full", "empty", "")


def _stage(words: Words, node: ir.Fill | ir.Drain, waits_for: str, tells: str, parity: str) -> list[str]:
    of, names = node.pipeline, words.names
    stage, phase, first, last = (names.of((of, word)) for word in ("stage", "phase", waits_for, tells))
    at = names.give((of, "at"), "at")
    words.tiles = dict.fromkeys(of.tiles, at)
    return [
        f"mbarrier_wait({first} + {stage}, {phase}{parity});",
        f"uint4* {at} = {names.of(of)} + {stage} * {names.of((of, 'stage_units'))};",
        *words.body(node.body),
        f"mbarrier_arrive({last} + {stage});",
        f"if (++{stage} == {of.stages}) {stage} = 0, {phase} ^= 1;",
    ]


# roles


def roles(words: Words, node: ir.Roles) -> list[str]:
    """Those of the last threads first, or the other way round."""
    lines: list[str] = []
    ends = list(itertools.accumulate((role.threads for role in node.roles), initial=0))
    placed = list(zip(node.roles, itertools.pairwise(ends), strict=True))
    beside = placed.pop() if node.roles[-1].is_beside else None
    for role, (first, end) in placed if node.is_upwards else placed[::-1]:
        bound = f"< {end // 32}" if node.is_upwards else f">= {first // 32}"
        is_rest = (role is placed[-1][0]) if node.is_upwards else first == 0
        test = "" if is_rest else f"if ({words.index(node.warp)} {bound}) "
        lines += [f"{'} else ' if lines else ''}{test}{{  // {role.name}", *_indented(words, role, first, beside)]
        beside = None if beside and end == beside[1][0] else beside
    return [*lines, "}"]


def _indented(words: Words, role: ir.Role, first: int, beside: tuple[ir.Role, tuple[int, int]] | None) -> list[str]:
    at_first = REGISTERS // words.kernel.threads // 8 * 8
    call = "inc" if role.registers >= at_first else "dec"
    lines = [f"setmaxnreg_{call}<{role.registers}>();"]
    if beside and beside[1][0] == first + role.threads:
        other, (begin, _) = beside
        lines += [f"if (static_cast<int>(threadIdx.x - {first}) >= {begin - first}) {{  // {other.name}"]
        lines += [*indented(_of_role(words, other, begin)), "} else {", *indented(_of_role(words, role, first)), "}"]
        return indented(lines)
    return indented([*lines, *_of_role(words, role, first)])


def _of_role(words: Words, role: ir.Role, first: int) -> list[str]:
    words.names.enter()
    lines = list[str]()
    for of in words.pipelines:
        if any(each.fed_by is of for each in words.pipelines):
            continue  # by the number of what it feeds, or of a copy
        if ir.mentions(role.body, of) and of.slides:
            lines += sliding.counters(words, of, role, first)
        elif ir.mentions(role.body, of) and of.in_bulk:
            lines += bulk.counters(words, of, role)
        elif ir.mentions(role.body, of):
            stage, phase = (words.names.give((of, word), word) for word in ("stage", "phase"))
            lines.append(f"int {stage} = 0, {phase} = 0;")
    lines += [*words.body(role.body), *sliding.rest(words, role)]
    words.names.leave()
    return lines


# products


def split(words: Words, node: ir.Split) -> list[str]:
    made = f"tf32_{node.part}{'_of_pack' * node.value.is_pack}({words.element(node.value)})"
    return [f"{words.into(node.into, node.declares)} = {f'settled({made})' if node.settles else made};"]


def split_pairs(words: Words, node: ir.SplitPairs) -> list[str]:
    first, second = map(words.element, node.values)
    made = f"bf16_{node.part}{'_of_packs' * node.into.is_pack}({first}, {second})"
    return [f"{words.into(node.into, node.declares)} = {f'settled({made})' if node.settles else made};"]


def mma(words: Words, node: ir.Mma) -> list[str]:
    """One loop of all terms of a type: those are neighbours."""
    names = words.names
    tiles = dict.fromkeys(tile for _, tile in node.terms)
    described = {tile: names.give((node, tile), f"{tile.name}_desc") for tile in tiles}
    lines = ["wgmma_fence();"]
    for tile, name in described.items():
        pitch = words.index(tile.shape[1])
        matrix = f"{words.tiles[tile]} + {names.of(tile)}"
        lines.append(f"const unsigned long long {name} = make_smem_desc({matrix}, {pitch});")
    for number, (_, terms) in enumerate(itertools.groupby(node.terms, lambda term: term[0].dtype)):
        lines += _terms(words, node, list(terms), described, is_first=not number)
    return [*lines, "wgmma_commit();", f"wgmma_wait({names.of(node.into)});"]


def _terms(
    words: Words, node: ir.Mma, terms: list[tuple[ir.Fragment, ir.Shared]], described: dict[ir.Shared, str], *,
    is_first: bool,
) -> list[str]:  # fmt: skip
    names, s, products = words.names, words.counter("s"), list[str]()
    functions = sm90.wgmma(2 * node.into.elements, HELD[terms[0][0].dtype])
    words.called |= dict.fromkeys(functions.values())
    for number, (rows, tile) in enumerate(terms):
        adds = "true"
        if is_first and not number and node.adds:
            adds = f"{s} > 0 || {words.condition(node.adds)}"
        moved = f"{described[tile]} + {s} * {2 * tile.sizes[1]}"
        products.append(f"{next(iter(functions))}({names.of(node.into)}, {names.of(rows)}[{s}], {moved}, {adds});")
    return unrolled(s, str(terms[0][0].sizes[0]), products)


def promote(words: Words, node: ir.Promote) -> list[str]:
    into, value = (words.names.of(each) for each in (node.into, node.value))
    ends = f"{words.index(node.round % node.every, 1)} == {node.every - 1} || {words.condition(node.is_last)}"
    i = words.counter("i")
    return block(f"if ({ends})", unrolled(i, str(node.into.elements), [f"{into}[{i}] += {value}[{i}];"]))
