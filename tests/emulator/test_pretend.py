"""A process that takes its CPU for a GPU: what candidates ask of PyTorch there."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import torch
from crucible.emulator import pretend
from crucible.gpus import DEFAULT, known_gpu
pretend.install(known_gpu(DEFAULT))
a = torch.ones(4, 4, device="cuda")
def kind(mode):
    with mode:
        return str((a @ a).dtype)[6:]
off = torch.autocast(device_type="cuda", enabled=False)
modes = torch.autocast("cuda", torch.bfloat16), torch.autocast("cuda"), off
print(*map(kind, modes), kind(torch.amp.autocast("cuda", dtype=torch.bfloat16)), str((a @ a).dtype)[6:])
"""


def test_autocast_for_cuda_casts() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["bfloat16", "float16", "float32", "bfloat16", "float32"], done.stderr
