"""Product: a product of float32 matrices, and its gradients, which are products again."""

from __future__ import annotations

from dataclasses import dataclass, replace

from crucible.algebra.program import Operand


@dataclass(frozen=True)
class Product:
    """result[b, i, j] = sum over k of left[b, i, k] * right[b, j, k], in float32."""

    name: str
    """A C++ identifier."""
    batch: int
    rows: int
    """How many i."""
    columns: int
    """How many j."""
    depth: int
    """How many k."""
    left: Operand
    """Its strides are of (b, i, k)."""
    right: Operand
    """Its strides are of (b, j, k)."""
    result: str
    result_strides: tuple[int, int]
    """Of (b, i); its columns are neighbours."""

    @property
    def left_shape(self) -> tuple[int, int, int]:
        return self.batch, self.rows, self.depth

    @property
    def right_shape(self) -> tuple[int, int, int]:
        return self.batch, self.columns, self.depth

    @property
    def flops(self) -> int:
        return 2 * self.batch * self.rows * self.columns * self.depth

    @property
    def fits(self) -> bool:
        """Whether both operands can be read, and the result written, sixteen bytes at a time."""
        laid = [(self.left, self.left_shape), (self.right, self.right_shape)]
        whole = all(stride % 4 == 0 for stride in (*self.result_strides, self.columns))
        return whole and all(_comes_in_fours(operand.strides, shape) for operand, shape in laid)

    def gradient(self, name: str, upstream: str) -> Product:
        """The product that makes the gradient of the operand `name`, laid as that is, from the result's: the tensor
        `upstream`, which lies as the result does."""
        batch, row = self.result_strides
        given = Operand(upstream, "float32", (batch, row, 1))  # of (b, i, j)
        if name == self.left.name:
            own, other, by = self.left, self.right, given
            lines, across = self.rows, self.columns
        else:
            own, other, by = self.right, self.left, _turned(given)
            lines, across = self.columns, self.rows
        # grad[b, i, k] = sum over j of by[b, i, j] * other[b, j, k], written along whichever of i and k are neighbours
        back = replace(
            self, name=f"{self.name}_{name}", rows=lines, columns=self.depth, depth=across,
            left=by, right=_turned(other), result=f"grad_{name}",
            result_strides=(own.strides[0], own.strides[1]),
        )  # fmt: skip
        if own.strides[2] == 1:
            return back
        strides = (own.strides[0], own.strides[2])
        return replace(
            back, rows=back.columns, columns=back.rows, left=back.right, right=back.left, result_strides=strides
        )


def _turned(operand: Operand) -> Operand:
    """With its last two dims exchanged."""
    batch, row, column = operand.strides
    return replace(operand, strides=(batch, column, row))


def _comes_in_fours(strides: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Whether elements of one of the last two dims are neighbours, whole fours of them, that begin at whole fours."""
    for near, far in ((2, 1), (1, 2)):
        if strides[near] == 1 and shape[near] % 4 == 0 and strides[far] % 4 == 0:
            return strides[0] % 4 == 0
    return False
