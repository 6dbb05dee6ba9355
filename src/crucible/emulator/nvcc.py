"""NVIDIA's compiler: what it makes of kernels, and what it refuses. No torch here.

It is run inside the candidate's process: a source can include and embed whatever the compiler may read.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from crucible import hardware
from crucible.emulator.device_code import device_code
from crucible.emulator.toolchain import BuildError, includes

_ENTRY = re.compile(r"Compiling entry function '(\S+)' for '\w+'")
_MEMORY = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers(?:.*?, (\d+) bytes smem)?")
_ARCHITECTURE = re.compile(r"sm_\d+a|compute_\d+a")


@dataclass(frozen=True)
class Compiled:
    """What ptxas says of a kernel."""

    symbol: str
    """Mangled."""
    signature: str
    """Demangled."""
    registers: int
    """Of one thread."""
    spill_store_bytes: int
    """Registers that go to memory, of one thread."""
    spill_load_bytes: int
    stack_bytes: int
    """Of one thread: spills, and arrays whose index is not known to the compiler."""
    static_shared_bytes: int
    """Of one block."""


@dataclass(frozen=True)
class Nvcc:
    """The compiler with what it is told for every source."""

    path: str
    architecture: str
    """`sm_90`."""
    flags: tuple[str, ...] = ()
    """PyTorch's own."""

    def kernels(self, text: str, instances: Iterable[str], flags: Sequence[str]) -> list[Compiled] | None:
        """What becomes of a source's kernels, its host functions left out; None when that does not compile.

        None says nothing of the source: part of it was left out.
        """
        try:
            return read_ptxas(self._run(device_code(text, instances), flags, ["-cubin"]))
        except BuildError:
            return None

    def unit(self, text: str, flags: Sequence[str], name: str = "extension") -> list[Compiled]:
        """The same of the whole source, as `load_inline` compiles it: 20 to 35 s of processor time.

        Raises BuildError with the compiler's words.
        """
        position = ["-c", "-Xcompiler", "-fPIC", f"-DTORCH_EXTENSION_NAME={name}"]
        return read_ptxas(self._run(text, flags, position))

    def _run(self, text: str, flags: Sequence[str], mode: list[str]) -> str:
        with tempfile.TemporaryDirectory(prefix="crucible-nvcc-") as temporary:
            folder = Path(temporary)
            (folder / "cuda.cu").write_text(text, encoding="utf-8")
            macros = folder / "c10/cuda/impl/cuda_cmake_macros.h"
            macros.parent.mkdir(parents=True)
            macros.write_text("#pragma once\n")  # PyTorch's CPU builds lack this generated header
            own = [
                flag
                for flag in flags
                if not re.match(r"-*(gencode|generate-code|arch|gpu-architecture|gpu-code|code)\b", flag)
            ]
            command = [self.path, *mode, "cuda.cu", "-o", "cuda.o", f"-arch={self._architecture(flags)}"]
            command += ["-Xptxas", "-v", *self.flags, *own, *includes(), "-isystem", str(folder)]
            command += [] if any(flag.startswith(("-std", "--std")) for flag in own) else ["-std=c++20"]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace", check=False)
        if done.returncode:
            raise BuildError(done.stdout + done.stderr)
        return done.stdout + done.stderr

    def _architecture(self, flags: Sequence[str]) -> str:
        """`sm_90a` for a candidate that asks for it: instructions of that one architecture alone."""
        specific = any(_ARCHITECTURE.search(flag) for flag in flags)
        return f"{self.architecture}a" if specific else self.architecture


def find(architecture: str, flags: Sequence[str]) -> Nvcc | None:
    """The compiler of this machine, for that architecture; None where there is none."""
    path = hardware.nvcc()
    return Nvcc(path, architecture, tuple(flags)) if path else None


def lacks_header(error: str) -> bool:
    """Whether a compilation failed for a header of NVIDIA's or PyTorch's that is not installed: nobody's mistake."""
    found = re.search(r"fatal error: (\S+): No such file", error)
    return bool(found and re.match(r"(cu|ATen|c10|torch|nv|thrust|cub|mma|sm_)", found[1]))


def read_ptxas(log: str) -> list[Compiled]:
    """Kernels and what they take, from what `ptxas -v` printed."""
    parts = _ENTRY.split(log)
    symbols, texts = parts[1::2], parts[2::2]
    kernels = map(_kernel, symbols, demangled(symbols), texts)
    return [kernel for kernel in kernels if kernel is not None]


def _kernel(symbol: str, signature: str, text: str) -> Compiled | None:
    own = text.partition(f"Function properties for {symbol}\n")[2] or text
    memory, used = _MEMORY.search(own), _USED.search(text)
    if not memory or not used:
        return None
    stack, stores, loads = map(int, memory.groups())
    return Compiled(symbol, signature, int(used[1]), stores, loads, stack, int(used[2] or 0))


def demangled(symbols: Sequence[str]) -> list[str]:
    """The symbols' names as in the source; unchanged where binutils' c++filt is missing."""
    if not symbols or not shutil.which("c++filt"):
        return list(symbols)
    text = "\n".join(symbols) + "\n"
    done = subprocess.run(["c++filt"], input=text, capture_output=True, text=True, check=False)
    return done.stdout.splitlines()


def name_and_parameters(signature: str) -> tuple[str, str]:
    """`ns::softmax<float, 8>` and `float*` of `void ns::(anonymous namespace)::softmax<float, 8>(float*)`."""
    text = signature.replace("(anonymous namespace)::", "").removeprefix("void ")
    depth = 0
    for i, letter in enumerate(text):
        depth += (letter == "<") - (letter == ">")
        if letter == "(" and depth == 0:
            return text[:i], text[i + 1 :].rpartition(")")[0]
    return text, ""
