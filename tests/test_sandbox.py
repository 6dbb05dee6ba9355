"""Landlock alone, asked for real in a process that confines itself; with the filter beside it see test_doors.py."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from crucible.judge.process import reach
from crucible.judge.process.sandbox import landlock_abi

ABI = landlock_abi()
needs = pytest.mark.skipif(ABI == 0, reason="this kernel has no Landlock")
SYSTEM = ["/usr", "/lib", "/lib64", "/bin", "/etc", "/proc", sys.prefix, sys.base_prefix]
PROGRAM = """
import json, os, signal, socket, subprocess, sys
from pathlib import Path
from crucible.judge.process import sandbox
settings = json.loads(sys.argv[1])
place = settings["place"]
held = open(os.path.join(place, "secret.txt"))
sandbox.confine(settings["readable"], settings["writable"], settings["usable"], sandbox.Layers(True, False))

def tried(action):
    try:
        return str(action())
    except OSError as error:
        return type(error).__name__

results = {name: tried(lambda: eval(code)) for name, code in settings["actions"].items()}
print(json.dumps(results))
"""


def measured() -> list[str]:
    """Where a confined process must write its coverage, when that is measured."""
    return [os.getcwd()] if "COVERAGE_PROCESS_CONFIG" in os.environ else []


def confined(tmp_path: Path, actions: dict[str, str], **more: Any) -> dict[str, Any]:
    """What becomes of each action (an expression) in a process that may read `given` and write to `own`."""
    for name in ("own", "given", "elsewhere"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file.txt").write_text(name)
    (tmp_path / "secret.txt").write_text("secret")
    settings = {
        "place": str(tmp_path),
        "readable": [*SYSTEM, str(tmp_path / "given"), "/nowhere/at/all", *more.get("readable", ())],
        "writable": [str(tmp_path / "own"), *measured()],
        "usable": ["/dev/null"],
        "actions": actions,
    }
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parents[1] / 'src')!r})\n{PROGRAM}"
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps(settings)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@needs
def test_only_what_was_allowed_can_be_read(tmp_path: Path) -> None:
    file = tmp_path / "secret.txt"
    found = confined(
        tmp_path,
        {
            "given": "Path(place, 'given/file.txt').read_text()",
            "own": "Path(place, 'own/file.txt').read_text()",
            "system": "len(Path('/etc/passwd').read_text()) > 0",
            "elsewhere": "Path(place, 'elsewhere/file.txt').read_text()",
            "list": "os.listdir(place)",
            "parent": "Path(place, 'given/../secret.txt').read_text()",
            "link": "(os.symlink(place + '/secret.txt', place + '/own/link'), Path(place, 'own/link').read_text())",
            "child": "subprocess.run(['cat', place + '/secret.txt'], capture_output=True).stdout",
            "shell": "subprocess.run(['cat', place + '/given/file.txt'], capture_output=True).stdout",
            "held before": "held.read()",
        },
    )
    assert found == {
        "given": "given",
        "own": "own",
        "system": "True",
        "elsewhere": "PermissionError",
        "list": "PermissionError",
        "parent": "PermissionError",
        "link": "PermissionError",
        "child": "b''",
        "shell": "b'given'",
        "held before": "secret",
    }
    assert file.read_text() == "secret"


@needs
def test_only_its_own_folder_can_be_written(tmp_path: Path) -> None:
    found = confined(
        tmp_path,
        {
            "own": "Path(place, 'own/new.txt').write_text('x')",
            "folder": "os.mkdir(place + '/own/deeper')",
            "null": "Path('/dev/null').write_text('x')",
            "given": "Path(place, 'given/file.txt').write_text('x')",
            "new": "Path(place, 'given/new.txt').write_text('x')",
            "elsewhere": "os.mkdir(place + '/elsewhere/deeper')",
            "remove": "os.remove(place + '/given/file.txt')",
            "move out": "os.rename(place + '/own/file.txt', place + '/elsewhere/moved.txt')",
            "temporary": "Path('/tmp/crucible-sandbox-test').write_text('x')",
        },
    )
    allowed = {name for name, result in found.items() if result in ("1", "None")}
    assert allowed == {"own", "folder", "null"}
    assert {found[name] for name in set(found) - allowed} <= {"PermissionError", "OSError"}
    assert (tmp_path / "given/file.txt").read_text() == "given"


@needs
@pytest.mark.skipif(ABI < 3, reason="Landlock here cannot refuse truncation")
def test_a_file_it_may_only_read_cannot_be_emptied(tmp_path: Path) -> None:
    assert (
        confined(tmp_path, {"truncate": "os.truncate(place + '/given/file.txt', 0)"})["truncate"] == "PermissionError"
    )
    assert (tmp_path / "given/file.txt").read_text() == "given"


@needs
def test_a_single_file_can_be_allowed(tmp_path: Path) -> None:
    actions = {"read": "held.read()", "again": "Path(place, 'secret.txt').read_text()"}
    assert confined(tmp_path, actions, readable=[str(tmp_path / "secret.txt")])["again"] == "secret"


@needs
@pytest.mark.skipif(ABI < 4, reason="Landlock here cannot refuse connections")
def test_no_connection_can_be_made_or_offered(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        actions = {
            "connect": f"socket.create_connection(('127.0.0.1', {port}), 5)",
            "listen": "socket.create_server(('127.0.0.1', 0))",
        }
        assert set(confined(tmp_path, actions).values()) == {"PermissionError"}


@needs
@pytest.mark.skipif(ABI < 6, reason="Landlock here cannot refuse signals")
def test_nobody_outside_can_be_signalled_or_reached(tmp_path: Path) -> None:
    name = f"crucible-test-{tmp_path.name}"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"\0{name}")
        server.listen()
        actions = {
            "parent": "os.kill(os.getppid(), 0)",
            "itself": "os.kill(os.getpid(), 0)",
            "socket": f"socket.socket(socket.AF_UNIX).connect(chr(0) + {name!r})",
        }
        found = confined(tmp_path, actions)
    assert found == {"parent": "PermissionError", "itself": "None", "socket": "PermissionError"}


@needs
def test_nobody_outside_can_be_looked_into(tmp_path: Path) -> None:
    """Not into the memory, and not into the open files, of the process that started it."""
    actions = {
        "memory": "open(f'/proc/{os.getppid()}/mem', 'rb')",
        "open file": "open(f'/proc/{os.getppid()}/fd/1')",
        "which file": "os.readlink(f'/proc/{os.getppid()}/fd/1')",
        "files": "os.listdir(f'/proc/{os.getppid()}/root/')",
        "folder": "os.readlink(f'/proc/{os.getppid()}/cwd')",
    }
    assert set(confined(tmp_path, actions).values()) == {"PermissionError"}


@needs
def test_the_environment_of_nobody_outside_can_be_read(tmp_path: Path) -> None:
    """Secrets of the judge's own; root's capabilities must not open it either."""
    found = confined(tmp_path, {"environment": "open(f'/proc/{os.getppid()}/environ', 'rb').read(1)"})
    assert found["environment"] == "PermissionError"


def run(code: str) -> subprocess.CompletedProcess[str]:
    start = f"import sys; sys.path.insert(0, {str(Path(__file__).parents[1] / 'src')!r})\n"
    start += "from crucible.judge.process import sandbox\n"
    return subprocess.run([sys.executable, "-c", start + code], capture_output=True, text=True, check=False)


@needs
def test_what_the_kernel_refuses_is_an_error_in_words() -> None:
    """Landlock can be laid over a process sixteen times at most."""
    done = run(f"for _ in range(20): sandbox.confine({SYSTEM!r}, [], [], sandbox.Layers(True, False))")
    assert "OSError" in done.stderr
    assert "the sandbox could not restrict itself" in done.stderr


def test_files_over_the_limit_and_core_dumps_are_off(tmp_path: Path) -> None:
    code = f"""
import resource
sandbox.limit(1000)
sandbox.limit(10**6)
print(resource.getrlimit(resource.RLIMIT_FSIZE), resource.getrlimit(resource.RLIMIT_CORE))
try:
    with open({str(tmp_path / "large")!r}, "wb") as file:
        file.write(bytes(2000))
except OSError as error:
    print(error.strerror)
"""
    assert run(code).stdout.splitlines() == ["(1000, 1000) (0, 0)", "File too large"]


IN_FLIGHT = """
import os, resource, socket, sys, time
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
full, told = os.pipe()
pairs = [socket.socketpair() for _ in range(2)]
child = os.fork()
if child == 0:
    if sys.argv[1] == "limited":
        sandbox.limit(1 << 20)
    try:
        while True:
            socket.send_fds(pairs[0][0], [b"x"], [0] * 200)
    except OSError as error:
        os.write(told, str(error.errno).encode())
    time.sleep(60)
os.read(full, 9)
try:
    socket.send_fds(pairs[1][0], [b"x"], [0])
    print("sent")
except OSError as error:
    print(error.strerror)
finally:
    os.kill(child, 9)
"""


@pytest.mark.parametrize("limited", [True, False], ids=["limited", "as it was"])
def test_descriptors_on_their_way_leave_others_room(limited: bool) -> None:
    """Root is not held to the count, so it takes another user to see it."""
    if os.geteuid() != 0:
        pytest.skip("only root becomes another user")
    front = f"import sys, types; sys.path.insert(0, {str(Path(__file__).parents[1] / 'src')!r}); front = "
    front += f"types.ModuleType('crucible'); front.__path__ = [{str(Path(__file__).parents[1] / 'src/crucible')!r}]; "
    front += "sys.modules['crucible'] = front; from crucible.judge.process import sandbox\n"
    command = ["/usr/bin/python3", "-I", "-B", "-c", front + IN_FLIGHT, "limited" if limited else "not"]
    done = subprocess.run(command, capture_output=True, text=True, user=65534, group=65534, cwd="/", check=False)
    if done.returncode:
        pytest.skip(f"another user cannot run this here: {done.stderr[-200:]}")
    assert done.stdout.strip() == ("sent" if limited else "Too many references: cannot splice")


def test_a_process_dies_with_its_parent() -> None:
    child = "sandbox.die_with_parent(); print('up', flush=True); import time; time.sleep(30)"
    code = f"""
import os, subprocess
start = "import sys; sys.path[:0] = " + repr(sys.path) + "; from crucible.judge.process import sandbox; "
p = subprocess.Popen([sys.executable, "-c", start + {child!r}], stdout=subprocess.PIPE)
p.stdout.readline()
os.write(1, str(p.pid).encode())
os._exit(0)
"""
    pid = int(run(code).stdout)
    for _ in range(100):
        if not Path(f"/proc/{pid}").exists() or ") Z " in Path(f"/proc/{pid}/stat").read_text():
            return
        time.sleep(0.05)
    raise AssertionError("it outlived its parent")


def test_of_a_folder_what_every_user_may_read_is_reached(tmp_path: Path) -> None:
    """Root without capabilities would read the rest as its owner."""
    for name, mode in {"a/open": 0o644, "a/deep/open": 0o644, "b/open": 0o644, "b/key": 0o600, "shadow": 0o640}.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("x")
        file.chmod(mode)
    (tmp_path / "private").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to("shadow")
    assert set(reach._public(str(tmp_path))) == {str(tmp_path / "a"), str(tmp_path / "b/open")}


def test_of_proc_no_process_is_reached() -> None:
    names = [path.removeprefix("/proc/") for path in reach.readable() if path.startswith("/proc/")]
    assert {"cpuinfo", "meminfo", "sys"} <= set(names)
    assert not [name for name in names if name.isdigit() or "self" in name]
    assert "/etc/shadow" not in reach.readable() and "/etc" not in reach.readable()
