"""What Triton kernels do to memory: bounds, races between programs, reads of what nobody wrote."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

import numpy as np

from crucible.emulator.faults import Fault
from crucible.emulator.triton.memory import NOBODY_WROTE, Memory
from crucible.legible import counted

ILLEGAL_ACCESS = "an illegal memory access was encountered"
MISALIGNED = "misaligned address"
TIMED_OUT = "the launch timed out and was terminated"
POLLS = 1000
"""Accesses to single elements after which a program without end counts as waiting for another one."""


class KernelEnded(BaseException):
    """A GPU would have stopped the kernel here; no `except Exception` between here and the launch may hide it."""


class NotInterpreted(BaseException):
    """The kernel uses what the interpreter does not know: never a verdict, nor a reason for a candidate's fallback."""


@dataclass(frozen=True)
class Mark:
    """One access: by which program, at which line, and when (a count of the launch's accesses)."""

    program: tuple[int, int, int]
    line: int
    clock: int
    atomic: bool


@dataclass
class Launch:
    """A kernel that runs."""

    kernel: str
    file: str
    memories: list[Memory]
    """What its pointers may point to, by address."""
    program: tuple[int, int, int] = (0, 0, 0)
    marks: list[Mark | None] = field(default_factory=lambda: [None])
    """By number; 0 is nobody."""
    first: int = 1
    """Number of this program's first mark; programs run one after the other."""
    atomics: dict[tuple[int, int, int], int] = field(default_factory=dict)
    """When each program did its last atomic operation."""
    polls: int = 0
    """Accesses to single elements that this program has just made, one after the other."""
    accesses: int = 0
    accesses_before: int = 0
    """When the program was last asked whether it gets anywhere."""
    casts: bool = False
    """Whether it made pointers of integers: they may point to any tensor."""

    def __post_init__(self) -> None:
        self.memories.sort(key=lambda memory: memory.start)
        self.starts = np.array([memory.start for memory in self.memories], dtype=np.uint64)
        self.ends = np.array([memory.end for memory in self.memories], dtype=np.uint64)

    def begin(self, program: tuple[int, int, int]) -> None:
        """The next program."""
        self.program, self.first, self.polls = program, len(self.marks), 0
        self.accesses_before = self.accesses

    def ordered(self, mark: Mark) -> bool:
        """Whether an earlier program's access came before this one's for certain: handed over by atomics."""
        return self.atomics.get(mark.program, -1) >= mark.clock and self.program in self.atomics

    def others(self, numbers: Any) -> Any:
        """Which of the marks are other programs'."""
        return (numbers > 0) & (numbers < self.first)


class Watch:
    """Kernels as they run, and what they did wrong."""

    def __init__(self, is_of_the_gpu: Callable[[int], bool], program_s: float) -> None:
        """`is_of_the_gpu(address)`: whether that is among PyTorch's tensors, or in a gap between them."""
        self.is_of_the_gpu = is_of_the_gpu
        self.program_s = program_s
        self.order: tuple[str, int] = ("forward", 1)
        self.not_covered = ""
        self.ran: set[str] = set()
        """Kernels and device functions since the last `forget`."""
        self.known: dict[str, tuple[str, int, frozenset[str]]] = {}
        """File, line and the names it uses, of each function under `triton.jit` that is the candidate's."""
        self.launch: Launch | None = None
        self._faults: dict[Any, Fault] = {}

    def faults(self) -> tuple[Fault, ...]:
        return tuple(self._faults.values())

    def forget(self) -> None:
        self._faults.clear()
        self.ran.clear()

    def never_ran(self, ran: set[str]) -> list[Fault]:
        """Functions that neither ran nor are helpers of others."""
        helpers = frozenset[str]().union(*(uses for _, _, uses in self.known.values()))
        idle = {name: place for name, place in self.known.items() if name not in ran | self.ran | helpers}
        words = "this kernel was never launched"
        return [
            Fault("never-ran", name, (0, 0, 0), None, line, "", words, file=file)
            for name, (file, line, _) in idle.items()
        ]

    # ---- what kernels do

    def reads(self, pointers: Any, mask: Any, size: int, read: Callable[[], Any]) -> Any:
        """What `read()` gives, once all `pointers` under `mask` are known to be good for `size` bytes."""
        if self.launch is None:
            return read()
        parts = self._parts("read of", pointers, mask, size)
        data = read()
        for memory, addresses in parts:
            values = memory.at(addresses, size)
            self._uninitialised(memory, addresses, values, "read of")
            self._mark(memory, addresses, size, atomic=False, changed=None)
        return data

    def writes(self, pointers: Any, mask: Any, size: int, write: Callable[[], Any], *, atomic: bool = False) -> Any:
        """What `write()` gives, once all is known to be good."""
        if self.launch is None:
            return write()
        verb = "atomic operation on" if atomic else "write of"
        parts = self._parts(verb, pointers, mask, size)
        before = [memory.at(addresses, size).copy() for memory, addresses in parts]
        if atomic:
            for (memory, addresses), values in zip(parts, before, strict=True):
                self._uninitialised(memory, addresses, values, verb)
        result = write()
        for (memory, addresses), values in zip(parts, before, strict=True):
            self._mark(memory, addresses, size, atomic=atomic, changed=values != memory.at(addresses, size))
        return result

    def collides(self, pointers: Any, mask: Any, values: Any) -> None:
        """After a store: an address that it wrote twice holds only one of the two values."""
        for memory, addresses in self._parts("write of", pointers, mask, values.itemsize) if self.launch else ():
            wanted = values[np.broadcast_to(mask, values.shape)].view(f"u{values.itemsize}")
            if len(wanted) != len(addresses):
                return  # it went to more than one tensor: none of them is looked at
            lost = wanted != memory.at(addresses, values.itemsize)
            if lost.any():
                detail = "one store writes different values to one address"
                self.fault("race-global", detail, memory.words(int(addresses[lost][0])))

    def beyond(self, name: str) -> NoReturn:
        """Ends the kernel since `name` is nothing that the interpreter knows."""
        self.not_covered = f"{name} (Triton)"
        raise NotInterpreted(self.not_covered)

    def looks_for_a_loop(self) -> None:
        """Asked each `program_s` seconds of a program: whether it accesses memory at all, or polls.

        A program that polls may wait for another, which runs only after it here; one that does work is slow.
        """
        launch = self.launch
        if launch is None:
            return
        if launch.polls > POLLS:
            self.beyond(f"a program that waits for another one, line {self._line()},")
        if launch.accesses == launch.accesses_before:
            words = f"{self.program_s:g} s of processor time without any access to memory"
            self.fault("runaway-loop", words, "", ends=TIMED_OUT)
        launch.accesses_before = launch.accesses

    def fault(self, kind: str, detail: str, memory: str, *, other: Mark | None = None, ends: str = "") -> None:
        """Notes a fault where the kernel stands; with `ends`, CUDA's words for it, ends the kernel."""
        assert self.launch is not None
        line = self._line()
        key = (kind, self.launch.kernel, line, other.line if other else 0)
        known = self._faults.get(key)
        self._faults[key] = (
            replace(known, count=known.count + 1)
            if known
            else Fault(
                kind,
                self.launch.kernel,
                self.launch.program,
                None,
                line,
                memory,
                detail,
                other_block=other.program if other else None,
                other_line=other.line if other else 0,
                fatal=bool(ends),
                file=self.launch.file.rpartition("/")[2],
            )
        )
        if ends:
            raise KernelEnded(f"CUDA error: {ends}\n{self._faults[key].words}")

    # ---- how it is known

    def _parts(self, verb: str, pointers: Any, mask: Any, size: int) -> list[tuple[Memory, Any]]:
        """The addresses under `mask`, by the tensor that they lie in. Ends the kernel where one lies in none."""
        assert self.launch is not None
        self.launch.accesses += 1
        mask = np.broadcast_to(mask, pointers.shape)
        addresses = pointers[mask]
        self.launch.polls = self.launch.polls + 1 if pointers.size == 1 else 0
        if not addresses.size:
            return []
        low, high = int(addresses.min()), int(addresses.max())
        for memory in self.launch.memories:
            if memory.start <= low and high + size <= memory.end:
                self._aligned(verb, memory, addresses, size)
                return [(memory, addresses)]
        return list(self._scattered(verb, addresses, size))

    def _scattered(self, verb: str, addresses: Any, size: int) -> Iterator[tuple[Memory, Any]]:
        assert self.launch is not None
        which = np.searchsorted(self.launch.starts, addresses, side="right").astype(np.int64) - 1
        outside = which < 0
        outside[~outside] = addresses[~outside] + np.uint64(size) > self.launch.ends[which[~outside]]
        for address in addresses[outside]:
            if not (self.launch.casts and self.is_of_the_gpu(int(address))):
                words = self._place(int(address))
                self.fault("out-of-bounds-global", f"{verb} {counted(size, 'byte')}", words, ends=ILLEGAL_ACCESS)
        for i in np.unique(which[~outside]):
            memory, part = self.launch.memories[i], addresses[~outside & (which == i)]
            self._aligned(verb, memory, part, size)
            yield memory, part

    def _aligned(self, verb: str, memory: Memory, addresses: Any, size: int) -> None:
        crooked = addresses & np.uint64(size - 1)
        if crooked.any():
            words = memory.words(int(addresses[crooked != 0][0]))
            detail = f"{verb} {counted(size, 'byte')} at an address that is not a multiple of {size}"
            self.fault("misaligned", detail, words, ends=MISALIGNED)

    def _place(self, address: int) -> str:
        """An address in words: by the nearest tensor that the kernel was given."""
        assert self.launch is not None
        if address < 4096:
            return f"null pointer + {address} bytes"
        near = min(self.launch.memories, key=lambda memory: memory.distance(address), default=None)
        if near is None or near.distance(address) > max(1 << 30, near.end - near.start):
            return "memory that is not the GPU's (a host pointer, or none at all)"
        return near.words(address)

    def _uninitialised(self, memory: Memory, addresses: Any, values: Any, verb: str) -> None:
        for pattern in NOBODY_WROTE.get(values.itemsize, ()) if memory.shows_poison(values.itemsize) else ():
            fresh = values == values.dtype.type(pattern)
            if fresh.any():
                words = memory.words(int(addresses[fresh][0]))
                self.fault("uninitialised-global", f"{verb} memory that nobody wrote", words)
                return

    def _mark(self, memory: Memory, addresses: Any, size: int, *, atomic: bool, changed: Any) -> None:
        """Notes an access and looks for a race with what other programs did to the same elements.

        `changed` says which elements have another value now; None is for a read. A write of the very value that
        was there is no race.
        """
        launch = self.launch
        assert launch is not None
        mark = Mark(launch.program, self._line(), len(launch.marks), atomic)
        launch.marks.append(mark)
        if atomic:
            launch.atomics[mark.program] = mark.clock
        if size != memory.item:
            return
        slots = memory.slots(addresses)
        if changed is None:
            self._conflict(memory, addresses, memory.writers[slots], "read after write", atomic)
            before = memory.readers[slots]
            others = launch.others(before)
            if others.any():
                memory.earlier_readers[slots[others]] = before[others]
            memory.readers[slots] = mark.clock
            return
        slots, addresses = slots[changed], addresses[changed]
        self._conflict(memory, addresses, memory.writers[slots], "write after write", atomic)
        self._conflict(memory, addresses, memory.readers[slots], "write after read", atomic)
        self._conflict(memory, addresses, memory.earlier_readers[slots], "write after read", atomic)
        memory.writers[slots] = mark.clock

    def _conflict(self, memory: Memory, addresses: Any, numbers: Any, how: str, atomic: bool) -> None:
        assert self.launch is not None
        others = self.launch.others(numbers)
        for number in np.unique(numbers[others]) if others.any() else ():
            mark = self.launch.marks[number]
            if mark and not (atomic and mark.atomic) and not self.launch.ordered(mark):
                where = int(addresses[numbers == number][0])
                return self.fault("race-global", how, memory.words(where), other=mark)

    def _line(self) -> int:
        """The line of the candidate's kernel, or of its helper in the same file, that is running."""
        assert self.launch is not None
        frame = sys._getframe(1)
        while frame.f_back and frame.f_code.co_filename != self.launch.file:
            frame = frame.f_back
        return frame.f_lineno if frame.f_code.co_filename == self.launch.file else 0


def linear(program: Sequence[int], grid: Sequence[int]) -> int:
    """A program's place in a grid, the last dimension fastest: the interpreter's order."""
    return (program[0] * grid[1] + program[1]) * grid[2] + program[2]
