"""How a product is divided among multiprocessors, and how long it takes by estimate."""

from __future__ import annotations

from dataclasses import dataclass, field

from crucible.algebra.product import Product
from crucible.gpus import Gpu
from crucible.schedule import cost
from crucible.schedule.machine import H200, Machine, machine_of

TILE, STEP = 128, 32
"""Rows and columns of a block's tile; what it multiplies at a time of the depth."""
PROMOTED = 2
"""Steps after which sums move from tensor cores, which cut bits off as they add, to float32: relative errors on 1024 x
8192 x 8192 are 3.8e-7 after 1 step, 5.1e-7 after 2, 9.2e-7 after 4, 3.6e-6 after 16, 5.7e-5 if never; cuBLAS's float32
has 1.6e-6. The times are the same within 6 % (H200, a prototype of this kernel)."""
AHEAD = 4
"""Steps for which lines of the right operand are asked for ahead, to the L2 cache: 1.127 -> 1.037 ms (1024 x 8192 x
8192, H100; 8 steps 1.035; of both operands 1.120), and 1.146 -> 1.088 where it is turned."""
STAGES = 3
MIXED_DEPTH = 1024
"""From which on products with a lower word, 2^-11 of the others, are of bfloat16, twice as fast: by arithmetic in
float64 the result is then off by 6.0e-7 (relative L2), for 7e-8 of three products of TF32. Measured, with the sums: 7.2
to 7.4e-7, for 4.7 to 5.1e-7; cuBLAS's float32 5.7e-7 with a depth of 1024 and 1.6e-6 with 8192 (H100). Sums of fewer
numbers are more exact in float32 than that."""
LEAST_STEPS = 8
"""Of a part of the depth."""


@dataclass(frozen=True)
class ProductDivision:
    """Tiles of 128 x 128, the depth in `parts` that are added up in the end."""

    product: Product
    parts: int
    sms: int
    machine: Machine = field(default=H200, compare=False, repr=False)
    """By whose costs it is estimated."""

    @property
    def is_mixed(self) -> bool:
        """Whether products with a lower word are of bfloat16."""
        return self.product.depth >= MIXED_DEPTH

    @property
    def asks_ahead(self) -> bool:
        """Whether it asks for lines of the right operand, which are whole ones, before it loads them."""
        product = self.product
        return self.is_mixed and not (product.columns % TILE or product.depth % STEP)

    @property
    def row_tiles(self) -> int:
        return -(-self.product.rows // TILE)

    @property
    def column_tiles(self) -> int:
        return -(-self.product.columns // TILE)

    @property
    def steps(self) -> int:
        """Of the whole depth."""
        return -(-self.product.depth // STEP)

    @property
    def tiles(self) -> int:
        return self.product.batch * self.row_tiles * self.column_tiles

    @property
    def items(self) -> int:
        """A tile by a part of the depth."""
        return self.tiles * self.parts

    @property
    def blocks(self) -> int:
        return min(self.items, self.sms)

    @property
    def clocks(self) -> float:
        """Estimate."""
        rounds = -(-self.items // self.sms)
        product = self.product
        added = 4 * product.batch * product.rows * product.columns * (self.parts + 1) if self.parts > 1 else 0
        step = cost.product_step(self.machine, turned=product.right.strides[2] != 1, mixed=self.is_mixed)
        return cost.product_rounds(self.machine, rounds, -(-self.steps // self.parts) * step, added=added)


def divided(product: Product, gpu: Gpu) -> ProductDivision:
    """The division of least estimated time."""
    steps = -(-product.depth // STEP)
    most = max(1, steps // LEAST_STEPS)
    found = [ProductDivision(product, parts, gpu.sms, machine_of(gpu)) for parts in range(1, min(most, 32) + 1)]
    return min(found, key=lambda each: each.clocks)


def is_faster(product: Product, gpu: Gpu) -> bool:
    """Whether a kernel of ours is estimated to beat cuBLAS in float32, which uses no tensor cores."""
    return divided(product, gpu).clocks < cost.library_product(machine_of(gpu), product.flops)


def serves(product: Product, gpu: Gpu) -> bool:
    """Whether kernels can be written for a GPU: its instructions are Hopper's."""
    return gpu.compute_capability == (9, 0) and product.fits and min(product.left_shape + product.right_shape) > 0
