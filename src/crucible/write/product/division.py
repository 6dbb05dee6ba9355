"""How a product is divided among multiprocessors, and how long it takes by estimate."""

from __future__ import annotations

from dataclasses import dataclass

from crucible.gpus import Gpu
from crucible.write.product.matrix import Product

TILE, STEP = 128, 32
"""Rows and columns of a block's tile; what it multiplies at a time of the depth."""
PROMOTED = 2
"""Steps after which sums move from tensor cores, which cut bits off as they add, to float32: relative errors on 1024 x
8192 x 8192 are 3.8e-7 after 1 step, 5.1e-7 after 2, 9.2e-7 after 4, 3.6e-6 after 16, 5.7e-5 if never; cuBLAS's float32
has 1.6e-6. The times are the same within 6 % (H200, a prototype of this kernel)."""
STAGES = 3
STEP_CLOCKS, TURNED_CLOCKS = 1900, 2150
"""Of a tile: 1024 x 8192 x 8192 takes four rounds of 256 steps, 1.20 ms at 1.6 GHz, and 1.35 where the right operand
is turned as it is staged (H200: `benchmarks/results/products_h200.json`); tensor cores are busy for 1536."""
ROUND_CLOCKS = 3000
"""Assumed: until the first step's words are there, and from the last sums to memory."""
BYTES_A_CLOCK = 2400
"""Of memory, all multiprocessors together."""
LEAST_STEPS = 8
"""Of a part of the depth."""
LIBRARY_FLOPS_A_CLOCK = 28_000
"""Of cuBLAS in float32: 49 TFLOP/s (H200, same record)."""


@dataclass(frozen=True)
class ProductDivision:
    """Tiles of 128 x 128, the depth in `parts` that are added up in the end."""

    product: Product
    parts: int
    sms: int

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
        step = STEP_CLOCKS if product.right.strides[2] == 1 else TURNED_CLOCKS
        added = 4 * product.batch * product.rows * product.columns * (self.parts + 1) if self.parts > 1 else 0
        return rounds * (-(-self.steps // self.parts) * step + ROUND_CLOCKS) + added / BYTES_A_CLOCK


def divided(product: Product, gpu: Gpu) -> ProductDivision:
    """The division of least estimated time."""
    steps = -(-product.depth // STEP)
    most = max(1, steps // LEAST_STEPS)
    found = [ProductDivision(product, parts, gpu.sms) for parts in range(1, min(most, 32) + 1)]
    return min(found, key=lambda each: each.clocks)


def is_faster(product: Product, gpu: Gpu) -> bool:
    """Whether a kernel of ours is estimated to beat cuBLAS in float32, which uses no tensor cores."""
    return divided(product, gpu).clocks < product.flops / LIBRARY_FLOPS_A_CLOCK


def serves(product: Product, gpu: Gpu) -> bool:
    """Whether kernels can be written for a GPU: its instructions are Hopper's."""
    return gpu.compute_capability == (9, 0) and product.fits and min(product.left_shape + product.right_shape) > 0
