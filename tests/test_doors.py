"""Every door out of a candidate's process, tried from inside on this kernel: as this user, and as one without rights.

Outside of the sandbox the same attempts get through, or their failing inside would show nothing.
"""

from __future__ import annotations

import functools
import json
import os
import secrets
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import crucible
from crucible.judge.process import sandbox
from crucible.judge.process.doors import NAMES, doors
from crucible.judge.process.needs import SEMAPHORES, needs
from crucible.judge.process.probe import OPEN, Probe, probe

SOURCE = Path(crucible.__file__).parents[1]
NOBODY = 65534
PYTHON = "/usr/bin/python3"
"""One that every user may run."""
PROBED = f"""
import dataclasses, json, sys, types
sys.path.insert(0, {str(SOURCE)!r})
front = types.ModuleType("crucible")
front.__path__ = [{str(SOURCE / "crucible")!r}]
sys.modules["crucible"] = front
from crucible.judge.process import sandbox
from crucible.judge.process.probe import probe
held_by = sandbox.layers() if sys.argv[1] == "held" else None
if sys.argv[2:3] == ["without rights"]:
    sandbox.drop_capabilities()
print(json.dumps(dataclasses.asdict(probe(held_by, gpu=False))))
"""
OLD_KERNEL = sandbox.landlock_abi() < 6
LATER = {"process: signal", "process: signal by descriptor"}
"""What kernels before Landlock's sixth version do not shut."""
NEVER_OPEN = {
    "file: handed, written in memory",
    "file: handed, truncated",
    "kernel: x32 calls",
    "kernel: calls of its future",
}
"""What no process can do, wherever it is; they are tried because a sandbox could open them by mistake."""
EVERYWHERE_OPEN = {
    *("file: read", "file: write", "file: create", "file: handed, written", "file: mode", "file: mode, handed"),
    *("file: times", "file: hard link", "shared memory: the machine's", "socket: inet", "socket: TCP", "socket: UDP"),
    *("socket: TCP fast open", "socket: unix", "socket: unix by name", "socket: unix by path", "socket: unix log"),
    *("socket: accept", "socket: netlink", "process: signal", "process: signal to all", "process: command line"),
    *("process: environment", "process: limits", "process: processors", "process: priority", "process: all of them"),
    *("kernel: personality", "namespace: a new process, by a later call", NAMES),
}
"""What any user can do in any container, for all that is known: where one of these is shut outside, it is not tried."""


def as_nobody(*words: str) -> Probe:
    """In a process of a user who owns nothing."""
    if os.geteuid() != 0:
        pytest.skip("only root becomes another user")
    command = [PYTHON, "-I", "-B", "-c", PROBED, *words]
    done = subprocess.run(
        command, capture_output=True, text=True, user=NOBODY, group=NOBODY, extra_groups=[], cwd="/", check=False
    )
    if done.returncode and ("Permission denied" in done.stderr or "No such file" in done.stderr):
        pytest.skip(f"another user cannot run this here: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    return Probe(**json.loads(done.stdout))


@functools.cache
def found(who: str) -> Probe:
    if who == "nobody":
        return as_nobody("held")
    if who == "nobody, outside":
        return as_nobody("free")
    return probe(None if who == "outside" else sandbox.layers(), gpu=False)


needs_both = pytest.mark.skipif(bool(sandbox.layers().missing), reason=sandbox.layers().missing)


@needs_both
@pytest.mark.parametrize("who", ["this user", "nobody"])
@pytest.mark.parametrize("name", doors())
def test_the_door_is_shut(name: str, who: str) -> None:
    if name == NAMES and not found(who).own_namespaces:
        pytest.skip("this system gives no namespaces")
    if name in LATER and OLD_KERNEL:
        pytest.skip("this kernel's Landlock does not refuse signals")
    assert found(who).doors[name] != OPEN


@needs_both
@pytest.mark.parametrize("who", ["this user", "nobody"])
@pytest.mark.parametrize("name", needs())
def test_what_an_honest_candidate_needs_works(name: str, who: str) -> None:
    if name == SEMAPHORES and not found(who).own_namespaces:
        pytest.skip("this system gives no namespaces")
    assert found(who).needs[name] == ""


@pytest.mark.parametrize("who", ["outside", "nobody, outside"])
def test_outside_of_the_sandbox_the_doors_are_open(who: str) -> None:
    outside = found(who)
    assert set(outside.open) >= EVERYWHERE_OPEN
    assert not set(outside.open) & NEVER_OPEN
    assert outside.lacking == {}


def test_without_the_filter_what_landlock_does_not_cover_is_open() -> None:
    """So it is the filter that shuts those: modes, datagrams, what outlives a process."""
    landlock_alone = probe(sandbox.Layers(True, False), gpu=False)
    assert {"file: mode", "file: times", "socket: inet", "socket: multipath TCP", "kernel: personality"} <= set(
        landlock_alone.open
    )
    assert not {"file: read", "file: write", "file: create", "process: command line"} & set(landlock_alone.open)


@pytest.mark.skipif(os.geteuid() != 0, reason="root has rights to lose")
def test_where_no_namespace_can_be_had_shared_memory_stays_shut() -> None:
    """As in a container: nothing of it is open, and semaphores fail; names of sockets are everybody's."""
    command = [sys.executable, "-I", "-c", PROBED, "held", "without rights"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    bare = Probe(**json.loads(done.stdout))
    assert (bare.open, set(bare.lacking), bare.own_namespaces) == ([NAMES], {SEMAPHORES}, False)


def test_what_was_tried_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its name in shared memory, where tests beside this one try the same at any time."""
    monkeypatch.setattr(secrets, "token_hex", lambda _: "what-was-tried")
    with tempfile.TemporaryDirectory(prefix="left-") as place:  # pytest's own are too long for names of sockets
        monkeypatch.setattr(tempfile, "tempdir", place)
        probe(None, gpu=False)
        assert not os.listdir(place)
        assert place not in Path("/proc/self/mounts").read_text()
    assert not [name for name in os.listdir("/dev/shm") if "what-was-tried" in name]
