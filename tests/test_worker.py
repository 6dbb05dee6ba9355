"""The candidate's process, spoken to over its own channel: what it runs, what it hands out, what it notices."""

from __future__ import annotations

import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import crucible
from crucible import hardware
from crucible.judge.boundary.bits import POISON
from crucible.judge.boundary.bundles import raw_bytes, write_bundle
from crucible.judge.boundary.slot import sealed
from crucible.judge.process.channel import Channel, ChannelClosed, pair, read_exactly
from crucible.judge.process.handing import SLOT
from crucible.judge.process.launcher import package_folders
from crucible.judge.process.replies import is_reply
from crucible.judge.process.sandbox import landlock_abi
from crucible.judge.process.seccomp import is_available

pytestmark = pytest.mark.xdist_group("worker")
SECRET = "0123abcd"
FORKS = """
import json, os, socket, sys
from crucible.judge.process.confined import main

asked = socket.socket(fileno=int(sys.argv[1]))
while True:
    text, descriptors, _, _ = socket.recv_fds(asked, 1 << 20, 2)
    if not text:
        break
    pid = os.fork()
    if not pid:
        asked.close()
        settings, folder, extensions = json.loads(text)
        os.chdir(folder)
        os.environ["TORCH_EXTENSIONS_DIR"] = extensions
        sys.argv[1] = json.dumps({**settings, "channel": descriptors[0], "stream": descriptors[1]})
        main()
        break
    for descriptor in descriptors:
        os.close(descriptor)
    asked.send(str(pid).encode())
    asked.send(str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])).encode())
"""
"""As the judge's fork server does, but forks end as Python does: coverage sees what they run.
A process that imports torch by itself takes 3 s of processor time."""
STATE = {"weight": torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), "bias": torch.tensor([1.0, -1.0, 0.5])}
INPUTS = [torch.tensor([[1.0, -2.0], [0.5, 3.0]]), torch.tensor([[2.0, 1.0], [-1.0, 0.0]])]
COTANGENT = torch.tensor([[1.0, 2.0, 3.0], [-1.0, 0.0, 1.0]])
HEAD = """
import torch
from torch import nn
class ModelNew(nn.Module):
    def __init__(self, width=3):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width, 2))
        self.bias = nn.Parameter(torch.zeros(width))
"""
"""Ten lines with the first, empty one; a forward follows."""


def candidate(*forward: str, before: str = "", arguments: str = "x") -> str:
    """A candidate with these lines for its forward."""
    lines = "\n".join(f"        {line}" for line in forward)
    return f"{before}{HEAD}    def forward(self, {arguments}):\n{lines}\n"


LACKS_MEMORY = {
    "allocate memory",
    "CUDA error: out of memory",
    "[CUDA]: out of memory",
    "STATUS_ALLOC_FAILED",
    "no room",
}
PLAIN = candidate("return nn.functional.linear(x, self.weight, self.bias)")


class Forks:
    """A process that has imported what a worker needs, and forks one at a time."""

    def __init__(self) -> None:
        self.asked, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-c", FORKS, str(theirs.fileno())]
        self.process = subprocess.Popen(command, pass_fds=(theirs.fileno(),))
        theirs.close()

    def start(self, settings: dict[str, Any], extensions: Path, descriptors: tuple[int, int]) -> int:
        """The process id of a worker."""
        text = json.dumps([settings, os.getcwd(), str(extensions)]).encode()
        socket.send_fds(self.asked, [text], descriptors)
        return int(self.asked.recv(100))

    def end(self) -> int:
        self.asked.close()
        return self.process.wait(20)


class Started:
    """A worker's process and the judge's end of its channel and stream."""

    def __init__(self, folder: Path, forks: Forks, **changes: Any) -> None:
        self.folder = folder
        self.file = folder / "candidate.py"
        (folder / "inputs").mkdir(parents=True)
        write_bundle(folder / "inputs/init", [3])
        write_bundle(folder / "inputs/weights", [["weight", True, "weight"], ["bias", True, "bias"]])
        for i, x in enumerate(INPUTS):
            self.put(i, [x])
        write_bundle(folder / "inputs/case0.cotangents", [COTANGENT])
        ours, theirs = pair()
        self.stream, stream = os.pipe()
        settings = {
            "file": str(self.file),
            "inputs": str(folder / "inputs"),
            "device": "cpu",
            "allow_tf32": [True, True],
            "mode": "train",
            "bfloat16": False,
            "compile_only": False,
            "held_by": {"landlock": False, "filter": False},
            "readable": [],
            "writable": [],
            "usable": [],
            "file_bytes": 1 << 24,
            **changes,
        }
        self.forks = forks
        self.pid = forks.start(settings, folder / "extensions", (theirs.fileno(), stream))
        theirs.close()
        os.close(stream)
        self.channel = Channel(ours)
        self.channel.send({"secret": SECRET})
        self.channel.secret = SECRET
        assert self.channel.receive(60) == {"done": "start"}

    def put(self, case: int, inputs: Any, state: dict[str, torch.Tensor] = STATE) -> None:
        write_bundle(self.folder / f"inputs/case{case}.inputs", inputs)
        write_bundle(self.folder / f"inputs/case{case}.state", state)

    def ask(self, do: str, **more: Any) -> dict[str, Any]:
        self.channel.send({"do": do, **more})
        return self.channel.receive(60)

    def take(self, source: str) -> dict[str, Any]:
        """Imports a candidate; the reply to that."""
        self.file.write_text(source)
        return self.ask("import")

    def built(self, source: str) -> Started:
        assert self.take(source) == {"done": "import", "flags": {}, "forked": False}
        assert self.ask("construct", seed=0) == {"done": "construct", "forked": False}
        return self

    def run(self, case: int = 0, *, poison: bool = True, backward: bool = False, way: int = 0) -> dict[str, Any]:
        return self.ask("run", case=case, poison=poison, backward=backward, outputs=[], clone=False, way=way)

    def sample(
        self, own: int = 0, *, backward: bool = False, weights: int = 0, contents: list[torch.Tensor] | None = None
    ) -> dict[str, Any]:
        """One call of a step that was set up, on a case's own values, or on contents (-1), on a case's weights."""
        request = {
            "do": "sample",
            "own": own,
            "seed": -1,
            "weights": weights,
            "replay": False,
            "draws": None,
            "backward": backward,
        }
        descriptors = () if contents is None else (sealed(contents),)
        self.channel.send({**request, "files": [SLOT] * len(descriptors)}, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        reply = self.channel.receive(60)
        if "raised" not in reply:
            assert is_reply("sample", reply)
            assert min(reply["device_ms"], reply["wall_ms"]) >= 0
        return reply

    def sent(
        self, tensors: list[torch.Tensor], part: str = "forward", names: tuple[str, ...] = (), part_of: Any = None
    ) -> list[torch.Tensor]:
        """What comes through the stream, in tensors like those given."""
        found = [torch.empty(t.shape, dtype=t.dtype) for t in tensors]
        counts: list[int] = []

        def read() -> None:
            counts.extend(read_exactly(self.stream, raw_bytes(t), 30) for t in found)

        thread = threading.Thread(target=read)
        thread.start()
        reply = self.ask("send", part=part, names=list(names), part_of=part_of or {"most": 0, "start": 0.0})
        thread.join()
        assert reply == {"done": "send", "forked": False}
        assert counts == [t.nbytes for t in found]
        return found

    def end(self) -> int:
        self.channel.close()
        os.close(self.stream)
        return int(self.forks.asked.recv(100))


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    """Of processes for a candidate each."""
    started = Forks()
    yield started
    assert started.end() == 0


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    """One process for all candidates that leave no trace in it."""
    forks = Forks()
    started = Started(tmp_path_factory.mktemp("worker") / "folder", forks)
    yield started
    assert (started.end(), forks.end()) == (0, 0)


@pytest.fixture
def worker(shared: Started) -> Started:
    for i, x in enumerate(INPUTS):
        shared.put(i, [x])
    return shared


def linear(case: int = 0) -> torch.Tensor:
    return INPUTS[case] @ STATE["weight"].T + STATE["bias"]


# --- what an honest candidate gives


def test_an_honest_candidate_from_import_to_audit(worker: Started) -> None:
    worker.built(PLAIN)
    reply = worker.run(backward=True)
    assert reply["structure"] == ["tensor", 0]
    assert reply["outputs"] == [{"name": "output", "dtype": "float32", "shape": [2, 3], "device": "cpu"}]
    assert [reply[name] for name in ("aliases", "mutated", "swallowed")] == [[], [], []]
    assert reply["weights"] == {
        "only_in_reference": [],
        "only_in_candidate": [],
        "held": [],
        "paired": [],
        "ways": 1,
    }
    assert "addmm" in reply["operations"]
    assert torch.equal(worker.sent([linear()])[0], linear())

    reply = worker.ask("backward", case=0, inputs=["input[0]"])
    shapes = {name: gradient["shape"] for name, gradient in reply["gradients"].items()}
    assert shapes == {"input[0]": [2, 2], "weight": [3, 2], "bias": [3]}
    assert reply["mutated"] == []
    expected = [COTANGENT.sum(0), COTANGENT @ STATE["weight"]]
    found = worker.sent(expected, "gradient", ("bias", "input[0]"))
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))

    assert worker.ask("set_up", case=1, backward=False) == {"done": "set_up", "forked": False}
    worker.sample(0)
    worker.sample(1)
    assert torch.equal(worker.sent([linear(1)])[0], linear(1))
    worker.ask("set_up", case=0, backward=True)
    worker.sample(backward=True)
    assert torch.equal(worker.sent([linear()])[0], linear())
    found = worker.sent(expected, "gradient", ("bias", "input[0]"))
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    seen = worker.ask("audit")
    assert {name: seen[name] for name in ("replaced", "hunts", "flags", "builds")} == {
        "replaced": [],
        "hunts": [],
        "flags": {},
        "builds": [],
    }


def test_weights_come_from_the_case_by_name_then_by_shape(worker: Started) -> None:
    worker.built(candidate("return x @ self.weight.T + self.extra", before="").replace(
        "self.bias = nn.Parameter(torch.zeros(width))",
        "self.bias = nn.Parameter(torch.zeros(7))\n        self.register_buffer('extra', torch.full((3,), 9.0))",
    ))  # fmt: skip
    reply = worker.run()
    assert reply["weights"] == {
        "only_in_reference": [],
        "only_in_candidate": ["bias"],
        "held": [],
        "paired": ["bias is extra (by shape, the only one of its kind)"],
        "ways": 2,
    }
    assert torch.equal(worker.sent([linear()])[0], linear())
    reply = worker.run(way=1)
    assert reply["weights"]["only_in_reference"] == ["bias"]
    assert reply["weights"]["only_in_candidate"] == ["bias", "extra"]


def test_the_same_seed_gives_the_same_weights(worker: Started) -> None:
    worker.put(0, [INPUTS[0]], state={})
    results = []
    for seed in (5, 5, 6):
        worker.built(PLAIN)
        worker.ask("construct", seed=seed)
        worker.run()
        results += worker.sent([linear()])
    assert torch.equal(results[0], results[1])
    assert not torch.equal(results[0], results[2])


def test_later_inputs_lie_where_the_first_ones_lay(worker: Started) -> None:
    """So an answer kept by address is a stale one, and shows."""
    kept = candidate("self.kept = getattr(self, 'kept', {})", "return self.kept.setdefault(x.data_ptr(), x * 1.0)")
    worker.built(kept)
    for case in (0, 1):
        worker.run(case)
        assert torch.equal(worker.sent([INPUTS[0]])[0], INPUTS[0])
    worker.built(candidate("return x * 1.0"))
    worker.run(1)
    assert torch.equal(worker.sent([INPUTS[1]])[0], INPUTS[1])


def test_inputs_of_another_shape_are_placed_anew(worker: Started) -> None:
    worker.built(candidate("return x * 2"))
    worker.put(1, [torch.ones(5, 2)])
    worker.run(0)
    assert worker.run(1)["outputs"][0]["shape"] == [5, 2]
    assert torch.equal(worker.sent([torch.ones(5, 2)])[0], torch.full((5, 2), 2.0))


def test_inputs_may_be_named_and_outputs_nested(worker: Started) -> None:
    worker.put(0, {"x": INPUTS[0], "factor": 3.0})
    worker.built(candidate("return {'a': (x * factor, x > 0), 'b': [2, None]}", arguments="x, factor"))
    reply = worker.run()
    assert [(o["name"], o["dtype"]) for o in reply["outputs"]] == [
        ("output['a'][0]", "float32"),
        ("output['a'][1]", "bool"),
        ("output['b'][0]", "int64"),
    ]
    tensors = [INPUTS[0] * 3, INPUTS[0] > 0, torch.tensor(2)]
    assert all(torch.equal(a, b) for a, b in zip(worker.sent(tensors), tensors, strict=True))


def test_large_and_transposed_outputs_are_sent_in_row_major_order(worker: Started) -> None:
    elements = 3 * 2_000_000
    lines = [f"y = torch.arange({elements}, dtype=torch.float32)", "return y.reshape(-1, 3).T, y, y[:0]"]
    worker.built(candidate(*lines))
    worker.run(poison=False)
    y = torch.arange(elements, dtype=torch.float32)
    expected = [y.reshape(-1, 3).T.contiguous(), y, y[:0]]
    assert all(torch.equal(a, b) for a, b in zip(worker.sent(expected), expected, strict=True))


def test_of_a_large_tensor_a_part_may_be_sent(worker: Started) -> None:
    """At even distances, in row-major order whatever its strides, and small ones whole."""
    worker.built(candidate("y = torch.arange(35.0).reshape(5, 7).T", "return y, y[:2, :2]"))
    worker.run(poison=False)
    y = torch.arange(35.0).reshape(5, 7).T.contiguous()
    for start, first in ((0.0, 0), (0.5, 2), (0.99, 3)):
        part = y.flatten()[first::4]
        found = worker.sent([part, y[:2, :2].contiguous()], part_of={"most": 9, "start": start})
        assert torch.equal(found[0], part)
        assert torch.equal(found[1], y[:2, :2])


def test_a_gradient_that_is_not_there_is_not_named(worker: Started) -> None:
    worker.built(candidate("return nn.functional.linear(x.detach(), self.weight, self.bias.detach())"))
    worker.run(backward=True)
    assert set(worker.ask("backward", case=0, inputs=["input[0]"])["gradients"]) == {"weight"}
    worker.built(candidate("return nn.functional.linear(x, self.weight, self.bias).detach()"))
    worker.run(backward=True)
    assert worker.ask("backward", case=0, inputs=["input[0]"])["gradients"] == {}


# --- memory that nobody wrote


@pytest.mark.parametrize(
    "fresh",
    [
        "torch.empty(2, 3)",
        "torch.empty_like(x @ self.weight.T)",
        "x.new_empty(2, 3)",
        "torch.empty_strided((2, 3), (3, 1))",
        "torch.zeros(0).resize_(2, 3)",
    ],
)
def test_memory_never_written_holds_the_judges_poison(worker: Started, fresh: str) -> None:
    worker.built(candidate(f"return {fresh}"))
    worker.run(poison=True)
    (found,) = worker.sent([linear()])
    assert set(found.view(torch.int32).flatten().tolist()) == {POISON[torch.float32]}


def test_written_memory_and_runs_without_poison_hold_none(worker: Started) -> None:
    worker.built(candidate("out = torch.empty(2, 3)", "out[:] = 7", "return out"))
    worker.run(poison=True)
    assert worker.sent([linear()])[0].unique().tolist() == [7]
    worker.built(candidate("return torch.empty(2, 3).fill_(8)"))
    assert worker.run(poison=False)["operations"] == []
    assert worker.sent([linear()])[0].unique().tolist() == [8]


# --- what raises


@pytest.mark.parametrize(
    ("source", "raised", "line", "words"),
    [
        ("x = 1\nraise ValueError('no')\n", "ValueError", 2, "ValueError: no"),
        ("import nothing_of_that_name\n", "ModuleNotFoundError", 1, "nothing_of_that_name"),
        ("x = 1\ndef f(:\n", "SyntaxError", 2, "SyntaxError"),
        ("raise SystemExit(0)\n", "SystemExit", 1, "SystemExit"),
        ("raise KeyboardInterrupt\n", "KeyboardInterrupt", 1, "KeyboardInterrupt"),
        ("x = 1\n", "AttributeError", 0, "it defines no class ModelNew"),
        ("ModelNew = 3\n", "AttributeError", 0, "it defines no class ModelNew"),
        ("raise MemoryError\n", "MemoryError", 1, "MemoryError"),
    ],
)
def test_what_an_import_raises_is_reported(worker: Started, source: str, raised: str, line: int, words: str) -> None:
    reply = worker.take(source)
    assert (reply["raised"], reply["line"], reply["forked"]) == (raised, line, False)
    assert words in reply["message"]
    assert reply["out_of_memory"] is (raised == "MemoryError")
    assert reply["build_failure"] is False


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("class ModelNew:\n    def __init__(self, n): pass\n", "ModelNew(...) is a ModelNew, not a torch.nn.Module"),
        ("class ModelNew:\n    pass\n", "takes no arguments"),
    ],
)
def test_what_cannot_be_constructed_is_reported(worker: Started, source: str, words: str) -> None:
    assert "raised" not in worker.take(source)
    reply = worker.ask("construct", seed=0)
    assert reply["raised"] == "TypeError"
    assert words in reply["message"]


@pytest.mark.parametrize(
    ("forward", "raised", "words"),
    [
        ("return x @ x @ self.bias", "RuntimeError", "size mismatch"),
        ("import sys; sys.exit(0)", "SystemExit", "SystemExit: 0"),
        ("return torch.empty(10**15)", "RuntimeError", "allocate memory"),
        ("raise RuntimeError('CUDA error: out of memory')", "RuntimeError", "CUDA error: out of memory"),
        ("raise RuntimeError('Triton Error [CUDA]: out of memory')", "RuntimeError", "[CUDA]: out of memory"),
        ("raise RuntimeError('cuDNN error: CUDNN_STATUS_ALLOC_FAILED')", "RuntimeError", "STATUS_ALLOC_FAILED"),
        ("raise torch.OutOfMemoryError('no room')", "OutOfMemoryError", "no room"),
        ("raise RuntimeError('out of resource: shared memory')", "RuntimeError", "out of resource"),
        ("return self.forward(x)", "RecursionError", "recursion"),
        ("raise ValueError('x' * 50_000 + 'the end')", "ValueError", "the end"),
    ],
)
def test_what_forward_raises_is_reported_and_the_process_lives_on(
    worker: Started, forward: str, raised: str, words: str
) -> None:
    worker.built(candidate(forward))
    reply = worker.run()
    assert reply["raised"] == raised
    assert words in reply["message"]
    assert len(reply["message"]) < 21_000
    assert reply["line"] in (9, 10)
    assert reply["out_of_memory"] is (words in LACKS_MEMORY)
    worker.built(PLAIN)
    assert "raised" not in worker.run()


@pytest.mark.parametrize(
    ("out", "words"),
    [("{1: x}", "output is a dict with keys that are not strings"), ("object()", "output is a object")],
)
def test_an_output_of_another_kind_is_named(worker: Started, out: str, words: str) -> None:
    worker.built(candidate(f"return {out}"))
    assert worker.run()["not_plain"].startswith(words)


# --- what is timed


def test_every_timed_step_sees_what_is_in_the_slot_in_memory_that_rotates(worker: Started) -> None:
    lines = ["self.seen = getattr(self, 'seen', [])", "self.seen.append((x.data_ptr(), x.tolist()))"]
    worker.built(
        candidate(*lines, "return torch.tensor([p for p, _ in self.seen]), torch.tensor([v for _, v in self.seen])")
    )
    x = torch.arange(64.0).reshape(32, 2)
    worker.put(0, [x])
    worker.ask("set_up", case=0, backward=False)
    given = [torch.rand(32, 2) for _ in range(13)]
    for contents in given:
        worker.sample(-1, contents=[contents])
    worker.sample(0)
    places, seen = worker.sent([torch.zeros(14, dtype=torch.int64), torch.empty(14, 32, 2)])
    assert len(set(places.tolist())) == 2
    assert not any(a == b for a, b in itertools.pairwise(places.tolist()))
    assert torch.equal(seen, torch.stack([*given, x]))


def test_a_timed_step_has_the_weights_asked_for(worker: Started) -> None:
    worker.built(PLAIN)
    worker.put(2, [INPUTS[1]], {name: value + 1 for name, value in STATE.items()})
    worker.ask("set_up", case=1, backward=False)
    found = []
    for weights in (0, 2, 2, 0):
        worker.sample(1, weights=weights)
        found += worker.sent([linear(1)])
    assert torch.equal(found[0], linear(1)) and torch.equal(found[3], linear(1))
    assert torch.equal(found[1], found[2]) and not torch.equal(found[1], linear(1))


def test_buffers_are_as_verified_in_each_timed_call(worker: Started) -> None:
    """What one call writes to them, the next one does not see."""
    source = candidate("self.count += 1", "return x * 0 + self.count")
    worker.built(
        source.replace(
            "(torch.zeros(width))", "(torch.zeros(width))\n        self.register_buffer('count', torch.ones(()))"
        )
    )
    state = {**STATE, "count": torch.tensor(5.0)}
    worker.put(0, [INPUTS[0]], state)
    told = [["weight", True, "weight"], ["bias", True, "bias"], ["count", False, "count"]]
    write_bundle(worker.folder / "inputs/weights", told)
    worker.ask("set_up", case=0, backward=False)
    for _ in range(3):
        worker.sample()
        assert worker.sent([INPUTS[0]])[0].unique().tolist() == [6.0]


def test_inputs_and_earlier_outputs_of_timed_calls_can_be_asked_for(worker: Started) -> None:
    lines = ["self.out = getattr(self, 'out', torch.empty_like(x))", "self.out.copy_(x)", "x[0, 0] = 7"]
    worker.built(candidate(*lines, "return self.out"))
    worker.ask("set_up", case=0, backward=False)
    worker.sample(0)
    (changed,) = worker.sent([INPUTS[0]], "inputs", ("0",))
    assert changed[0, 0] == 7 and torch.equal(changed.view(-1)[1:], INPUTS[0].view(-1)[1:])
    worker.sample(1)
    assert torch.equal(worker.sent([INPUTS[0]], "earlier")[0], INPUTS[1])  # it was INPUTS[0] when it was handed out


def test_forward_is_timed_without_autograd_and_backward_with_it(worker: Started) -> None:
    worker.built(candidate("return x @ self.weight.T + (100 if torch.is_grad_enabled() else 0)"))
    plain = INPUTS[0] @ STATE["weight"].T
    for backward in (False, True):
        worker.ask("set_up", case=0, backward=backward)
    for backward in (True, False, True):
        worker.sample(backward=backward)
        expected = plain + (100 if backward else 0)
        assert torch.equal(worker.sent([plain])[0], expected)


def test_a_sample_before_its_step_is_set_up_is_an_error_reply(tmp_path: Path, forks: Forks) -> None:
    worker = Started(tmp_path / "folder", forks).built(PLAIN)
    worker.ask("set_up", case=0, backward=False)
    assert worker.sample(backward=True)["raised"] == "KeyError"
    assert worker.end() == 0


def test_what_a_timed_step_raises_is_reported_and_the_process_lives_on(worker: Started) -> None:
    worker.built(candidate("self.calls = getattr(self, 'calls', 0) + 1", "assert self.calls < 5", "return x * 1"))
    worker.ask("set_up", case=0, backward=False)
    for _ in range(4):
        assert "raised" not in worker.sample()
    reply = worker.sample()
    assert (reply["raised"], reply["line"]) == ("AssertionError", 11)
    worker.built(PLAIN)
    assert "raised" not in worker.run()


def test_after_a_sample_that_raised_nothing_is_sent(worker: Started) -> None:
    """The answer of the call before is not this one's."""
    worker.built(candidate("self.calls = getattr(self, 'calls', 0) + 1", "assert self.calls < 2", "return x * 1"))
    worker.ask("set_up", case=0, backward=False)
    worker.sample()
    assert worker.sample()["raised"] == "AssertionError"
    assert worker.ask("send", part="forward", names=[], part_of={"most": 0, "start": 0.0}) == {
        "done": "send",
        "forked": False,
    }
    worker.built(PLAIN)
    worker.run()
    assert torch.equal(worker.sent([linear()])[0], linear())


COUNTING = """
import torch
compiled = []
def backend(module, example):
    compiled.append(1)
    return module.forward
"""


def test_what_was_checked_under_poison_is_timed_compiled(worker: Started) -> None:
    before = COUNTING + "step = torch.compile(lambda x, w: x @ w.T * 2, backend=backend, dynamic=False)\n"
    worker.built(candidate("y = step(x, self.weight)", "return y, torch.tensor(len(compiled))", before=before))
    plain, count = INPUTS[0] @ STATE["weight"].T * 2, torch.tensor(0)
    worker.run(poison=True)
    found = worker.sent([plain, count])
    assert torch.equal(found[0], plain)
    assert found[1] == 0
    worker.ask("set_up", case=0, backward=False)
    for _ in range(3):
        worker.sample()
    found = worker.sent([plain, count])
    assert torch.equal(found[0], plain)
    assert found[1] >= 1


def test_a_profile_tells_what_a_call_takes(worker: Started) -> None:
    worker.built(candidate("return torch.empty(1 << 18).fill_(1) + x.sum()"))
    worker.ask("set_up", case=0, backward=False)
    worker.sample()
    reply = worker.ask("profile", backward=False)
    assert is_reply("profile", reply)
    assert 2 << 20 <= reply["peak_bytes"] <= (2 << 20) + 4096
    assert reply["allocations"] == 3
    assert (reply["kernels"], reply["streams"]) == ([], 0)
    assert reply["first_call_s"] > 0


def test_where_there_is_no_gpu_there_is_no_graph(worker: Started) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    worker.built(PLAIN)
    worker.ask("set_up", case=0, backward=False)
    assert "raised" in worker.ask("capture_graph", backward=False)
    worker.sample()
    assert torch.equal(worker.sent([linear()])[0], linear())


def test_what_backward_raises_is_reported(worker: Started) -> None:
    function = """
class Bad(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x * 1
    @staticmethod
    def backward(ctx, g): raise NotImplementedError("no backward")
"""
    worker.built(candidate("return Bad.apply(x @ self.weight.T)", before=f"import torch{function}"))
    assert "raised" not in worker.run(backward=True)
    reply = worker.ask("backward", case=0, inputs=["input[0]"])
    assert (reply["raised"], reply["message"]) == ("NotImplementedError", "NotImplementedError: no backward")


def test_a_request_that_does_not_exist_is_an_error_reply(worker: Started) -> None:
    assert worker.ask("dance")["raised"] == "KeyError"


# --- what it notices


SUBCLASS = "class Lazy(torch.Tensor): pass\n"


@pytest.mark.parametrize("out", ["y", "(x * 2, y)", "{'a': [y]}"])
def test_a_tensor_subclass_is_named_wherever_it_stands(worker: Started, out: str) -> None:
    worker.built(candidate("y = (x * 2).as_subclass(Lazy)", f"return {out}", before=f"import torch\n{SUBCLASS}"))
    assert worker.run()["cheat"] == ["tensor subclass", "the output is a Lazy, not a torch.Tensor"]


def test_a_parameter_is_an_honest_output(worker: Started) -> None:
    worker.built(candidate("return self.weight"))
    assert "cheat" not in worker.run()
    assert torch.equal(worker.sent([STATE["weight"]])[0], STATE["weight"])


@pytest.mark.parametrize("change", ["x.add_(1)", "x[0, 0] = float('nan')", "x.mul_(-1).mul_(-0.0)"])
def test_an_input_that_was_written_to_is_noticed(worker: Started, change: str) -> None:
    worker.built(candidate(change, "return x * 2"))
    assert worker.run()["mutated"] == [0]
    worker.built(PLAIN)
    assert worker.run()["mutated"] == []


@pytest.mark.parametrize("out", ["x", "x[:, :1]", "x.view(-1)", "x.detach()"])
def test_an_output_in_an_inputs_memory_is_noticed(worker: Started, out: str) -> None:
    worker.built(candidate(f"return x * 2, {out}"))
    assert worker.run()["aliases"] == [[1, 0]]


def test_an_input_changed_in_backward_is_noticed(worker: Started) -> None:
    function = """
class Sneaky(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.x = x
        return x * 1
    @staticmethod
    def backward(ctx, g):
        ctx.x.data.add_(1)
        return g
"""
    source = candidate("return Sneaky.apply(x) @ self.weight.T", before=f"import torch{function}")
    worker.built(source)
    assert worker.run(backward=True)["mutated"] == []
    assert worker.ask("backward", case=0, inputs=["input[0]"])["mutated"] == [0]


def test_exceptions_that_forward_catches_are_noticed(worker: Started) -> None:
    worker.built(candidate("try:", "    missing_kernel(x)", "except Exception:", "    return x * 2"))
    (seen,) = worker.run()["swallowed"]
    assert seen == "line 11: NameError: name 'missing_kernel' is not defined"
    assert worker.run(poison=False)["swallowed"] == []


def test_exceptions_that_libraries_catch_are_their_own(worker: Started) -> None:
    worker.built(candidate("import os", "os.environ.get('nothing of that name')", "return x * 2"))
    assert worker.run()["swallowed"] == []


@pytest.mark.parametrize("namespace", ["globals()", "{}", "dict(__name__='torch')"])
def test_exceptions_that_made_code_catches_are_noticed(worker: Started, namespace: str) -> None:
    made = (
        "def made(x):\\n    try:\\n        return missing_kernel(x)\\n    except NameError:\\n        return x * 2\\n"
    )
    worker.built(
        candidate("return made(x)", before=f"names = {namespace}\nexec('{made}', names)\nmade = names['made']\n")
    )
    (seen,) = worker.run()["swallowed"]
    assert seen == "line 3: NameError: name 'missing_kernel' is not defined"


# --- processes of their own


def test_a_fork_is_stopped_and_noticed(tmp_path: Path, forks: Forks) -> None:
    worker = Started(tmp_path / "folder", forks)
    reply = worker.take("import os\nos.fork()\n" + PLAIN)
    assert (reply["raised"], reply["forked"]) == ("PermissionError", True)
    hidden = "import os\ntry:\n    os.fork()\nexcept PermissionError:\n    pass\n" + PLAIN
    assert worker.take(hidden) == {"done": "import", "flags": {}, "forked": True}
    assert worker.end() == 0


def test_replaced_functions_searches_and_switches_are_in_the_audit(tmp_path: Path, forks: Forks) -> None:
    worker = Started(tmp_path / "folder", forks)
    source = """
import gc, torch, time
gc.get_objects()
torch.allclose = lambda *a, **k: True
time.perf_counter = lambda: 0.0
torch.backends.cuda.matmul.allow_tf32 = True
class ModelNew(torch.nn.Module): pass
"""
    flags = worker.take(source)["flags"]
    seen = worker.ask("audit")
    assert set(seen["replaced"]) == {"torch.allclose", "time.perf_counter"}
    assert seen["hunts"] == ["gc.get_objects"]
    assert flags == seen["flags"] == {"torch.backends.cuda.matmul.allow_tf32": "False -> True"}
    assert worker.end() == 0


def test_bfloat16_and_eval_mode_reach_the_module(tmp_path: Path, forks: Forks) -> None:
    worker = Started(tmp_path / "folder", forks, bfloat16=True, mode="eval")
    x = torch.ones(2, 2, dtype=torch.bfloat16)
    worker.put(0, [x], {name: value.bfloat16() for name, value in STATE.items()})
    worker.built(candidate("return x @ self.weight.T + (100 if self.training else 0)"))
    assert worker.run()["outputs"][0]["dtype"] == "bfloat16"
    expected = x @ STATE["weight"].bfloat16().T
    assert torch.equal(worker.sent([expected])[0], expected)
    worker.built(candidate("return torch.empty(2, 3, dtype=torch.bfloat16)"))
    worker.run()
    assert set(worker.sent([expected])[0].view(torch.int16).flatten().tolist()) == {POISON[torch.bfloat16]}
    assert worker.end() == 0


BUILDS = """
import torch
from torch.utils.cpp_extension import load_inline
{wrap}built = load_inline(name="{name}", cpp_sources="int broken = ;", functions=[], no_implicit_headers=True)
{after}
class ModelNew(torch.nn.Module): pass
"""


@pytest.mark.slow
def test_a_failed_build_is_on_record_also_where_it_is_hidden(tmp_path: Path, forks: Forks) -> None:
    worker = Started(tmp_path / "folder", forks)
    reply = worker.take(BUILDS.format(name="broken", wrap="", after=""))
    assert (reply["raised"], reply["build_failure"], reply["line"]) == ("RuntimeError", True, 4)
    assert "main.cpp:1:14: error" in reply["message"]
    assert [(build["name"], bool(build["error"])) for build in reply["builds"]] == [("broken", True)]
    hidden = BUILDS.format(name="hidden", wrap="try:\n    ", after="except Exception:\n    pass")
    assert "raised" not in worker.take(hidden)
    (_, build) = worker.ask("audit")["builds"]
    assert "expected primary-expression" in build["error"]
    assert build["seconds"] > 0
    assert worker.end() == 0


CUDA = """
import torch
from torch.utils import cpp_extension
text = '''__global__ void k(float* x) {{ x[0] = {value}; }}'''
try:
    {call}
except Exception as error:
    failed = str(error)
else:
    raise AssertionError("it must not run")
class ModelNew(torch.nn.Module): pass
"""
INLINE = "cpp_extension.load_inline(name='k', cpp_sources='', cuda_sources={}, no_implicit_headers=True)"
FILE = "import pathlib; pathlib.Path('k.cu').write_text(text); cpp_extension.load(name='k', sources=['k.cu'])"


@pytest.mark.slow
@pytest.mark.skipif(not hardware.nvcc(), reason="there is no nvcc here")
def test_cuda_is_compiled_where_it_cannot_run(tmp_path: Path, forks: Forks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    worker = Started(tmp_path / "folder", forks, compile_only=True)
    reply = worker.take(CUDA.format(value="nothing", call=INLINE.format("text")))
    assert "raised" not in reply
    (build,) = worker.ask("audit")["builds"]
    assert 'identifier "nothing" is undefined' in build["error"]
    for call in (INLINE.format("[text]"), FILE):
        reply = worker.take(CUDA.format(value="1", call=call))
        assert (reply["raised"], reply["compiled_only"]) == ("CompiledOnly", True)
    assert worker.end() == 0


def test_a_file_over_the_limit_cannot_be_written(tmp_path: Path, forks: Forks) -> None:
    worker = Started(tmp_path / "folder", forks, file_bytes=1 << 20)
    reply = worker.take(f"open({str(tmp_path / 'large')!r}, 'wb').write(bytes(2 << 20))\n")
    assert (reply["raised"], "File too large" in reply["message"]) == ("OSError", True)
    assert worker.end() == 0


@pytest.mark.skipif(landlock_abi() == 0, reason="this kernel has no Landlock")
def test_no_thread_of_a_confined_process_is_left_out(tmp_path: Path, forks: Forks) -> None:
    """Landlock holds for the thread that asks for it: a library's thread that is older could be made to read."""
    (tmp_path / "secret.txt").write_text("secret")
    python = [sys.prefix, sys.base_prefix, str(Path(crucible.__file__).parents[1]), *package_folders()]
    readable = ["/usr", "/lib", "/lib64", "/bin", "/etc", "/proc", "/sys", *python, str(tmp_path / "folder/inputs")]
    held = {"landlock": True, "filter": is_available()}
    reach = {"readable": readable, "writable": [str(tmp_path / "folder")], "usable": ["/dev/null", "/dev/urandom"]}
    worker = Started(tmp_path / "folder", forks, held_by=held, **reach)
    source = f"""
import os
threads = ["/proc/self/task/" + t + "/status" for t in os.listdir("/proc/self/task")]
said = [open(t).read() for t in threads]
free = [t for t in said if "NoNewPrivs:\\t1" not in t or {held["filter"]} and "Seccomp:\\t2" not in t]
try:
    open({str(tmp_path / "secret.txt")!r})
except PermissionError:
    raise ValueError(f"confined, but for {{len(free)}} threads")
"""
    assert worker.take(source)["message"] == "ValueError: confined, but for 0 threads"
    assert worker.end() == 0


def test_a_candidate_cannot_answer_before_it_is_asked_without_the_secret(tmp_path: Path, forks: Forks) -> None:
    worker = Started(tmp_path / "folder", forks)
    every = "[int(d) for d in os.listdir('/proc/self/fd') if int(d) > 2]"  # their numbers are those of this process
    forged = f"import os\nfor d in {every}:\n    try: os.write(d, b'guess {{}}\\n')\n    except OSError: pass\n"
    with pytest.raises(Exception, match="did not write"):
        worker.take(forged + PLAIN)
    os.kill(worker.pid, signal.SIGKILL)
    worker.end()


def test_a_process_that_leaves_closes_its_channel(tmp_path: Path, forks: Forks) -> None:
    worker = Started(tmp_path / "folder", forks)
    with pytest.raises(ChannelClosed):
        worker.take("import os\nos._exit(7)\n")
    assert worker.end() == 7
