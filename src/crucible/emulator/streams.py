"""CUDA streams without a GPU: everything runs at once and in order; who did not wait for whom is found all the same.

A stream is a clock that each of its operations moves on, with how far of every other one it has waited for. A tensor
keeps who wrote it last, and when; who reads or writes it on a stream that has not waited for that reads, on a GPU, what
may not be written yet. Only what happens inside `watch` is looked at, and only in a process that has made a stream.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from crucible.emulator import recording
from crucible.emulator.faults import Fault
from crucible.tracing import heard

WAIT = ("_local_scalar_dense", "nonzero", "masked_select", "equal", "is_nonzero", "_unique2")
"""Operations whose answer the host waits for."""
WITHOUT_KERNEL = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided")
"""Operations that only hand out memory."""
_OWN = ("/torch/", "/crucible/", "<string>", "<frozen")
"""In names of files whose lines are not the candidate's."""


class Stream:
    """`torch.cuda.Stream`, on which everything has finished when it has been asked for."""

    cuda_stream = 0
    priority = 0
    device = torch.device("cpu")

    def __init__(self, *_: Any, **__: Any) -> None:
        self.clock = 0
        self.waited: dict[Stream, int] = {}
        """How far of others' clocks."""
        self._outer: list[Stream] = []
        if _order.default is not None:
            _order.is_needed = True

    def __enter__(self) -> Stream:
        self._outer.append(_order.current)
        _order.current = self
        return self

    def __exit__(self, *_: object) -> None:
        _order.current = self._outer.pop()

    def synchronize(self) -> None:
        """The host waits, and with it whatever it asks for later."""
        _merge(_order.host, self.reached())

    def wait_stream(self, other: Any) -> None:
        if isinstance(other, Stream):
            _merge(self.waited, other.reached())

    def wait_event(self, event: Any) -> None:
        _merge(self.waited, event.reached)

    def record_event(self, event: Any = None) -> Any:
        event = event or Event()
        event.record(self)
        return event

    def query(self) -> bool:
        self.synchronize()  # who is told that it has finished may rely on it
        return True

    def reached(self) -> dict[Stream, int]:
        """What has happened before whatever comes next on it."""
        return {**self.waited, self: self.clock}

    def follows(self, writer: Stream, when: int) -> bool:
        """Whether what it does now comes after what another did at that time."""
        return writer is self or max(self.waited.get(writer, -1), _order.host.get(writer, -1)) >= when


class Event:
    """`torch.cuda.Event`: a moment of the CPU's clock, and of a stream's."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self._when = 0.0
        self.reached: dict[Stream, int] = {}

    def record(self, stream: Any = None) -> None:
        self._when = time.perf_counter()
        self.reached = (stream or _order.current).reached()

    def elapsed_time(self, end: Event) -> float:
        return (end._when - self._when) * 1e3

    def synchronize(self) -> None:
        _merge(_order.host, self.reached)

    def wait(self, stream: Any = None) -> None:
        (stream or _order.current).wait_event(self)

    def query(self) -> bool:
        self.synchronize()
        return True


class _Order:
    """What this process has of streams."""

    default: Any = None
    current: Any = None

    def __init__(self) -> None:
        self.host: dict[Stream, int] = {}
        """How far the host has waited."""
        self.written: dict[int, tuple[Stream, int, torch.UntypedStorage]] = {}
        """By a storage's address, who wrote it last; it is held, so that no other one takes its place."""
        self.faults: dict[tuple[str, int], Fault] = {}
        self.is_needed = False
        """Whether there is a stream beside the default one."""


_order = _Order()
_order.default = _order.current = Stream()


def _merge(into: dict[Stream, int], reached: dict[Stream, int]) -> None:
    for stream, clock in reached.items():
        into[stream] = max(into.get(stream, -1), clock)


def current(*_: Any) -> Stream:
    """`torch.cuda.current_stream`."""
    stream: Stream = _order.current
    return stream


def default(*_: Any) -> Stream:
    """`torch.cuda.default_stream`."""
    stream: Stream = _order.default
    return stream


def make_current(stream: Stream | None) -> None:
    """`torch.cuda.set_stream`."""
    _order.current = stream or _order.current


@contextlib.contextmanager
def stream(chosen: Any = None) -> Iterator[None]:
    """`torch.cuda.stream`."""
    with chosen if isinstance(chosen, Stream) else contextlib.nullcontext():
        yield


def synchronize(*_: Any, **__: Any) -> None:
    """`torch.cuda.synchronize`: the host has waited for everybody."""
    for writer, when, _storage in _order.written.values():
        _merge(_order.host, {writer: when})
    _merge(_order.host, _order.default.reached())


@contextlib.contextmanager
def watch(given: Iterable[torch.Tensor]) -> Iterator[None]:
    """One call by somebody whose stream is the default one, which has written the tensors given just now."""
    _order.written.clear()
    _order.default.clock += 1
    for tensor in given:
        _wrote(tensor, _order.default)
    if not _order.is_needed:
        yield
        return
    recording.watched.append(_launched)
    try:
        with _Watching():
            yield
    finally:
        recording.watched.clear()
        _order.current = _order.default
        _order.written.clear()


def _launched(given: Any, result: Any, function: str) -> None:
    """Kernels by an extension's function, or one of Triton's, on PyTorch's current stream."""
    if not recording.current:
        _done(tensors_in(given), tensors_in(result), function)


def faults() -> tuple[Fault, ...]:
    """Since `forget`."""
    return tuple(_order.faults.values())


def forget() -> None:
    _order.faults.clear()


class _Watching(TorchDispatchMode):
    """Holds each operation against what its stream has waited for."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = kwargs or {}
        result = heard(func, args, named)
        name = func._schema.name.partition("::")[2]
        is_view = any(made.alias_info is not None and not made.alias_info.is_write for made in func._schema.returns)
        if recording.current or is_view or name in WITHOUT_KERNEL:
            return result
        written = tensors_in(result)
        if func._schema.is_mutable:
            pairs = zip(func._schema.arguments, args, strict=False)
            written += [t for argument, value in pairs if _is_written(argument) for t in tensors_in(value)]
        _done(tensors_in((args, named)), written, name)
        if name in WAIT:
            _order.current.synchronize()
        return result

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # or PyTorch wraps the above, and the first call imports its compiler with sympy: 1.3 s


def _is_written(argument: Any) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write


def _done(given: list[torch.Tensor], written: list[torch.Tensor], what: str) -> None:
    for tensor in (*given, *written):
        last = _order.written.get(tensor.untyped_storage().data_ptr())
        if last is not None and not _order.current.follows(*last[:2]):
            _found(what, last[0])
    _order.current.clock += 1
    for tensor in written:
        _wrote(tensor, _order.current)


def _wrote(tensor: torch.Tensor, writer: Stream) -> None:
    storage = tensor.untyped_storage()
    if storage.data_ptr():
        _order.written[storage.data_ptr()] = (writer, writer.clock, storage)


def _found(what: str, writer: Stream) -> None:
    file, line = _asked_at(sys._getframe())
    of = "the caller's stream" if writer is _order.default else "another stream"
    on = "the caller's stream" if _order.current is _order.default else "a stream of its own"
    detail = f"on {on}, which has not waited for {of}, where what it reads or writes may still be on its way"
    fault = Fault("unordered-streams", what, (0, 0, 0), None, line, "", detail, file=file)
    _order.faults.setdefault((what, line), fault)


def _asked_at(frame: FrameType | None) -> tuple[str, int]:
    """File and line of the nearest frame that is neither PyTorch's nor ours."""
    while frame is not None:
        name = frame.f_code.co_filename
        if not any(own in name for own in _OWN):
            return name.rpartition("/")[2], frame.f_lineno
        frame = frame.f_back
    return "", 0


def tensors_in(tree: Any) -> list[torch.Tensor]:
    """All, however deep in lists, tuples and dicts."""
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]
