"""Kernels of the IR with something changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from crucible.kernel import nodes as ir

WITH_A_BODY = (
    ir.For | ir.If | ir.Scope | ir.Fill | ir.Drain | ir.Send | ir.Own | ir.Products | ir.Share | ir.Foresee | ir.Ahead
)


def changed(
    kernel: ir.Kernel, kind: type | tuple[type, ...], change: Callable[[Any], ir.Node], which: int = 0
) -> ir.Kernel:
    """With the `which`-th node of a kind, outer ones first, replaced by what it becomes; -1 changes all."""
    count = 0

    def walk(body: ir.Body) -> ir.Body:
        nonlocal count
        found: list[ir.Node] = []
        for node in body:
            if isinstance(node, kind):
                count += 1
                node = change(node) if which in (count - 1, -1) else node
            if isinstance(node, ir.Roles):
                node = replace(node, roles=tuple(replace(role, body=walk(role.body)) for role in node.roles))
            if isinstance(node, ir.Slide | ir.Deal):
                words = ("begin", "before", "products", "behind", "end")
                node = replace(node, **{part: walk(getattr(node, part)) for part in words if hasattr(node, part)})
            if isinstance(node, ir.InTurn):
                node = replace(node, **{part: walk(getattr(node, part)) for part in ("before", "body", "behind")})
            node = replace(node, body=walk(node.body)) if isinstance(node, WITH_A_BODY) else node
            found.append(replace(node, otherwise=walk(node.otherwise)) if isinstance(node, ir.If) else node)
        return tuple(found)

    new = replace(kernel, body=walk(kernel.body))
    assert count > which, f"{kernel.name} has {count} such nodes"
    return new
