"""Nested inputs and outputs: taken apart into tensors and a plain-text structure, and put together again.

A *bundle* is such a value on disk: `<name>.json` (structure, dtypes, shapes) and `<name>.bin` (raw bytes).
"""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeVar

import torch

_PLAIN = (bool, int, float, str, type(None))


class NotPlain(Exception):
    """A leaf that is neither a tensor nor plain data, so it cannot cross a process boundary."""


@dataclass(frozen=True)
class Leaf:
    """One tensor of a tree and where it stands (`output[0]["mask"]`)."""

    name: str
    tensor: torch.Tensor


def take_apart(value: Any, name: str) -> tuple[Any, list[Leaf]]:
    """The structure as JSON data and the tensors in order. Numbers stay in the structure. Raises NotPlain."""
    leaves: list[Leaf] = []
    return _structure(value, name, leaves), leaves


def put_together(structure: Any, tensors: list[torch.Tensor]) -> Any:
    """The inverse of `take_apart`."""
    kind, body = structure
    if kind == "tensor":
        return tensors[body]
    if kind == "dtype":
        return getattr(torch, body)
    if kind == "plain":
        return body
    if kind == "dict":
        return {key: put_together(item, tensors) for key, item in body}
    items = [put_together(item, tensors) for item in body]
    return tuple(items) if kind == "tuple" else items


def numbers_to_tensors(value: Any) -> Any:
    """The same tree with numbers as tensors without dims and complex tensors as pairs, so that all is compared."""
    if isinstance(value, torch.Tensor) and value.is_complex():
        return torch.view_as_real(value.resolve_conj())
    if isinstance(value, bool | int | float):
        return torch.tensor(value, dtype=torch.float64 if isinstance(value, float) else torch.int64)
    if isinstance(value, dict):
        return {key: numbers_to_tensors(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [numbers_to_tensors(item) for item in value]
    return value


def spread_part(flat: torch.Tensor, most: int, start: float) -> torch.Tensor:
    """At most so many elements of a flat tensor at even distances, from `start` (0 to 1) of a distance on; `most`
    of 0 is all of it."""
    if not most or flat.numel() <= most:
        return flat
    every = -(-flat.numel() // most)
    return flat[int(start * every) :: every]


class Handed:
    """A folder without a place: its files came as descriptors. For `read_bundle(folder / name)`."""

    def __init__(self) -> None:
        self._files: dict[str, int] = {}

    def take(self, names: Sequence[str], descriptors: Sequence[int]) -> None:
        """Holds these files, and no longer those that it held."""
        for descriptor in self._files.values():
            os.close(descriptor)
        self._files = dict(zip(names, descriptors, strict=True))

    def open(self, name: str) -> IO[bytes]:
        """A file from its beginning. Raises FileNotFoundError."""
        descriptor = self.descriptor(name)
        os.lseek(descriptor, 0, os.SEEK_SET)
        return os.fdopen(os.dup(descriptor), "rb")

    def descriptor(self, name: str) -> int:
        """A file's own, until others are handed over. Raises FileNotFoundError."""
        if name not in self._files:
            raise FileNotFoundError(f"the judge has not handed over {name}")
        return self._files[name]

    def __truediv__(self, name: str) -> HandedFile:
        return HandedFile(self, name)


@dataclass(frozen=True)
class HandedFile:
    """A file that was handed over, as far as `read_bundle` needs a path of it."""

    folder: Handed
    name: str

    def with_name(self, name: str) -> HandedFile:
        return HandedFile(self.folder, name)

    def open(self, mode: str) -> IO[bytes]:
        return self.folder.open(self.name)


_Place = TypeVar("_Place", Path, HandedFile, Path | HandedFile)


def write_bundle(path: Path, value: Any) -> None:
    """Writes a tree of tensors and plain data under a temporary name, then renames. Raises NotPlain, OSError.

    Nobody may write to its files: without capabilities, and without changing modes, not even their owner."""
    structure, leaves = take_apart(value, path.name)
    tensors = [leaf.tensor.detach().cpu().contiguous() for leaf in leaves]
    header = {"structure": structure, "tensors": [[str(t.dtype)[6:], list(t.shape)] for t in tensors]}
    temporary = _beside(path, ".tmp")
    with temporary.open("wb") as file:
        for tensor in tensors:
            file.write(raw_bytes(tensor))
    _in_place(temporary, _beside(path, ".bin"))
    temporary.write_text(json.dumps(header))
    _in_place(temporary, _beside(path, ".json"))


def link_bundle(path: Path, known: Path) -> None:
    """Has `path` be what `write_bundle` wrote to `known`, without its bytes. Raises OSError."""
    for ending in (".bin", ".json"):
        temporary = _beside(path, ".tmp")
        os.link(_beside(known, ending), temporary)
        os.replace(temporary, _beside(path, ending))
        temporary.unlink(missing_ok=True)  # where it was that file already, replacing it does nothing


def _in_place(temporary: Path, file: Path) -> None:
    temporary.chmod(0o400)
    os.replace(temporary, file)


def read_bundle(path: Path | HandedFile) -> Any:
    """The tree that `write_bundle` wrote; its tensors are private copies on the CPU."""
    with _beside(path, ".json").open("rb") as file:
        header = json.load(file)
    tensors = []
    with _beside(path, ".bin").open("rb") as file:
        for dtype, shape in header["tensors"]:
            tensor = torch.empty(shape, dtype=getattr(torch, dtype))
            file.readinto(raw_bytes(tensor))  # type: ignore[attr-defined]
            tensors.append(tensor)
    return put_together(header["structure"], tensors)


def _beside(path: _Place, ending: str) -> _Place:
    return path.with_name(path.name + ending)


def raw_bytes(tensor: torch.Tensor) -> memoryview:
    """A contiguous CPU tensor's own memory, writable, without a copy; the view keeps the tensor alive."""
    count = tensor.numel() * tensor.element_size()
    if count == 0:
        return memoryview(bytearray())
    memory = (ctypes.c_char * count).from_address(tensor.data_ptr())
    memory.owner = tensor  # type: ignore[attr-defined]
    return memoryview(memory).cast("B")


def _structure(value: Any, name: str, leaves: list[Leaf]) -> Any:
    if isinstance(value, torch.Tensor):
        leaves.append(Leaf(name, value))
        return ["tensor", len(leaves) - 1]
    if isinstance(value, torch.dtype):
        return ["dtype", str(value)[6:]]
    if isinstance(value, _PLAIN):
        return ["plain", value]
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise NotPlain(f"{name} is a dict with keys that are not strings")
        return ["dict", [[key, _structure(item, f"{name}[{key!r}]", leaves)] for key, item in sorted(value.items())]]
    if isinstance(value, tuple | list):
        kind = "tuple" if isinstance(value, tuple) else "list"
        return [kind, [_structure(item, f"{name}[{i}]", leaves) for i, item in enumerate(value)]]
    raise NotPlain(
        f"{name} is a {type(value).__name__}: only tensors, numbers, text, None, dtypes, lists, tuples and dicts"
    )
