"""Streams without a GPU: who reads what another stream may still be writing is told, at its line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import crucible
from support import write

SCRIPT = """
import json, sys
import torch
from crucible.emulator import pretend, streams
from crucible.gpus import DEFAULT, known_gpu
pretend.install(known_gpu(DEFAULT))
for body in json.load(sys.stdin):
    side, other, event = torch.cuda.Stream(), torch.cuda.Stream(), torch.cuda.Event()
    names = {"torch": torch, "side": side, "other": other, "event": event, "outer": torch.cuda.current_stream()}
    names["weight"] = torch.ones(4)
    text = "def call(x):" + "".join(f"\\n    {line}" for line in body.strip().split("\\n"))
    exec(compile(text, "candidate.py", "exec"), names)
    x = torch.ones(4)
    for _ in range(2):
        streams.forget()
        with streams.watch([x]):
            names["call"](x)
    print(json.dumps([f"{fault.words}" for fault in streams.faults()]))
"""
ORDERED = {
    "nothing on a stream": """
return x * weight
""",
    "waits": """
side.wait_stream(outer)
with torch.cuda.stream(side):
    y = x * weight
outer.wait_stream(side)
return y + 1
""",
    "by events": """
event.record()
side.wait_event(event)
with side:
    y = x * weight
    event.record()
event.wait()
return y + 1
""",
    "through another": """
side.wait_stream(outer)
other.wait_stream(side)
with torch.cuda.stream(other):
    y = x * weight
outer.wait_stream(other)
return y + 1
""",
    "the host waits": """
torch.cuda.synchronize()
with torch.cuda.stream(side):
    y = x * weight
side.synchronize()
return y + 1
""",
    "copied to the host": """
x.sum().item()
with torch.cuda.stream(side):
    y = x * weight
    y.cpu()
return y + 1
""",
    "weights alone": """
with torch.cuda.stream(side):
    return weight * 2
""",
    "views and what is empty": """
with torch.cuda.stream(side):
    return torch.empty_like(x), x.view(2, 2)
""",
    "nobody waits for the answer": """
side.wait_stream(outer)
with torch.cuda.stream(side):
    return x * weight
""",
    "a graph": """
graph = torch.cuda.CUDAGraph()
side.wait_stream(outer)
with torch.cuda.stream(side):
    kept = x.clone()
with torch.cuda.graph(graph):
    y = kept * weight
graph.replay()
return y + 1
""",
}
NOT_ORDERED = {
    "reads the input": (
        """
with torch.cuda.stream(side):
    y = x * weight
""",
        "mul",
        2,
    ),
    "copies the input": (
        """
with torch.cuda.stream(side):
    torch.zeros(4).copy_(x)
""",
        "copy_",
        2,
    ),
    "sets it current": (
        """
torch.cuda.set_stream(side)
y = x * weight
torch.cuda.set_stream(outer)
""",
        "mul",
        2,
    ),
    "waits for what is older": (
        """
side.wait_stream(outer)
y = x * 2
with torch.cuda.stream(side):
    y * 2
""",
        "mul",
        4,
    ),
    "an event that is older": (
        """
event.record()
y = x * 2
side.wait_event(event)
with side:
    y * 2
""",
        "mul",
        5,
    ),
    "reads what a stream makes": (
        """
side.wait_stream(outer)
with torch.cuda.stream(side):
    y = x * weight
return y + 1
""",
        "add",
        4,
    ),
    "writes over what is read": (
        """
x + 1
with torch.cuda.stream(side):
    x.zero_()
""",
        "zero_",
        3,
    ),
    "a branch beside it": (
        """
side.wait_stream(outer)
other.wait_stream(outer)
with side:
    y = x * 2
with other:
    z = y + 1
""",
        "add",
        6,
    ),
    "replays a graph": (
        """
graph, kept = torch.cuda.CUDAGraph(), torch.zeros(4)
with torch.cuda.graph(graph):
    y = kept * weight
with torch.cuda.stream(side):
    side.wait_stream(outer)
    kept.copy_(x)
    graph.replay()
return y + 1
""",
        "add",
        8,
    ),
}
"""With the operation that is told of, and its line."""


@pytest.fixture(scope="module")
def said() -> dict[str, list[str]]:
    """By body, the words of what was found in its second call: one process for all, since each imports PyTorch."""
    bodies = [*ORDERED.values(), *(body for body, _, _ in NOT_ORDERED.values())]
    asked = json.dumps(bodies)
    done = subprocess.run([sys.executable, "-c", SCRIPT], input=asked, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return dict(zip(bodies, map(json.loads, done.stdout.splitlines()), strict=True))


@pytest.mark.parametrize("how", ORDERED)
def test_who_waits_is_not_told_of(said: dict[str, list[str]], how: str) -> None:
    assert said[ORDERED[how]] == []


@pytest.mark.parametrize("how", NOT_ORDERED)
def test_who_does_not_wait_is_told_of_at_its_line(said: dict[str, list[str]], how: str) -> None:
    body, operation, line = NOT_ORDERED[how]
    (words,) = said[body]
    assert words.startswith("unordered-streams: on ") and words.endswith(
        f"(candidate.py:{line + 1}, kernel {operation})"
    )


TASK = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return x * 2 + 1

def get_inputs():
    return [torch.rand(64)]

def get_init_inputs():
    return []
"""
CANDIDATE = """
import torch

class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.stream = torch.cuda.Stream()

    def forward(self, x):
        {waits}
        with torch.cuda.stream(self.stream):
            y = x * 2 + 1
        torch.cuda.current_stream().wait_stream(self.stream)
        return y
"""


def test_the_judge_convicts_it_where_the_answer_is_right(tmp_path: Path) -> None:
    write(tmp_path / "task.py", TASK)
    files = {
        "waits": write(
            tmp_path / "waits.py", CANDIDATE.format(waits="self.stream.wait_stream(torch.cuda.current_stream())")
        ),
        "does_not": write(tmp_path / "does_not.py", CANDIDATE.format(waits="pass")),
    }
    run = crucible.judge(tmp_path / "task.py", list(files.values()), device="emulator", baselines=None)
    assert run.verdict("waits").outcome.kind == "passed"
    assert run.verdict("does_not").outcome.kind == "faulty"
    assert "candidate.py:12, kernel mul" in run.verdict("does_not").outcome.words
