"""A tile: what a thread loads at once, computes and stores."""

from __future__ import annotations

import re
from dataclasses import dataclass

from crucible.write.expression import Expr
from crucible.write.families.passes import Pass, fresh, loaded
from crucible.write.families.scene import Scene
from crucible.write.families.source import CUDA_TYPES, STEPS, block, converted, unrolled
from crucible.write.families.threads import column, guard
from crucible.write.program import Operand, Result


def tile(scene: Scene, step: Pass, exprs: dict[str, Expr], kept: list[str]) -> list[str]:
    """All loads, then the arithmetic of `exprs` (of reductions and results, and of the values `kept`), then stores."""
    work = _Tile(scene, [scene.program.operand(name) for name in loaded(scene.program, tuple(exprs.values()))])
    arithmetic = work.arithmetic(step, exprs, kept)
    if scene.geometry.packs == 1:
        return _guarded(scene, [*work.declared(), *work.loads(), *arithmetic])
    lines = work.declared()
    if work.operands:
        lines += unrolled("k", "packs", _guarded(scene, work.loads()))
    return lines + unrolled("k", "packs", _guarded(scene, arithmetic))


def _guarded(scene: Scene, lines: list[str]) -> list[str]:
    """With the column that the lines read, and only where there is one."""
    condition = guard(scene)
    inner = block(f"if ({condition})", lines) if condition else lines
    if not re.search(rf"\b{scene.column}\b", "\n".join(inner)):
        return inner
    return [f"const {scene.geometry.index} {scene.column} = {column(scene)};", *inner]


@dataclass
class _Tile:
    scene: Scene
    operands: list[Operand]

    def __post_init__(self) -> None:
        scene = self.scene
        direct = scene.geometry.packs == 1 and not scene.in_pack
        read = [] if direct else self.operands
        self.buffers = {each.name: fresh(f"{scene.words[each.name]}_read", scene.taken) for each in read}

    def declared(self) -> list[str]:
        """Variables that are loaded into."""
        return [self._declared(each, self.buffers[each.name]) for each in self.operands if each.name in self.buffers]

    def _declared(self, operand: Operand, buffer: str) -> str:
        type_ = CUDA_TYPES[operand.dtype]
        type_ = type_ if self.scene.access(operand) == "same" else f"Pack<{type_}, vector>"
        return f"{type_} {buffer}{'[packs]' if self.scene.k else ''};"

    def loads(self) -> list[str]:
        return [line for each in self.operands for line in self._load(each)]

    def _load(self, operand: Operand) -> list[str]:
        """Into the buffer, or into the value itself."""
        scene, access = self.scene, self.scene.access(operand)
        base, place = scene.base[operand.name], scene.place(operand, access == "each")
        if operand.name not in self.buffers:
            value = converted(f"{base}[{place}]", operand.dtype, scene.program.precision)
            return [f"const {scene.type} {scene.values[operand.name]} = {value};"]
        buffer = f"{self.buffers[operand.name]}{scene.k}"
        match access:
            case "same":
                return [f"{buffer} = {base}[{place}];"]
            case "pack":
                return [f"{buffer} = load<aligned, vector>({_plus(base, place)});"]
            case "each":
                return unrolled("j", "vector", [f"{buffer}.at[j] = {base}[{place}];"])

    def arithmetic(self, step: Pass, exprs: dict[str, Expr], kept: list[str]) -> list[str]:
        scene = self.scene
        lines = [self._value(each) for each in self.operands if each.name in self.buffers]
        own, words = scene.named(exprs)
        lines += own
        lines += [STEPS[r.kind].format(scene.leaves[r.name], words[r.name]) for r in step.reductions]
        lines += [f"{scene.leaves[name]} = {words[name]};" for name in kept]
        declared, stores = [], []
        for result in step.results:
            value = converted(words[result.name], scene.program.precision, result.dtype)
            before, inside, after = self._stored(result, value)
            declared += before
            lines += inside
            stores += after
        return [*declared, *(unrolled("j", "vector", lines) if scene.in_pack else lines), *stores]

    def _value(self, operand: Operand) -> str:
        scene = self.scene
        at = "" if scene.access(operand) == "same" else ".at[j]"
        read = f"{self.buffers[operand.name]}{scene.k}{at}"
        value = converted(read, operand.dtype, scene.program.precision)
        return f"const {scene.type} {scene.values[operand.name]} = {value};"

    def _stored(self, result: Result, value: str) -> tuple[list[str], list[str], list[str]]:
        """Lines before, in and after the loop over a pack."""
        scene = self.scene
        base, found = scene.base[result.name], scene.access(result)
        place = scene.place(result, found == "each")
        if found != "pack":
            return [], [f"{base}[{place}] = {value};"], []
        pack = fresh(f"{scene.words[result.name]}_pack", scene.taken)
        declared = [f"Pack<{CUDA_TYPES[result.dtype]}, vector> {pack};"]
        return declared, [f"{pack}.at[j] = {value};"], [f"store<aligned>({_plus(base, place)}, {pack});"]


def _plus(base: str, offset: str) -> str:
    return base if offset == "0" else f"{base} + {offset}"
