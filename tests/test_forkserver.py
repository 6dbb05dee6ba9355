"""Fork servers: what they fork starts as a process of its own, and neither outlives the judge nor takes it along."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import crucible
from crucible.errors import JudgeError
from crucible.judge.process import forkserver
from crucible.judge.process.channel import Channel, ChannelClosed, pair
from crucible.judge.process.launcher import Launcher, launcher
from crucible.judge.process.limits import Limits
from crucible.judge.process.oracle_process import OracleProcess
from crucible.judge.process.supervised import SupervisedProcess, private_environment
from test_supervisor import alive, gone

RUN = """
import crucible, os, sys
from crucible.judge.process import launcher
from support import PLAIN, SMALL_TASK
crucible.judge(SMALL_TASK, [PLAIN], device="cpu", baselines="none", limits=crucible.Limits(race_s=0.05, stress_s=0))
print(*(each._process.pid for each in launcher._launchers.values()))
"""


ASKS_NOBODY = """
import sys
import torch
def asked(*_):
    raise SystemExit("CUDA was asked for a device")
torch.cuda.is_available = torch.cuda.device_count = torch.cuda._lazy_init = asked
torch.cuda._is_compiled = lambda: True
torch.version.cuda = "13.0"
torch._C._cuda_getCurrentRawStream = asked
from crucible.judge.process import forkserver
try:
    import torch.utils.cpp_extension
except SystemExit:
    print("it would be noticed")
"""
"""PyTorch as it is built for CUDA, as far as an import is concerned."""


def pid_of(server: Launcher) -> int:
    return server._process.pid


@pytest.fixture
def server() -> Iterator[Launcher]:
    made = Launcher({})
    yield made
    made.close()


def test_processes_that_start_alike_share_a_server() -> None:
    one = {"OMP_NUM_THREADS": "1", "HOME": "/a", "PATH": "/usr/bin", "TORCH_EXTENSIONS_DIR": "/a/x"}
    other = {"OMP_NUM_THREADS": "1", "HOME": "/b", "PATH": "/bin", "TORCH_EXTENSIONS_DIR": "/b/x"}
    assert launcher(one) is launcher(other)
    assert launcher(one) is not launcher({**one, "OMP_NUM_THREADS": "2"})


def test_oracles_share_the_candidates_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one would import PyTorch once more. Its threads wait as theirs do: asleep."""
    for name in [name for name in os.environ if name.startswith(("LC_", "NVIDIA_", "PYTORCH_", "TORCH_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    oracles = [OracleProcess(tmp_path, Limits()) for _ in range(2)]
    try:
        servers = {oracle._process._launcher for oracle in oracles}
        assert servers == {launcher(private_environment(tmp_path, ""))}
    finally:
        for oracle in oracles:
            oracle.kill()


def test_no_import_of_the_server_asks_cuda_for_a_device() -> None:
    """Else its forks fail on a GPU: "Cannot re-initialize CUDA in forked subprocess" (H200, torch 2.11)."""
    environment = {**os.environ, "CUDA_HOME": "/"}
    done = subprocess.run([sys.executable, "-c", ASKS_NOBODY], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "it would be noticed\n"


def test_the_next_process_has_a_new_server_where_one_is_gone() -> None:
    environment = {"OMP_NUM_THREADS": "3"}
    first = launcher(environment)
    os.kill(pid_of(first), signal.SIGKILL)
    assert gone(pid_of(first))
    first._process.wait()
    second = launcher(environment)
    assert second is not first and second.is_up


def test_a_server_that_cannot_start_says_why(server: Launcher) -> None:
    os.kill(pid_of(server), signal.SIGKILL)
    reading, writing = os.pipe()
    with pytest.raises(JudgeError, match=r"a process of the judge's could not start"):
        server.start({}, (writing, writing))
    os.close(reading)
    os.close(writing)


def test_a_process_that_the_system_refuses_ends_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", refused)
    ours, theirs = pair()
    judge = Channel(ours)

    def serves() -> None:
        with contextlib.suppress(ChannelClosed):
            forkserver.serve(Channel(theirs))

    serving = threading.Thread(target=serves)
    serving.start()
    for _ in range(2):  # it goes on
        judge.send({"do": "start"}, (0, 1, 2))
        assert "unavailable" in judge.receive(10)["refused"]
    judge.close()
    serving.join(10)
    assert not serving.is_alive()


def test_a_server_ends_with_all_that_it_forked_when_the_judge_hangs_up(server: Launcher, tmp_path: Path) -> None:
    status, theirs = os.pipe()
    settings = {"argv": [sys.executable, "-S", "-c", "import time; time.sleep(60)"], "folder": str(tmp_path),
                "environment": {}, "memory_bytes": 1 << 30, "processes": 9}  # fmt: skip
    supervisor = server.start(settings, (theirs, theirs))
    os.close(theirs)
    assert alive(supervisor)
    server.close()
    assert gone(supervisor) and gone(pid_of(server))
    assert os.read(status, 100) == b""
    os.close(status)


def test_told_to_end_on_its_way_out_a_supervisor_just_ends(server: Launcher, tmp_path: Path) -> None:
    """It raised wherever it was, at last in the fork server's code, and that was taken for the process's last words."""
    settings = {"argv": ["true"], "folder": str(tmp_path), "environment": {}, "memory_bytes": 1 << 30, "processes": 9}
    for _ in range(10):
        status, theirs = os.pipe()
        printed, output = os.pipe()
        supervisor = server.start(settings, (theirs, output))
        os.close(theirs)
        os.close(output)
        assert os.read(status, 100) == b'{"end": "exit", "code": 0}\n'
        with contextlib.suppress(ProcessLookupError):
            while alive(supervisor):
                os.kill(supervisor, signal.SIGTERM)
        assert os.read(printed, 10_000) == b""
        os.close(status)
        os.close(printed)


def test_an_exception_in_a_fork_is_its_end_and_is_told(tmp_path: Path) -> None:
    environment = private_environment(tmp_path, "")
    kept = SupervisedProcess(
        "process.confined", "not JSON", folder=tmp_path, passed=[], environment=environment, limits=Limits()
    )
    assert kept.end() == {"end": "exit", "code": 1}
    assert "JSONDecodeError" in kept.last_words


def test_no_server_outlives_its_judge(crucible_home: Path) -> None:
    paths = os.pathsep.join([str(Path(__file__).parent), str(Path(crucible.__file__).parents[1])])
    alike = {name: value for name, value in os.environ.items() if not name.startswith("OPENBLAS_")}
    # Candidates get no OPENBLAS_* and threads that sleep: the oracle would start otherwise.
    environment = {**alike, "PYTHONPATH": paths, "OMP_WAIT_POLICY": "PASSIVE"}
    done = subprocess.run([sys.executable, "-c", RUN], env=environment, capture_output=True, text=True, check=True)
    pids = [int(word) for word in done.stdout.split()]
    assert len(pids) == 1  # the oracle's and the candidate's
    assert gone(pids[0])
