"""Small kernels that do not wait for each other, side by side in one launch: each launch takes the host some
microseconds, and the GPU as many between two kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from crucible.gpus import Gpu
from crucible.print.entries import beside
from crucible.print.written import Kernel, Lowered

THREADS_A_SM = 1024
"""Of a small kernel for each multiprocessor: all of it runs at once."""


def side_by_side(lowered: Sequence[Lowered], variables: Mapping[str, str], gpu: Gpu) -> tuple[Lowered, ...]:
    """The same with fewer launches, where kernels can change places; `variables` as `Host` has them."""
    kernels = [kernel for each in lowered for kernel in each.kernels]
    while True:
        found = _merged(kernels, variables, gpu)
        if found is None:
            break
        kernels = found
    if len(kernels) == sum(len(each.kernels) for each in lowered):
        return tuple(lowered)
    buffers = tuple(buffer for each in lowered for buffer in each.buffers)
    return (Lowered(tuple(kernels), buffers, tuple(note for each in lowered for note in each.notes)),)


def _merged(kernels: list[Kernel], variables: Mapping[str, str], gpu: Gpu) -> list[Kernel] | None:
    """With two of them in one, in the place of the first or of the second."""
    for first in range(len(kernels)):
        for second in range(first + 1, len(kernels)):
            a, b, between = kernels[first], kernels[second], kernels[first + 1 : second]
            if not _fit(a, b, gpu) or _wait(a, b, variables):
                continue
            if not any(_wait(each, b, variables) for each in between):
                return [*kernels[:first], beside(a, b), *between, *kernels[second + 1 :]]
            if not any(_wait(a, each, variables) for each in between):
                return [*kernels[:first], *between, beside(a, b), *kernels[second + 1 :]]
    return None


def _fit(a: Kernel, b: Kernel, gpu: Gpu) -> bool:
    """Whether neither takes anything from the other: both are small, or one is light."""
    if not (_is_plain(a) and _is_plain(b)) or a.entry is None or b.entry is None:
        return False
    if a.entry.asks_elsewhere and b.entry.asks_elsewhere:
        return False
    if a.entry.has_shared and b.entry.has_shared:  # static shared memory would be added up, and 48 KiB are the most
        return False
    small = [each.grid[0] * each.threads <= gpu.sms * THREADS_A_SM for each in (a, b)]
    return all(small) or any(fits and each.is_light for fits, each in zip(small, (a, b), strict=True))


def _is_plain(kernel: Kernel) -> bool:
    flat = kernel.grid[0] > 0 and kernel.grid[1:] == (1, 1)
    return flat and not kernel.shared_bytes and not kernel.architecture


def _wait(first: Kernel, second: Kernel, variables: Mapping[str, str]) -> bool:
    """Whether their order counts."""

    def of(names: Sequence[str]) -> set[str]:
        return {variables.get(name, name) for name in names}

    return bool(of(first.writes) & of((*second.reads, *second.writes)) or of(first.reads) & of(second.writes))
