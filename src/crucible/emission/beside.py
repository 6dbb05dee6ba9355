"""Small kernels that do not wait for each other, side by side in one launch: each launch takes the host some
microseconds, and the GPU as many between two kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from crucible.gpus import Gpu
from crucible.target.cuda import indented
from crucible.write.kernel import BLOCK, Entry, Kernel, Lowered, entered

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
                return [*kernels[:first], _both(a, b), *between, *kernels[second + 1 :]]
            if not any(_wait(a, each, variables) for each in between):
                return [*kernels[:first], *between, _both(a, b), *kernels[second + 1 :]]
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


def _both(a: Kernel, b: Kernel) -> Kernel:
    """One kernel: its first blocks are those of one of them, the others those of one that can be told its block."""
    assert a.entry and b.entry
    first, second = (a, b) if not b.entry.asks_elsewhere else (b, a)
    entries = [each.entry for each in (first, second) if each.entry]
    name, threads = f"{first.name}_beside_{_own_words(first.name, second.name)}", max(a.threads, b.threads)
    types = [type_ for each in entries for type_, _ in each.parameters]
    count, words = len(entries[0].parameters), [f"tensor_{k}" for k in range(len(types))]
    reads = [k for k in range(len(types)) if types[k].startswith("const ")]
    order = [*reads, *(k for k in range(len(types)) if k not in reads)]
    names = [*first.reads, *first.writes, *second.reads, *second.writes]
    calls = [
        f"{f'if (threadIdx.x < {each.threads}) ' * (each.threads < threads)}{each.name}_part({', '.join(given)});"
        for each, given in ((first, words[:count]), (second, [f"{BLOCK} - {first.grid[0]}", *words[count:]]))
    ]
    body = [f"if ({BLOCK} < {first.grid[0]}) {{", *indented(calls[:1]), "} else {", *indented(calls[1:]), "}"]
    entry = Entry(
        tuple((types[k], words[k]) for k in order),
        tuple(indented(body)),
        (f"// {first.name} and {second.name}: neither waits for the other.",),
        asks_elsewhere=entries[0].asks,
        has_shared=any(each.has_shared for each in entries),
        between=",\n        ",
    )
    parts = (entries[0].part(first.name, is_told=False), entries[1].part(second.name, is_told=True))
    preamble = tuple(dict.fromkeys((*first.preamble, *second.preamble, *parts)))
    read, written = tuple(names[k] for k in reads), tuple(names[k] for k in order[len(reads) :])
    both_light = a.is_light and b.is_light
    return entered(name, entry, preamble, read, written, a.grid[0] + b.grid[0], threads, is_light=both_light)


def _own_words(other: str, name: str) -> str:
    """Of a name, those that follow what both begin with."""
    words, others = name.split("_"), other.split("_")
    same = next(
        (k for k, (a, b) in enumerate(zip(words, others, strict=False)) if a != b), min(len(words), len(others))
    )
    return "_".join(words[same:]) or name
