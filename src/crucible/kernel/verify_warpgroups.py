"""What warpgroups must not do: pipelines, roles, products of tensor cores."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

from crucible.gpus import WARP
from crucible.kernel import nodes as ir
from crucible.kernel.index import Index, Place, Range
from crucible.kernel.memory import memory
from crucible.kernel.places import CORE_ROWS, WARPGROUP
from crucible.kernel.reader import Reader, Stage

REGISTERS = 64 * 1024
"""Of a multiprocessor."""
FEWEST_REGISTERS, REGISTERS_AT_ONCE = 24, 8
MOST_STAGES_BYTES = 227 * 1024
"""Of shared memory that a block may ask for."""
CORE_BYTES, MOST_COLUMNS = 16, 256
"""Of a matrix as tensor cores read it."""
MULTIPLIED = (("tf32", "tf32"), ("halves", "bfloat16"))
"""Rows in registers by columns in shared memory."""
MOST_UNITS = 1 << 14
"""What a descriptor has bits for, in sixteens of bytes."""


def pipeline(reader: Reader, made: ir.Pipeline, static: int) -> None:
    reader.together(f"the beginning of {made.name}")
    reader.declare(made)
    reader.pipelines |= dict.fromkeys(made.tiles, made)
    if made.stages < 2:
        reader.say(f"{made.name} has {made.stages} stages: who fills one waits for those who read it")
    reader.written.clear()  # all come together behind it
    reader.read.clear()
    if not made.provides:  # or not all threads do
        reader.fenced |= {each for each in reader.filled if isinstance(each, ir.Shared)}
    if made.fed_by:
        _fed_by(reader, made, made.fed_by)
    if made.margins:
        _margins(reader, made, made.margins)
    asked = memory(reader.kernel).bytes
    if asked + static > MOST_STAGES_BYTES:
        reader.say(f"shared memory: {asked + static} bytes, and a block may ask for {MOST_STAGES_BYTES}")
    _whole(reader, made)


def _whole(reader: Reader, made: ir.Pipeline) -> None:
    for each, at in zip(made.tiles, made.offsets[1:], strict=True):
        if at % CORE_BYTES:
            reader.say(f"{each.name} ends {at} bytes into a stage of {made.name}, within {CORE_BYTES}")


def _fed_by(reader: Reader, made: ir.Pipeline, by: ir.Pipeline) -> None:
    """Who fills stages of the one empties those of the other."""
    reader.declare(by)
    reader.pipelines |= dict.fromkeys(by.tiles, by)
    if by.stages < 2 or by.fed_by or by.slides or len(by.tiles) != 1 or by.consumers != made.producers:
        which = f"{by.stages} stages of {len(by.tiles)} arrays, {by.consumers} threads"
        reader.say(f"{by.name} does not feed {made.name}: {which}")
    _whole(reader, by)


def _margins(reader: Reader, made: ir.Pipeline, given: ir.Margins) -> None:
    """They lie in rows, of which there are whole ones."""
    rows, rest = divmod(made.bytes, CORE_BYTES * given.pitch)
    with reader.inside({given.row: Range(0, rows - 1)}), reader.inside({given.kind: reader.reach(given.kind_of)}):
        first, end = reader.reach(given.first), reader.reach(given.end)
    if (
        rest
        or made.slack
        or len(made.tiles) > 1
        or first.high > given.pitch
        or not 0 <= end.low <= end.high <= given.pitch
    ):
        reader.say(
            f"{made.name}: rows of {given.pitch} are stored from {first.low} to {end.high}, and {rest} bytes more"
        )


def roles(reader: Reader, node: ir.Roles) -> None:
    reader.together("the parting of roles")
    threads = _of_warpgroups(reader, node.roles)
    if sum(threads) != reader.kernel.threads or any(each % WARPGROUP for each in threads):
        reader.say(f"roles of {threads} threads, which are no whole warpgroups of {reader.kernel.threads} together")
    if reader.definitions.get(node.warp) != Place("thread", reader.kernel.threads) // WARP:
        reader.say(f"roles part by {node.warp.name}, which is no number of a warp")
    taken = sum(each.threads * each.registers for each in node.roles)
    if taken > REGISTERS:
        reader.say(f"registers: roles take {taken}, and a multiprocessor has {REGISTERS}")
    first = 0
    for each in node.roles:
        place: dict[Index, Range] = {Place("thread", reader.kernel.threads): Range(first, first + each.threads - 1)}
        with reader.inside(place, f"among the {each.name} alone"):
            reader.role, reader.parted = each, len(reader.apart)
            _registers(reader, each)
            reader.body(each.body)
            for sums in reader.flying:
                reader.say(f"nobody waits for {sums.name}")
        reader.role, reader.parted = None, 0
        first += each.threads


def _of_warpgroups(reader: Reader, roles: tuple[ir.Role, ...]) -> list[int]:
    """Threads of each role, with those of roles beside it."""
    found = list[int]()
    for before, each in zip((None, *roles), roles, strict=False):
        if before and each.is_beside:
            found[-1] += each.threads
            if each.registers != before.registers or each.threads % WARP:
                reader.say(f"{each.name} have no warps of their own beside the {before.name}, or other registers")
        else:
            found.append(each.threads)
    return found


def _registers(reader: Reader, role: ir.Role) -> None:
    if role.registers % REGISTERS_AT_ONCE or not FEWEST_REGISTERS <= role.registers <= 256:
        reader.say(f"registers: {role.name} have {role.registers}, which are no eights from 24 to 256")
    if held(role.body) > role.registers:
        reader.say(f"registers: {role.name} hold {held(role.body)} words, and have {role.registers}")


def held(body: ir.Body) -> int:
    """Words of 32 bits that a thread holds at most, by what is declared."""
    here, most = 0, 0
    for node in body:
        most = max(most, held(ir.inside(node)))
        here += sum(map(words, declared(node)))
    return here + most


def declared(node: ir.Node) -> list[ir.Fragment]:
    if isinstance(node, ir.Declare) and isinstance(node.what, tuple):
        return list(node.what)
    if isinstance(node, ir.Scale | ir.SplitScaled):
        return [node.into.of]
    begins = ir.Load | ir.Convert | ir.Split | ir.SplitPairs
    return [node.into.of] if isinstance(node, begins) and node.declares else []


def words(fragment: ir.Fragment) -> int:
    """Registers of 32 bits."""
    return math.ceil(fragment.elements * ir.ITEM_BYTES[fragment.dtype] / 4)


# stages


def fill(reader: Reader, node: ir.Fill) -> None:
    inner = ir.every(reader.kernel.body)
    read = {tile for each in inner if isinstance(each, ir.Mma) for _, tile in each.terms}
    read |= {each.matrix.of for each in inner if isinstance(each, ir.Describe)}
    with stage_of(reader, node, node.pipeline.producers * node.pipeline.fillers, "fill") as stage:
        stage.is_vacant = not any(isinstance(each, ir.Vacant) for each in ir.every(node.body))
        reader.body(node.body)
    sends = sum(isinstance(each, ir.Send) for each in ir.every(node.body))
    if sends != node.pipeline.in_bulk or sends != sum(isinstance(each, ir.Send) for each in node.body):
        reader.say(f"{sends} times bulk copies fill a stage of {node.pipeline.name}, or not always")
    for each in node.pipeline.tiles:
        if each not in stage.stored:
            reader.say(f"{each.name} is not stored in a stage of {node.pipeline.name}")
        if each in stage.unfenced & read:
            reader.say(f"{each.name} is handed to tensor cores, which may not see it yet: a Fence is missing")


@contextmanager
def stage_of(reader: Reader, node: ir.Fill | ir.Drain, threads: int, word: str) -> Iterator[Stage]:
    """All threads that its barrier waits for come here, and nobody touches tiles elsewhere."""
    come_together(reader, node.pipeline, threads, word)
    with at_hand(reader, node) as stage:
        yield stage


def come_together(reader: Reader, of: ir.Pipeline, threads: int, word: str) -> None:
    """All threads that a barrier waits for."""
    reader.known(of)
    reader.role_together(f"a barrier of {of.name}")
    there = reader.role.threads if reader.role else reader.kernel.threads
    if there != threads:
        reader.say(f"{there} threads {word} {of.name}, and its barrier waits for {threads}")


@contextmanager
def at_hand(reader: Reader, node: ir.Fill | ir.Drain | ir.Slide | ir.Deal | ir.Share) -> Iterator[Stage]:
    """A stage, or those of a window, whose tiles nobody touches elsewhere."""
    if reader.stage:
        reader.say(f"a stage of {node.pipeline.name} is waited for within one")
    before, reader.stage = reader.stage, Stage(node)
    with reader.inside({}):
        for each in node.pipeline.tiles:
            reader.declare(each)
        yield reader.stage
    reader.stage = before


def touched(reader: Reader, tile: ir.Shared, *, is_stored: bool) -> None:
    """A tile of a pipeline is stored while it is filled, and read while it is drained."""
    stage = reader.stage
    wanted = ir.Fill if is_stored else ir.Drain | ir.Slide | ir.Deal | ir.Share
    if stage and stage.fed_by and tile in stage.fed_by.tiles and not is_stored:
        return
    if stage is None or not isinstance(stage.node, wanted) or tile not in stage.node.pipeline.tiles:
        reader.say(f"{tile.name} is {'stored' if is_stored else 'read'} by threads to whom its stage does not belong")
    elif is_stored:
        if not stage.is_vacant:
            reader.say(f"{tile.name} is stored before who read its stage last are done with it")
        stage.stored.add(tile)
        stage.unfenced.add(tile)
    elif stage.is_left:
        reader.say(f"{tile.name} is read by threads who let its stage go")


def fence(reader: Reader) -> None:
    if reader.stage:
        reader.stage.unfenced.clear()
        return
    reader.warp_together("a Fence")
    if not reader.touched:
        reader.say("a Fence stands where no stage is filled, and nothing was touched")
    reader.touched = dict.fromkeys(reader.touched, "Sync")


# products


def split(reader: Reader, node: ir.Split) -> None:
    reader.element(node.value, is_read=True)
    reader.put(node.into, node.declares)
    types = node.value.of.dtype, node.into.of.dtype
    if types != ("word", "tf32") or node.into.vector != node.value.vector:
        reader.say(f"{node.into.of.name}: of words as many tf32 are made, not {types[1]} of {types[0]}")


def split_pairs(reader: Reader, node: ir.SplitPairs) -> None:
    for value in node.values:
        reader.element(value, is_read=True)
    reader.put(node.into, node.declares)
    given, into = {(each.of.dtype, each.vector) for each in node.values}, node.into
    if given != {("word", into.vector)} or into.of.dtype != "halves":
        reader.say(f"{into.of.name}: of two times as many words halves are made, not {into.of.dtype} of {given}")


def mma(reader: Reader, node: ir.Mma) -> None:
    reader.role_together("a product")
    columns = 2 * node.into.elements
    _full(reader, node.into)
    if columns % CORE_ROWS or columns > MOST_COLUMNS or node.into.dtype != "float32":
        reader.say(f"{node.into.name}: {columns} columns of {node.into.dtype} are none that tensor cores make")
    for rows, tile in node.terms:
        _full(reader, rows)
        reader.known(tile)
        touched(reader, tile, is_stored=False)
        _described(reader, rows, tile, columns)


def _full(reader: Reader, fragment: ir.Fragment) -> None:
    reader.known(fragment)
    if fragment not in reader.filled:
        reader.say(f"{fragment.name} is read before anything is in it")


def _described(reader: Reader, rows: ir.Fragment, tile: ir.Shared, columns: int) -> None:
    """The tile as a descriptor tells of it."""
    steps, *rest = rows.sizes
    chunks, pitch, *word = tile.sizes
    if (rows.dtype, tile.dtype) not in MULTIPLIED:
        reader.say(f"{rows.name} by {tile.name}: tensor cores cut off what is not rounded to tf32")
    core = [CORE_BYTES // ir.ITEM_BYTES[tile.dtype]]
    if rest != [4] or word != core or chunks < 2 * steps or pitch < columns or pitch >= MOST_UNITS:
        reader.say(f"{rows.name} {rows.sizes} by {tile.name} {tile.sizes} makes no {columns} columns")


def promote(reader: Reader, node: ir.Promote) -> None:
    for each in (node.into, node.value):
        _full(reader, each)
    if node.into.sizes != node.value.sizes:
        reader.say(f"{node.value.name} {node.value.sizes} moves to {node.into.name} {node.into.sizes}")
    products = [each for each in ir.every(reader.kernel.body) if isinstance(each, ir.Mma) and each.into is node.value]
    for product in products:
        if product.adds != node.adds:
            reader.say(f"{node.value.name} is added to when it was moved on, or begins anew when it was not")
