"""An oracle has PyTorch's compiler only where its reference compiles something."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from support import SMALL_TASK, some

ASKING = {
    "a compiled function": "assert torch.compile(lambda x: x + 1, backend='eager')(torch.ones(2)).tolist() == [2, 2]",
    "one that is disabled": "assert torch.compiler.disable(lambda x: x + 1)(torch.ones(2)).tolist() == [2, 2]",
    "a decorator of it": "import torch._dynamo\n@torch._dynamo.disable\ndef f(x): return x\nassert f(1) == 1",
    "a module of it": "from torch._dynamo.utils import counters; assert not counters",
    "a function of it": "from torch._dynamo import reset; reset()",
}
"""What brings it."""
HERE = some(list(ASKING), 2)
"""Each imports it: 1.7 s of a processor."""
COUNTED = f"""
from crucible.judge.oracle.sizing import Survey
from crucible.task import Task
task = Task.load({str(SMALL_TASK)!r})
survey = Survey(task.source, str(task.path), {{"batch_size": 4}}, mode="train", seed=0)
assert survey.work().matrix_flops > 0
assert survey.rate({{"batch_size": 2}}).is_little
assert not is_there() and marked()
"""
STARTED = """
import socket
from crucible.judge.oracle import server
del sys.modules["torch._dynamo"]
ours, theirs = socket.socketpair()
ours.close()  # nobody asks anything
sys.argv = ["oracle", str(theirs.fileno())]
server.main()
assert type(sys.modules["torch._dynamo"]).__name__ == "_NotYet"
"""
FORKS = """
import json, os, sys
import torch
from crucible.judge.oracle import without_dynamo

def is_there():
    return "torch._dynamo.eval_frame" in sys.modules

def marked():
    # by the stand-in: as what needs nothing around it
    found, function = 0, torch._refs.add
    while function is not None:
        found += vars(function).get("__dynamo_disable") is function
        function = getattr(function, "__wrapped__", None)
    return found

without_dynamo.put_off()
assert (torch.empty(3, device="meta") + 1).shape == (3,)
assert not is_there() and marked()
for text in json.loads(sys.argv[1]):
    pid = os.fork()
    if not pid:
        exec(text)
        os._exit(0)
    print(os.waitpid(pid, 0)[1], flush=True)
"""
CAME = """
assert is_there() and type(sys.modules["torch._dynamo"]).__name__ == "module"
assert not marked(), "it would not be asked"
assert (torch.empty(3, device="meta") + 1).shape == (3,) and not marked()
"""


@pytest.fixture(scope="module")
def ended() -> dict[str, str]:
    """How each ended, in a fork of one process: PyTorch is imported once for all."""
    texts = [*(f"{words}\n{CAME}" for words in map(ASKING.get, HERE)), COUNTED, STARTED]
    command = [sys.executable, "-c", FORKS, json.dumps(texts)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    codes = [line for line in done.stdout.splitlines() if line.isdigit()]
    said = [f"{code} {done.stderr if code != '0' else ''}" for code in codes]
    return dict(zip([*HERE, "counted", "started"], said, strict=True))


@pytest.mark.parametrize("name", HERE)
def test_dynamo_comes_where_it_is_asked_for(name: str, ended: dict[str, str]) -> None:
    """And what was left alone meanwhile asks it again."""
    assert ended[name] == "0 "


def test_an_oracle_counts_its_references_work_without_it(ended: dict[str, str]) -> None:
    assert ended["counted"] == "0 "


def test_an_oracles_process_puts_it_off(ended: dict[str, str]) -> None:
    assert ended["started"] == "0 "
