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

RECURRENT = """
import torch
from crucible.emulator import pretend
from crucible.gpus import DEFAULT, known_gpu
torch.backends.cudnn.is_acceptable = lambda tensor: True  # as where PyTorch was built with CUDA
torch._use_cudnn_rnn_flatten_weight = lambda: True
pretend.install(known_gpu(DEFAULT))
print(tuple(torch.nn.LSTM(3, 4).cuda()(torch.ones(2, 1, 3))[0].shape))
"""


def test_a_recurrent_layer_is_made_where_pytorch_has_cudnn() -> None:
    """The packing of its weights is cuDNN's, which takes no CPU tensor: a right candidate "did not import"."""
    done = subprocess.run([sys.executable, "-c", RECURRENT], capture_output=True, text=True, check=False)
    assert done.stdout == "(2, 1, 4)\n", done.stderr


def test_autocast_for_cuda_casts() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["bfloat16", "float16", "float32", "bfloat16", "float32"], done.stderr
