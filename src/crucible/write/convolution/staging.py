"""How weights and inputs come into shared memory: when they are needed, or beside the multiplication before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from crucible.target.cuda import block, indented
from crucible.write.convolution.halo import THREADS, Halo, decoded
from crucible.write.convolution.pieces import COPY_AHEAD
from crucible.write.convolution.scene import Scene
from crucible.write.convolution.spreading import SpreadHalo


@dataclass(frozen=True)
class Staging:
    """Text before the multiplication."""

    scene: Scene

    @property
    def preamble(self) -> list[str]:
        tiling = self.scene.tiling
        return [COPY_AHEAD] if tiling.ahead or self._is_held or not tiling.is_resident else []

    def memory(self) -> list[str]:
        """What lies where."""
        tiling = self.scene.tiling
        lines = [
            "extern __shared__ uint4 memory[];",
            "unsigned* weights = reinterpret_cast<unsigned*>(memory);",
            f"unsigned* halo = weights + {tiling.weight_turns * tiling.weight_words};",
        ]
        if tiling.ahead:
            lines.append(f"unsigned* coming = halo + {tiling.turn_words};  // the next halo")
            if not tiling.is_resident:
                lines.append(f"unsigned* coming_weights = weights + {tiling.weight_words};")
        return lines

    def first(self) -> list[str]:
        """Before the first item."""
        tiling = self.scene.tiling
        lines = self._weights("0") if tiling.is_resident else []
        if self._is_held:
            lines += self._spread.held() if self._spread else []
        if tiling.ahead or self._is_held:
            lines += ["{", *indented([*self.place(self.first_item), *self._ask("0")]), "}"]
        return lines

    @property
    def first_item(self) -> str:
        return f"static_cast<int>(blockIdx.x) / {self.scene.parts}"

    def place(self, item: str) -> list[str]:
        """Where an item is."""
        tiling = self.scene.tiling
        words = decoded(item, (self.scene.conv.correlation.batch, *tiling.boxes))
        lines = [f"const int n = {words[0]};"]
        for name, word, size in zip(self.scene.dims, words[1:], tiling.box, strict=True):
            lines.append(f"const int box_{name} = {word if size == 1 or word == '0' else f'({word}) * {size}'};")
        return lines

    def ready(self) -> list[str]:
        """What an item needs from channels `step` on (all there are, where weights are resident) is there."""
        tiling = self.scene.tiling
        step = "0" if tiling.is_resident else "step"
        if tiling.ahead:
            return [*self._turned(), *self._asked_next()]
        lines = ["__syncthreads();  // what was there before is done with"]
        came = []
        if not tiling.is_resident:
            lines += self._weights(step, "weights")  # goes on beside the stores
            came = ["wait_for_copies();"]
        if self._spread and self._is_held:
            return [*lines, *self._spread.store(), *came, "__syncthreads();", *self._asked_next()]
        filling = self._spread or self._halo
        return [*lines, "{", *indented(filling.fill(self._source, step)), "}", *came, "__syncthreads();"]

    def one_by_one(self, lines: Sequence[str]) -> list[str]:
        """The body of the loop over steps: where what threads hold goes from one round to the next, nvcc 13.0 writes
        all rounds out, whatever `#pragma unroll` says (of P74's input gradient four times 1700 instructions)."""
        hidden = ['asm volatile("" : "+r"(step));  // so that rounds are not written out one by one']
        return [*hidden * self._is_held, *lines]

    # ahead

    def _turned(self) -> list[str]:
        lines = ["{  // what was coming is there", "    unsigned* const before = halo;"]
        lines += ["    halo = coming, coming = before;", "}"]
        if not self.scene.tiling.is_resident:
            lines[2:2] = ["    unsigned* const weights_before = weights;"]
            lines[-1:] = ["    weights = coming_weights, coming_weights = weights_before;", "}"]
        return [*lines, "wait_for_copies();", *self._halo.settled(), "__syncthreads();"]

    def _asked_next(self) -> list[str]:
        """The next steps of the item, or the next item."""
        tiling = self.scene.tiling
        after = f"item + {self.scene.blocks_a_part}"
        if tiling.is_resident:
            lines, step = [f"const int next = {after};"], "0"
        else:
            more = f"step + {tiling.staged} < {tiling.steps}"
            lines = [f"const int next = {more} ? item : {after};"]
            lines.append(f"const int next_step = {more} ? step + {tiling.staged} : 0;")
            step = "next_step"
        return [*lines, *block(f"if (next < {tiling.items})", [*self.place("next"), *self._ask(step)])]

    def _ask(self, step: str) -> list[str]:
        if self._spread:
            return self._spread.load(self._source, step)
        lines = [] if self.scene.tiling.is_resident else self._weights(step, "coming_weights")
        return [*lines, *self._halo.ask(self._source, step)]

    # weights and inputs

    def _weights(self, step: str, ahead: str = "") -> list[str]:
        """Loaded, or by copies that go on beside what follows to the memory `ahead`."""
        tiling = self.scene.tiling
        begin = f"{self.scene.packed.name} + part * {tiling.steps * tiling.step_weight_words}"
        if step != "0":
            begin += f" + {step} * {tiling.step_weight_words}"
        guard = ""
        if not tiling.is_resident and tiling.steps % tiling.staged:
            guard = f" && {step} * {tiling.step_weight_words // 4} + p < {tiling.steps * tiling.step_weight_words // 4}"
        into = f"reinterpret_cast<uint4*>({ahead or 'weights'})"
        begin = f"reinterpret_cast<const uint4*>({begin})"
        copy = f"copy_ahead({into} + p, {begin} + p);" if ahead else f"{into}[p] = {begin}[p];"
        count = tiling.weight_words // 4
        return block(f"for (int p = threadIdx.x; p < {count}{guard}; p += {THREADS})", [copy])

    @cached_property
    def _spread(self) -> SpreadHalo | None:
        """What fills the halo where the source is one of windows."""
        scene, conv = self.scene, self.scene.conv
        if conv.spread is None:
            return None
        choices = conv.spread.choices if conv.spread.choices else ""
        return SpreadHalo(scene.tiling.of, conv.source, scene.tiling, scene.words, conv.spread, choices)

    @property
    def _is_held(self) -> bool:
        return self._spread is not None and self._spread.is_held

    @property
    def _halo(self) -> Halo:
        conv = self.scene.conv
        return Halo(self.scene.tiling.of, conv.source, self.scene.tiling, self.scene.words.convert)

    @property
    def _source(self) -> str:
        return self.scene.conv.source.name
