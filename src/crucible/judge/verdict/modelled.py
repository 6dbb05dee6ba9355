"""Modelled: how long a GPU would take for what the emulator saw. Never measured, never ranked with what was."""

from __future__ import annotations

from dataclasses import dataclass

from crucible.legible import counted


@dataclass(frozen=True)
class Part:
    """A kernel of the candidate's, or an operator of PyTorch's."""

    name: str
    launches: float
    """In one call."""
    time_ms: float
    """Of all of them."""
    limited_by: str
    """`memory`, `load and store instructions`, `matrix products` or `launching`."""
    own: bool = True
    """Whether it is the candidate's."""


@dataclass(frozen=True)
class Modelled:
    """The least time for what was counted: bytes, load and store instructions, matrix products, launches."""

    time_ms: float
    covers: str
    """`forward` or `forward+backward`."""
    gpu: str
    """Whose datasheet's rates."""
    at: str
    """The size that it stands for: `full size`, or `the size judged` where nothing is known of more."""
    bytes_moved: float
    """To and from device memory, at that size: each sector of 32 bytes once a launch."""
    matrix_flops: float
    launches: float
    parts: tuple[Part, ...]
    """The longest first."""

    @property
    def own_share(self) -> float:
        """Of the time of its parts, that of the candidate's kernels."""
        return sum(part.time_ms for part in self.parts if part.own) / sum(part.time_ms for part in self.parts)

    @property
    def words(self) -> str:
        """`0.42 ms at full size on an NVIDIA H200 (modelled, not measured): ...`."""
        first = "; ".join(f"{p.name[:40]} {p.time_ms:.3g} ms ({p.limited_by})" for p in self.parts[:3])
        amounts = f"{self.bytes_moved / 1e6:.3g} MB, {self.matrix_flops / 1e9:.3g} GFLOP of matrix products"
        return (
            f"{self.time_ms:.3g} ms at {self.at} on an {self.gpu} (modelled, not measured): {amounts}, "
            f"{counted(self.launches, 'launch')}; {first}"
        )


@dataclass(frozen=True)
class NotModelled:
    """Why there is no such time."""

    reason: str


NOT_MODELLED = NotModelled("only what passes on the emulator is modelled")
