"""Imports go one way, and torch stays where it is needed."""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from pathlib import Path

import pytest

import crucible

PACKAGE = Path(crucible.__file__).parent
LAYERS = [
    {
        "errors",
        "legible",
        "hardware",
        "contract",
        "gpus",
        "occupancy",
        "spread",
        "seeds",
        "syntax",
        "underway",
        "tf32",
        "copies",
        "memory_errors",
    },
    {"shapes", "answer"},
    {"task", "candidate", "store", "roofline", "graph"},
    {"rates", "products", "tracing"},
    {"work"},
    {"capture"},
    {"target"},
    {"algebra"},
    {"kernel"},
    {"schedule"},
    {"print"},
    {"kinds"},
    {"plan"},
    {"emission"},
    {"emulator"},
    {"judge"},
    {"tuning"},
    {"run"},
    {"explain"},
    {"report"},
    {"records", "request", "listening"},
    {"bench"},
    {"graphed"},
    {"pipeline", "fusing", "trial", "doctor"},
    {"scoring", "fleet", "interchange", "backend"},
    {"serve"},
    {"cli"},
    {"__main__"},
]
WITH_TORCH = {
    *("confined", "checked", "forkserver"),  # judge.process: what runs as a candidate, and what is forked
    *("mapping", "where", "relations", "edits", "mistakes", "windows", "folds", "variants", "gradient_variants"),
    *(
        "extension",
        "pretend",
        "graphs",
        "streams",
        "interpreter",
        "watch",
        "memory",
        "memories",
        "arithmetic",
        "libdevice",
        "device",
    ),
    *("tf32", "copies", "memory_errors"),
    *(
        "rates",
        "work",
        "products",
        "tracing",
        "fusing",
        "trial",
        "float64",
        "expected",
        "bench",
        "search",
        "surface",
        "rival",
        "exactness",
        "backend",
        "graphed",
    ),
}
"""Modules, by their names, in rooms where others need none."""
TORCH_ROOMS = ("crucible.capture", "crucible.judge.boundary", "crucible.judge.oracle", "crucible.judge.worker")
MIXED = (
    "backend",
    "graphed",
    "emulator",
    "judge",
    "rates",
    "tf32",
    "copies",
    "memory_errors",
    "work",
    "products",
    "tracing",
    "fusing",
    "trial",
    "tuning",
)
"""Where some modules need torch."""
WITH_NUMPY = {
    "evaluate",
    "meaning",
    "meaning_bulk",
    "meaning_pipelines",
    "meaning_scaled",
    "meaning_sharing",
    "meaning_streams",
    "meaning_windows",
    "tensor_cores",
    "whereabouts",
}
FILES = sorted(PACKAGE.rglob("*.py"))


def parts(file: Path) -> tuple[str, ...]:
    return file.relative_to(PACKAGE).with_suffix("").parts


ROOMS = {
    room: [file for file in FILES if parts(file)[0] == room] for room in sorted({parts(file)[0] for file in FILES})
}


@functools.cache
def imported(file: Path) -> frozenset[str]:
    """Every module a file imports anywhere in it, lazily too; `from crucible import x` counts as crucible.x."""
    found = set[str]()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file.name}, line {node.lineno}: a relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(found)


def in_a_torch_room(file: Path) -> bool:
    return ".".join(("crucible", *parts(file))).startswith(tuple(f"{room}." for room in TORCH_ROOMS))


def layer(part: str) -> int:
    return next(i for i, names in enumerate(LAYERS) if part in names)


def test_every_file_has_a_layer() -> None:
    tops = {parts(file)[0] for file in FILES} - {"__init__"}
    assert tops == set().union(*LAYERS)


@pytest.mark.parametrize("file", FILES, ids=lambda file: "/".join(parts(file)))
def test_imports_go_down(file: Path) -> None:
    """Into a lower layer, or beside in the same one; never up."""
    if parts(file) == ("__init__",):
        return
    own = layer(parts(file)[0])
    for name in imported(file):
        top, *rest = name.split(".")
        if top == "crucible" and layer(rest[0]) > own:
            raise AssertionError(f"{'/'.join(parts(file))} imports {name}, which is above it")


@pytest.mark.parametrize("room", ROOMS)
def test_nobody_imports_the_front_door(room: str) -> None:
    """`from crucible import x` is for modules x alone, not for what `__init__` hands out."""
    for file, name in [(each, name) for each in ROOMS[room] for name in imported(each)]:
        assert name != "crucible", f"{file}: import what is needed from the module that defines it"
        if name.count(".") == 1 and name.startswith("crucible."):
            place = PACKAGE / name.split(".")[1]
            assert place.is_dir() or place.with_suffix(".py").is_file(), f"{file}: {name}"


def test_there_is_no_circle() -> None:
    """Modules can be put in an order in which each imports only earlier ones."""
    modules = {".".join(("crucible", *parts(file))): file for file in FILES if file.name != "__init__.py"}
    needs = {
        module: {name for i in imported(file) for name in (i, i.rpartition(".")[0]) if name in modules}
        for module, file in modules.items()
    }
    done: set[str] = set()
    while ready := {m for m, needed in needs.items() if m not in done and needed <= done}:
        done |= ready
    assert set(modules) == done


@pytest.mark.parametrize("room", ROOMS)
def test_torch_is_imported_only_where_it_computes(room: str) -> None:
    for file in ROOMS[room]:
        uses = any(name.split(".")[0] == "torch" for name in imported(file))
        allowed = in_a_torch_room(file) or (parts(file)[0] in MIXED and parts(file)[-1] in WITH_TORCH)
        assert allowed or not uses, file


def test_the_judges_side_of_the_boundary_never_loads_torch() -> None:
    apart = WITH_TORCH | WITH_NUMPY | {"__init__", "__main__"}
    modules = [".".join(parts(file)) for file in FILES if file.stem not in apart and not in_a_torch_room(file)]
    inside = {"judge.verify", "judge.examine", "judge.process.supervisor", "judge.timing.race"}
    expected = {"cli.judge", "pipeline", *inside}
    assert expected <= set(modules)
    lines = [f"import crucible.{module}" for module in modules]
    code = "\n".join([*lines, "import sys", "print(sorted({'torch', 'numpy'} & set(sys.modules)))"])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


JUDGE_ROOMS = [
    {"verdict"},
    {"boundary"},
    {"process", "oracle", "worker", "diagnosis", "timing", "verify", "examine", "prepared", "surface"},
]
OUTSIDE_MAY_USE = {"fusing": "surface", "tuning": "surface"}


@pytest.mark.parametrize("file", [f for f in FILES if parts(f)[0] == "judge"], ids=lambda file: "/".join(parts(file)))
def test_the_judges_rooms_are_used_one_way(file: Path) -> None:
    """Records know nobody; what both sides of the boundary share knows records at most; a candidate's process never
    imports what knows the reference or decides anything."""
    if len(parts(file)) < 3:
        return
    room = parts(file)[1]
    own = next(i for i, names in enumerate(JUDGE_ROOMS) if room in names)
    used = {name.split(".")[2] for name in imported(file) if name.startswith("crucible.judge.")}
    for other in used:
        assert next(i for i, names in enumerate(JUDGE_ROOMS) if other in names) <= own, f"{room} imports {other}"
    if room == "worker":
        assert not used & {"oracle", "diagnosis", "timing"}


@pytest.mark.parametrize("room, door", OUTSIDE_MAY_USE.items())
def test_others_use_the_judge_through_its_surface(room: str, door: str) -> None:
    for file in FILES:
        if parts(file)[0] == room:
            inside = {name for name in imported(file) if name.startswith("crucible.judge.")}
            assert all(name.startswith(f"crucible.judge.{door}") for name in inside), f"{parts(file)}: {inside}"
