"""Error maps: where and how a tensor is wrong, in numbers small enough to keep. No torch here."""

from __future__ import annotations

from dataclasses import dataclass

LEVELS = "0123456789abcdefghijklmnopqrstuvINU"
"""One cell of a picture. The n-th character up to `v` stands for an error of 10^((n - 8) / 4) times what is allowed,
so `8` is what is just allowed; then infinite, NaN, never written."""
RIGHT = 8
"""The highest level that is right."""
INFINITE, NAN, UNWRITTEN = 32, 33, 34
MOST_RANGES = 16
MOST_VALUES = 64


@dataclass(frozen=True)
class Along:
    """Where wrong elements are along one dimension, or along the flattened index."""

    dim: int
    """-1: the flattened index."""
    size: int
    ranges: tuple[tuple[int, int], ...]
    """Indices that stand out, from and up to (not with) each, 16 ranges at most; empty where none do."""
    period: int
    """These indices repeat after so many, 0 where they do not."""
    residues: tuple[int, ...]
    """Which of a period."""
    inside: float
    """Share of elements at these indices that are wrong."""
    outside: float
    """Share of elements at other indices that are wrong."""
    holds: float
    """Share of all wrong elements that are at these indices."""
    profile: tuple[float, ...] = ()
    """Share of elements that are wrong, by index; by equal pieces where there are over 64."""

    @property
    def stands_out(self) -> bool:
        return bool(self.ranges or self.period)

    @property
    def count(self) -> int:
        """Indices that stand out, where they are ranges."""
        return sum(stop - start for start, stop in self.ranges)


@dataclass(frozen=True)
class Values:
    """Finite values of a tensor's sample."""

    least: float
    greatest: float
    mean: float
    rms: float
    zeros: float
    """Share of exact zeros."""


@dataclass(frozen=True)
class Fit:
    """The candidate's values as the oracle's times a factor or plus an offset."""

    what: str
    """`factor` or `offset`."""
    dim: int
    """-1: one for all; else one for each index of that dimension."""
    of: str
    """`all` elements of the sample, or its `wrong` ones."""
    values: tuple[float, ...]
    """64 at most."""
    residual: float
    """Relative L2 error that is left."""
    before: float
    """Relative L2 error without the fit, over the same elements."""


@dataclass(frozen=True)
class Match:
    """The candidate's values are the oracle's from other places."""

    what: str
    """`shifted`, `flipped`, `transposed` or `permuted`."""
    dims: tuple[int, ...]
    """-1: the flattened index."""
    by: tuple[int, ...]
    """Shifted: the element at i is the oracle's at i + by. Permuted: which index of the oracle's each holds."""
    residual: float
    """Relative L2 error against the oracle's values from there."""
    before: float
    """Relative L2 error as it is."""


@dataclass(frozen=True)
class Picture:
    """One plane of the tensor, over the last two dimensions, each cell the worst of what it covers."""

    index: tuple[int, ...]
    """Of the leading dimensions."""
    rows: tuple[str, ...]
    """Characters of `LEVELS`; 64 by 64 at most."""


@dataclass(frozen=True)
class ErrorMap:
    """How one tensor is wrong."""

    shape: tuple[int, ...]
    looked_at: int
    """Elements from the first on whose errors were looked at."""
    what: str
    """What is counted: `wrong`, `infinite`, `nan` or `unwritten`, the last of these that there is."""
    count: int
    along: tuple[Along, ...]
    """Each dimension, then the flattened index where it tells more."""
    in_box: float
    """Share of elements that are wrong where all the dimensions that hold every one of them say they are."""
    covered: float
    """Share of wrong elements at any dimension's standing-out indices."""
    first: tuple[tuple[int, ...], ...]
    """The first few."""
    tail: int
    """From this flattened index on (nearly) all are wrong and before it none; -1 where there is none."""
    sample: int
    """Elements around the worst one that what follows speaks of."""
    got: Values
    want: Values
    by_sign: tuple[float, float, float]
    """Share of elements that are wrong where the oracle's are negative, zero, positive; -1 where there are none."""
    at_bounds: tuple[float, float]
    """Share of the wrong elements where the oracle's is its least, its greatest value."""
    rounded_to: str
    """A narrower type that holds all of the candidate's values exactly; empty where there is none."""
    fits: tuple[Fit, ...] = ()
    """Those that leave little, the best first."""
    matches: tuple[Match, ...] = ()
    pictures: tuple[Picture, ...] = ()
