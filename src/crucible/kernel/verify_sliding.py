"""What must not be done with windows that slide along a pipeline, and with products of what lies in shared memory."""

from __future__ import annotations

import math

from crucible.kernel import nodes as ir
from crucible.kernel.index import Compare, Range
from crucible.kernel.reader import Reader
from crucible.kernel.verify_warpgroups import (
    CORE_BYTES,
    CORE_ROWS,
    MOST_COLUMNS,
    MOST_UNITS,
    WARPGROUP,
    at_hand,
    come_together,
    touched,
)

ROWS, UNITS = 64, 2
"""Of a product: its rows, and sixteens of bytes of K."""
MULTIPLIED = ("tf32", "float16", "bfloat16")


def vacant(reader: Reader, node: ir.Vacant) -> None:
    stage = reader.stage
    if stage is None or not isinstance(stage.node, ir.Fill) or stage.node.pipeline is not node.pipeline:
        reader.say(f"a stage of {node.pipeline.name} is waited for by threads that fill none")
        return
    stage.is_vacant = True


def slide(reader: Reader, node: ir.Slide) -> None:
    of = node.pipeline
    come_together(reader, of, of.consumers, "read")
    if of.consumers != of.teams * WARPGROUP or of.stages < of.window:
        reader.say(
            f"{of.name}: {of.teams} teams of {of.consumers} threads, windows of {of.window} of {of.stages} stages"
        )
    count = reader.reach(node.count)
    if reader.differs(node.count):
        reader.say(f"a window of {of.name} slides along a different number of stages for different threads")
    rounds = (Compare("<", node.variable, node.count),)
    with reader.inside({node.variable: Range(0, count.high - 1)}, holds=rounds):
        for _ in range(2):  # what a round leaves meets the next one
            reader.body(node.before)
            with at_hand(reader, node):
                reader.body(node.products)
            reader.body(node.behind)


def describe(reader: Reader, node: ir.Describe) -> None:
    of, stage = node.matrix.of, reader.stage
    reader.known(of)
    reader.declare(node.matrix)
    if of in reader.pipelines:
        touched(reader, of, is_stored=False)
        if stage and node.behind >= stage.node.pipeline.window:
            reader.say(f"{of.name} of a stage {node.behind} behind the oldest, and a window has fewer")
    elif of not in reader.fenced:
        reader.say(f"{of.name} is handed to tensor cores, which may not see it yet")
    reader.described[node.matrix] = reader.reach(node.at)


def products(reader: Reader, node: ir.Products) -> None:
    reader.role_together("a product")
    columns = 2 * node.into.elements
    if columns % CORE_ROWS or columns > MOST_COLUMNS or node.into.dtype != "float32":
        reader.say(f"{node.into.name}: {columns} columns of {node.into.dtype} are none that tensor cores make")
    for each in ir.every(node.body):
        if not isinstance(each, ir.For | ir.Describe | ir.Product):
            reader.say(f"{type(each).__name__} stands among products, whose sums are on their way")
        if isinstance(each, ir.Product) and each.into is not node.into:
            reader.say(f"{each.into.name} is waited for where {node.into.name} is")
    reader.body(node.body)


def product(reader: Reader, node: ir.Product) -> None:
    reader.known(node.into)
    if node.adds == () and node.into not in reader.filled:
        reader.say(f"{node.into.name} is read before anything is in it")
    reader.filled.add(node.into)
    for (matrix, moved), rows in ((node.rows, ROWS), (node.columns, 2 * node.into.elements)):
        reader.known(matrix)
        if matrix in reader.described:
            _described(reader, matrix, reader.described[matrix].plus(Range(moved, moved)), rows)


def _described(reader: Reader, matrix: ir.Matrix, begin: Range, rows: int) -> None:
    of = matrix.of
    if of.dtype not in MULTIPLIED or of.sizes[-1] * ir.ITEM_BYTES[of.dtype] != CORE_BYTES:
        reader.say(f"{of.name} of {of.dtype} {of.sizes} has no units of {CORE_BYTES} bytes that tensor cores multiply")
    if not rows <= matrix.pitch < MOST_UNITS:
        reader.say(f"{matrix.name}: {rows} rows, and units of K {matrix.pitch} apart")
    end, units = begin.high + (UNITS - 1) * matrix.pitch + rows, math.prod(of.sizes[:-1])
    if begin.low < 0 or end > units:
        reader.say(f"{of.name} is multiplied from unit {begin.low} up to {end}, and has {units}")
