"""`torch.cuda.CUDAGraph` without a GPU: what is captured is done at each replay, and not before."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = r'''
import torch
from crucible import emulator
from crucible.emulator import pretend
from crucible.gpus import DEFAULT, known_gpu
pretend.install(known_gpu(DEFAULT))
SOURCE = """
#include <ATen/cuda/CUDAContext.h>
__global__ void add(const float* x, float* out, int n, float by) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i] + by;
}
torch::Tensor captured(torch::Tensor x) {
    auto out = torch::empty_like(x);
    add<<<1, 32, 0, at::cuda::getCurrentCUDAStream()>>>(x.data_ptr<float>(), out.data_ptr<float>(), x.numel(), 1.0f);
    return out;
}
torch::Tensor elsewhere(torch::Tensor x) {
    auto out = torch::empty_like(x);
    add<<<1, 32>>>(x.data_ptr<float>(), out.data_ptr<float>(), x.numel(), 1.0f);
    return out;
}
"""
DECLARED = "torch::Tensor captured(torch::Tensor x); torch::Tensor elsewhere(torch::Tensor x);"
of = emulator.load_inline("graphed", DECLARED, SOURCE, ["captured", "elsewhere"])
x, count = torch.zeros(8, device="cuda"), torch.zeros(1)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    assert torch.cuda.is_current_stream_capturing()
    y = of.captured(x * 2) * 10
    z = of.elsewhere(x)
    count += 1
    try:
        y.sum().item()
    except RuntimeError as error:
        print("item", "not permitted when stream is capturing" in str(error))
print("unreplayed", bool(y.isnan().all()), count.item())
x.copy_(torch.arange(8.0))
graph.replay()
print("replayed", y.tolist() == [10.0 * (2 * i + 1) for i in range(8)], count.item())
print("elsewhere", z.tolist() == [1.0] * 8)  # done when it was launched, and never again
first = y
x.fill_(3.0)
graph.replay()
print("again", first is y, y[0].item(), count.item())
net = torch.nn.Linear(4, 4)
called = torch.cuda.make_graphed_callables(net, (torch.randn(2, 4, requires_grad=True),))
given = torch.randn(2, 4, requires_grad=True)
want = torch.nn.functional.linear(given, net.weight, net.bias)
called(given).sum().backward()
print("callable", torch.allclose(called(given), want), torch.allclose(given.grad, net.weight.sum(0).expand(2, 4)))
print("faults", [fault.words for fault in emulator.faults()])
'''


def test_graphs_do_at_replay_what_was_captured() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == [
        "item True",
        "unreplayed True 0.0",
        "replayed True 1.0",
        "elsewhere True",
        "again True 70.0 2.0",
        "callable True True",
        "faults []",
    ], done.stderr


TRITON = r"""
import torch
from crucible.emulator import pretend, session
from crucible.emulator.triton import interpreter
from crucible.gpus import DEFAULT, known_gpu
started, gpu = session.start(), known_gpu(DEFAULT)
pretend.install(gpu)
started.triton = interpreter.install(started.is_of_the_gpu, 5.0, gpu)
from kernel import twice
x, out = torch.ones(8), torch.zeros(8)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    twice[(2,)](x, out, 8, BLOCK=4)
print(out.tolist())
x.fill_(3.0)
graph.replay()
print(out.tolist(), [fault.words for fault in started.faults()])
"""
KERNEL = """
import triton
import triton.language as tl

@triton.jit
def twice(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, 2 * tl.load(x + i, mask=i < n), mask=i < n)
"""


def test_a_launch_of_triton_s_is_captured_too(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    (tmp_path / "kernel.py").write_text(KERNEL)
    command = [sys.executable, "-c", TRITON]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.stdout.splitlines() == [str([0.0] * 8), f"{[6.0] * 8} []"], done.stderr


TRACED = """
import torch
from crucible.emulator import pretend
from crucible.gpus import DEFAULT, known_gpu
pretend.install(known_gpu(DEFAULT))

class Graphed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Conv2d(1, 2, 3)
        self.graph = None

    def forward(self, x):
        if self.graph is None:
            self.x, self.graph = x.clone(), torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.y = self.layer(self.x)
        self.x.copy_(x)
        self.graph.replay()
        return self.y.clone()

model = Graphed()
traced = torch.jit.trace(model, torch.randn(1, 1, 4, 4), check_trace=False)
x = torch.randn(1, 1, 4, 4)
want = model.layer(x)
print(torch.equal(traced(x), want), torch.equal(model(x), want))
"""


def test_a_graph_is_captured_and_replayed_while_a_trace_is_under_way() -> None:
    """A replay is none of PyTorch's operations, so nothing of it comes into the trace: it raised there, and a trace
    that a swallowed exception has ended is a segmentation fault."""
    done = subprocess.run([sys.executable, "-c", TRACED], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["True", "True"], done.stderr
