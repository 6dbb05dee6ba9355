"""Faults: what a kernel did wrong, where, and to which memory."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

LONGEST_TEXT = 1000


class NotCovered(Exception):
    """The source uses something that the emulator does not know; never a verdict on the candidate."""


@dataclass(frozen=True)
class Fault:
    """One thing that went wrong in a kernel, the first time it was seen."""

    kind: str
    """`out-of-bounds-global`, `race-shared`, `divergent-barrier`, ...: docs/emulator.md lists them."""
    kernel: str
    """As launched, template arguments included."""
    block: tuple[int, int, int]
    thread: tuple[int, int, int] | None
    """None in Triton, whose programs have none."""
    line: int
    """Line of the candidate's source, 0 when unknown."""
    memory: str
    """`12 bytes past the end of `out` (float[2048])`; empty when no memory is concerned."""
    detail: str
    """What was done, in words."""
    other_block: tuple[int, int, int] | None = None
    """The other side of a race, or of a barrier."""
    other_thread: tuple[int, int, int] | None = None
    other_line: int = 0
    count: int = 1
    """How often it was seen."""
    fatal: bool = False
    """Whether a GPU would have stopped the kernel (or refused the launch)."""
    file: str = "cuda.cu"
    """`cuda.cu` for `cuda_sources`, the file given to `load`, or the file of a Triton kernel."""
    python_line: int = 0
    """The same line in the Python file that holds the source as a string, 0 when unknown."""
    other_python_line: int = 0

    @property
    def convicts(self) -> bool:
        """Whether CUDA leaves undefined what was done, so that an answer which is right all the same is so by luck.
        Signed overflow (hashes on `int`) and kernels or barriers that nobody came to are told, no more."""
        return self.fatal or self.kind not in _TOLD

    @property
    def where(self) -> str:
        """Line and kernel alone."""
        return f"{self._place(self.line, self.python_line)}kernel {self.kernel}"

    @property
    def words(self) -> str:
        """One line for people."""
        place = "" if self.kind in _WITHOUT_THREAD else f", {_who(self.block, self.thread)}"
        other = ""
        if self.other_block is not None:
            other = f"; the other side: {_who(self.other_block, self.other_thread)}"
            other += f", line {self.other_python_line or self.other_line}" if self.other_line else ""
        what = f"{self.detail}: {self.memory}" if self.memory else self.detail
        return f"{self.kind}: {what} ({self.where}{place}{other})"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Any) -> Fault:
        """What `to_json` made, also from who is not trusted. Raises ValueError for anything else."""
        types = {f.name: str(f.type) for f in fields(cls)}
        if not isinstance(data, dict) or set(data) != set(types):
            raise ValueError(f"a fault has the fields {', '.join(types)}")
        return cls(**{name: _value(name, types[name], value) for name, value in data.items()})

    def _place(self, line: int, python_line: int) -> str:
        if not line:
            return ""
        return (f"line {python_line}, " if python_line else "") + f"{self.file}:{line}, "


def _who(block: tuple[int, int, int], thread: tuple[int, int, int] | None) -> str:
    return f"block {block}, thread {thread}" if thread else f"program {block}"


_TOLD = ("index-overflow", "never-ran", "never-reached")
_WITHOUT_THREAD = ("unordered-streams", "launch-limits", "unchecked-launch", "never-ran", "never-reached")


def _value(name: str, kind: str, value: Any) -> Any:
    if kind == "str" and isinstance(value, str):
        return value[:LONGEST_TEXT]
    if (kind == "int" and _is_count(value)) or (kind == "bool" and type(value) is bool):
        return value
    if kind.endswith("None") and value is None:
        return None
    if kind.startswith("tuple") and isinstance(value, list | tuple) and len(value) == 3 and all(map(_is_count, value)):
        return tuple(value)
    raise ValueError(f"{name} is {str(value)[:80]!r}")


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 62
