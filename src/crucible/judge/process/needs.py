"""What an honest candidate needs of the sandbox, each tried for real; what does not work raises."""

from __future__ import annotations

import ctypes
import mmap
import multiprocessing
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

from crucible.judge.process.doors import Scene

Need = Callable[[Scene], object]
SEMAPHORES = "named semaphores and shared memory"
_TEXT = "a candidate's file"


def needs() -> dict[str, Need]:
    """All of them by name."""
    return {
        "its folder": lambda s: Path(s.own, "deeper").mkdir(),
        "temporary files": _temporary_file,
        "a copy with its mode and times": lambda s: shutil.copy2(_written(s, "a.h"), f"{s.own}/b.h"),
        "a copy by `cp -p`": lambda s: subprocess.run(["cp", "-p", _written(s, "d.h"), f"{s.own}/e.h"], check=True),
        "the mode of its own file": lambda s: os.chmod(_written(s, "c.h"), 0o600),
        "what it was handed": lambda s: _equal(os.pread(s.handed, 7, 0), b"outside"),
        "a file that is touched": _touched,
        "threads": _thread,
        "a child": lambda s: _equal(subprocess.run(["cat"], input=b"x", capture_output=True).stdout, b"x"),
        "signals to a child": _ended_child,
        "a Python of its own": lambda s: subprocess.run([sys.executable, "-I", "-c", "import ctypes"], check=True),
        "a pair of sockets": lambda s: socket.socketpair()[0].close(),
        "memory without a name": lambda s: os.close(os.memfd_create("own")),
        "memory shared with children": lambda s: mmap.mmap(-1, 4096).close(),
        "random numbers": lambda s: Path("/dev/urandom").open("rb").read(1),
        "nowhere": lambda s: Path("/dev/null").write_bytes(b"x"),
        "its own /proc": lambda s: Path("/proc/self/maps").read_text() and os.listdir("/proc/self/fd"),
        "the machine's /proc": lambda s: [Path("/proc", name).read_bytes() for name in ("cpuinfo", "meminfo", "stat")],
        "/sys": lambda s: os.listdir("/sys/devices/system/cpu"),
        "its own limits": lambda s: resource.setrlimit(resource.RLIMIT_CORE, (0, 0)),
        "its own processors": lambda s: os.sched_setaffinity(0, os.sched_getaffinity(0)),
        "names of threads": _named_thread,
        "a socket that waits, as CUDA's": _waiting_socket,
        SEMAPHORES: lambda s: multiprocessing.get_context("spawn").Lock(),
    }


def cuda() -> str:
    """Starts CUDA and has a GPU fill some of its memory; what failed, in CUDA's words, empty where nothing did."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return f"libcuda.so.1 cannot be loaded: {error}"
    device, context, pointer = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    got = (ctypes.c_uint8 * 4)()
    steps: list[tuple[str, tuple[object, ...]]] = [
        ("cuInit", (0,)),
        ("cuDeviceGet", (ctypes.byref(device), 0)),
        ("cuDevicePrimaryCtxRetain", (ctypes.byref(context), device)),
        ("cuCtxSetCurrent", (context,)),
        ("cuMemAlloc_v2", (ctypes.byref(pointer), ctypes.c_size_t(1 << 20))),
        ("cuMemsetD8_v2", (pointer, ctypes.c_ubyte(7), ctypes.c_size_t(1 << 20))),
        ("cuMemcpyDtoH_v2", (got, pointer, ctypes.c_size_t(4))),
        ("cuMemFree_v2", (pointer,)),
        ("cuDevicePrimaryCtxRelease_v2", (device,)),
    ]
    for name, arguments in steps:
        code = getattr(driver, name)(*arguments)
        if code:
            words = ctypes.c_char_p()
            driver.cuGetErrorName(code, ctypes.byref(words))
            return f"{name}: error {code}, {(words.value or b'?').decode()}"
    return "" if bytes(got) == b"\7\7\7\7" else f"a GPU's memory was filled with 7 and holds {bytes(got).hex()}"


def _written(scene: Scene, name: str) -> str:
    Path(scene.own, name).write_text(_TEXT)
    return f"{scene.own}/{name}"


def _touched(scene: Scene) -> None:
    """Made where it is not there; once more where it is."""
    file = Path(scene.own, "touched")
    file.touch()
    file.touch()
    file.unlink()


def _equal(got: bytes, wanted: bytes) -> None:
    if got != wanted:
        raise OSError(f"got {got!r}, not {wanted!r}")


def _temporary_file(scene: Scene) -> None:
    with tempfile.TemporaryDirectory(dir=scene.own) as folder, tempfile.NamedTemporaryFile(dir=folder) as file:
        file.write(b"x")


def _thread(scene: Scene) -> None:
    done = threading.Event()
    thread = threading.Thread(target=done.set)
    thread.start()
    thread.join()
    if not done.is_set():
        raise OSError("a thread did not run")


def _ended_child(scene: Scene) -> None:
    child = subprocess.Popen([sys.executable, "-I", "-c", "input()"], stdin=subprocess.PIPE)
    child.terminate()
    child.communicate()
    if child.returncode != -signal.SIGTERM:
        raise OSError(f"a child that was told to end ended with {child.returncode}")


def _named_thread(scene: Scene) -> None:
    Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text("named")


def _waiting_socket(scene: Scene) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as waiting:
        waiting.bind(f"\0{scene.abstract}-own")
        waiting.listen(16)
