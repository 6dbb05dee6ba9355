"""What the sandbox holds on this machine, and what of it an honest candidate can do: found out by trying.

A process confines itself as a candidate's does and tries every door (`doors.py`) and all that is needed (`needs.py`)
on a scene that was made for it: files, sockets and a process outside.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from crucible.errors import JudgeError
from crucible.judge.process import namespaces, reach, sandbox
from crucible.judge.process.doors import SHARED, Scene, doors
from crucible.judge.process.launcher import python
from crucible.judge.process.needs import cuda, needs

TRIED_S = 120.0
OPEN = "open"
_KEPT = ("PATH", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES")


@dataclass(frozen=True)
class Probe:
    """What was found."""

    doors: dict[str, str]
    """`open`, or the words of what keeps it shut, by name."""
    needs: dict[str, str]
    """Empty for what works, else what stopped it, by name."""
    cuda: str
    """Empty where CUDA starts and computes, or was not asked for; else what failed."""
    own_namespaces: bool
    """Whether it has a /dev/shm, and names of sockets, of its own."""

    @property
    def open(self) -> list[str]:
        return [name for name, found in self.doors.items() if found == OPEN]

    @property
    def lacking(self) -> dict[str, str]:
        return {name: why for name, why in self.needs.items() if why}


def probe(held_by: sandbox.Layers | None, *, gpu: bool) -> Probe:
    """What a process can do that is held by these layers (None: by none, and it keeps its rights); with `gpu`, whether
    CUDA starts in it. Raises JudgeError."""
    with _scene() as scene:
        settings = {
            "scene": asdict(scene),
            "held_by": asdict(held_by) if held_by else None,
            "readable": [*reach.readable(), *reach.python()],
            "usable": reach.usable(),
            "gpu": gpu,
        }
        said = _said([*python("process.probe"), json.dumps(settings)], scene)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"/dev/shm/{scene.abstract}")
            said["doors"][SHARED] = OPEN
            return Probe(**said)
    if said["doors"][SHARED] == OPEN:
        said["doors"][SHARED] = "it has one of its own"
    return Probe(**said)


def _said(command: list[str], scene: Scene) -> dict[str, Any]:
    environment = {"PATH": "/usr/bin:/bin", **{name: os.environ[name] for name in _KEPT if name in os.environ}}
    environment |= {"HOME": scene.own, "TMPDIR": scene.own}
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=TRIED_S,
            cwd=scene.own,
            env=environment,
            pass_fds=(scene.handed,),
        )
    except subprocess.TimeoutExpired:
        raise JudgeError(f"the sandbox could not be tried: it took over {TRIED_S:g} s") from None
    last = (done.stdout.strip().splitlines() or [""])[-1]
    try:
        return dict(json.loads(last))
    except ValueError:
        words = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise JudgeError(f"the sandbox could not be tried: exit code {done.returncode}, {words}") from None


@contextlib.contextmanager
def _scene() -> Iterator[Scene]:
    """What doors are tried on."""
    place = Path(tempfile.mkdtemp(prefix="crucible-doors-"))
    name = f"crucible-{secrets.token_hex(8)}"
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, place, ignore_errors=True)
        for folder in ("own", "outside"):
            (place / folder).mkdir()
        file = place / "outside/file.txt"
        file.write_text("outside")
        listening = [
            stack.enter_context(socket.socket(family, kind))
            for family, kind in [
                (socket.AF_INET, socket.SOCK_STREAM),
                (socket.AF_INET, socket.SOCK_DGRAM),
                (socket.AF_UNIX, socket.SOCK_SEQPACKET),
                (socket.AF_UNIX, socket.SOCK_SEQPACKET),
                (socket.AF_UNIX, socket.SOCK_DGRAM),
            ]
        ]
        addresses: list[Any] = [("127.0.0.1", 0), ("127.0.0.1", 0), f"\0{name}", *_paths(place)]
        for each, address in zip(listening, addresses, strict=True):
            each.bind(address)
            if each.type != socket.SOCK_DGRAM:
                each.listen()
        victim = subprocess.Popen(["sleep", str(TRIED_S)])
        stack.callback(victim.wait)
        stack.callback(victim.kill)
        descriptor = os.open(file, os.O_RDONLY)
        stack.callback(os.close, descriptor)
        tcp, udp = (each.getsockname()[1] for each in listening[:2])
        yield Scene(f"{place}/own", f"{place}/outside", descriptor, victim.pid, tcp, udp, name)


def _paths(place: Path) -> list[str]:
    return [f"{place}/outside/socket", f"{place}/outside/log"]


def main() -> None:
    """Confines itself and tries all; the last line that it prints is what it found."""
    settings = json.loads(sys.argv[1])
    scene = Scene(**settings["scene"])
    private = False
    if settings["held_by"] is not None:
        private = namespaces.enter()
        writable = [scene.own, *([namespaces.SHARED_MEMORY] if private else [])]
        sandbox.confine(settings["readable"], writable, settings["usable"], sandbox.Layers(**settings["held_by"]))
    found = {
        "needs": {name: _tried(need, scene, "") for name, need in needs().items()},
        "doors": {name: _tried(door, scene, OPEN) for name, door in doors().items()},
        "cuda": cuda() if settings["gpu"] else "",
        "own_namespaces": private,
    }
    print(json.dumps(found), flush=True)


def _tried(action: Any, scene: Scene, went: str) -> str:
    try:
        action(scene)
    except (OSError, subprocess.SubprocessError) as error:
        return f"{type(error).__name__}: {error}"
    return went
