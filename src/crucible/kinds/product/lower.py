"""A product of matrices for warpgroups: float32 by three products, sums promoted to float32."""

from __future__ import annotations

import textwrap

from crucible.algebra.buffer import Buffer
from crucible.algebra.product import Product
from crucible.gpus import Gpu
from crucible.kernel import nodes as ir
from crucible.kernel.builder import Builder
from crucible.kernel.index import Place
from crucible.kinds.built import Built, BuiltSteps
from crucible.kinds.product.consume import Consuming
from crucible.kinds.product.finish import finish
from crucible.kinds.product.frame import CONSUMERS, PRODUCERS, THREADS, Frame
from crucible.kinds.product.produce import Producing
from crucible.kinds.steps import Steps
from crucible.print.written import Lowered
from crucible.schedule.product import PROMOTED, STAGES, STEP, TILE, ProductDivision, divided

REGISTERS, MIXED_REGISTERS = (176, 80), (168, 88)
"""Of consumers and of producers, which with bfloat16 hold pairs too (with 80 they spilled 8 to 12 bytes)."""


def build_product(product: Product, gpu: Gpu) -> Built:
    """The kernels: one multiplies, a second adds parts of the depth up where there are several."""
    division = divided(product, gpu)
    if division.parts == 1:
        return _built(division, None)
    elements = product.batch * product.rows * product.columns
    return _built(division, Buffer(f"{product.result}_parts", "float32", division.parts * elements))


def lower_product(product: Product, gpu: Gpu) -> Lowered:
    """As text."""
    return build_product(product, gpu).lowered()


def lower_product_backward(product: Product, wanted: tuple[str, ...], upstream: str, gpu: Gpu) -> Steps:
    """The gradients of those operands that are wanted, as `grad_<operand>`."""
    made = [product.gradient(name, upstream) for name in wanted]
    steps = tuple(build_product(each, gpu) for each in made)
    return BuiltSteps(steps, (), tuple(each.result for each in made)).lowered()


def _built(division: ProductDivision, parts: Buffer | None) -> Built:
    frame = Frame(division, parts)
    told = _notes(frame)
    kernels = (_kernel(frame, told), *([finish(division, parts)] if parts else []))
    return Built(kernels, (parts,) if parts else (), told)


def _kernel(frame: Frame, told: tuple[str, ...]) -> ir.Kernel:
    """The kernel that multiplies."""
    k, roles = Builder(), list[ir.Role]()
    lane = k.let("lane", Place("thread", THREADS) % 32, "int")
    warp = k.let("warp", Place("thread", THREADS) // 32, "int")
    k.add(ir.Declare(frame.ring))
    multiplying, bringing = MIXED_REGISTERS if frame.division.is_mixed else REGISTERS
    with k.role("consumers", CONSUMERS, multiplying, roles):
        Consuming(frame, k, lane, warp).consume()
    with k.role("producers", PRODUCERS, bringing, roles):
        Producing(frame, k).produce()
    k.add(ir.Roles(tuple(roles), warp))
    tensors = (frame.left.tensor, frame.right.tensor, frame.result)
    lines = tuple(line for sentence in told for line in textwrap.wrap(sentence, 104))
    return ir.Kernel(
        frame.product.name, tensors, frame.sizes, frame.division.blocks, THREADS, "long long", k.body, lines,
    )  # fmt: skip


def _notes(frame: Frame) -> tuple[str, ...]:
    product, division = frame.product, frame.division
    batch = f"{product.batch} products of " if product.batch > 1 else ""
    parts = f", the depth in {division.parts} parts that are added up in order" if division.parts > 1 else ""
    three = "one of TF32 and two of bfloat16 for lower words" if division.is_mixed else "three of TF32"
    return (
        f"{batch}{product.rows} x {product.depth} by {product.depth} x {product.columns}, each product of float32"
        f" as {three}, sums promoted to float32 every {PROMOTED * STEP} of the depth; warpgroup"
        " instructions, on compute capability 9.0 alone.",
        f"A block makes {TILE} x {TILE} at a time{parts}: {CONSUMERS // 128} warpgroups multiply 64 rows each, from"
        f" registers, by columns that {PRODUCERS // 128} others have split and stored, {STEP} of the depth at a time in"
        f" {STAGES} slots ({frame.ring.bytes // 1024} KiB).",
    )
