"""The FlashInfer Trace schema, as FlashInfer-Bench and SOL-ExecBench write it: what is to be computed (definition), on
what (workload), by what (solution). Read from JSON, checked for what is used of it."""

from __future__ import annotations

import ast
import json
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from crucible.errors import MisuseError
from crucible.syntax import tree_of

DTYPES = (
    "float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int64", "int32", "int16", "int8",
    "bool",
)  # fmt: skip
"""Those of the schema that a PyTorch tensor has; its 4-bit floats have none to draw or to compare."""
PYTHON = frozenset(("python", "pytorch", "triton", "tilelang", "cute_dsl", "cutile", "cudnn_frontend"))
NATIVE = frozenset(("cuda", "cpp", "cuda_cpp", "cutlass", "cudnn", "cublas"))
SOURCES = (".cu", ".cpp", ".cc", ".cxx", ".c")


@dataclass(frozen=True)
class Tensor:
    """An input or output."""

    name: str
    shape: tuple[str, ...] | None
    """Names of axes, or numbers; None for a Python scalar."""
    dtype: str


@dataclass(frozen=True)
class Definition:
    """What is to be computed."""

    name: str
    op_type: str
    axes: Mapping[str, Any]
    """`const` with a value, `var`, or `expr` with an expression of the others."""
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    reference: str
    """Python that defines `run`, which takes the inputs in order and returns the outputs."""
    entry: str = ""
    """A function of the reference that makes inputs (`custom_inputs_entrypoint`)."""

    def sizes(self, workload: Workload) -> dict[str, int]:
        """Each axis in numbers. Raises MisuseError."""
        known = {name: axis["value"] for name, axis in self.axes.items() if axis.get("type") == "const"}
        for name, axis in self.axes.items():
            if axis.get("type") == "var":
                if name not in workload.axes:
                    raise MisuseError(f"{self.name}: workload {workload.uuid} gives no size for axis {name!r}")
                known[name] = workload.axes[name]
        for name, axis in self.axes.items():
            if axis.get("type") == "expr":
                known[name] = _computed(str(axis.get("expression")), known, f"{self.name}, axis {name!r}")
        return known

    def shape(self, tensor: Tensor, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """Raises MisuseError for an axis that there is none of."""
        names = tensor.shape or ()
        unknown = [name for name in names if not name.isdecimal() and name not in sizes]
        if unknown:
            raise MisuseError(f"{self.name}: {tensor.name} has an axis {unknown[0]!r}, which is not among its axes")
        return tuple(int(name) if name.isdecimal() else sizes[name] for name in names)


@dataclass(frozen=True)
class Workload:
    """On what."""

    uuid: str
    axes: Mapping[str, int]
    inputs: Mapping[str, Any]
    """By name: `{type: random | scalar | safetensors | custom, ...}`."""
    tolerance: Mapping[str, Any]
    """SOL-ExecBench's; empty without."""
    data: Mapping[str, Any]
    """As it was read, for traces."""


@dataclass(frozen=True)
class Solution:
    """By what."""

    name: str
    definition: str
    author: str
    languages: frozenset[str]
    entry: tuple[str, str]
    """File and function."""
    takes_outputs: bool
    """`destination_passing_style`: outputs are its last arguments."""
    sources: Mapping[str, str]
    flags: Mapping[str, list[str]]
    """`compile_options`."""
    is_sol: bool
    """Of SOL-ExecBench's form (`languages`)."""
    binding: str


def definition_of(data: Any, where: object) -> Definition:
    """Raises MisuseError that names the file and what is wrong with it."""
    try:
        reference = str(data["reference"])
        tree = tree_of(reference)
        if not any(isinstance(node, ast.FunctionDef) and node.name == "run" for node in tree.body):
            raise ValueError("its reference defines no function `run`")
        axes = {str(name): dict(axis) for name, axis in data["axes"].items()}
        for name, axis in axes.items():
            if axis.get("type") == "const" and not _is_size(axis.get("value")):
                raise ValueError(f"axis {name!r} has no size")
        return Definition(
            _name(data["name"]),
            str(data.get("op_type") or "op"),
            axes,
            _tensors(data["inputs"]),
            _tensors(data["outputs"]),
            reference,
            str(data.get("custom_inputs_entrypoint") or ""),
        )
    except (KeyError, TypeError, ValueError, AttributeError, SyntaxError, RecursionError) as error:
        raise MisuseError(f"{where} is no definition ({type(error).__name__}: {error})") from error


def workload_of(data: Any, where: object) -> Workload:
    """Raises MisuseError that names the file and what is wrong with it."""
    try:
        axes = {str(name): size for name, size in data["axes"].items()}
        if not all(map(_is_size, axes.values())):
            raise ValueError("an axis has no size")
        inputs = {str(name): dict(one) for name, one in data["inputs"].items()}
        return Workload(_name(data["uuid"]), axes, inputs, dict(data.get("tolerance") or {}), dict(data))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise MisuseError(f"{where} is no workload ({type(error).__name__}: {error})") from error


def solution_of(data: Any, where: object) -> Solution:
    """Raises MisuseError that names the file and what is wrong with it."""
    try:
        spec = data["spec"]
        file, _, function = str(spec["entry_point"]).partition("::")
        if not function.isidentifier():
            raise ValueError(f"entry_point {spec['entry_point']!r} is not FILE::FUNCTION")
        sources = {_inside(source["path"]): str(source["content"]) for source in data["sources"]}
        if file not in sources:
            raise ValueError(f"entry_point's file {file!r} is not among its sources")
        languages = spec["languages"] if "languages" in spec else [spec["language"]]
        options = dict(spec.get("compile_options") or {})
        return Solution(
            _name(data["name"]),
            str(data["definition"]),
            _name(data.get("author") or "unknown"),
            frozenset(map(str, languages)),
            (file, function),
            bool(spec.get("destination_passing_style", True)),
            sources,
            {str(name): list(map(str, flags)) for name, flags in options.items() if flags},
            "languages" in spec,
            str(spec.get("binding") or ""),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise MisuseError(f"{where} is no solution ({type(error).__name__}: {error})") from error


def read_json(file: Path) -> Any:
    """Raises MisuseError."""
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise MisuseError(f"{file} cannot be read: {error}") from error


def read_lines(file: Path) -> list[Any]:
    """The JSON of each line. Raises MisuseError."""
    try:
        lines = [line for line in file.read_text(encoding="utf-8").split("\n") if line.strip()]
        return [json.loads(line) for line in lines]
    except (OSError, ValueError, RecursionError) as error:
        raise MisuseError(f"{file} cannot be read: {error}") from error


def _tensors(data: Any) -> tuple[Tensor, ...]:
    found = []
    for name, one in data.items():
        shape = one.get("shape")
        if not str(name).isidentifier():
            raise ValueError(f"{name!r} is no name of Python's")
        if one["dtype"] not in DTYPES:
            raise ValueError(f"{name} is {one['dtype']}, which is not judged here")
        found.append(Tensor(str(name), None if shape is None else tuple(map(str, shape)), str(one["dtype"])))
    return tuple(found)


def _name(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{value!r} is no name")
    return value


def _inside(path: Any) -> str:
    """A path that stays within the solution's folder."""
    pure = PurePosixPath(_name(path))
    if pure.is_absolute() or ".." in pure.parts or "\0" in str(pure):
        raise ValueError(f"source path {path!r} leads elsewhere")
    return str(pure)


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 48


_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


def _computed(expression: str, known: Mapping[str, int], where: str) -> int:
    """An axis by its expression, of sums, products and powers of known ones alone. Raises MisuseError."""
    if len(expression) > 500 or re.search(r"[^\w\s+\-*/%().]", expression):
        raise MisuseError(f"{where}: {expression[:80]!r} is no expression of axes")
    try:
        value = _value(tree_of(expression, mode="eval").body, known)
    except (SyntaxError, ValueError, KeyError, ZeroDivisionError, OverflowError, RecursionError) as error:
        raise MisuseError(f"{where}: {expression!r} cannot be computed ({error})") from error
    if value != int(value) or not _is_size(int(value)):
        raise MisuseError(f"{where}: {expression!r} is {value}, which is no size")
    return int(value)


def _value(node: ast.expr, known: Mapping[str, int]) -> float:
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return float(node.value) if isinstance(node.value, float) else int(node.value)  # type: ignore[arg-type]
    if isinstance(node, ast.Name):
        return known[node.id]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        return -_value(node.operand, known) if isinstance(node.op, ast.USub) else _value(node.operand, known)
    if isinstance(node, ast.BinOp):
        left, right = _value(node.left, known), _value(node.right, known)
        if isinstance(node.op, ast.Pow) and 0 <= right <= 64 and abs(left) < 1 << 48:
            return float(left**right) if isinstance(left, float) else left ** int(right)
        if type(node.op) in _OPERATORS:
            return (
                float(_OPERATORS[type(node.op)](left, right))
                if isinstance(node.op, ast.Div)
                else _OPERATORS[type(node.op)](left, right)
            )
    raise ValueError("only sums, products and powers")
