"""A tile: what a thread loads at once, computes and stores."""

from __future__ import annotations

import re
from dataclasses import dataclass

from crucible.write.expression import Expr
from crucible.write.families.geometry import LOADS
from crucible.write.families.passes import Pass, fresh, heavy, loaded
from crucible.write.families.scene import Scene
from crucible.write.families.source import CUDA_TYPES, STEPS, block, converted, unrolled
from crucible.write.families.threads import column, guard
from crucible.write.families.turning import element
from crucible.write.program import Operand, Result


def tile(scene: Scene, step: Pass, exprs: dict[str, Expr], kept: list[str]) -> list[str]:
    """All loads, then the arithmetic of `exprs` (of reductions and results, and of the values `kept`), then stores."""
    work = _Tile(scene, [scene.program.operand(name) for name in loaded(scene.program, tuple(exprs.values()))])
    arithmetic = [*work.late_loads(), *work.arithmetic(step, exprs, kept)]
    if not work.early:
        one = _guarded(scene, arithmetic)
        return unrolled("k", "packs", one) if scene.k else one
    loads = unrolled("k", "packs", _guarded(scene, work.early_loads()))
    return [*work.declared(), *loads, *unrolled("k", "packs", _guarded(scene, arithmetic))]


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
        read = self.operands if scene.k or scene.in_pack else []
        self.buffers = {each.name: fresh(f"{scene.words[each.name]}_read", scene.taken) for each in read}
        traffic, few = heavy(scene.program), scene.geometry.packs <= LOADS
        self.early = [
            each
            for each in self.operands
            if scene.k and (each.name in traffic or (few and scene.access(each) == "same"))
        ]
        """Read for all packs of a tile before anything is computed, so that many loads are under way. What many
        elements share comes out of a cache, and would take as many registers."""

    def declared(self) -> list[str]:
        """Variables that are loaded into."""
        return [f"{self._type(each)} {self.buffers[each.name]}[packs];" for each in self.early]

    def _type(self, operand: Operand) -> str:
        type_ = CUDA_TYPES[operand.dtype]
        return type_ if self.scene.access(operand) == "same" else f"Pack<{type_}, vector>"

    def early_loads(self) -> list[str]:
        return [line for each in self.early for line in self._load(each, f"{self.buffers[each.name]}[k]", "")]

    def late_loads(self) -> list[str]:
        """Of what is read where it is used."""
        scene, lines = self.scene, []
        for each in (each for each in self.operands if each not in self.early):
            if each.name in self.buffers:
                lines += self._load(each, self.buffers[each.name], self._type(each))
            else:
                value = converted(self._element(each), each.dtype, scene.program.precision)
                lines.append(f"const {scene.type} {scene.values[each.name]} = {value};")
        return lines

    def _element(self, operand: Operand) -> str:
        scene = self.scene
        if scene.is_turned(operand):
            return element(scene, operand)
        return f"{scene.base[operand.name]}[{scene.place(operand, scene.access(operand) == 'each')}]"

    def _load(self, operand: Operand, buffer: str, type_: str) -> list[str]:
        """Into a variable, which is declared where a type is given."""
        scene, access = self.scene, self.scene.access(operand)
        start = f"const {type_} " if type_ else ""
        if access == "pack":
            place = _plus(scene.base[operand.name], scene.place(operand, False))
            return [f"{start}{buffer} = load<aligned, vector>({place});"]
        if access == "same":
            return [f"{start}{buffer} = {self._element(operand)};"]
        declared = [f"{type_} {buffer};"] if type_ else []
        return [*declared, *unrolled("j", "vector", [f"{buffer}.at[j] = {self._element(operand)};"])]

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
        read = f"{self.buffers[operand.name]}{'[k]' if operand in self.early else ''}{at}"
        value = converted(read, operand.dtype, scene.program.precision)
        return f"const {scene.type} {scene.values[operand.name]} = {value};"

    def _stored(self, result: Result, value: str) -> tuple[list[str], list[str], list[str]]:
        """Lines before, in and after the loop over a pack."""
        scene = self.scene
        base, found = scene.base[result.name], scene.access(result)
        if scene.is_turned(result):
            return [], [f"{element(scene, result)} = {value};"], []
        place = scene.place(result, found == "each")
        if found != "pack":
            return [], [f"{base}[{place}] = {value};"], []
        pack = fresh(f"{scene.words[result.name]}_pack", scene.taken)
        declared = [f"Pack<{CUDA_TYPES[result.dtype]}, vector> {pack};"]
        return declared, [f"{pack}.at[j] = {value};"], [f"store<aligned>({_plus(base, place)}, {pack});"]


def _plus(base: str, offset: str) -> str:
    return base if offset == "0" else f"{base} + {offset}"
