"""Comparison of a stream of raw bytes with the oracle's tensors, a chunk at a time."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Protocol

import torch

from crucible.contract import Tolerance, benchmark_tolerance
from crucible.judge.boundary.bits import CHUNK_BYTES, INTEGER_VIEWS, POISON
from crucible.judge.boundary.bundles import raw_bytes, spread_part
from crucible.judge.process.channel import read_exactly
from crucible.judge.verdict.evidence import TensorError

HEADS_BYTES = 64 << 20
"""Of a candidate's answer, kept for a look at what it is the answer of."""
_PIECE_ELEMENTS, _ON_A_CPU = 4 << 20, 1 << 15
"""Elements looked at at a time: half a dozen float64 temporaries of it are alive at once. On a CPU what its caches hold
and one thread does: 16 M elements are compared in 0.3 s of a core, in pieces of 4 M in 2.2, and in pieces of 256 k,
which two threads share, in 9 to 14 where others use the cores too (each operation ends with threads that spin)."""
SUM_UNITS = 4
"""The least noise of float32 and wider, in units of roundoff: sums in another order than PyTorch's are right too. Eight
sums of 297 random terms, each in plain sequence, were 5 units off in the median of 30 draws and 13 at most, where
PyTorch's own order had 2 (16 are allowed then); TF32 is off by thousands."""

CANCELS = 4.0
"""Times as much is allowed where rounding may be all of an answer: zeros would pass there, so it tells nobody from
another, and a few sums of noise differ by more than probes do. Of 126 modules drawn at random two were convicted of it,
right ones: 1.06 and 1.43 times what was allowed at the peak of a gradient that is 0 (of a bias in front of a batch
norm, of a mean over a softmax), a third by 1.5 times of one that is 0 in the scale of another."""


@dataclass
class Expected:
    """One tensor of the oracle's answer and what a candidate's may differ by."""

    name: str
    values: torch.Tensor
    """Flat, on the CPU, backed by an unlinked file; float64, or float32 above `answers.EXACT_BYTES`."""
    dtype: torch.dtype
    """The candidate's dtype."""
    shape: tuple[int, ...]
    scale: float = 1.0
    """rms of the finite values, 1 when all are zero, or of another answer like it (units of the tensor)."""
    relative_l2_allowed: float = 0.0
    peak_allowed: float = 0.0
    absolute: float | None = None
    """Under the benchmark's rule: allclose's atol (rtol is the same), and nothing else counts."""
    relative: float = 0.0
    stated: Tolerance | None = None
    """Under the benchmark's rule: what the task says in its place."""
    share: float = 1.0
    """Its own rms, in units of the scale: little where it cancels what the other answer is made of."""

    def part(self, most: int, start: float) -> Expected:
        """What a candidate sends of this tensor when it sends `tree.spread_part` of it."""
        chosen = spread_part(self.values, most, start)
        if chosen.numel() == self.values.numel():
            return self
        return replace(self, values=chosen.contiguous(), shape=(chosen.numel(),))

    def times(self, factor: float) -> Expected:
        """What a linear map gives for so many times what it was given."""
        return replace(self, values=self.values * factor, scale=self.scale * abs(factor)) if factor != 1 else self

    def allow(self, relative_l2: float, peak: float, multiple: float, *, may_cancel: bool = False) -> None:
        """Tolerances: so many times the noise, of which there is always a little; CANCELS times that where it
        `may_cancel`, as gradients do, and noise is so large that zeros would pass."""
        if self.dtype.is_floating_point:
            units = SUM_UNITS if self.dtype.itemsize >= 4 else 1
            roundoff = units * torch.finfo(self.dtype).eps / 2
            passes = relative_l2 > 0 and multiple * relative_l2 >= self.share
            multiple *= CANCELS if may_cancel and passes else 1
            self.relative_l2_allowed = multiple * max(relative_l2, roundoff)
            self.peak_allowed = multiple * max(peak, 2 * roundoff)
        else:
            self.relative_l2_allowed = max(multiple * relative_l2, 0.5 / max(1, self.values.numel()))
            self.peak_allowed = 1.0

    def allow_as(self, other: Expected) -> None:
        """At least what another answer is allowed in whose scale this one is; CANCELS times that where this one is
        nothing beside it. A reference may have exactly nothing there, with no noise, where the same in another order
        has what is left of large terms: ones less their mean are 0, numbers less theirs, summed, are not."""
        times = CANCELS if self.share <= other.relative_l2_allowed < other.share else 1.0  # it may have had them itself
        self.relative_l2_allowed = max(self.relative_l2_allowed, times * other.relative_l2_allowed)
        self.peak_allowed = max(self.peak_allowed, times * other.peak_allowed)

    @property
    def nbytes(self) -> int:
        return self.values.numel() * self.dtype.itemsize


@dataclass
class Difference:
    """Sums over the chunks seen so far."""

    expected: Expected
    index: int = 0
    squares: float = 0.0
    peak: float = 0.0
    peak_index: int = 0
    nan: int = 0
    unwritten: int = 0
    largest: float = 0.0
    """max |d|"""
    outside_rule: float = 0.0
    """Largest |d| / (atol + rtol·|expected|) of the benchmark's rule."""
    beyond_rule: int = 0
    fingerprint: int = field(default=0)
    _ahead: list[torch.Tensor] = field(default_factory=list)
    """Of the expected values, on the device before the candidate's are there."""
    _brought: int = 0

    def bring(self, count: int, device: torch.device) -> None:
        """Puts what the next `count` elements are to be held against on the device; `add` finds it there."""
        self._ahead.append(self.expected.values[self._brought : self._brought + count].to(device))
        self._brought += count

    def add(self, got: torch.Tensor) -> None:
        """Takes the next elements of the candidate's tensor, flat, on the device to compare on."""
        if got.numel() == 0:
            return
        if not self._ahead:
            self.bring(got.numel(), got.device)
        for piece, want in zip(pieces(got), pieces(self._ahead.pop(0)), strict=True):
            self._add_piece(piece, want)

    def _add_piece(self, got: torch.Tensor, want: torch.Tensor) -> None:
        if self.expected.dtype.is_floating_point:
            self._add_floats(got, want)
        else:
            self._add_exact(got, want)
        self.fingerprint = _mixed(self.fingerprint, got)
        self.index += got.numel()

    def result(self, case: int) -> TensorError:
        e = self.expected
        total = max(1, e.values.numel())
        if e.absolute is not None:
            l2, l2_allowed, peak, peak_allowed = 0.0, 1.0, self._outside, 1.0
        else:
            l2 = (self.squares / total) ** 0.5 / e.scale if e.dtype.is_floating_point else self.squares / total
            l2_allowed, peak, peak_allowed = e.relative_l2_allowed, self.peak, e.peak_allowed
        return TensorError(
            name=e.name,
            case=case,
            relative_l2=min(l2, sys.float_info.max),
            relative_l2_allowed=l2_allowed,
            peak=min(peak, sys.float_info.max),
            peak_allowed=peak_allowed,
            worst_index=unravel(self.peak_index, e.shape),
            nan=self.nan,
            unwritten=self.unwritten,
            elements=e.values.numel(),
            shape=e.shape,
            largest=min(self.largest, sys.float_info.max) if e.dtype.is_floating_point or not self.squares else None,
        )

    @property
    def beyond(self) -> int:
        """Elements beyond the benchmark's rule; 0 where no more are than it allows."""
        stated = self.expected.stated
        few = stated is not None and self.beyond_rule <= (1 - stated.matched) * self.expected.values.numel()
        return 0 if few else self.beyond_rule

    @property
    def _outside(self) -> float:
        """`outside_rule`, at most 1 where so few elements are beyond that it counts as kept; by the cap where one is
        beyond that."""
        cap = self.expected.stated.cap if self.expected.stated else None
        outside = self.outside_rule if self.beyond else min(self.outside_rule, 1.0)
        return outside if cap is None or self.largest <= cap else max(outside, self.largest / max(cap, 1e-300))

    def _add_floats(self, got: torch.Tensor, want: torch.Tensor) -> None:
        value = got.to(torch.float64)
        want = want.to(torch.float64)
        bad = torch.isnan(value) != torch.isnan(want)
        self.nan += int(bad.sum())
        payload = POISON.get(got.dtype)
        if payload is not None and self.nan:
            self.unwritten += int((got.view(INTEGER_VIEWS[got.element_size()]) == payload).sum())
        difference = torch.where(value == want, 0.0, value - want).abs()  # equal infinities differ by nothing
        difference = torch.nan_to_num(difference, nan=0.0, posinf=torch.inf)
        self.squares += float((difference * difference).sum())
        self.largest = max(self.largest, float(difference.max()))
        theirs = self.expected.absolute is not None and self.expected.stated is None
        of = value if theirs else want  # KernelBench's rule is relative to the candidate's values
        magnitude = torch.where(torch.isfinite(of), of.abs(), 0.0)
        self._note_peak(difference / (magnitude + self.expected.scale), difference, magnitude)

    def _note_peak(self, relative: torch.Tensor, difference: torch.Tensor, magnitude: torch.Tensor) -> None:
        if self.expected.absolute is not None:
            relative = difference / (self.expected.absolute + self.expected.relative * magnitude)
            self.outside_rule = max(self.outside_rule, float(relative.max()))
            self.beyond_rule += int((relative > 1).sum())
        peak, where = relative.max(0)
        if float(peak) > self.peak:
            self.peak, self.peak_index = float(peak), self.index + int(where)

    def _add_exact(self, got: torch.Tensor, want: torch.Tensor) -> None:
        wrong = got != want.to(got.dtype)
        count = int(wrong.sum())
        if count and not self.squares:
            self.peak, self.peak_index = 1.0, self.index + int(wrong.to(torch.int8).argmax())
            self.outside_rule = float("inf")
        self.squares += count
        self.beyond_rule += count


class Taker(Protocol):
    """Who looks at a tensor's elements as they come."""

    def add(self, got: torch.Tensor) -> None:
        """The next elements, flat, on the device to compare on."""


class Heads:
    """The leading elements of an answer's tensors, flat, on the CPU."""

    def __init__(self) -> None:
        self.tensors: list[torch.Tensor] = []
        self._left = HEADS_BYTES

    def of(self, expected: Expected) -> Taker:
        """Makes room for the next tensor, and takes its elements as far as there is."""
        elements = min(expected.values.numel(), self._left // expected.dtype.itemsize)
        self.tensors.append(torch.empty(elements, dtype=expected.dtype))
        self._left -= elements * expected.dtype.itemsize
        return _Head(self.tensors[-1])


class _Head:
    """The leading elements of one tensor."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._room = tensor

    def add(self, got: torch.Tensor) -> None:
        fitting = min(self._room.numel(), got.numel())
        self._room[:fitting].copy_(got[:fitting])
        self._room = self._room[fitting:]


def read_stream(
    descriptor: int,
    expected: list[Expected],
    rules: list[Expected],
    device: torch.device,
    timeout_s: float,
    heads: Heads | None = None,
) -> list[tuple[Difference, Difference | None]]:
    """Compares the tensors of a stream in order, each by its own tolerance and, where `rules` has one, by the
    benchmark's too; `heads` keeps how they begin. Raises ChannelTimeout, or EOFError when bytes are missing."""
    found = [(Difference(one), Difference(rules[i]) if rules else None) for i, one in enumerate(expected)]
    takers: list[list[Taker]] = [[taker for taker in pair if taker] for pair in found]
    if heads is not None:
        takers = [[*who, heads.of(one)] for who, one in zip(takers, expected, strict=True)]
    hand_out(descriptor, expected, takers, device, timeout_s)
    return found


def hand_out(
    descriptor: int,
    expected: list[Expected],
    takers: Sequence[Sequence[Taker]],
    device: torch.device,
    timeout_s: float,
) -> None:
    """Hands the tensors of a stream in order to the takers of each. Raises ChannelTimeout, or EOFError when bytes
    are missing.

    While they look at one chunk the next is read, and what it is held against brought to the device: one after another
    that was 0.6 s for each GB of an answer (H200).
    """
    pinned = device.type == "cuda"
    buffers = [torch.empty(CHUNK_BYTES, dtype=torch.uint8, pin_memory=pinned) for _ in range(2)]
    chunks = [
        (one, who, left)
        for one, who in zip(expected, takers, strict=True)
        for left in range(one.nbytes, 0, -CHUNK_BYTES)
    ]

    def read(number: int) -> torch.Tensor:
        one, _, left = chunks[number]
        buffer = buffers[number % 2][: min(left, CHUNK_BYTES)]
        if read_exactly(descriptor, raw_bytes(buffer), timeout_s) < buffer.numel():
            raise EOFError(f"the stream ended {left} bytes before the end of {one.name}")
        return buffer.view(one.dtype)

    def bring(number: int) -> None:
        one, who, left = chunks[number]
        for taker in who:
            if isinstance(taker, Difference):
                taker.bring(min(left, CHUNK_BYTES) // one.dtype.itemsize, device)

    with ThreadPoolExecutor(1) as reader, ThreadPoolExecutor(1) as bringer:

        def ahead(number: int) -> tuple[Future[torch.Tensor], Future[None]] | None:
            return (reader.submit(read, number), bringer.submit(bring, number)) if number < len(chunks) else None

        coming = ahead(0)
        for number, (_, who, _) in enumerate(chunks):
            assert coming is not None
            chunk = coming[0].result()
            coming[1].result()
            coming = ahead(number + 1)
            on_device = chunk.to(device)
            for taker in who:
                taker.add(on_device)


def benchmark_rule(expected: Expected, values: torch.Tensor, stated: Tolerance | None = None) -> Expected:
    """The same tensor with eager PyTorch's `values`, held to the public benchmark's rule alone, with the tolerance that
    the task states."""
    tolerance = benchmark_tolerance(str(expected.dtype)[6:])
    return Expected(
        expected.name,
        values,
        expected.dtype,
        expected.shape,
        expected.scale,
        absolute=stated.atol if stated else tolerance,
        relative=stated.rtol if stated else tolerance,
        stated=stated,
    )


def rounding(rule: Expected, exact: torch.Tensor) -> float:
    """How far a rule's values are from the exact ones, in units of what it allows."""
    most = 0.0
    for got, want in zip(pieces(rule.values), pieces(exact), strict=True):
        allowed = (rule.absolute or 0.0) + rule.relative * want.double().abs()
        off = ((got.double() - want.double()).abs() / allowed).nan_to_num(0.0, 0.0)
        most = max(most, float(off.max()) if off.numel() else 0.0)
    return most


def pieces(flat: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Of a flat tensor what to look at at a time, in order."""
    return tuple(flat.split(_ON_A_CPU if flat.device.type == "cpu" else _PIECE_ELEMENTS))


def unravel(index: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The coordinates of a flat index."""
    coordinates = []
    for size in reversed(shape):
        index, place = divmod(index, max(size, 1))
        coordinates.append(place)
    return tuple(reversed(coordinates))


def _mixed(fingerprint: int, chunk: torch.Tensor) -> int:
    """A position-dependent 64-bit sum of the chunk's bit pattern: tells runs apart, guards nothing."""
    words = chunk.view(INTEGER_VIEWS[chunk.element_size()]).to(torch.int64)
    weights = torch.arange(words.numel(), device=chunk.device) * 2654435761 + 1
    return (fingerprint * 1000003 + int((words * weights).sum())) & (2**64 - 1)
