"""Tensors that lie in another order than threads go: by the line to and from shared memory, and turned round there."""

from __future__ import annotations

from crucible.write.families.layout import Tensor
from crucible.write.families.scene import Scene
from crucible.write.families.source import CUDA_TYPES, block, unrolled


def element(scene: Scene, tensor: Tensor) -> str:
    """The thread's j-th of its k-th pack."""
    column = "k * groups + group" if scene.geometry.packs > 1 else "group"
    row = "threadIdx.x % lanes * vector + j" if scene.geometry.vector > 1 else "threadIdx.x % lanes"
    return f"{scene.tile_of(tensor)}[{row}][{column}]"


def declared(scene: Scene) -> list[str]:
    """The arrays, and where the block's rows begin."""
    turned = [each for each in scene.tensors if scene.is_turned(each)]
    if not turned:
        return []
    arrays = [
        f"__shared__ {CUDA_TYPES[each.dtype]} {scene.tile_of(each)}[block_rows][step + 1];  // odd, against conflicts"
        for each in turned
    ]
    own = "threadIdx.x % lanes * vector" if scene.geometry.vector > 1 else "threadIdx.x % lanes"
    return [*arrays, f"const {scene.geometry.index} first_row = row - {own};"]


def brought(scene: Scene) -> list[str]:
    """What is read comes in."""
    lines: list[str] = []
    operands = [each for each in scene.program.operands if scene.is_turned(each)]
    for each in operands:
        type_, place = CUDA_TYPES[each.dtype], f"{scene.base[each.name]}[{scene.place(each, True)}]"
        missing = f"column < {scene.columns} ? {place} : {type_}()" if _is_ragged(scene) else place
        into = f"{scene.tile_of(each)}[t * (threads / step) + threadIdx.x / step][threadIdx.x % step]"
        loads = unrolled("t", "block_rows * step / threads", [*_where(scene), f"brought[t] = {missing};"])
        stores = unrolled("t", "block_rows * step / threads", [f"{into} = brought[t];"])
        lines += [
            "{",
            *(f"    {line}" for line in [f"{type_} brought[block_rows * step / threads];", *loads, *stores]),
            "}",
        ]
    return [*lines, "__syncthreads();"] if operands else []


def left(scene: Scene) -> list[str]:
    """What is written leaves."""
    lines: list[str] = []
    results = [each for each in scene.program.results if scene.is_turned(each)]
    for each in results:
        place = f"{scene.base[each.name]}[{scene.place(each, True)}]"
        of = f"{scene.tile_of(each)}[t * (threads / step) + threadIdx.x / step][threadIdx.x % step]"
        store = [f"{place} = {of};"]
        store = block(f"if (column < {scene.columns})", store) if _is_ragged(scene) else store
        lines += unrolled("t", "block_rows * step / threads", [*_where(scene), *store])
    return ["__syncthreads();", *lines] if results else []


def _where(scene: Scene) -> list[str]:
    """The row and column that a thread brings or takes away; neighbouring threads have neighbouring columns."""
    index = scene.geometry.index
    start = "chunk * step + " if scene.geometry.chunks > 1 else ""
    lines = [
        f"const {index} row = first_row + t * (threads / step) + threadIdx.x / step;",
        f"const {index} column = {start}threadIdx.x % step;",
    ]
    return [*lines, "constexpr int j = 0;"] if scene.geometry.vector > 1 or scene.along_rows else lines


def _is_ragged(scene: Scene) -> bool:
    return scene.program.column_count % scene.geometry.tile != 0
