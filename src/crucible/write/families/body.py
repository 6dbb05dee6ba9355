"""One kernel: a program in a geometry, as text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from crucible.write.expression import Expr, parameter, substitute, tensor
from crucible.write.families.frame import constants, function, preamble
from crucible.write.families.geometry import Geometry
from crucible.write.families.passes import Pass, fresh, hoisted, kept, noun, passes
from crucible.write.families.scene import Scene
from crucible.write.families.source import START, block, converted, indented, unrolled
from crucible.write.families.threads import first, head, rows_missing
from crucible.write.families.tile import tile
from crucible.write.families.turning import brought, declared, left
from crucible.write.kernel import Kernel
from crucible.write.program import Program, Reduction, Result


def kernel(program: Program, geometry: Geometry, comments: list[str]) -> Kernel:
    """The kernel that computes a program, under comments.

    Where a row has several blocks, `<reduction>_parts` takes what each of them found instead of row results:
    [row][chunk] along columns, [chunk][row] along rows.
    """
    scene = Scene(program, geometry)
    body = _Body(scene)
    lines = [*head(scene), *scene.bases(), *declared(scene), *brought(scene)]
    lines += [*body.row_operands(), *body.passes(), *left(scene), *body.ends()]
    reads = tuple(each.name for each in program.operands)
    writes = tuple(each.name for each in program.results if scene.is_wide(each) or not scene.split)
    writes += tuple(scene.parts.values())
    lines = [*constants(scene, "\n".join(lines)), *lines]
    text = function(scene, program.name, [f"// {comment}" for comment in comments], lines, (reads, writes))
    grid = (geometry.blocks(program.row_count), 1, 1)
    return Kernel(program.name, text, preamble(scene, text), reads, writes, grid, geometry.threads)


@dataclass
class _Body:
    scene: Scene
    shared: str = ""
    """The array through which threads exchange what they found."""

    # what a row shares

    def row_operands(self) -> list[str]:
        """Operands of which a row reads one element."""
        scene, lines = self.scene, []
        for each in scene.of_rows:
            value = scene.values[each.name]
            words = f"{scene.words[each.name]}[{scene.row_place(each)}]"
            words = converted(words, each.dtype, scene.program.precision)
            if rows_missing(scene):
                words = f"row < rows ? {words} : {START['sum'][scene.program.precision]}"
            if scene.along_rows:
                lines += [f"{scene.type} {value}[vector];", *unrolled("j", "vector", [f"{value}[j] = {words};"])]
            else:
                lines.append(f"const {scene.type} {value} = {words};")
        scene.said += lines
        return lines

    def _row_values(self, exprs: Mapping[str, Expr]) -> list[str]:
        """Values for each row, under their names."""
        scene = self.scene
        if not exprs:
            return []
        if scene.along_rows:
            own, words = scene.named(exprs)
            stores = [f"{name}[j] = {words[name]};" for name in exprs]
            arrays = ", ".join(f"{name}[vector]" for name in exprs)
            lines = [f"{scene.type} {arrays};", *unrolled("j", "vector", [*own, *stores])]
        else:
            lines = scene.emit(exprs)
        scene.leaves |= {name: f"{name}[j]" if scene.along_rows else name for name in exprs}
        scene.row_values |= {expr: parameter(name) for name, expr in exprs.items()}
        scene.shared |= frozenset(exprs)
        scene.said += lines
        return lines

    # passes

    def passes(self) -> list[str]:
        scene = self.scene
        steps = passes(scene.program)
        between = [] if scene.geometry.looped else kept(scene.program)
        lines: list[str] = []
        held: dict[Expr, str] = {}
        for number, step in enumerate(steps):
            wanted = between[number] if number < len(between) else ()
            keep = {node: held.get(node) or fresh(f"kept_{noun(node)}", scene.taken) for node in wanted}
            lines += ["", f"// pass {number + 1}"] if len(steps) > 1 else [""]
            lines += self._pass(step, held, keep)
            held = keep
        return lines

    def _pass(self, step: Pass, held: dict[Expr, str], keep: dict[Expr, str]) -> list[str]:
        """A pass that reads the values `held` in registers and leaves those to `keep` there."""
        scene = self.scene
        new = {node: name for node, name in keep.items() if node not in held}
        known = {**scene.row_values, **{node: tensor(name) for node, name in held.items()}}
        roots = tuple(substitute(expr, known) for expr in (*step.roots, *new))
        roots, shared = hoisted(roots, scene.shared, scene.taken)
        lines = self._row_values(shared)
        scene.leaves |= {name: f"{name}{self._held('[k]', '[j]')}" for name in keep.values()}
        lines += [f"{scene.type} {name}{self._held('[packs]', '[vector]')};" for name in new.values()]
        lines += [self._start(reduction) for reduction in step.reductions]
        scene.said += lines
        names = [*(r.name for r in step.reductions), *(r.name for r in step.results), *new.values()]
        lines += self._tiles(tile(scene, step, dict(zip(names, roots, strict=True)), list(new.values())))
        return lines + [line for reduction in step.reductions for line in self._combined(reduction)]

    def _held(self, packs: str, vector: str) -> str:
        """Behind the name of a value that is kept for each element of a thread."""
        geometry = self.scene.geometry
        return (packs if geometry.packs > 1 else "") + (vector if geometry.vector > 1 else "")

    def _start(self, reduction: Reduction) -> str:
        scene, word = self.scene, self.scene.words[reduction.name]
        start = START[reduction.kind][scene.program.precision]
        if scene.along_rows:
            return f"{scene.type} {word}[vector] = {{{', '.join([start] * scene.geometry.vector)}}};"
        return f"{scene.type} {word} = {start};"

    def _tiles(self, lines: list[str]) -> list[str]:
        """Tile after tile where a thread takes several, else the one."""
        scene, geometry = self.scene, self.scene.geometry
        if geometry.looped:
            start, stop = ("begin", "end") if geometry.chunks > 1 else ("0", scene.columns)
            return block(f"for ({geometry.index} tile = {start}; tile < {stop}; tile += step)", lines)
        return ["{", *indented(lines), "}"] if len(passes(scene.program)) > 1 else lines

    def _combined(self, reduction: Reduction) -> list[str]:
        """Over all threads that share a row."""
        scene, geometry = self.scene, self.scene.geometry
        word, kind = scene.words[reduction.name], reduction.kind
        if geometry.team == 1:
            return []
        if not scene.along_rows and geometry.team <= 32:
            return [f"{word} = {kind}_over_team<team>({word});"]
        scope, of, sizes = ("block", "threads", "[threads / 32]")
        if scene.along_rows:
            scope, of, sizes = ("groups", "groups, lanes", "[groups][(vector | 1) * lanes]")
        lines = ["__syncthreads();  // others may still be reading the parts"]
        if not self.shared:
            self.shared = fresh("parts", scene.taken)
            why = "  // odd, so that groups meet different banks" if scene.along_rows else ""
            lines = [f"__shared__ {scene.type} {self.shared}{sizes};{why}"]
        call = f"{kind}_over_{scope}<{of}>({word}, {self.shared});"
        return [*lines, call if scene.along_rows else f"{word} = {call}"]

    # the ends of rows

    def ends(self) -> list[str]:
        """Row results, or what this block found of them."""
        scene, program = self.scene, self.scene.program
        results = [result for result in program.results if program.is_per_row(result)]
        if scene.split:
            lines = [self._part(reduction) for reduction in program.reductions]
        else:
            lines, words = scene.named({r.name: substitute(r.expr, scene.row_values) for r in results})
            lines += [self._row_result(result, words[result.name]) for result in results]
        if not lines:
            return []
        lines = unrolled("j", "vector", lines) if scene.along_rows else lines
        condition = first(scene)
        return ["", *(block(f"if ({condition})", lines) if condition else lines)]

    def _row_result(self, result: Result, value: str) -> str:
        scene = self.scene
        value = converted(value, scene.program.precision, result.dtype)
        return f"{scene.words[result.name]}[{scene.row_place(result)}] = {value};"

    def _part(self, reduction: Reduction) -> str:
        scene = self.scene
        place = "row * chunks + chunk" if scene.program.row_count > 1 else "chunk"
        place = f"chunk * rows + {scene.row_index}" if scene.along_rows else place
        return f"{scene.parts[reduction.name]}[{place}] = {scene.leaves[reduction.name]};"
