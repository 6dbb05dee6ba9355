"""What nodes of several tiles stand for: loads of matrices and products, one by one. Verifier and meaning go over
these, so such a node needs no rules of its own."""

from __future__ import annotations

from dataclasses import replace

from crucible.kernel import nodes as ir
from crucible.kernel.builder import Builder
from crucible.kernel.index import Number

MATRIX = 128
"""Words of a tile of rows: 16 by the depth of an instruction, four of each lane."""


def steps(node: ir.LoadTiles | ir.MultiplyTiles) -> ir.Body:
    """In the order in which they are done."""
    k = Builder()
    with k.scope():
        if isinstance(node, ir.MultiplyTiles):
            _multiply(k, node)
        else:
            _load(k, node)
    return k.body


def _load(k: Builder, node: ir.LoadTiles) -> None:
    tiles = node.into.of.sizes[-2]
    (begin,) = node.source.at
    for first in range(0, tiles, 2):
        two = ir.Element(ir.Fragment("two", node.into.of.dtype, (Number(4),), packed=True))
        place = ir.Held(node.reach, ir.Element(node.places.of, (*node.places.at, Number(first // 2))))
        k.add(ir.Declare((two.of,)), ir.LoadMatrix(two, replace(node.source, at=(begin + place,))))
        for word in range(2 * min(2, tiles - first)):
            into = ir.Element(node.into.of, (*node.into.at, Number(first + word // 2), Number(word % 2)))
            k.add(ir.Convert(into, ir.Element(two.of, (Number(word),))))


def _multiply(k: Builder, node: ir.MultiplyTiles) -> None:
    rows, columns, _ = node.into.of.shape[-3:]
    (begin,) = node.rows.at
    with k.unrolled("i", rows) as i:
        a = ir.Element(ir.Fragment("a", ir.HELD[node.math], (Number(4),), packed=True))
        k.add(ir.Load(a, replace(node.rows, at=(begin + i * MATRIX,)), declares=True))
        with k.unrolled("j", columns) as j:
            of_tile = ir.Element(node.columns.of, (*node.columns.at, j))
            k.add(ir.WarpMma(ir.Element(node.into.of, (*node.into.at, i, j)), a, of_tile, node.math))
