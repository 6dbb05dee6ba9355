"""The machine: which device runs candidates here, and the versions that a verdict depends on.

Nothing here imports torch: a cached run must answer at once.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path

from crucible.errors import DeviceError


@dataclass(frozen=True)
class Device:
    """What candidates run on."""

    kind: str
    """`cuda` or `cpu`."""
    name: str
    """`NVIDIA H200`, or the processor's model name."""
    driver: str
    """NVIDIA driver version, or the kernel's."""


def find_device(kind: str = "auto") -> Device:
    """The device asked for (`auto`, `cuda`, `cpu` or `emulator`). Raises DeviceError when it is not here.

    Without a GPU, CUDA C++ runs on the emulator; `emulator` is `cpu`, and says that this is what it is for.
    """
    if kind not in ("auto", "cuda", "cpu", "emulator"):
        raise DeviceError(f"no device {kind!r}: choose auto, cuda, cpu or emulator")
    if kind == "emulator" and not cxx():
        raise DeviceError("the emulator needs a C++ compiler: install g++ 12 or later, or name one in CXX")
    gpu = _first_gpu() if kind in ("auto", "cuda") else None
    if gpu:
        return gpu
    if kind == "cuda":
        raise DeviceError("no NVIDIA GPU on this machine (nvidia-smi finds none): use --device cpu")
    return Device("cpu", _processor(), platform.release())


KERNEL_PACKAGES = ("tilelang", "nvidia-cutlass-dsl", "cuda-tile", "helion")
"""What brings a language for kernels; named among the versions where it is installed."""


def versions() -> dict[str, str]:
    """Versions of what computes and compiles; `-` for what is not installed."""
    found = {"python": platform.python_version()}
    for package in ("torch", "triton", "crucible-kernels"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "-"
    for package in KERNEL_PACKAGES:
        if has_distribution(package):
            found[package] = metadata.version(package)
    found["nvcc"] = _first_line((nvcc(), "--version"), "release") if nvcc() else "-"
    found["g++"] = _first_line(("g++", "--version"), "") if shutil.which("g++") else "-"
    return found


def nvcc() -> str:
    """NVIDIA's compiler on this machine, empty when there is none: a toolkit's, or that of NVIDIA's Python packages."""
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    packaged = [
        folder for path in filter(None, sys.path) for folder in sorted(Path(path).glob("nvidia/cu*/bin"), reverse=True)
    ]
    places = [None, f"{home}/bin", *map(str, packaged)]
    return next((found for place in places if (found := shutil.which("nvcc", path=place))), "")


def compute_sanitizer() -> str:
    """NVIDIA's compute-sanitizer on this machine, empty when there is none."""
    homes = [os.environ.get("CUDA_HOME"), "/usr/local/cuda"]
    places = [None, *(f"{home}/bin" for home in homes if home)]
    return next((found for place in places if (found := shutil.which("compute-sanitizer", path=place))), "")


_CLANGS = ("clang++", *(f"clang++-{version}" for version in range(22, 15, -1)))
_OLDEST_CLANG = 16
"""The first whose thread sanitizer calls a function for each memcpy."""


def cxx() -> str:
    """The C++ compiler that the emulator would use: `$CXX`, else g++, else clang 16 or later; empty without any.

    g++ first, though clang compiles in a third of the time: its hooks see vectors whole, and CUDA's vector types are
    trivially copyable with it, as nvcc has them.
    """
    wanted = os.environ.get("CXX")
    return (shutil.which(wanted) or "") if wanted else next(iter(compilers()), "")


@cache
def compilers() -> tuple[str, ...]:
    """g++, and clang where one is recent enough, as far as installed."""
    clang = next((found for name in _CLANGS if (found := shutil.which(name)) and _is_recent(found)), "")
    return tuple(found for found in (shutil.which("g++"), clang) if found)


def _is_recent(clang: str) -> bool:
    version = subprocess.run([clang, "-dumpversion"], capture_output=True, text=True, check=False).stdout
    return version.split(".")[0].isdigit() and int(version.split(".")[0]) >= _OLDEST_CLANG


def has_distribution(name: str) -> bool:
    """Whether a package of that name is installed where this Python looks; nothing is imported."""
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def has_triton() -> bool:
    """Whether Triton could be imported here; nothing is."""
    return importlib.util.find_spec("triton") is not None


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0))


def memory_bytes() -> int:
    """Memory that this machine can give."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def available_bytes() -> int:
    """Memory that this process and its children may still take: what the system has free, or less where a control group
    sets a limit."""
    free = _field(Path("/proc/meminfo"), "MemAvailable:") * 1024 or memory_bytes()
    return max(1 << 20, min([free, *_left_in_groups(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup"))]))


def _left_in_groups(membership: Path, root: Path) -> list[int]:
    """What each control group that this process is in has left, those above it included (versions 2 and 1)."""
    left = []
    for line in _text(membership).splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controllers and "memory" not in controllers.split(","):
            continue
        top = root / "memory" if controllers else root
        names = ("memory.limit_in_bytes", "memory.usage_in_bytes") if controllers else ("memory.max", "memory.current")
        own = top / path.strip("/")
        for folder in [own, *own.parents]:
            if folder == top or top in folder.parents:
                left += _left_in(folder, *names)
    return left


def _left_in(folder: Path, limit: str, used: str) -> list[int]:
    """The group's limit less what it uses, file caches that it would give back left out; nothing where it has none."""
    most, held = _text(folder / limit).strip(), _text(folder / used).strip()
    if not (most.isdecimal() and held.isdecimal()) or int(most) >= memory_bytes():
        return []
    return [int(most) - int(held) + _field(folder / "memory.stat", "inactive_file")]


def _field(file: Path, name: str) -> int:
    """The number that follows a name in a table of the kernel's; 0 where there is none."""
    rows = (line.split() for line in _text(file).splitlines())
    return next((int(row[1]) for row in rows if len(row) > 1 and row[0] == name and row[1].isdecimal()), 0)


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


@dataclass(frozen=True)
class GpuHere:
    """One GPU of this machine."""

    index: str
    """As nvidia-smi counts."""
    uuid: str
    name: str
    driver: str


def visible_gpus() -> tuple[GpuHere, ...]:
    """This machine's GPUs, as far as `CUDA_VISIBLE_DEVICES` lets this process see them, in that order."""
    found = _gpus()
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is None or chosen == "NoDevFiles":  # the latter is what some schedulers write for none
        return found if chosen is None else ()
    named = [name.strip() for name in chosen.split(",") if name.strip()]
    if any(name.startswith("MIG-") for name in named):
        return found[:1]  # a part of one; nvidia-smi lists whole ones
    return tuple(gpu for name in named for gpu in found if name == gpu.index or gpu.uuid.startswith(name))


def _first_gpu() -> Device | None:
    gpu = next(iter(visible_gpus()), None)
    return Device("cuda", gpu.name, gpu.driver) if gpu else None


@cache
def _gpus() -> tuple[GpuHere, ...]:
    if not shutil.which("nvidia-smi"):
        return ()
    query = ["nvidia-smi", "--query-gpu=index,uuid,driver_version,name", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return ()
    rows = [[field.strip() for field in line.split(",", 3)] for line in done.stdout.strip().splitlines()]
    return tuple(GpuHere(index, uuid, name, driver) for index, uuid, driver, name in (r for r in rows if len(r) == 4))


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    except OSError:
        names = []
    return f"CPU: {names[0]}" if names else f"CPU: {platform.machine()}"


@cache
def _first_line(command: tuple[str, ...], containing: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.SubprocessError):
        return "-"
    return next((line.strip() for line in done.stdout.splitlines() if containing in line), "-")
