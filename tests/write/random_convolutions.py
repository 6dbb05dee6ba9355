"""Convolutions of random shapes and parameters, and one of the ways to divide each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from conv_harness import ONE, Case, WeightCase, backward, forward, transposed
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from crucible.schedule.convolution.halo import UNITS
from crucible.schedule.convolution.tile_choice import best
from crucible.schedule.convolution.tiling import Tiling

WAYS = 8
"""Ways to divide a convolution that are drawn from, most promising first."""


@dataclass(frozen=True)
class Layer:
    """What a layer is told; plain values, so that it can go to another process."""

    is_transposed: bool
    shape: tuple[int, ...]
    channels: int
    kernel: tuple[int, ...]
    stride: int
    padding: int
    dilation: int
    output_padding: int
    groups: int
    dtype: str
    chain: str
    exact: bool
    way: int
    front: str

    def case(self, name: str) -> Case:
        tiling: Callable[[Tiling], Tiling] = self._chosen
        rest = {"stride": self.stride, "padding": self.padding, "dilation": self.dilation, "groups": self.groups}
        rest |= {"dtype": self.dtype, "chain": self.chain, "exact": self.exact, "tiling": tiling, "front": self.front}
        if self.is_transposed:
            rest["output_padding"] = self.output_padding
        return (transposed if self.is_transposed else forward)(name, self.shape, self.channels, self.kernel, **rest)

    def _chosen(self, first: Tiling) -> Tiling:
        ways = best(first.made, UNITS[self.dtype], WAYS, ONE)
        return ways[self.way % len(ways)]


def directions(layers: Sequence[Layer], first: int = 0) -> list[Case | WeightCase]:
    """Each layer's output and both its gradients, numbered from `first` on."""
    found: list[Case | WeightCase] = []
    for number, layer in enumerate(layers, first):
        case = layer.case(f"random_{number}")
        found += [case, backward(case), WeightCase(case, layer.way)]
    return found


@st.composite
def layers(draw: st.DrawFn) -> Layer:
    rank, is_transposed = draw(st.integers(1, 3)), draw(st.booleans())
    groups = draw(st.sampled_from((1, 1, 1, 2, 3, 24, 34)))
    each = st.integers(1, 20) | st.sampled_from((24, 32, 40, 72)) if groups == 1 else st.integers(1, 30 // groups + 1)
    stride, dilation = draw(st.integers(1, 3)), draw(st.sampled_from((1, 1, 2)))
    kernel = tuple(draw(st.integers(1, {1: 7, 2: 5, 3: 3}[rank])) for _ in range(rank))
    padding = draw(st.integers(0, max(kernel)))
    more = draw(st.integers(0, stride - 1)) if is_transposed else 0
    reach = [dilation * (k - 1) + 1 for k in kernel]
    if is_transposed:  # (n - 1) stride - 2 padding + reach + more >= 1
        least = [max(1, 1 - (r + more - 2 * padding - 1) // stride) for r in reach]
    else:
        least = [max(1, r - 2 * padding) for r in reach]
    space = tuple(n + draw(st.integers(0, {1: 40, 2: 12, 3: 6}[rank])) for n in least)
    shape = (draw(st.integers(1, 3)), groups * draw(each), *space)
    dtype = draw(st.sampled_from(("float32", "float32", "float16", "bfloat16")))
    exact = dtype == "float32" and draw(st.booleans())
    chain, way = draw(st.sampled_from(("none", "biased"))), draw(st.integers(0, WAYS - 1))
    front = draw(st.sampled_from(("none", "none", "bent", "clamped")))
    return Layer(
        is_transposed,
        shape,
        groups * draw(each),
        kernel,
        stride,
        padding,
        dilation,
        output_padding=more,
        groups=groups,
        dtype=dtype,
        chain=chain,
        exact=exact,
        way=way,
        front=front,
    )


def drawn(count: int) -> list[Layer]:
    """The same each time."""
    found: list[Layer] = []

    @settings(
        max_examples=count,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=[*HealthCheck],
        deadline=None,
    )
    @given(layers())
    def collect(layer: Layer) -> None:
        found.append(layer)

    collect()
    return list(dict.fromkeys(found))
