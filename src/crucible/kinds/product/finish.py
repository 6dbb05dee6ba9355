"""Adds up what was made of each part of a product's depth."""

from __future__ import annotations

from crucible.algebra.buffer import Buffer
from crucible.kernel import nodes as ir
from crucible.kernel.builder import Builder
from crucible.kernel.index import Number, Place, Size
from crucible.kinds.product.frame import VECTOR, elements
from crucible.schedule.product import ProductDivision

THREADS = 256


def finish(division: ProductDivision, parts: Buffer) -> ir.Kernel:
    """In order; a thread has four neighbours."""
    k, product = Builder(), division.product
    count = product.batch * product.rows * product.columns
    blocks = -(-(count // VECTOR) // THREADS)
    batch, row = (Size(f"out_{of}_stride", n) for of, n in zip(("batch", "row"), product.result_strides, strict=True))
    part_stride, vector = Size("part_stride", count), Size("vector", VECTOR)
    shape, fours = (product.batch, product.rows, product.columns), product.columns // VECTOR
    read = ir.Tensor(parts.name, "float32", "read", parts.elements)
    written = ir.Tensor(product.result, "float32", "write", elements(shape, (batch.value, row.value, 1)))
    i = k.let("i", Place("block", blocks) * THREADS + Place("thread", THREADS), "int")
    k.add(ir.Exit(i, Number(count // VECTOR)))
    total, more = (ir.Fragment(name, "float32", (Number(VECTOR),), True) for name in ("total", "more"))
    k.add(ir.Declare((total,)), ir.Load(ir.Element(total), ir.Global(read, i * vector)))
    with k.unrolled("part", Number(division.parts - 1)) as part:
        k.add(ir.Load(ir.Element(more), ir.Global(read, i * vector + (part + 1) * part_stride), declares=True))
        for j in map(Number, range(VECTOR)):
            k.add(ir.Accumulate("sum", ir.Element(total, (j,)), ir.Element(more, (j,))))
    place = i // fours % product.rows * row + i % fours * VECTOR
    place = i // (fours * product.rows) * batch + place if product.batch > 1 else place
    k.add(ir.Store(ir.Element(total), ir.Global(written, place), plainly=True))
    note = f"Adds up what was made of {division.parts} parts of the depth, in order."
    return ir.Kernel(
        f"{product.name}_finish", (read, written), (vector, part_stride, batch, row), blocks, THREADS, "long long",
        k.body, (note,),
    )  # fmt: skip
