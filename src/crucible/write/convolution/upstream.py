"""Gradients of an output in shared memory: for each channel the positions of a box, in a row."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from crucible.target.cuda import CUDA_TYPES, block, converted, indented
from crucible.write.convolution.correlation import Correlation
from crucible.write.convolution.halo import DIMS, HELD, THREADS, Boxes, decoded, times
from crucible.write.convolution.pieces import Words
from crucible.write.convolution.spreading import Side, Spreading
from crucible.write.convolution.windows import Spread
from crucible.write.program import Operand, contiguous


@dataclass(frozen=True)
class Upstream:
    """Text that fills `grads` from the tensor `grad`, from `first_channel` of `group` on, of item `n` at `box_*`. What
    lies outside of the tensor is 0."""

    of: Correlation
    grad: Operand
    boxes: Boxes
    channels: int
    pitch: int
    """Words from one channel to the next."""
    words: Words
    spread: Spread | None = None
    """How the tensor is laid, where it is one of windows; `choices` is the tensor of choices then."""

    def fill(self) -> list[str]:
        """A thread takes a position (two of a half type) of all channels; or a window of one."""
        if self.spread:
            return self._of_windows(self.spread)
        if not self._is_half:
            value = f"{self._inside('')} ? {self.words.convert}(of_channel[from]) : 0u"
            return self._positions([*self._place("p", ""), *self._channels([f"{self._to} = {value};"])])
        words = [f"static_cast<unsigned>({self.words.convert}(of_channel[from_{k}]))" for k in (0, 1)]
        low, high = (f"({self._inside(f'_{k}')} ? {word} : 0u)" for k, word in enumerate(words))
        places = [*self._place("(p * 2)", "_0"), *self._place("(p * 2 + 1)", "_1")]
        return self._positions([*places, *self._channels([f"{self._to} = {low} | {high} << 16;"])])

    def ask(self) -> list[str]:
        """The same by copies that go on beside what follows, each a float32 as it is; `settled` must follow, by the
        same threads, when they have come."""
        test = self._inside("")
        copy = f"copy_ahead(&{self._to}, {test} ? of_channel + from : grad, {test});"
        return self._positions([*self._place("p", ""), *self._channels([copy])])

    def settled(self) -> list[str]:
        """What has come, as tensor cores take it."""
        if self.words.convert == "bits":
            return []
        turned = [f"{self._to} = {self.words.convert}(__uint_as_float({self._to}));"]
        return self._positions(self._each_channel(turned))

    def _of_windows(self, spread: Spread) -> list[str]:
        boxes, names = self.boxes, DIMS[-len(self.of.axes) :]
        sides = tuple(
            Side(name, f"box_{name}", 0, n if many > 1 else 0, n, axis.outputs, stride, size)
            for name, n, many, axis, stride, size in zip(
                names, boxes.box, boxes.boxes, self.of.axes, self.grad.strides[2:], spread.sizes, strict=True
            )
        )
        start = f"group * {self.of.out_channels} + first_channel" if self.of.groups > 1 else "first_channel"
        at = f"n * {self.grad.strides[0]}LL + ({start} + u) * {self.grad.strides[1]}LL + from"
        guard = f" && first_channel + u < {self.of.out_channels}" if self.of.out_channels % self.channels else ""
        work = Spreading(spread, sides, self.channels)
        held, type_ = work.rounds(HELD), CUDA_TYPES[self.grad.dtype]
        lines = [f"{type_} value[{held}];  // of windows"]
        values = [
            f"const bool there = inside{guard};",
            f"value[r] = there ? grad[{at}] : {converted('0.0f', 'float32', self.grad.dtype)};",
        ]
        if spread.choices:
            lines.append(f"unsigned char choice[{held}];  // the element that has it")
            values.append(f"choice[r] = there ? choices[{at}] : 0;")
        terms = zip([f"to_{name}" for name in names], contiguous(boxes.box), strict=True)
        place = " + ".join(times(name, stride) for name, stride in terms)
        row = f"grads + u * {self.pitch}"
        row = f"reinterpret_cast<unsigned short*>({row})" if self._is_half else f"({row})"
        word = [f"const unsigned word = {self.words.convert}(value[r]);"]
        kept = work.of_element("word", "choice[r]")
        kept = f"static_cast<unsigned short>({kept})" if self._is_half else kept
        return ["{", *indented([*lines, *work.fill(HELD, values, word, [f"{row}[{place}] = {kept};"])]), "}"]

    @property
    def _is_half(self) -> bool:
        return self.grad.dtype != "float32"

    @property
    def _to(self) -> str:
        return f"grads[c * {self.pitch} + p]"

    def _positions(self, lines: Sequence[str]) -> list[str]:
        """A thread takes a position; where there are fewer of them, so many threads share its channels."""
        if self._together > 1:
            return ["{", *indented([f"const int p = threadIdx.x % {self._places};", *lines]), "}"]
        return block(f"for (int p = threadIdx.x; p < {self._places}; p += {THREADS})", lines)

    @property
    def _places(self) -> int:
        """Positions that are loaded at once: two of a half type."""
        return math.prod(self.boxes.box) // (2 if self._is_half else 1)

    @property
    def _together(self) -> int:
        """Threads of a position."""
        return math.gcd(THREADS // self._places, self.channels) if THREADS % self._places == 0 else 1

    def _channels(self, lines: Sequence[str]) -> list[str]:
        grad, of = self.grad, self.of
        start = f"group * {of.out_channels} + first_channel" if of.groups > 1 else "first_channel"
        at = f"grad + n * {grad.strides[0]}LL + ({start} + c) * {grad.strides[1]}LL"
        return self._each_channel([f"const auto* of_channel = {at};", *lines])

    def _each_channel(self, lines: Sequence[str]) -> list[str]:
        first = f"threadIdx.x / {self._places}" if self._together > 1 else "0"
        head = f"for (int c = {first}; c < {self.channels}; c += {self._together})"
        return ["#pragma unroll 8", *block(head, lines)]

    def _inside(self, suffix: str) -> str:
        guard = f" && first_channel + c < {self.of.out_channels}" if self.of.out_channels % self.channels else ""
        return f"inside{suffix}{guard}"

    def _place(self, number: str, suffix: str) -> list[str]:
        """Of a position: whether it is inside of the tensor, and where."""
        lines, tests, terms = [], [], []
        names = DIMS[-len(self.of.axes) :]
        for dim, word in enumerate(decoded(number, self.boxes.box)):
            name = f"{names[dim]}{suffix}"
            lines.append(f"const int {name} = box_{names[dim]} + {word};")
            if self.boxes.boxes[dim] * self.boxes.box[dim] > self.of.axes[dim].outputs:
                tests.append(f"{name} < {self.of.axes[dim].outputs}")
            terms.append(times(name, self.grad.strides[2 + dim]))
        lines.append(f"const bool inside{suffix} = {' && '.join(tests) or 'true'};")
        return [*lines, f"const int from{suffix} = {' + '.join(filter(None, terms)) or '0'};"]
