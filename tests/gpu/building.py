"""How tests on a GPU build kernels: by nvcc, in several extensions side by side."""

from __future__ import annotations

from typing import Any

from crucible import hardware

HOPPER = (9, 0)
BUILDS = max(1, min(15, hardware.cores() - 1))
"""With two cores nvcc took 6 to 10 s for 22 kernels of warpgroups, g++ 12 for the function over tensors beside them: of
more extensions most of the time would be g++'s."""


def load(**told: Any) -> Any:
    """PyTorch's `load_inline`; its module is slow to import, and only builds need it."""
    from torch.utils.cpp_extension import load_inline

    return load_inline(**told)
