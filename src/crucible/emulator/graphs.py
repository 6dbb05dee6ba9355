"""`torch.cuda.CUDAGraph` on the CPU: what is captured is noted, and done again at each replay.

As on a GPU, nothing is computed by capturing: tensors that come of it hold nobody's values until the first replay, what
was there before keeps its values, and a kernel that goes to another stream than PyTorch's current one is not captured.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from crucible.emulator import recording, streams
from crucible.tracing import heard, untraced

_FRESH = 0x7FF97FF9
"""What memory holds that nobody has written (runtime/memory.h)."""
NOT_PERMITTED = "CUDA error: operation not permitted when stream is capturing"


@dataclass
class _Step:
    """One operation: done again, its results go where those of the capture lie."""

    again: Callable[[], Any]
    made: list[torch.Tensor]

    def replay(self) -> None:
        for old, new in zip(self.made, streams.tensors_in(self.again()), strict=True):
            if old.data_ptr() != new.data_ptr() or old.stride() != new.stride():
                old.copy_(new)


@dataclass
class _Captured:
    steps: list[_Step] = field(default_factory=list)
    made: dict[int, torch.UntypedStorage] = field(default_factory=dict)
    """By address: storages that came of the capture."""
    before: dict[int, tuple[torch.Tensor, torch.Tensor]] = field(default_factory=dict)
    """By address: bytes of older storages that the capture may write, and what they held."""

    def keep(self, tensors: list[torch.Tensor]) -> None:
        for tensor in tensors:
            at = tensor.untyped_storage().data_ptr()
            if at and at not in self.made and at not in self.before:
                held = _bytes(tensor.untyped_storage())
                with untraced():
                    self.before[at] = (held, held.clone())

    def note(self, again: Callable[[], Any], given: list[torch.Tensor], result: Any) -> None:
        made, known = streams.tensors_in(result), {tensor.untyped_storage().data_ptr() for tensor in given}
        for tensor in made:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in known:
                self.made.setdefault(storage.data_ptr(), storage)
        self.steps.append(_Step(again, made))

    def forget_values(self) -> None:
        """Nothing has been computed."""
        for now, then in self.before.values():
            now.copy_(then)
        for at, storage in self.made.items():
            if at and storage.nbytes() >= 4:
                _bytes(storage)[: storage.nbytes() // 4 * 4].view(torch.int32).fill_(_FRESH)


class _Capturing(TorchDispatchMode):
    """Notes each operation of PyTorch's, and each call of an extension's, while they are done."""

    def __init__(self, captured: _Captured) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.captured = captured
        self._inside = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = kwargs or {}
        if self._inside:
            return func(*args, **named)
        name = func._schema.name.partition("::")[2]
        if name in streams.WAIT:
            raise RuntimeError(NOT_PERMITTED)
        given = streams.tensors_in((args, named))
        if func._schema.is_mutable:
            self.captured.keep(given)
        result = heard(func, args, named)
        self.captured.note(_again(func, args, named, name in streams.WITHOUT_KERNEL, result), given, result)
        return result

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # or PyTorch wraps the above, and the first call imports its compiler with sympy: 1.3 s

    def kernels(self, call: Callable[..., Any], arguments: Any, named: Any) -> Any:
        """A function of an extension's, or a launch of Triton's: one step, unless its kernels go to another stream."""
        given = streams.tensors_in((arguments, named))
        self._inside, before = True, recording.uncaptured()
        try:
            self.captured.keep(given)
            answer = call(*arguments, **named)
        finally:
            self._inside = False
        if not recording.uncaptured() - before:
            self.captured.note(lambda: call(*arguments, **named), given, answer)
        return answer


def _again(func: Any, args: Any, named: Any, is_without_kernel: bool, result: Any) -> Callable[[], Any]:
    return (lambda: result) if is_without_kernel else (lambda: func(*args, **named))


class CUDAGraph:
    """`torch.cuda.CUDAGraph`."""

    def __init__(self, keep_graph: bool = False) -> None:
        self._captured = _Captured()
        self._mode: _Capturing | None = None
        self._is_captured = False

    def capture_begin(self, pool: Any = None, capture_error_mode: str = "global") -> None:
        if recording.current:
            raise RuntimeError(NOT_PERMITTED)
        self._captured = _Captured()
        self._mode = _Capturing(self._captured)
        recording.begin(self._mode.kernels)
        self._mode.__enter__()  # type: ignore[no-untyped-call]

    def capture_end(self) -> None:
        if self._mode is None:
            raise RuntimeError("CUDA error: operation would have been an error: no capture is under way")
        self._mode.__exit__(None, None, None)  # type: ignore[no-untyped-call]
        self._mode = None
        with torch.no_grad(), untraced():
            self._captured.forget_values()
        recording.end()
        self._is_captured = True

    def replay(self) -> None:
        if not self._is_captured:
            raise RuntimeError("Called CUDAGraph::replay without a preceding successful capture.")
        with torch.no_grad(), untraced(), torch._C._AutoDispatchBelowAutograd():
            for step in self._captured.steps:
                step.replay()

    def reset(self) -> None:
        self._captured, self._is_captured = _Captured(), False

    def instantiate(self) -> None:
        pass

    def pool(self) -> tuple[int, int]:
        return (0, 0)

    def enable_debug_mode(self) -> None:
        pass

    def debug_dump(self, debug_path: str) -> None:
        pass


class graph:
    """`torch.cuda.graph`."""

    default_capture_stream = None

    def __init__(
        self, cuda_graph: CUDAGraph, pool: Any = None, stream: Any = None, capture_error_mode: str = "global"
    ) -> None:
        self._graph = cuda_graph

    def __enter__(self) -> None:
        synchronize()  # as PyTorch does
        self._graph.capture_begin()

    def __exit__(self, *_: object) -> None:
        self._graph.capture_end()


def synchronize(*_: Any, **__: Any) -> None:
    """`torch.cuda.synchronize`: everything has finished, unless it is being captured."""
    if recording.current:
        raise RuntimeError(NOT_PERMITTED)
    streams.synchronize()


def _bytes(storage: torch.UntypedStorage) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8).set_(storage)
