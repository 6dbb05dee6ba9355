"""Triton's interpreter, with its accesses watched and what it lacks supplied."""

from __future__ import annotations

import contextlib
import importlib
import linecache
import os
import signal
import threading
import types
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from crucible.emulator import recording
from crucible.emulator.triton import arithmetic, device, libdevice
from crucible.emulator.triton.memory import Memory
from crucible.emulator.triton.watch import KernelEnded, Launch, Watch, linear
from crucible.gpus import Gpu

_LIMITS = (0x7FFFFFFF, 65535, 65535)
"""Programs in each dimension of a grid (CUDA C++ Programming Guide, technical specifications)."""
_ELEMENTS = {"float32": "float", "float16": "half", "bfloat16": "bfloat16", "float64": "double", "int32": "int"}


def install(is_of_the_gpu: Callable[[int], bool], program_s: float, gpu: Gpu) -> Watch:
    """From here on this process interprets Triton kernels; it cannot be undone. Triton must not be imported yet.

    A program that spends `program_s` seconds of processor time without an access counts as one that runs for ever.
    """
    os.environ["TRITON_INTERPRET"] = "1"
    importlib.import_module("triton")
    runtime = importlib.import_module("triton.runtime.interpreter")
    watch = Watch(is_of_the_gpu, program_s)
    _patch_language_for_good(runtime)
    _watch_functions(runtime, watch)
    _watch_launches(runtime, watch)
    _watch_memory(runtime, watch)
    arithmetic.install(runtime, watch)
    libdevice.install(runtime, watch)
    device.install(watch, gpu)
    return watch


def _patch_language_for_good(runtime: Any) -> None:
    """The interpreter does it anew for each launch and each call of a helper: 2 ms, most of a small kernel's time."""
    everything = types.FunctionType((lambda: None).__code__, {"tl": runtime.tl, "core": runtime.tl.core})
    runtime._patch_lang(everything)
    runtime._patch_lang = lambda _: types.SimpleNamespace(restore=lambda: None)


def _watch_functions(runtime: Any, watch: Watch) -> None:
    """Which functions there are, and which of them ran."""
    kind = runtime.InterpretedFunction
    triton_folder = runtime.__file__.rpartition("/runtime/")[0]
    construct, run, call = kind.__init__, kind.run, kind.__call__

    def constructed(self: Any, fn: Any, *args: Any, **kwargs: Any) -> None:
        construct(self, fn, *args, **kwargs)
        code = fn.__code__
        if not code.co_filename.startswith(triton_folder):
            place = (code.co_filename.rpartition("/")[2], _line_of_def(code), frozenset(code.co_names))
            watch.known[fn.__name__] = place

    def ran(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        if warmup:
            return device.Compiled(self)
        watch.ran.add(self.fn.__name__)
        run(self, *args, grid=grid, warmup=False, **kwargs)
        return device.Compiled(self)

    def called(self: Any, *args: Any, **kwargs: Any) -> Any:
        watch.ran.add(self.fn.__name__)
        return call(self, *args, **kwargs)

    kind.__init__, kind.run, kind.__call__ = constructed, ran, called


def _line_of_def(code: types.CodeType) -> int:
    """Below the decorators, where a function's code begins."""
    line = code.co_firstlineno
    while (text := linecache.getline(code.co_filename, line)) and not text.lstrip().startswith("def "):
        line += 1
    return line


def _watch_launches(runtime: Any, watch: Watch) -> None:
    """Each launch under its kernel's name, its programs in the order asked for."""
    builder, executor = runtime.InterpreterBuilder, runtime.GridExecutor
    execute, set_index, set_grid = executor.__call__, builder.set_grid_idx, builder.set_grid_dim

    def launched(self: Any, *args: Any, **kwargs: Any) -> None:
        if recording.current:
            recording.current[-1](partial(ran, self), args, kwargs)
        else:
            ran(self, *args, **kwargs)
            for look in recording.watched:
                look((args, kwargs), (), self.fn.__code__.co_name)

    def ran(self: Any, *args: Any, **kwargs: Any) -> None:
        named = {**dict(zip(self.arg_names, args, strict=False)), **kwargs}
        code = self.fn.__code__
        watch.launch = Launch(code.co_name, code.co_filename, _memories(named))
        try:
            with np.errstate(all="ignore"), _time_limit(watch):
                if watch.order[0] != "idle":
                    execute(self, *args, **kwargs)
        except KernelEnded as ended:
            raise RuntimeError(str(ended)) from None
        finally:
            watch.launch = None

    def grid_set(self: Any, *grid: int) -> None:
        for axis, size, limit in zip("xyz", grid, _LIMITS, strict=True):
            if watch.launch and size > limit:
                words = f"grid {axis} is {size}; the limit is {limit}"
                watch.fault("launch-limits", words, "", ends="invalid argument")
        set_grid(self, *(int(size) for size in grid))
        self.order = _order(watch.order, self.grid_dim)

    def index_set(self: Any, *program: int) -> None:
        chosen = program
        if self.order is not None:
            chosen = tuple(int(i) for i in np.unravel_index(self.order[linear(program, self.grid_dim)], self.grid_dim))
        set_index(self, *chosen)
        if watch.launch:
            watch.launch.begin(self.grid_idx)
            _restart_timer(watch)

    executor.__call__, builder.set_grid_dim, builder.set_grid_idx = launched, grid_set, index_set


def _order(wanted: tuple[str, int], grid: tuple[int, int, int]) -> Any:
    """Programs by turn, None where they come as they are."""
    count = grid[0] * grid[1] * grid[2]
    if wanted[0] == "forward":
        return None
    return np.arange(count)[::-1] if wanted[0] == "reverse" else np.random.default_rng(wanted[1]).permutation(count)


def _watch_memory(runtime: Any, watch: Watch) -> None:
    builder = runtime.InterpreterBuilder
    load, store = builder.create_masked_load, builder.create_masked_store
    rmw, cas, from_integer = builder.create_atomic_rmw, builder.create_atomic_cas, builder.create_int_to_ptr

    def size_at(pointers: Any) -> int:
        return int(runtime._get_np_dtype(pointers.get_element_ty()).itemsize)

    def loaded(self: Any, pointers: Any, mask: Any, *rest: Any, **named: Any) -> Any:
        return watch.reads(
            pointers.data, _array(mask), size_at(pointers), lambda: load(self, pointers, mask, *rest, **named)
        )

    def stored(self: Any, pointers: Any, value: Any, mask: Any, *rest: Any, **named: Any) -> Any:
        wanted = np.broadcast_to(value.data, pointers.data.shape)
        exact = runtime.TensorHandle(wanted.astype(runtime._get_np_dtype(pointers.get_element_ty())), value.dtype)
        result = watch.writes(
            pointers.data,
            _array(mask),
            size_at(pointers),
            lambda: store(self, pointers, exact, mask, *rest, **named),
        )
        watch.collides(pointers.data, _array(mask), exact.data)
        return result

    def updated(self: Any, op: Any, pointers: Any, value: Any, mask: Any, *rest: Any) -> Any:
        if pointers.get_element_ty() == runtime.tl.bfloat16:
            watch.beyond("an atomic operation on bfloat16")
        return watch.writes(
            pointers.data,
            _array(mask),
            size_at(pointers),
            lambda: rmw(self, op, pointers, value, mask, *rest),
            atomic=True,
        )

    def swapped(self: Any, pointers: Any, *rest: Any) -> Any:
        return watch.writes(pointers.data, np.True_, size_at(pointers), lambda: cas(self, pointers, *rest), atomic=True)

    def made_of_integer(self: Any, *args: Any) -> Any:
        if watch.launch:
            watch.launch.casts = True
        return from_integer(self, *args)

    builder.create_masked_load, builder.create_masked_store = loaded, stored
    builder.create_atomic_rmw, builder.create_atomic_cas = updated, swapped
    builder.create_int_to_ptr = made_of_integer


def _array(mask: Any) -> Any:
    """A mask is a handle, or (block pointers before Triton 3.9) an array."""
    return mask if isinstance(mask, np.ndarray) else mask.data


def _memories(arguments: dict[str, Any]) -> list[Memory]:
    """Storages behind a launch's arguments, each once, under the first name it has."""
    found: dict[int, Memory] = {}
    for name, value in arguments.items():
        for tensor in _tensors(value):
            storage = tensor.untyped_storage()
            if storage.nbytes():
                kind = str(tensor.dtype).rpartition(".")[2]
                start, end = storage.data_ptr(), storage.data_ptr() + storage.nbytes()
                floating = tensor.dtype.is_floating_point
                memory = Memory(name, _ELEMENTS.get(kind, kind), start, end, tensor.dtype.itemsize, floating)
                found.setdefault(start, memory)
    return list(found.values())


def _tensors(value: Any) -> Iterator[Any]:
    if isinstance(value, tuple | list):
        for item in value:
            yield from _tensors(item)
    elif hasattr(value, "untyped_storage"):
        yield value
    elif hasattr(value, "base"):  # a TensorWrapper or TensorDescriptor
        yield from _tensors(value.base)


@contextlib.contextmanager
def _time_limit(watch: Watch) -> Iterator[None]:
    """Inside, a program without end is ended; Python hears of signals in its main thread only."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGVTALRM, lambda *_: watch.looks_for_a_loop())
    _restart_timer(watch)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def _restart_timer(watch: Watch) -> None:
    signal.setitimer(signal.ITIMER_VIRTUAL, watch.program_s, watch.program_s)
