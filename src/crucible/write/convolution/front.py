"""A chain in front of a convolution: each element goes through it on its way to what tensor cores multiply."""

from __future__ import annotations

from dataclasses import replace

from crucible.target.cuda import CUDA_TYPES, converted, indented
from crucible.target.names import MARK, resolved
from crucible.write.convolution.fused import GIVEN
from crucible.write.convolution.pieces import WORDS, Words
from crucible.write.cuda import emit
from crucible.write.expression import Expr, name_of
from crucible.write.simplify import simplify
from crucible.write.text import text


def words(math: str, dtype: str, front: Expr | None, name: str) -> Words:
    """How elements of a dtype are multiplied: a key of `WORDS`, and the chain in front, in a function of this name."""
    plain = WORDS[math]
    if front is None:
        return plain
    found = emit({"value": simplify(front).exprs[0]}, {name_of(GIVEN): "given"}, mark=MARK)
    lines = [
        f"const float given = {converted('element', dtype, 'float32')};",
        *found.statements,
        f"return {plain.convert}({converted('value', 'float32', dtype)});",
    ]
    head = f"__device__ __forceinline__ auto {name}({CUDA_TYPES[dtype]} element) {{  // {text(front)}"
    function = resolved("\n".join([head, *indented(lines), "}"]))
    return replace(plain, convert=name, preamble=(*plain.preamble, *found.preamble, function))


def note(front: Expr) -> str:
    """In a kernel's description."""
    return f"Each element that is read becomes {text(front)} as it is staged."
