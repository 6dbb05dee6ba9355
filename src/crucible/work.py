"""What a module cannot avoid doing: the bytes it must move and the operations it must carry out.

The module runs once, under a recorder that sees each operation of PyTorch with the memory it reads and writes; real
tensors, tensors on the `meta` device and fake tensors will do. What is counted is a lower bound for everything fused
into one kernel per pass, under three assumptions:

- each pass (forward, backward) reads each byte of what comes from outside once at most, and writes each byte of its
  results once; whatever lies between stays on the chip or is computed again;
- an operation needs all elements of its operands, except one that picks elements by index, which needs no more bytes
  than it returns; an operation on which no result depends neither reads nor computes anything;
- products are carried out as they are written (no Winograd, FFT or Strassen), without those with padding.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from crucible.products import matrix_flops, tensors_in
from crucible.roofline import Work

Backward = Callable[[list[torch.Tensor]], list[torch.Tensor]]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Names of PyTorch's operations, without the underscore of those in place.
_SELECTIONS = _words("embedding index _unsafe_index index_select gather take masked_select")
_GATHERS = _SELECTIONS | _words("_embedding_bag _embedding_bag_forward_only grid_sampler_2d grid_sampler_3d")
"""They take elements of their first operand by index."""
_SCATTERS = _words(
    "index_put _index_put_impl index_copy index_add index_fill index_reduce"
    " scatter scatter_add scatter_reduce put masked_scatter"
)
"""In place they leave most of the operand as it is: as a lower bound, neither read nor written."""
_OVERWRITES = _words("copy fill zero bernoulli cauchy exponential geometric log_normal normal random uniform")
"""In place they do not look at what was there."""
_MOVES = (_SELECTIONS | _SCATTERS | _OVERWRITES) | _words(
    "clone _to_copy cat stack constant_pad_nd roll flip repeat tril triu lift lift_fresh _local_scalar_dense"
    " slice_backward select_backward diagonal_backward as_strided_scatter slice_scatter select_scatter"
    " embedding_dense_backward pixel_shuffle pixel_unshuffle channel_shuffle im2col"
    " reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d replication_pad3d"
    " zeros ones full empty empty_strided empty_permuted eye arange linspace scalar_tensor"
    " rand randn randint randperm"
)
"""They compute nothing."""
_READ, _WRITTEN, _GIVEN = 1, 2, 4


def count(
    forward: Callable[[], list[torch.Tensor]], sources: Sequence[torch.Tensor], backward: Backward | None = None
) -> tuple[Work, ...]:
    """The work of `forward`, and where `backward` is given that of forward and backward together.

    `forward()` runs the module on inputs made beforehand and returns its output tensors; `sources` are all tensors
    from outside that it may read: inputs, parameters, buffers. `backward(outputs)` returns gradients; other tensors
    that it reads are cotangents, and are made beforehand too. Both may write to what they are given.

    Forward moves each source, as far as it is read before it is overwritten, and each output. An output that is a
    view of a source costs nothing, outputs that share memory cost it once. Backward moves again what the gradients
    depend on, through whatever was computed from it; the cotangents; and each gradient under the same rule.
    Matrix operations are those of convolutions, products and attention, backward twice those of forward at most;
    other operations are one for each element read or made, whichever are more. What forward and backward raise
    passes through, and an operation that cannot run on the tensors given (`meta`) raises NotImplementedError.
    """
    recorder = _Recorder()
    with _separate_attention():
        with recorder:
            outputs = forward()
        middle = len(recorder.operations)
        if backward is None:
            gradients = []
        else:
            with recorder:
                gradients = backward(outputs)
    passes = _Passes(
        tuple(recorder.operations),
        middle,
        frozenset(region.storage for region in recorder.regions(sources)),
        recorder.regions(outputs),
        recorder.regions(gradients),
    )
    return (passes.forward(),) if backward is None else (passes.forward(), passes.both())


@dataclass(frozen=True)
class _Region:
    """The part of a storage that a tensor stands for, in items (the halves of complex numbers are items)."""

    storage: int
    storage_bytes: int
    item_bytes: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """Without dims of one element or of stride 0, which add nothing."""

    @property
    def items(self) -> int:
        return min(math.prod(self.shape), self.storage_bytes // self.item_bytes)

    @property
    def is_whole(self) -> bool:
        """Whether it is all of the storage, each item once."""
        expected = 1
        for stride, size in sorted(zip(self.strides, self.shape, strict=True)):
            if stride != expected:
                return False
            expected *= size
        return expected * self.item_bytes == self.storage_bytes


@dataclass(frozen=True)
class _Operation:
    """One operation that touched memory; views are none."""

    reads: tuple[_Region, ...]
    gathers: tuple[tuple[_Region, int], ...]
    """Regions from which elements are picked, and how many bytes at most."""
    writes: tuple[_Region, ...]
    """What it changed in place."""
    needs: frozenset[int]
    """Storages that its results depend on."""
    makes: frozenset[int]
    """Storages of its results and of what it changed."""
    leaves: bool
    """Whether it gave Python a number, on which anything may depend."""
    matrix_flops: int
    other_flops: int


class _Recorder(TorchDispatchMode):
    """Lists the operations carried out while it is active."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations: list[_Operation] = []
        self._held: dict[int, StorageWeakRef] = {}
        """While held weakly, memory is freed as usual but a storage's address is not used for another."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # PyTorch's wrapper would import torch._dynamo on first use, seconds

    def regions(self, tensors: Iterable[torch.Tensor]) -> tuple[_Region, ...]:
        """Of all tensors that have elements and one plain storage (sparse and nested ones have not)."""
        plain = [t for t in tensors if t.layout == torch.strided and not t.is_nested and t.numel()]
        return tuple(self._region(t) for t in plain)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.namespace == "prim":  # questions such as a fake tensor's device
            return func(*args, **kwargs)
        if func.overloadpacket not in flop_registry:
            with self:  # under inference_mode, operations made of others arrive whole
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        given = {id(t): region for t in tensors_in((args, kwargs)) for region in self.regions([t])}
        result = func(*args, **kwargs)
        self._record(func, _named(func, args, kwargs), given, result)
        return result

    def _record(self, func: Any, named: dict[str, Any], given: dict[int, _Region], result: Any) -> None:
        name = func.overloadpacket.__name__.rstrip("_")
        changed = [arg for arg in func._schema.arguments if arg.alias_info is not None and arg.alias_info.is_write]
        made = self.regions(tensors_in(result))
        if _is_view(func, name, bool(changed), {r.storage for r in given.values()}, made):
            return
        touched = {id(t) for arg in changed for t in tensors_in(named[arg.name])} & given.keys()
        picked = {id(t) for t in list(tensors_in(named))[:1]} & given.keys() if name in _GATHERS else set()
        unread = given.keys() if _ignores_values(name) else set()
        if name in _OVERWRITES | _SCATTERS or any(arg.is_out for arg in changed):
            unread = touched
        reads = tuple(r for key, r in given.items() if key not in unread | picked)
        writes = tuple(given[key] for key in touched)
        products = matrix_flops(func, name, named, result)
        self.operations.append(
            _Operation(
                reads=reads,
                gathers=tuple((given[key], sum(r.items * r.item_bytes for r in made[:1])) for key in picked),
                writes=() if name in _SCATTERS else writes,
                needs=frozenset(r.storage for key, r in given.items() if key not in unread or name in _SCATTERS),
                makes=frozenset(r.storage for r in (*made, *writes)),
                leaves=not changed and next(tensors_in(result), None) is None,
                matrix_flops=products,
                other_flops=0 if products or _moves(name) else max((r.items for r in (*reads, *made)), default=0),
            )
        )

    def _region(self, tensor: torch.Tensor) -> _Region:
        storage = tensor.untyped_storage()
        reference = StorageWeakRef(storage)
        self._held.setdefault(reference.cdata, reference)
        dims = [(n, s) for n, s in zip(tensor.shape, tensor.stride(), strict=True) if n > 1 and s]
        parts = 2 if tensor.is_complex() else 1
        dims = [(n, s * parts) for n, s in dims] + [(2, 1)] * (parts - 1)
        return _Region(
            storage=reference.cdata,
            storage_bytes=storage.nbytes(),
            item_bytes=tensor.element_size() // parts,
            offset=int(tensor.storage_offset()) * parts,
            shape=tuple(n for n, _ in dims),
            strides=tuple(s for _, s in dims),
        )


@dataclass(frozen=True)
class _Passes:
    """A recording, and what is asked of it."""

    operations: tuple[_Operation, ...]
    middle: int
    """Where backward begins."""
    sources: frozenset[int]
    outputs: tuple[_Region, ...]
    gradients: tuple[_Region, ...]

    def forward(self) -> Work:
        needed = _needed(self.operations[: self.middle], self.outputs)
        return _work("forward", _bytes_moved(needed, self.sources, self.outputs), needed)

    def both(self) -> Work:
        """The recomputation that a fused backward pays for its missing intermediates is in the bytes (it reads the
        sources again), not in the operations."""
        again = _needed(self.operations, self.gradients)
        moved = self.forward().bytes_moved + _bytes_moved(again, self.sources | self._cotangents(), self.gradients)
        return _work("forward+backward", moved, _needed(self.operations, self.outputs + self.gradients))

    def _cotangents(self) -> frozenset[int]:
        """What nobody made and backward is the first to read."""
        before, after = self.operations[: self.middle], self.operations[self.middle :]
        known = self.sources.union(*(op.makes for op in self.operations), *(op.needs for op in before))
        return frozenset[int]().union(*(op.needs for op in after)) - known


class _Fate:
    """What became of the items of one storage: read as they came, written, given back as a result."""

    def __init__(self, first: _Region) -> None:
        self._item_bytes = first.item_bytes
        self._bytes = first.storage_bytes
        self._items = np.zeros(1, np.uint8)
        """Flags of each item; a single one stands for all."""
        self._gathered_bytes = 0

    def read(self, region: _Region) -> None:
        if not self._is_settled(_READ | _WRITTEN):
            items = self._at(region)
            np.bitwise_or(items, _READ, out=items, where=(items & _WRITTEN) == 0)

    def gather(self, region: _Region, most_bytes: int) -> None:
        if not self._is_settled(_WRITTEN):
            self._gathered_bytes += min(most_bytes, region.items * region.item_bytes)

    def write(self, region: _Region) -> None:
        if not self._is_settled(_WRITTEN):
            items = self._at(region)
            items |= _WRITTEN

    def give(self, region: _Region) -> None:
        items = self._at(region)
        np.bitwise_or(items, _GIVEN, out=items, where=(items & _WRITTEN) != 0)

    @property
    def bytes_read(self) -> int:
        return max(self._count(_READ), min(self._gathered_bytes, self._bytes))

    @property
    def bytes_given(self) -> int:
        return self._count(_GIVEN)

    def _is_settled(self, flags: int) -> bool:
        return len(self._items) == 1 and bool(self._items[0] & flags)

    def _count(self, flag: int) -> int:
        share = self._bytes if len(self._items) == 1 else self._item_bytes
        return int(np.count_nonzero(self._items & flag)) * share

    def _at(self, region: _Region) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """The flags of a region; none where its items are smaller than the ones flagged (a view as bytes)."""
        if region.is_whole and len(self._items) == 1:
            return self._items
        if len(self._items) == 1:
            self._items = np.full(self._bytes // self._item_bytes, self._items[0])
        scale = region.item_bytes // self._item_bytes
        strides = (*(stride * scale for stride in region.strides), 1)
        return np.lib.stride_tricks.as_strided(self._items[region.offset * scale :], (*region.shape, scale), strides)


def _needed(operations: Sequence[_Operation], results: Iterable[_Region]) -> list[_Operation]:
    """The operations on which the results depend, or Python's own decisions, in their order."""
    wanted = {region.storage for region in results}
    kept = []
    for operation in reversed(operations):
        if operation.leaves or not wanted.isdisjoint(operation.makes):
            kept.append(operation)
            wanted |= operation.needs
    return kept[::-1]


def _bytes_moved(operations: Sequence[_Operation], outside: frozenset[int], results: Sequence[_Region]) -> int:
    """Bytes read of the storages from outside, and bytes of the results that the operations made."""
    fates: dict[int, _Fate] = {}

    def fate(region: _Region) -> _Fate:
        return fates.setdefault(region.storage, _Fate(region))

    for operation in operations:
        for region in operation.reads:
            if region.storage in outside:
                fate(region).read(region)
        for region, most_bytes in operation.gathers:
            if region.storage in outside:
                fate(region).gather(region, most_bytes)
        for region in operation.writes:
            if region.storage in outside:
                fate(region).write(region)
    made = frozenset[int]().union(*(operation.makes for operation in operations)) - outside
    for region in results:
        if region.storage in made:
            fate(region).write(region)
        fate(region).give(region)
    return sum(f.bytes_read + f.bytes_given for f in fates.values())


def _work(covers: str, bytes_moved: int, operations: Sequence[_Operation]) -> Work:
    return Work(
        covers, bytes_moved, sum(op.matrix_flops for op in operations), sum(op.other_flops for op in operations)
    )


def _is_view(func: Any, name: str, writes: bool, given: set[int], made: Sequence[_Region]) -> bool:
    """Whether the results are operands seen otherwise; a constant that Python made (`lift`) is new."""
    if torch.Tag.inplace_view in func.tags:  # `unsqueeze_`, `detach_`
        return True
    return not writes and bool(made) and all(r.storage in given for r in made) and not name.startswith("lift")


def _ignores_values(name: str) -> bool:
    """Whether only the operands' shapes matter."""
    return name.endswith("_like") or name.startswith(("new_", "lift"))


def _moves(name: str) -> bool:
    return name in _MOVES or name.endswith("_copy") or _ignores_values(name)


def _named(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Arguments by their names in the schema, defaults included."""
    named = {}
    for position, argument in enumerate(func._schema.arguments):
        given = args[position] if position < len(args) else argument.default_value
        named[argument.name] = kwargs.get(argument.name, given)
    return named


@contextlib.contextmanager
def _separate_attention() -> Iterator[None]:
    """PyTorch's fast path for transformer layers is one operation, whose products cannot be seen."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)
