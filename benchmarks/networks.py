"""Whole networks: those of tests/networks written, held against float64 and strict float32, and timed beside eager
PyTorch, torch.compile and max-autotune, forward and with gradients.

    python benchmarks/networks.py FOLDER [--column tf32|default|bf16] [--mode train|eval] [--scale full|small]
        [--only 4,15] [--seconds 570] [--processes 14] [--warming 8] [--gpus 0,1]
        [--baselines eager,compile,max-autotune] [--race-seconds 1] [--race] [--build-only] [--report]

It is `benchmarks/kernelbench.py` over these files, resumable in the same way. `--scale small` is for machines without
a GPU, where kernels run on the emulator: a dry run, whose times mean nothing.
"""

from __future__ import annotations

import sys
from pathlib import Path

import kernelbench

NETWORKS = Path(__file__).parents[1] / "tests/networks"


def main() -> None:
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        raise SystemExit(__doc__)
    sys.argv[1:2] = [str(NETWORKS), "0", sys.argv[1]]
    kernelbench.main()


if __name__ == "__main__":
    main()
