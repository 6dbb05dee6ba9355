"""Functions of kernels as text: of one, and of two in one launch."""

from __future__ import annotations

from crucible.print.written import BLOCK, Entry, Kernel
from crucible.target.cuda import indented


def whole(entry: Entry, name: str, threads: int) -> str:
    """The function of a kernel."""
    head = f"__global__ void __launch_bounds__({threads}{entry.bounds}) {name}({entry.opening}{_given(entry)}) {{"
    return _function(entry, head, "blockIdx.x")


def entered(
    name: str,
    entry: Entry,
    preamble: tuple[str, ...],
    reads: tuple[str, ...],
    writes: tuple[str, ...],
    blocks: int,
    threads: int,
    *,
    is_light: bool = False,
) -> Kernel:
    """A kernel that may stand beside another one."""
    text = whole(entry, name, threads)
    return Kernel(name, text, preamble, reads, writes, (blocks, 1, 1), threads, is_light=is_light, entry=entry)


def beside(a: Kernel, b: Kernel) -> Kernel:
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
    parts = (_part(entries[0], first.name, is_told=False), _part(entries[1], second.name, is_told=True))
    preamble = tuple(dict.fromkeys((*first.preamble, *second.preamble, *parts)))
    read, written = tuple(names[k] for k in reads), tuple(names[k] for k in order[len(reads) :])
    both_light = a.is_light and b.is_light
    return entered(name, entry, preamble, read, written, a.grid[0] + b.grid[0], threads, is_light=both_light)


def _part(entry: Entry, name: str, *, is_told: bool) -> str:
    """What another kernel calls, which tells it the number of its block; or else it has that of the kernel."""
    block, number = ("block_number", "const int block_number, ") if is_told else ("blockIdx.x", "")
    return _function(entry, f"__device__ __forceinline__ void {name}_part({number}{_given(entry)}) {{", block)


def _given(entry: Entry) -> str:
    return entry.between.join(f"{type_} {word}" for type_, word in entry.parameters)


def _function(entry: Entry, head: str, block: str) -> str:
    return "\n".join([*entry.before, head, *entry.body, "}"]).replace(BLOCK, block)


def _own_words(other: str, name: str) -> str:
    """Of a name, those that follow what both begin with."""
    words, others = name.split("_"), other.split("_")
    same = next(
        (k for k, (a, b) in enumerate(zip(words, others, strict=False)) if a != b), min(len(words), len(others))
    )
    return "_".join(words[same:]) or name
