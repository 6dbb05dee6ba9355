"""Small kernels that do not wait for each other, side by side in one launch: each launch takes the host some
microseconds, and the GPU as many between two kernels."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from crucible.gpus import Gpu
from crucible.target.cuda import indented
from crucible.write.kernel import Kernel, Lowered

THREADS_A_SM = 1024
"""Of a small kernel for each multiprocessor: all of it runs at once."""
_HEAD = re.compile(r"__global__ void __launch_bounds__\(\d+\)\s+(\w+)\(\s*([^{]*?)\) \{")


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
    for kernel in (a, b):
        flat = kernel.grid[0] > 0 and kernel.grid[1:] == (1, 1)
        is_plain = len(_HEAD.findall(kernel.text)) == 1 and "gridDim" not in kernel.text
        if not flat or kernel.shared_bytes or kernel.architecture or not is_plain:
            return False
    if not (_can_be_told(a) or _can_be_told(b)) or (_has_shared(a) and _has_shared(b)):
        return False
    small = [each.grid[0] * each.threads <= gpu.sms * THREADS_A_SM for each in (a, b)]
    return all(small) or any(fits and each.is_light for fits, each in zip(small, (a, b), strict=True))


def _wait(first: Kernel, second: Kernel, variables: Mapping[str, str]) -> bool:
    """Whether their order counts."""

    def of(names: Sequence[str]) -> set[str]:
        return {variables.get(name, name) for name in names}

    return bool(of(first.writes) & of((*second.reads, *second.writes)) or of(first.reads) & of(second.writes))


def _both(a: Kernel, b: Kernel) -> Kernel:
    """One kernel: its first blocks are those of one of them, the others those of one that can be told its block."""
    first, second = (a, b) if _can_be_told(b) else (b, a)
    name, threads = f"{first.name}_beside_{_own_words(first.name, second.name)}", max(a.threads, b.threads)
    types, count = [*_types(first), *_types(second)], len(_types(first))
    words = [f"tensor_{k}" for k in range(len(types))]
    reads = [k for k in range(len(types)) if types[k].startswith("const ")]
    order = [*reads, *(k for k in range(len(types)) if k not in reads)]
    names = [*first.reads, *first.writes, *second.reads, *second.writes]
    calls = [
        f"{f'if (threadIdx.x < {each.threads}) ' * (each.threads < threads)}{each.name}_part({', '.join(given)});"
        for each, given in ((first, words[:count]), (second, [f"blockIdx.x - {first.grid[0]}", *words[count:]]))
    ]
    parameters = ",\n        ".join(f"{types[k]} {words[k]}" for k in order)
    text = [
        f"// {first.name} and {second.name}: neither waits for the other.",
        f"__global__ void __launch_bounds__({threads}) {name}(\n        {parameters}) {{",
        *indented(
            [f"if (blockIdx.x < {first.grid[0]}) {{", *indented(calls[:1]), "} else {", *indented(calls[1:]), "}"]
        ),
        "}",
    ]
    told = _HEAD.sub(r"__device__ __forceinline__ void \1_part(const int block_number, \2) {", second.text)
    parts = (
        _HEAD.sub(r"__device__ __forceinline__ void \1_part(\2) {", first.text),
        told.replace("blockIdx.x", "block_number"),
    )
    return Kernel(
        name,
        "\n".join(text),
        tuple(dict.fromkeys((*first.preamble, *second.preamble, *parts))),
        tuple(names[k] for k in reads),
        tuple(names[k] for k in order[len(reads) :]),
        (a.grid[0] + b.grid[0], 1, 1),
        threads,
        is_light=a.is_light and b.is_light,
    )


def _own_words(other: str, name: str) -> str:
    """Of a name, those that follow what both begin with."""
    words, others = name.split("_"), other.split("_")
    same = next(
        (k for k, (a, b) in enumerate(zip(words, others, strict=False)) if a != b), min(len(words), len(others))
    )
    return "_".join(words[same:]) or name


def _can_be_told(kernel: Kernel) -> bool:
    """Whether nothing but the kernel itself asks which block it is."""
    head = _HEAD.search(kernel.text)
    return head is not None and "blockIdx" not in "".join((*kernel.preamble, kernel.text[: head.start()]))


def _has_shared(kernel: Kernel) -> bool:
    """Whether it has static shared memory: that of two would be added up, and 48 KiB are the most."""
    return "__shared__" in "".join((*kernel.preamble, kernel.text))


def _types(kernel: Kernel) -> list[str]:
    """Of its parameters."""
    found = _HEAD.search(kernel.text)
    assert found is not None
    return [re.sub(r"\s*\w+$", "", each.strip()) for each in found[2].split(",")]
