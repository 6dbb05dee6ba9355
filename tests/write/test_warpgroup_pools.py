"""Transposed convolutions with a pool over their phases by warpgroup instructions, on the emulator against PyTorch in
float64, with what backward makes of what they keep."""

from __future__ import annotations

from dataclasses import replace

import pytest
from conv_harness import TWO, Built, build, transposed
from pooled_harness import PooledCase, is_right

from crucible.write.convolution.fused import Convolution
from crucible.write.convolution.tiling import Tiling
from crucible.write.convolution.warpgroup.pooled import pool_division

pytestmark = pytest.mark.usefixtures("no_faults")


def pooled(name: str, shape: tuple[int, ...], made: int, size: int = 3, output_padding: int = 1, stride: int = 2,
           chain: str = "bent", kind: str = "max", dtype: str = "float32", padding: int = 1,
           **changed: int | tuple[int, ...]) -> PooledCase:  # fmt: skip
    """A pool over the phases; `changed` is of the best division."""
    rank = len(shape) - 2

    def division(conv: Convolution) -> Tiling:
        found = pool_division(conv, TWO)
        assert found is not None
        return replace(found, **changed)  # type: ignore[arg-type]

    of = transposed(name, shape, made, (size,) * rank, stride=stride, padding=padding, output_padding=output_padding,
                    dtype=dtype)  # fmt: skip
    return PooledCase(of, kind, (stride,) * rank, chain, division=division)


WHOLE = pooled("whole", (1, 16, 4, 3, 32), 32, box=(1, 1, 32), walk=3, groups=2, slots=4)
CASES = [
    WHOLE,
    pooled("one_dim", (3, 8, 21), 16, chain="scaled"),
    pooled("odd", (2, 9, 3, 5, 7), 20, output_padding=0, box=(1, 2, 7), walk=2, groups=2, slots=5, channels=32),
    pooled("two_tiles", (2, 8, 5, 12), 40, chain="clamped", box=(2, 12), channels=32),
    pooled("rows_of_one_phase", (2, 8, 5, 12), 70, chain="folded", box=(3, 12), channels=64),
    pooled("kernel_of_four", (2, 8, 3, 3, 9), 24, 4, 0, box=(1, 3, 9), walk=4, groups=2, channels=32),
    pooled("in_pieces", (1, 8, 4, 45), 32, 4, 0, chain="none", box=(2, 32), channels=32),
    pooled("three_teams", (2, 8, 5, 2, 8), 32, box=(1, 1, 8), walk=5, groups=3, slots=6, channels=32),
    pooled("stride_of_three", (2, 8, 4, 10), 64, 5, 0, stride=3, chain="folded", box=(2, 10)),
    pooled("mean", (2, 8, 4, 9), 20, kind="avg", chain="scaled", box=(2, 9)),
    pooled("halves", (2, 16, 3, 4, 8), 32, dtype="float16", box=(1, 2, 8), walk=3, groups=2),
    pooled("bfloats", (2, 20, 5, 8), 50, 4, 0, dtype="bfloat16"),
]


@pytest.fixture(scope="module")
def built() -> Built:
    return build(CASES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_kernels_compute_what_pytorch_does(built: Built, case: PooledCase) -> None:
    assert [kernel.architecture for kernel in built.lowered[case.name].kernels[:2]] == ["sm_90a"] * 2
    assert is_right(built, case) == ""
