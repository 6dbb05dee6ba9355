"""A GPU's memory and the host's, told apart in a process that has one: what a constructor is refused, and what not."""

from __future__ import annotations

import subprocess
import sys

HEAD = """
import torch
from torch import nn
from crucible.emulator import memories, pretend
from crucible.gpus import DEFAULT, known_gpu
pretend.install(known_gpu(DEFAULT))

def refused(compute):
    try:
        compute()
    except RuntimeError as error:
        said = str(error)  # a script says nothing of what is raised inside a dispatch mode
        assert "Expected all tensors to be on the same device" in said or "TorchScript" in said, error
        return True
    return False

layer, x = nn.Linear(3, 2), torch.ones(4, 3)
with memories.apart():
"""
REFUSED = {
    "what is made there": "layer(torch.ones(4, 3, device='cuda'))",
    "what is moved there": "layer(x.cuda())",
    "what is moved by its name": "layer(x.to('cuda:0'))",
    "what was computed there": "layer(torch.zeros(4, 3, device='cuda') + 1)",
    "in a script": "torch.jit.script(layer)(x.cuda())",
    "one of its own": "nn.Parameter(torch.ones(3)) * x.cuda()",
}
ALLOWED = {
    "the host alone": "layer(x)",
    "all of it there": "layer.cuda()(x.cuda())",
    "moved by its name": "layer.to('cuda')(x.cuda())",
    "brought back": "layer(x.cuda().cpu())",
    "brought back by its name": "layer(x.cuda().to('cpu'))",
    "copied to": "layer.weight.data.copy_(torch.ones(2, 3, device='cuda')); layer(x)",
    "one number": "nn.Parameter(torch.tensor(2.0)) * x.cuda()",
    "beside where the weight is": "layer.weight * torch.ones(3, device=layer.weight.device)",
    "weights made there": "nn.Parameter(torch.ones(3, device='cuda')) * x.cuda()",
    "not a weight": "torch.ones(3) * x.cuda()",  # an extension's result, for all that anybody can tell
    "compiled": "torch.compile(layer.cuda(), backend='eager')(x.cuda())",
    "sparse": "layer.weight.detach().to_sparse() * 2",
}
"""By why."""


def _run(text: str) -> str:
    done = subprocess.run([sys.executable, "-c", HEAD + text], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_weight_on_the_host_beside_what_is_on_the_gpu_is_refused() -> None:
    lines = [f"    print(refused(lambda: {compute}))" for compute in REFUSED.values()]
    told = _run("\n".join([*lines, "print(refused(lambda: layer(x.cuda())))"])).split()
    assert dict(zip(REFUSED, told, strict=False)) == dict.fromkeys(REFUSED, "True")
    assert told[-1] == "False"  # when it stands


def test_whatever_is_in_one_place_is_computed() -> None:
    """Each with a layer of its own."""
    lines = [f"    layer = nn.Linear(3, 2); print(refused(lambda: exec({text!r})))" for text in ALLOWED.values()]
    assert dict(zip(ALLOWED, _run("\n".join(lines)).split(), strict=True)) == dict.fromkeys(ALLOWED, "False")


def test_a_tensor_says_where_it_is() -> None:
    text = """
    print(layer.weight.is_cuda, layer.weight.device, x.cuda().is_cuda, x.cuda().device, x.is_cuda)
    there = x.cuda()
    print(there.cuda() is there, there.half().is_cuda, there.cpu().is_cuda, x.data_ptr() == there.data_ptr())
print(layer.weight.is_cuda, x.device)
"""
    said = ["False cpu True cuda:0 False", "True True False False", "True cuda:0"]
    assert _run(text).splitlines() == said
