"""Where a thread stands: its row, its part of the row, and its columns there."""

from __future__ import annotations

from crucible.write.families.scene import Scene


def head(scene: Scene) -> list[str]:
    """The statements with which a kernel begins."""
    geometry, index = scene.geometry, scene.geometry.index
    own = "blockIdx.x" if index == "unsigned" else f"static_cast<{index}>(blockIdx.x)"
    if geometry.chunks == 1:
        return _row(scene, own)
    if scene.program.row_count > geometry.block_rows and scene.along_rows:  # rows are neighbours: so are blocks
        lines = [f"const {index} chunk = {own} / row_blocks;", *_row(scene, f"{own} % row_blocks")]
    elif scene.program.row_count > geometry.block_rows:
        lines = [f"const {index} chunk = {own} % chunks;", *_row(scene, f"{own} / chunks")]
    else:
        lines = [f"const {index} chunk = {own};", *_row(scene, "")]
    if geometry.looped:
        lines.append(f"const {index} begin = chunk * chunk_columns;")
        end = f"begin + chunk_columns < {scene.columns} ? begin + chunk_columns : {scene.columns}"
        lines.append(f"const {index} end = {end};")
    return lines


def _row(scene: Scene, place: str) -> list[str]:
    """The thread's row, from the block's place among rows."""
    geometry, rows = scene.geometry, scene.program.row_count
    if scene.along_rows:
        return _row_beside_others(scene, place)
    if geometry.team == geometry.threads:
        return [f"const {geometry.index} row = {place};"] if rows > 1 else []
    lines = ["const unsigned thread = threadIdx.x % team;"] if geometry.team > 1 else []
    own = "threadIdx.x / team" if geometry.team > 1 else "threadIdx.x"
    lines.append(f"const {geometry.index} row = {f'{place} * block_rows + ' if place else ''}{own};")
    whole_warps = geometry.team >= 32
    return [*lines, "if (row >= rows) return;"] if rows % geometry.block_rows and whole_warps else lines


def _row_beside_others(scene: Scene, place: str) -> list[str]:
    geometry = scene.geometry
    own = "threadIdx.x % lanes" if geometry.team > 1 else "threadIdx.x"
    row = f"{place} * lanes + {own}" if place else own
    if geometry.vector > 1:
        row = f"({row}) * vector"
    lines = [f"const {geometry.index} row = {row};"]
    if geometry.team > 1:
        lines.append("const unsigned group = threadIdx.x / lanes;")
    return [*lines, "if (row >= rows) return;"] if scene.program.row_count % geometry.block_rows else lines


def rows_missing(scene: Scene) -> bool:
    """Whether lanes of a warp may stand beyond the last row: they stay, since the others shuffle with them."""
    geometry = scene.geometry
    return not scene.along_rows and geometry.team < 32 and scene.program.row_count % geometry.block_rows != 0


def column(scene: Scene) -> str:
    """The column of a pack's first element."""
    geometry = scene.geometry
    own, count = ("threadIdx.x", "threads") if geometry.team == geometry.threads else ("thread", "team")
    if scene.along_rows:
        own, count = "group", "groups"
    own = own if geometry.team > 1 else ""
    place = own
    if geometry.packs > 1:
        place = f"k * {count} + {own}" if own else "k"
    if not scene.along_rows and geometry.vector > 1 and place:
        place = f"({place}) * vector" if " " in place else f"{place} * vector"
    start = "tile" if geometry.looped else "chunk * step" if geometry.chunks > 1 else ""
    return " + ".join(part for part in (start, place) if part) or "0"


def guard(scene: Scene) -> str:
    """The condition under which there is such a column; empty where there always is."""
    geometry, columns = scene.geometry, scene.program.column_count
    conditions = ["row < rows"] if rows_missing(scene) else []
    part = geometry.chunk if geometry.chunks > 1 else columns
    if columns % part or part % geometry.tile:
        end = "end" if geometry.looped and geometry.chunks > 1 else scene.columns
        conditions.append(f"{scene.column} < {end}")
    return " && ".join(conditions)


def first(scene: Scene) -> str:
    """The condition under which a thread speaks for all that share its row."""
    geometry = scene.geometry
    own = "threadIdx.x" if geometry.team == geometry.threads else "thread"
    conditions = [f"{'group' if scene.along_rows else own} == 0"] if geometry.team > 1 else []
    return " && ".join([*conditions, *(["row < rows"] if rows_missing(scene) else [])])
