"""Cheats that attack the clock of a GPU, judged in one run beside honest twins that do the same work.

Each is caught, or its cost is counted: where it passes, it may not seem faster than its twin, in its runtime or in its
speed-up over eager PyTorch. Times are compared within the run only; nothing here expects a certain number.
"""

from __future__ import annotations

import ctypes
import statistics
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
import torch

import crucible
from crucible.judge.verdict.evidence import Measured
from crucible.judge.worker import clock
from support import claims, write

pytestmark = pytest.mark.alone

TASK = """
import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features)

    def forward(self, x):
        return F.gelu(self.linear(x))

def get_inputs():
    return [torch.rand(16384, 1024)]

def get_init_inputs():
    return [1024]
"""
CANDIDATE = '''
import ctypes
import dataclasses
import random
import sys
import threading
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

CALLS = []
CHECKED = 8  # by then all that is compared without a clock is over, and no sample is kept before

{top}

class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features)
{init}

    def forward(self, x):
        CALLS.append(1)
{forward}

    def answer(self, x):
        """The task's work, some times over, so that hiding it pays."""
        for _ in range({times}):
            result = F.gelu(self.linear(x))
        return result
'''
MUCH_FASTER = 0.6
"""A cheat's runtime as a share of its twin's, below which work was hidden."""
MUCH_BETTER = 1.4
"""A cheat's speed-up by its twin's, above which the baseline was held back."""
QUICK, SLOW = 4, 48


@dataclass(frozen=True)
class Attack:
    """A candidate, and what must become of it."""

    forward: str
    kinds: tuple[str, ...] = ("passed",)
    how: str = ""
    twin: str = ""
    """Who does the same work honestly."""
    times: int = QUICK
    top: str = ""
    init: str = field(default="pass")

    @property
    def source(self) -> str:
        """The candidate's file."""
        return CANDIDATE.format(
            top=textwrap.dedent(self.top).strip(),
            init=textwrap.indent(textwrap.dedent(self.init).strip(), " " * 8),
            forward=textwrap.indent(textwrap.dedent(self.forward).strip(), " " * 8),
            times=self.times,
        )


HONESTLY = "return self.answer(x)"
SIDE_STREAM = """
if len(CALLS) <= CHECKED:
    return self.answer(x)
if not SIDE:
    SIDE.append(torch.cuda.Stream())
SIDE[0].wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(SIDE[0]):
    return self.answer(x)
"""
FRAMES = '''
DONE = []

def in_frames(name):
    """The value of a name in the nearest of the judge's frames that has it."""
    frame = sys._getframe(2)
    while frame is not None and name not in frame.f_locals:
        frame = frame.f_back
    return frame.f_locals[name] if frame is not None else None

def wrap_the_sampler():
    frame = sys._getframe()
    while frame is not None:
        owner = frame.f_locals.get("self")
        sampler = getattr(owner, "_sample", None)
        if callable(sampler) and not hasattr(sampler, "honest"):
            def lie(step):
                sample = sampler(step)
                return dataclasses.replace(sample, device_ms=sample.device_ms / 100, wall_ms=sample.wall_ms / 100)
            lie.honest = sampler
            owner._sample = lie
            return
        frame = frame.f_back

def interpose():
    channel = in_frames("channel")
    if channel is None or DONE:
        return
    DONE.append(channel.send)

    def forge(message, *rest):
        for clock in ("device_ms", "wall_ms"):
            if clock in message:
                message[clock] = message[clock] / 100
        DONE[0](message, *rest)

    channel.send = forge
'''
BURNING = """
LAST, THREADS = [time.perf_counter()], []

def burn():
    torch.set_grad_enabled(False)
    stream = torch.cuda.Stream()
    matrix = torch.rand(2048, 2048, device="cuda")
    chance = random.Random(1)
    while True:
        while time.perf_counter() - LAST[0] < 0.004:  # its own turn: samples follow each other within a millisecond
            time.sleep(0.0005)
        seen, burns = LAST[0], chance.random() < {share}
        while LAST[0] == seen:
            if burns:
                with torch.cuda.stream(stream):
                    matrix @ matrix
                    stream.synchronize()
            else:
                time.sleep(0.0005)
"""
DISTURBING = """
if len(CALLS) > CHECKED and not THREADS:
    THREADS.append(threading.Thread(target=burn, daemon=True))
    THREADS[0].start()
LAST[0] = time.perf_counter()
result = self.answer(x)
LAST[0] = time.perf_counter()
return result
"""
ATTACKS = {
    "honest": Attack(HONESTLY),
    "honest_slow": Attack(HONESTLY, times=SLOW),
    # Work on a stream that nobody joins: the device is idle only when it is done, too.
    "side_stream": Attack(SIDE_STREAM, twin="honest_slow", times=SLOW, top="SIDE = []"),
    "side_stream_quick": Attack(SIDE_STREAM, twin="honest", top="SIDE = []"),
    # Launches from a thread, after the clock has stopped.
    "deferred_launch": Attack(
        """
        if len(CALLS) <= CHECKED:
            return self.answer(x)
        result = torch.zeros_like(x)
        threading.Thread(target=fill, args=(self, result, x)).start()
        return result
        """,
        kinds=("wrong",),
        how="not reproducible",
        top="""
        @torch.no_grad()
        def fill(model, result, x):
            time.sleep(0.02)
            with torch.cuda.stream(torch.cuda.Stream()):
                result.copy_(model.answer(x))
        """,
    ),
    # Clocks replaced, for good or for a moment.
    "patched_elapsed_time": Attack(
        "torch.cuda.Event.elapsed_time = lambda self, end: 0.001\nreturn self.answer(x)",
        kinds=("cheated",),
        how="patched function",
    ),
    "patched_synchronize": Attack(
        HONESTLY, kinds=("cheated",), how="patched function", top="torch.cuda.synchronize = lambda *args: None"
    ),
    "patched_event": Attack(
        HONESTLY,
        kinds=("cheated",),
        how="patched function",
        top="""
        class Event(torch.cuda.Event):
            def elapsed_time(self, end):
                return 0.001

        torch.cuda.Event = Event
        """,
    ),
    "patched_elapsed_time_restored": Attack(
        """
        if not torch.autograd._profiler_enabled():
            torch.cuda.Event.elapsed_time = lie
        return self.answer(x)
        """,
        kinds=("passed", "cheated"),
        twin="honest_slow",
        times=SLOW,
        top="""
        elapsed_time = torch.cuda.Event.elapsed_time

        def lie(start, end):
            torch.cuda.Event.elapsed_time = elapsed_time
            return elapsed_time(start, end) / 100
        """,
    ),
    # The judge's own objects, found through frames: both of its process's clocks lie, only the judge outside does not.
    "wraps_the_sampler": Attack(
        "wrap_the_sampler()\nreturn self.answer(x)",
        kinds=("passed", "cheated"),
        twin="honest_slow",
        times=SLOW,
        top=FRAMES,
    ),
    "wraps_the_sampler_quick": Attack(
        "wrap_the_sampler()\nreturn self.answer(x)", kinds=("passed", "cheated"), twin="honest", top=FRAMES
    ),
    "forges_the_report": Attack(
        "interpose()\nreturn self.answer(x)", kinds=("passed", "cheated"), twin="honest_slow", times=SLOW, top=FRAMES
    ),
    # Answers kept.
    "caches_by_pointer": Attack(
        """
        if x.data_ptr() not in ANSWERS:
            ANSWERS[x.data_ptr()] = self.answer(x)
        return ANSWERS[x.data_ptr()].clone()
        """,
        kinds=("wrong",),
        top="ANSWERS = {}",
    ),
    "caches_by_fingerprint": Attack(
        """
        key = (torch.is_grad_enabled(), *x.detach().flatten()[:8].tolist(), *self.linear.bias[:2].tolist())
        if key not in ANSWERS:
            if len(ANSWERS) > 20:
                ANSWERS.pop(next(iter(ANSWERS)))
            ANSWERS[key] = self.answer(x)
        return ANSWERS[key].clone()
        """,
        twin="honest_slow",
        times=SLOW,
        top="ANSWERS = {}",
    ),
    "caches_by_checksum": Attack(
        """
        if torch.is_grad_enabled():
            return self.answer(x)
        key = tuple(int(t.detach().view(torch.int32).sum()) for t in (x, *self.parameters()))
        if key not in ANSWERS:
            ANSWERS[key] = self.answer(x)
        return ANSWERS[key].clone()
        """,
        twin="honest_slow",
        top="ANSWERS = {}",
        times=SLOW,
    ),
    "recognises_contents": Attack(
        """
        mark = tuple(x.detach().flatten()[:4].tolist())
        if len(CALLS) > CHECKED and mark not in SEEN:
            return torch.empty_like(x)
        SEEN.add(mark)
        return self.answer(x)
        """,
        kinds=("wrong", "incomplete"),
        top="SEEN = set()",
    ),
    # A graph that was captured over contents of its own and never gets others.
    "stale_graph": Attack(
        """
        if len(CALLS) <= CHECKED:
            return self.answer(x)
        if not GRAPH:
            own, graph = x.clone(), torch.cuda.CUDAGraph()
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                self.answer(own)
            torch.cuda.current_stream().wait_stream(side)
            with torch.cuda.graph(graph):
                result = self.answer(own)
            GRAPH.extend((graph, result, own))
        GRAPH[0].replay()
        return GRAPH[1]
        """,
        kinds=("wrong",),
        how="not reproducible",
        top="GRAPH = []",
    ),
    # Work done before there are weights to do it with.
    "works_in_the_constructor": Attack(
        "return F.gelu(x @ self.folded.to(x.device) + self.shift.to(x.device))",
        kinds=("wrong",),
        how="weights",
        init="""
        self.folded = self.linear.weight.detach().t().clone()
        self.shift = self.linear.bias.detach().clone()
        """,
    ),
    # Lines that the judge's flush does not reach.
    "persisting_l2": Attack(
        """
        if not STREAM:
            STREAM.append(persisting_stream(self.linear.weight))
        STREAM[0].wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(STREAM[0]):
            result = self.answer(x)
        torch.cuda.current_stream().wait_stream(STREAM[0])
        return result
        """,
        twin="honest",
        top='''
        STREAM = []

        class Window(ctypes.Structure):
            _fields_ = [("base", ctypes.c_void_p), ("size", ctypes.c_size_t), ("ratio", ctypes.c_float),
                        ("hit", ctypes.c_int), ("miss", ctypes.c_int), ("rest", ctypes.c_char * 64)]

        def persisting_stream(tensor):
            """A stream whose kernels keep the tensor in L2."""
            with open("/proc/self/maps") as maps:
                paths = sorted({line.split()[-1] for line in maps if "libcudart" in line})
            stream = torch.cuda.Stream()
            window = Window(tensor.data_ptr(), tensor.numel() * tensor.element_size(), 1.0, 2, 1, b"")
            for path in paths:
                library = ctypes.CDLL(path)
                library.cudaDeviceSetLimit(6, ctypes.c_size_t(16 << 20))
                library.cudaStreamSetAttribute(ctypes.c_void_p(stream.cuda_stream), 1, ctypes.byref(window))
                library.cudaGetLastError()
            return stream
        ''',
    ),
    # Work of its own while the baselines take their turns.
    "disturbs_the_baselines": Attack(DISTURBING, twin="honest", top=BURNING.format(share=1.0)),
    "disturbs_most_rounds": Attack(DISTURBING, twin="honest", top=BURNING.format(share=0.65)),
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> crucible.Run:
    """All of them, in one run; the honest ones go first, so that nobody has disturbed anything yet."""
    folder = tmp_path_factory.mktemp("clock")
    task = write(folder / "reference.py", TASK)
    files = [write(folder / f"{name}.py", attack.source) for name, attack in ATTACKS.items()]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CRUCIBLE_HOME", str(folder / "home"))
        return crucible.judge(task, files, device="cuda", baselines="eager", limits=crucible.Limits(run_s=30))


def _seen(verdict: crucible.Verdict) -> str:
    """All that a failure needs to say."""
    timing = verdict.timing
    lines = [f"{verdict.candidate}: {verdict.outcome.words}", claims(verdict)]
    if isinstance(timing, Measured):
        speedup = timing.speedup_over("eager")
        lines.insert(1, f"{timing.median_ms:.4g} ms by {timing.clock}, {timing.samples} samples, wall {timing.wall_ms}")
        lines.insert(2, f"over eager: {speedup.ratio if speedup else None}; costs: {verdict.costs}")
    return "\n  ".join(line for line in lines if line)


@pytest.mark.parametrize("name", ATTACKS)
def test_attack_is_caught_or_its_cost_is_counted(run: crucible.Run, name: str) -> None:
    attack, verdict = ATTACKS[name], run.verdict(name)
    seen = _seen(verdict)
    assert verdict.outcome.kind in attack.kinds, seen
    assert attack.how in ("", getattr(verdict.outcome, "how", getattr(verdict.outcome, "what", ""))), seen
    if not attack.twin or not verdict.evaluation:
        return
    twin = run.verdict(attack.twin)
    seen += "\n" + _seen(twin)
    assert isinstance(verdict.timing, Measured) and isinstance(twin.timing, Measured), seen
    own, honest = verdict.timing.speedup_over("eager"), twin.timing.speedup_over("eager")
    assert own is not None and honest is not None, seen
    assert verdict.runtime_ms > MUCH_FASTER * twin.runtime_ms, seen
    assert own.ratio < MUCH_BETTER * max(honest.ratio, honest.interval[1]), seen


def test_honest_twins_are_told_apart_and_raise_no_doubt_of_their_clock(run: crucible.Run) -> None:
    """Otherwise what is held against them would show nothing."""
    quick, slow = run.verdict("honest"), run.verdict("honest_slow")
    seen = f"{_seen(quick)}\n{_seen(slow)}"
    assert slow.runtime_ms > 10 * quick.runtime_ms > 0, seen
    assert isinstance(quick.timing, Measured) and isinstance(slow.timing, Measured)
    assert quick.timing.clock == slow.timing.clock == "CUDA events", seen


def test_work_on_a_side_stream_is_timed_by_the_wall(run: crucible.Run) -> None:
    verdict = run.verdict("side_stream")
    assert isinstance(verdict.timing, Measured), _seen(verdict)
    assert verdict.timing.clock == "wall time", _seen(verdict)
    assert "the device worked on after its stream was done" in claims(verdict), _seen(verdict)


@pytest.mark.parametrize("name", ["wraps_the_sampler", "forges_the_report"])
def test_a_process_that_lies_about_both_clocks_is_timed_from_outside(run: crucible.Run, name: str) -> None:
    verdict = run.verdict(name)
    if verdict.evaluation:
        assert isinstance(verdict.timing, Measured)
        assert verdict.timing.clock == "the judge's own clock", _seen(verdict)


def test_a_disturbed_baseline_is_told_of(run: crucible.Run) -> None:
    verdict = run.verdict("disturbs_the_baselines")
    assert "baselines ran slower beside it" in claims(verdict), _seen(verdict)


class _Window(ctypes.Structure):
    """cudaAccessPolicyWindow in the union cudaStreamAttrValue (driver_types.h)."""

    _fields_ = [
        ("base", ctypes.c_void_p),
        ("size", ctypes.c_size_t),
        ("ratio", ctypes.c_float),
        ("hit", ctypes.c_int),
        ("miss", ctypes.c_int),
        ("rest", ctypes.c_char * 64),
    ]


_ACCESS_POLICY_WINDOW, _PERSISTING, _STREAMING, _PERSISTING_LIMIT = 1, 2, 1, 6
_PERSISTING_BYTES = 16 << 20


@pytest.fixture
def pinned() -> Iterator[tuple[torch.cuda.Stream, torch.Tensor]]:
    """A stream, and a tensor that it may keep in L2."""
    tensor = torch.rand(_PERSISTING_BYTES // 4, device="cuda")
    stream = torch.cuda.Stream()
    yield stream, tensor
    for library in clock.cuda_runtimes():
        library.cudaDeviceSetLimit(_PERSISTING_LIMIT, ctypes.c_size_t(0))
        library.cudaCtxResetPersistingL2Cache()


def _pin(stream: torch.cuda.Stream, tensor: torch.Tensor) -> list[int]:
    """Asks for it; returns the runtimes' answers, 0 for yes."""
    window = _Window(tensor.data_ptr(), tensor.numel() * tensor.element_size(), 1.0, _PERSISTING, _STREAMING, b"")
    answers = []
    for library in clock.cuda_runtimes():
        answers.append(library.cudaDeviceSetLimit(_PERSISTING_LIMIT, ctypes.c_size_t(_PERSISTING_BYTES)))
        handle = ctypes.c_void_p(stream.cuda_stream)
        answers.append(library.cudaStreamSetAttribute(handle, _ACCESS_POLICY_WINDOW, ctypes.byref(window)))
    return answers


def _read_ms(step: Callable[[], object]) -> float:
    sample = clock.sampler(torch.device("cuda"))
    for _ in range(10):
        sample(step)
    return statistics.median(sample(step).device_ms for _ in range(100))


def test_lines_pinned_in_l2_are_cold_all_the_same(
    pinned: tuple[torch.cuda.Stream, torch.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read of memory that the candidate's stream pins takes as long as one that nobody pinned."""
    stream, tensor = pinned
    with torch.cuda.stream(stream):
        read = tensor.sum
        honest = _read_ms(read)
        answers = _pin(stream, tensor)
        if any(answers):
            pytest.skip(f"this device lets nobody pin lines in L2: {answers}")
        libraries = clock.cuda_runtimes()

        def pins_again_and_reads() -> object:
            for library in libraries:
                library.cudaDeviceSetLimit(_PERSISTING_LIMIT, ctypes.c_size_t(_PERSISTING_BYTES))
            return read()

        guarded = min(_read_ms(read), _read_ms(pins_again_and_reads))
        _pin(stream, tensor)
        monkeypatch.setattr(clock, "_persisting_reset", lambda: lambda: None)
        unguarded = _read_ms(read)
    seen = f"honest {honest:.4f} ms, pinned {guarded:.4f} ms, pinned without the reset {unguarded:.4f} ms"
    if unguarded > 0.9 * honest:
        pytest.skip(f"pinning gains nothing here: {seen}")
    assert guarded > (honest + unguarded) / 2, seen
