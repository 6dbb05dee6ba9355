"""The compiler: headers precompiled once, the runtime built once, candidates compiled against both. No torch here."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path

from crucible import hardware, store
from crucible.emulator import kept

_HERE = Path(__file__).parent
HEADERS = _HERE / "headers"
LEAN = HEADERS / "lean"
RUNTIME = _HERE / "runtime"
MODULE = "crucible_emulator.so"
_PREFIX = "prefix.h"
_WITHOUT = ("HALF_OPERATORS", "HALF_CONVERSIONS", "HALF2_OPERATORS", "BFLOAT16_CONVERSIONS")
"""Of NVIDIA's types, what PyTorch's flags for nvcc take away (torch.utils.cpp_extension.COMMON_NVCC_FLAGS)."""
_LANGUAGE = (
    "-std=c++20", "-fPIC", "-w", "-fno-strict-aliasing", "-DTORCH_API_INCLUDE_EXTENSION_H",
    *(f"-D__CUDA_NO_{each}__" for each in _WITHOUT),
)  # fmt: skip
# -O1: at -O2 g++ takes a quarter longer and the kernels, all hooks, are no faster.
_CANDIDATE = ("-O1", "-g1", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls", "-fno-plt")
"""A hook is told by its return address: it may not be jumped to, nor may a stub without a line lie between."""
# Passes that follow the hooks, and so change nothing of what is watched: without them g++ takes a sixth less, and
# kernels are as fast. Blocks are put in order all the same: without, a matrix product is 3 % slower.
_LATE = (
    *(f"-fno-{each}" for each in (
        "forward-propagate", "if-conversion", "if-conversion2", "dce", "dse", "cprop-registers", "compare-elim",
        "combine-stack-adjustments", "move-loop-invariants", "branch-count-reg", "shrink-wrap", "split-wide-types",
    )),
    "-fira-algorithm=priority",
    "-fira-region=one",
    # Garbage is left lying, a twelfth of the time: 0.7 MB of kernels take 0.9 GB, not 0.7.
    "--param=ggc-min-heapsize=400000",
)  # fmt: skip
_OF_CLANG = ("-Wno-c++11-narrowing", "-fno-finite-loops", "-fpch-instantiate-templates", "-gdwarf-4")
"""What g++ does unasked: narrow variables in braces, keep loops without end. addr2line reads no inlining in DWARF 5."""
# Without -fno-tree-sra g++ takes the load of a float4 apart into four; clang always does.
_HOOKS = {
    "g++": (
        "-fno-tree-sra",
        "-fsanitize=thread",
        "-fsanitize=alignment,bounds,signed-integer-overflow,integer-divide-by-zero",
        "--param=tsan-instrument-func-entry-exit=0",
        "--param=tsan-distinguish-volatile=1",
        *_LATE,
    ),
    "clang++": (
        "-fsanitize=thread",
        # clang's `bounds` would also trap, where g++ calls.
        "-fsanitize=alignment,array-bounds,signed-integer-overflow,integer-divide-by-zero",
        "-mllvm",
        "-tsan-instrument-func-entry-exit=0",
        "-mllvm",
        "-tsan-distinguish-volatile=1",
    ),
}


HOST = "main.cpp"
"""The unit without kernels."""
_OF_HOST = ("-O0",)
"""Faults are those of kernels: a written module's host file takes g++ 1.3 s instead of 2.1, against a header of its own
kind. For g++ alone, nobody tried clang."""
_LAUNCHING = re.compile(r"__global__|[lL]aunch_?[kK]ernel|Launcher|##")
"""What a unit has that may launch what it defines itself, whose accesses are to be watched."""
_OF_WHOLE_HOST = ("-fno-sanitize=undefined",)
"""Against all of PyTorch's headers, which are not precompiled once more for it: with `-fsanitize=thread` still."""


class BuildError(RuntimeError):
    """The compiler refused, in its own words."""


@dataclass(frozen=True)
class Toolchain:
    """A compiler with what was prepared for it in `folder`."""

    compiler: str
    folder: Path
    checked: bool = True
    """Whether accesses are watched; without, kernels only run."""
    lean: bool = False
    """Whether against PyTorch's tensors alone: what most kernels need of it, in half the time with g++."""
    host: bool = False
    """Whether for what has no kernels."""

    @property
    def module(self) -> Path:
        """The runtime, a Python extension module that candidates link against."""
        return self.folder / MODULE

    @property
    def flags(self) -> list[str]:
        family = "clang++" if self.is_clang else "g++"
        own = _OF_CLANG if self.is_clang else ()
        if self.host:
            return [*_LANGUAGE, *own, *_OF_HOST]
        return [*_LANGUAGE, *own, *_CANDIDATE, *(_HOOKS[family] if self.checked else ())]

    @property
    def is_clang(self) -> bool:
        return "clang" in Path(self.compiler).name

    @property
    def prefix(self) -> Path:
        """The header that each candidate begins with, beside its precompiled form."""
        kind = "host" if self.host else "checked" if self.checked else "unchecked"
        return self.folder / (kind + ("_lean" if self.lean else "")) / _PREFIX

    @property
    def precompiled(self) -> Path:
        """Both compilers look for it under this name."""
        return self.prefix.with_name(_PREFIX + ".gch")

    @property
    def where(self) -> list[str]:
        """Headers, ours before PyTorch's."""
        return [*(("-I", str(LEAN)) if self.lean else ()), "-I", str(HEADERS), *includes()]

    @property
    def leaner(self) -> Toolchain | None:
        """What to try first: it refuses what needs more of PyTorch. clang gains nothing, it keeps instances."""
        return None if self.lean or self.is_clang else replace(self, lean=True)

    @property
    def for_host(self) -> Toolchain:
        """What compiles the host's unit, where no kernel can be in it."""
        return replace(self, host=True) if self.lean else self

    def compile(self, units: dict[str, str], flags: list[str], out: Path) -> None:
        """Compiles texts by file name and links them into `out`. Raises BuildError with the compiler's output.

        Of what several units define inline, the first one's is kept: `HOST` goes last.
        """
        with tempfile.TemporaryDirectory(prefix="crucible-emulator-") as temporary:
            folder = Path(temporary)
            for name, text in units.items():
                (folder / name).write_text(text, encoding="utf-8")
            with ThreadPoolExecutor(max(1, len(os.sched_getaffinity(0)))) as pool:
                objects = list(pool.map(lambda name: self._object(folder, name, units[name], flags), units))
            built = folder / "extension.so"
            # Not linked against the runtime, which is loaded globally: ld would read all of libtorch for it (4 s).
            _run([self.compiler, "-shared", "-o", str(built), *objects], folder)
            out.parent.mkdir(parents=True, exist_ok=True)
            partial = out.with_name(f".{out.name}.{os.getpid()}")
            shutil.copyfile(built, partial)
            partial.rename(out)
            kept.forget_extensions(out.parent)

    def _object(self, folder: Path, name: str, text: str, flags: list[str]) -> str:
        object_ = f"{name}.o"
        # Flags may bring a header, or another name for a launch.
        tools = self.for_host if name == HOST and not flags and not _LAUNCHING.search(text) else self
        # Who wants NVIDIA's operators back does without the precompiled header: it is of the types without them.
        other = any("__CUDA_NO_" in flag for flag in flags)
        include = ["-include", str(HEADERS / "crucible/all.h" if other else tools.prefix), *tools.where]
        own = _OF_WHOLE_HOST if name == HOST and not (tools.host or tools.is_clang) else ()
        _run([tools.compiler, *tools.flags, *own, *include, *flags, "-x", "c++", "-c", name, "-o", object_], folder)
        return str(folder / object_)


def find_compiler() -> str:
    """`$CXX`, or g++, or clang 16 or later. Raises BuildError when there is none."""
    found = hardware.cxx()
    if not found:
        wanted = os.environ.get("CXX") or "clang++ or g++"
        raise BuildError(f"the emulator needs a C++ compiler, and there is no {wanted}: install g++ 12 or later")
    return found


def prepare(compiler: str | None = None, *, checked: bool = True, whole: bool = False) -> Toolchain:
    """Builds what candidates are compiled against, once per machine and version.

    With g++ 12 41 s of processor time and 290 MB, with clang 19 35 s and 90 MB. What `complete` adds comes at once if
    `whole`: for processes that may not write. It is kept below `$CRUCIBLE_EMULATOR_HOME`, or in `store.home()`, until
    something else is prepared and it was not asked for in a month. Raises BuildError.
    """
    compiler = compiler or find_compiler()
    home = Path(os.environ.get("CRUCIBLE_EMULATOR_HOME") or store.home() / "emulator").absolute()
    tools = Toolchain(compiler, home / _key(compiler), checked)
    first = tools.leaner or tools
    _prepare(tools, [*([tools] if whole else []), first, first.for_host])
    return tools


def complete(tools: Toolchain) -> None:
    """All of PyTorch's headers, for what needs more than tensors: with g++ 30 s and 490 MB more. Raises BuildError."""
    if not tools.precompiled.exists():
        _prepare(tools, [tools])


def _prepare(tools: Toolchain, kinds: Iterable[Toolchain]) -> None:
    tools.folder.mkdir(parents=True, exist_ok=True)
    beside = tools.folder.with_name(f"{tools.folder.name}.lock")  # not in it: candidates read there, and could hold it
    # Its time is when somebody asked for it last, as `kept` reads it.
    with open(beside, "w") as lock, ThreadPoolExecutor(2) as pool:
        fcntl.flock(lock, fcntl.LOCK_EX)  # processes that start together build it once
        jobs = []
        if not tools.module.exists():
            jobs.append(pool.submit(_build_module, tools))
        for kind in dict.fromkeys(kinds):
            if not kind.precompiled.exists():
                jobs.append(pool.submit(_build_prefix, kind))
        for job in jobs:
            job.result()
        if jobs:
            kept.forget_prepared(tools.folder.parent)


def ready(folder: Path, compiler: str | None = None) -> Toolchain:
    """What `prepare` left in `folder`, from a process that may not write there."""
    return Toolchain(compiler or find_compiler(), folder)


def torch_folder() -> Path:
    """Where torch is installed, without importing it."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise BuildError("torch is not installed")
    return Path(spec.origin).parent


def includes() -> list[str]:
    """PyTorch's and Python's headers, after ours."""
    include = torch_folder() / "include"
    python = sysconfig.get_path("include")
    return ["-isystem", str(include), "-isystem", str(include / "torch/csrc/api/include"), "-isystem", python]


def is_in_pytorchs_headers(name: str) -> bool:
    """Whether any of PyTorch's headers has the word: what none has is the candidate's mistake."""
    word = re.compile(rb"\b%s\b" % re.escape(name.encode()))
    headers = (torch_folder() / "include").rglob("*.h")
    return any(word.search(header.read_bytes()) for header in headers)


def _key(compiler: str) -> str:
    """What the prepared files depend on."""
    digest = hashlib.sha256()
    for file in sorted([*HEADERS.rglob("*"), *RUNTIME.rglob("*")]):
        if file.is_file():
            digest.update(file.read_bytes())
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False).stdout
    of_host = (_OF_HOST, _LAUNCHING.pattern, _OF_WHOLE_HOST)
    settings = (compiler, version, metadata.version("torch"), str(torch_folder()))
    digest.update(repr((*settings, _LANGUAGE, _OF_CLANG, _CANDIDATE, _HOOKS, *of_host)).encode())
    return digest.hexdigest()[:16]


def _build_prefix(tools: Toolchain) -> None:
    """The precompiled header, under a temporary name until it is whole.

    Where it will stay: clang refuses one whose own header has moved.
    """
    tools.prefix.parent.mkdir(exist_ok=True)
    tools.prefix.write_text('#include "crucible/all.h"\n')
    building = tools.precompiled.with_suffix(".building")
    _run(
        [tools.compiler, *tools.flags, *tools.where, "-x", "c++-header", str(tools.prefix), "-o", str(building)],
        HEADERS,
    )
    building.rename(tools.precompiled)


def _build_module(tools: Toolchain) -> None:
    """The runtime and the bridge to Python, in one shared object."""
    with tempfile.TemporaryDirectory(prefix="crucible-emulator-") as temporary:
        folder = Path(temporary)
        where = ["-I", str(HEADERS), *includes()]
        for name, level in (("runtime", "-O2"), ("bridge", "-O1")):
            source = str(RUNTIME / f"{name}.cpp")
            _run([tools.compiler, *_LANGUAGE, level, "-g1", *where, "-c", source, "-o", f"{name}.o"], folder)
        lib = torch_folder() / "lib"
        libraries = [f"-L{lib}", "-ltorch_python", "-ltorch", "-ltorch_cpu", "-lc10", "-lrt", "-ldl"]
        link = [tools.compiler, "-shared", "-o", MODULE, "runtime.o", "bridge.o", *libraries]
        _run([*link, "-Wl,--no-as-needed", f"-Wl,-rpath,{lib}"], folder)
        partial = tools.module.with_name(f".{MODULE}.{os.getpid()}")
        shutil.copyfile(folder / MODULE, partial)
        partial.rename(tools.module)


def _run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        raise BuildError(done.stdout + done.stderr)


def source_lines(file: str, addresses: list[int]) -> list[tuple[str, int]]:
    """File and line of code addresses of a shared object, the candidate's own text before any header's.

    ("", 0) for what is unknown, or everything where binutils' addr2line is missing.
    """
    if not addresses or not shutil.which("addr2line"):
        return [("", 0)] * len(addresses)
    command = ["addr2line", "-a", "-i", "-e", file, *(hex(address) for address in addresses)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    groups: list[list[tuple[str, int]]] = []
    for line in done.stdout.splitlines():
        if line.startswith("0x"):
            groups.append([])
        elif groups:
            path, _, number = line.split(" (")[0].rpartition(":")
            groups[-1].append((path, int(number) if number.isdigit() else 0))
    return [_own_line(group) for group in groups]


def places(file: str, pcs: Iterable[int]) -> dict[int, tuple[str, int]]:
    """File and line of return addresses in a shared object that this process has loaded."""
    base = base_of(file)
    own = sorted({pc for pc in pcs if pc > base})
    # A return address lies behind its call: one byte back is inside it.
    found = source_lines(file, [pc - base - 1 for pc in own])
    return dict.fromkeys(pcs, ("", 0)) | dict(zip(own, found, strict=True))


def base_of(file: str) -> int:
    """Address at which this process has mapped a shared object, 0 when it has not."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        starts = [int(line.split("-")[0], 16) for line in maps if line.rstrip().endswith(file)]
    return min(starts) if starts and file else 0


def _own_line(frames: list[tuple[str, int]]) -> tuple[str, int]:
    """Innermost frame that is not a header's of ours, of PyTorch's or of the system's."""
    for path, line in frames:
        name = Path(path).name
        if "/crucible/emulator/" not in path and "/include/" not in path and line and name != "crucible_exports":
            return name, line
    return "", 0
