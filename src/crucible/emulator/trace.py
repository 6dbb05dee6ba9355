"""Trace: what kernels ask of memory, by source line, in the units that a GPU serves them in. No torch here."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, fields, replace
from itertools import groupby
from math import prod
from typing import Any

OPERATIONS = ("load", "store", "atomic")
SPACES = ("global", "shared")
LONGEST_NAME = 500
FOLLOWED_LAUNCHES = 4
"""Of one kernel in one shape."""
_MOST = 1 << 62
"""No count that was counted reaches it."""


@dataclass(frozen=True)
class Launch:
    """All launches of one kernel with one shape."""

    kernel: str
    """As launched, template arguments included."""
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    """Dynamic shared memory."""
    count: int
    """How often it was launched so."""
    followed: int
    """Blocks whose accesses were counted, of all launches: of each of the first four all, or 32 of a larger grid."""
    dropped: int
    """Accesses (of single threads) in followed blocks that were not counted: beyond the 4096th time between two
    barriers, or beyond what is held at a time."""
    accesses: int = 0
    """Of single threads in followed blocks, that were counted."""
    sectors: int = 0
    """Of 32 bytes of global memory that their requests asked for."""
    l1_wavefronts: int = 0
    """Passes of their requests through L1 and shared memory, of 128 bytes at most."""
    touched_sectors: int = 0
    """Different sectors of global memory that any block of a launch touched, of the first four launches."""
    half_flops: int = 0
    """Of matrix instructions on float16 and bfloat16 in the first four launches, a multiply-add as two."""
    tf32_flops: int = 0
    float64_flops: int = 0
    byte_flops: int = 0
    """On int8 and float8."""

    @property
    def of_launches(self) -> float:
        """All launches by those that were followed."""
        return self.count / min(self.count, FOLLOWED_LAUNCHES)

    @property
    def share(self) -> float:
        """Blocks followed by blocks launched."""
        return self.followed / (self.count * prod(self.grid))


@dataclass(frozen=True)
class Line:
    """Accesses of one kind and width by one source line of one kernel, in the blocks that were followed.

    A request is what a warp asks for in one instruction.
    """

    kernel: str
    file: str
    """`cuda.cu`, or the file given to `load`; empty when unknown."""
    line: int
    """0 when unknown."""
    operation: str
    """`load`, `store` or `atomic`."""
    space: str
    """`global` or `shared`."""
    width: int
    """Bytes that one lane asks for: 1, 2, 4, 8 or 16."""
    requests: int
    bytes: int
    """Asked for by all lanes of all requests together."""
    sectors: int
    """Global: different 32-byte sectors of each request, added up."""
    ideal_sectors: int
    """Global: what the different bytes of each request would fill, ceil(bytes / 32), added up."""
    wavefronts: int
    """Shared: passes through the 32 banks, added up; without conflicts `ideal_wavefronts`."""
    ideal_wavefronts: int
    """Shared: one for each request of up to 4 bytes a lane, one for each half warp of 8, quarter warp of 16."""
    worst_ways: int
    """Shared: different words that one pass wants of one bank, at most; 1 without conflicts."""
    atomics: int
    """Atomic operations, lanes counted one by one."""
    worst_in_warp: int
    """Lanes of one request at one address, at most."""
    worst_on_address: int
    """Atomic operations on one address: global, in one launch with all its blocks; shared, in one block."""

    @property
    def cost(self) -> int:
        """What lines are sorted by: sectors, four for a wavefront (both are 128 bytes at best), and atomics."""
        return self.sectors + 4 * self.wavefronts + self.atomics


@dataclass(frozen=True)
class Trace:
    """What was launched, and its lines, the most expensive first."""

    launches: tuple[Launch, ...] = ()
    lines: tuple[Line, ...] = ()

    def bounded(self, lines: int, launches: int) -> Trace:
        """The most expensive lines, and the first launches."""
        return Trace(self.launches[:launches], self.lines[:lines])

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Any) -> Trace:
        """What `to_json` made, also from who is not trusted. Raises ValueError for anything else."""
        if not isinstance(data, dict) or set(data) != {"launches", "lines"}:
            raise ValueError("a trace has launches and lines")
        if not all(isinstance(part, list | tuple) for part in data.values()):
            raise ValueError("launches and lines of a trace are lists")
        launches = tuple(_record(Launch, item) for item in data["launches"])
        return cls(launches, tuple(_record(Line, item) for item in data["lines"]))


@dataclass
class Seen:
    """What `with emulator.trace() as seen` gives: empty until the block is left."""

    trace: Trace = Trace()

    @property
    def launches(self) -> tuple[Launch, ...]:
        return self.trace.launches

    @property
    def lines(self) -> tuple[Line, ...]:
        return self.trace.lines


Resolve = Callable[[str, Iterable[int]], dict[int, tuple[str, int]]]
"""File and line of code addresses of a shared object."""


def from_runtime(data: dict[str, Any], resolve: Resolve) -> Trace:
    """The runtime's record, places in the code put together by source line."""
    for one in (*data["launches"], *data["places"]):
        one["kernel"] = one["kernel"][:LONGEST_NAME]
    launches = tuple(_record(Launch, launch) for launch in data["launches"])
    places = data["places"]
    modules = {place["module"] for place in places}
    where = {module: resolve(module, [p["pc"] for p in places if p["module"] == module]) for module in modules}
    lines = []
    for place in places:
        file, line = where[place.pop("module")][place.pop("pc")]
        lines.append(Line(file=file, line=line, **place))
    lines.sort(key=_identity)
    added = [_added(list(group)) for _, group in groupby(lines, _identity)]
    return Trace(launches, tuple(sorted(added, key=lambda line: -line.cost)))


def _identity(line: Line) -> tuple[str | int, ...]:
    return (line.kernel, line.file, line.line, line.operation, line.space, line.width)


def _added(lines: list[Line]) -> Line:
    """One line of several places: counts added, the worst kept."""
    counts = [name for name, kind in _TYPES[Line].items() if kind == "int" and name not in ("line", "width")]
    merge = {name: max if name.startswith("worst") else sum for name in counts}
    return replace(lines[0], **{name: merge[name](getattr(line, name) for line in lines) for name in counts})


_TYPES: dict[type, dict[str, str]] = {
    record: {f.name: str(f.type) for f in fields(record)} for record in (Launch, Line)
}
_ALLOWED = {"operation": OPERATIONS, "space": SPACES, "width": (1, 2, 4, 8, 16)}


def _record(kind: type, data: Any) -> Any:
    """A Launch or a Line with each field of its type and within bounds. Raises ValueError."""
    types = _TYPES[kind]
    if not isinstance(data, dict) or set(data) != set(types):
        raise ValueError(f"a {kind.__name__} has the fields {', '.join(types)}")
    return kind(**{name: _value(name, types[name], value) for name, value in data.items()})


def _value(name: str, kind: str, value: Any) -> Any:
    if name in _ALLOWED and value not in _ALLOWED[name]:
        raise ValueError(f"{name} is {str(value)[:80]!r}")
    if kind == "str" and isinstance(value, str) and len(value) <= LONGEST_NAME:
        return value
    if kind == "int" and _is_count(value):
        return value
    if kind.startswith("tuple") and isinstance(value, list | tuple) and len(value) == 3 and all(map(_is_count, value)):
        return tuple(value)
    raise ValueError(f"{name} is {str(value)[:80]!r}")


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < _MOST
