"""CUDA C++ on the CPU: extensions run without a GPU, and every memory and synchronisation fault is named.

    from crucible import emulator

    extension = emulator.load_inline("scale", cpp_sources=DECLARATION, cuda_sources=SOURCE, functions=["scale"])
    extension.scale(torch.ones(1000), 2.0)
    assert emulator.faults() == ()

See docs/emulator.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from crucible.emulator.faults import Fault as Fault
from crucible.emulator.faults import NotCovered as NotCovered
from crucible.emulator.trace import Launch as Launch
from crucible.emulator.trace import Line as Line
from crucible.emulator.trace import Seen as Seen
from crucible.emulator.trace import Trace as Trace

if TYPE_CHECKING:
    import types

__all__ = [
    "Fault",
    "Launch",
    "Line",
    "NotCovered",
    "Seen",
    "Trace",
    "faults",
    "forget",
    "gpu",
    "load",
    "load_inline",
    "schedule",
    "trace",
]


def load_inline(
    name: str,
    cpp_sources: str | Sequence[str],
    cuda_sources: str | Sequence[str] | None = None,
    functions: str | Sequence[str] | dict[str, str] | None = None,
    extra_cflags: Sequence[str] | None = None,
    extra_cuda_cflags: Sequence[str] | None = None,
    *,
    checked: bool = True,
    **ignored: Any,
) -> types.ModuleType:
    """`torch.utils.cpp_extension.load_inline`, for CPU tensors.

    `checked=False` leaves the watching of accesses out: only launches, barriers and warp operations are judged (a fused
    elementwise kernel runs 7 times as fast, a tiled matrix product 5 times, what is all barriers no faster).

    The other arguments of PyTorch's function are taken and mean nothing here. Raises RuntimeError in PyTorch's
    words when it does not build, NotCovered when it uses what the emulator does not know.
    """
    from crucible.emulator import extension

    flags = [*(extra_cflags or ()), *(extra_cuda_cflags or ())]
    return extension.build_inline(name, cpp_sources, cuda_sources, functions, flags, checked=checked)


def load(
    name: str,
    sources: str | Sequence[str],
    extra_cflags: Sequence[str] | None = None,
    extra_cuda_cflags: Sequence[str] | None = None,
    **ignored: Any,
) -> types.ModuleType:
    """`torch.utils.cpp_extension.load`, for CPU tensors; see `load_inline`."""
    from crucible.emulator import extension

    return extension.build_files(name, sources, [*(extra_cflags or ()), *(extra_cuda_cflags or ())])


def faults() -> tuple[Fault, ...]:
    """What kernels did wrong since the last `forget()`, each fault once; kernels that never ran are among them."""
    from crucible.emulator import session

    return session.start().faults()


def forget() -> None:
    """Starts a new count of faults."""
    from crucible.emulator import session

    session.start().forget()


def gpu(name: str) -> None:
    """Which GPU launches are held to and property calls answer as, from here on: `h200` at first.

    Raises DeviceError for a name that `crucible.gpus` does not have.
    """
    from crucible.emulator import session
    from crucible.gpus import known_gpu

    session.start().pretend(known_gpu(name))


@contextmanager
def schedule(order: str, seed: int = 1) -> Iterator[None]:
    """Runs blocks, threads and lanes in another order inside: `forward` (the usual one), `reverse` or `random`.

    A race matters where an order changes the output; kernels matter where leaving them out (`idle`) does.
    """
    from crucible.emulator import session

    emulator = session.start()
    emulator.schedule(order, seed)
    try:
        yield
    finally:
        emulator.schedule("forward")


@contextmanager
def trace() -> Iterator[Seen]:
    """Counts what kernels ask of memory inside, by source line: sectors, bank conflicts, contention of atomics.

    `seen.launches` and `seen.lines` are there when the block is left. Not for extensions with `checked=False`,
    and not one trace inside of another.
    """
    from crucible.emulator import session

    with session.start().trace() as seen:
        yield seen
