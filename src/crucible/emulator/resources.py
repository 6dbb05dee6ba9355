"""What the kernels that were launched take of a GPU: the compiler's account of each, with how it was launched."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass, field

from crucible.emulator.extension import Emulator
from crucible.emulator.nvcc import Compiled, Nvcc, demangled, kernel_name

# What the emulator's headers call these types, and CUDA's names for them.
_NAMES_OF_TYPES = {
    "crucible::Small<crucible::HalfRule, c10::Half>": "__half",
    "crucible::Small<crucible::Bfloat16Rule, c10::BFloat16>": "__nv_bfloat16",
}
_NOT_IN_SOURCE = re.compile(r"lambda|[(&{']")
"""Template arguments that cannot be written down: lambdas, addresses of functions."""


@dataclass(frozen=True)
class Launched:
    """A kernel with one way in which it was launched."""

    kernel: str
    """With its template arguments."""
    threads: int
    """Of a block."""
    dynamic_shared_bytes: int
    compiled: Compiled


@dataclass
class Resources:
    """The compiler's account of the kernels of this process's extensions."""

    emulator: Emulator
    nvcc: Nvcc
    compiled: dict[str, dict[str, Compiled]] = field(default_factory=dict)
    """By extension and kernel."""
    names: dict[int, tuple[str, str]] = field(default_factory=dict)
    """Extension and kernel at each address."""

    def compile(self, extension: str, texts: list[str], flags: list[str]) -> None:
        """Compiles an extension's kernels, in the template instances it has. Raises BuildError for what nvcc refuses.

        Afterwards the runtime's attribute and occupancy calls know them, and launches are held to their registers.
        """
        loaded = self.emulator.loaded[extension]
        symbols = _kernel_symbols(extension, {kernel.name for kernel in loaded.kernels})
        templates = {kernel.name for kernel in loaded.kernels if kernel.template >= 0}
        instances = [name for name in symbols if _last(name) in templates and not _NOT_IN_SOURCE.search(name)]
        made: dict[str, Compiled] = {}
        for text in texts:
            own = [name for name in instances if re.search(rf"\b{re.escape(_last(name))}\b", text)]
            found = self.nvcc.kernels(text, own, flags)
            found = self.nvcc.unit(text, flags, loaded.name) if found is None else found
            signatures = demangled([one.symbol for one in found])
            made.update(zip(map(kernel_name, signatures), found, strict=True))
        self.compiled[extension] = made
        base = self.emulator.base_of(extension)
        for name, offset in symbols.items():
            self.names[base + offset] = (extension, name)
            if name in made:
                self.emulator.know(base + offset, made[name])

    def launched(self) -> list[Launched]:
        """Each kernel that ran since the process began, in each size in which it did.

        Left out is what nvcc did not compile, and what cannot be told from another instance of its template.
        """
        found: dict[Launched, None] = {}
        for one in self.emulator.configurations():
            extension, name = self.names.get(one.address) or self._only(one.name)
            compiled = self.compiled.get(extension, {}).get(name)
            if compiled is not None:
                launched = Launched(name, one.threads, one.dynamic_shared_bytes, compiled)
                found[launched] = None
        return list(found)

    def _only(self, name: str) -> tuple[str, str]:
        """The kernel that a launch means which leaves template arguments to be deduced, where only one can be meant."""
        plain = _last(name)
        meant = [(file, full) for file, made in self.compiled.items() for full in made if _last(full) == plain]
        return meant[0] if len(meant) == 1 else ("", "")


def _kernel_symbols(file: str, kernels: set[str]) -> dict[str, int]:
    """Offsets of the kernels in a shared object, template instances each on their own; nothing without binutils' nm."""
    if not shutil.which("nm"):
        return {}
    done = subprocess.run(["nm", file], capture_output=True, text=True, check=False)
    rows = [line.split() for line in done.stdout.splitlines()]
    defined = [(row[2], int(row[0], 16)) for row in rows if len(row) == 3 and row[1] in "tTwW" and row[2][:3] != "_ZZ"]
    own = [(symbol, offset) for symbol, offset in defined if any(name in symbol for name in kernels)]
    found = {}
    for signature, (_, offset) in zip(demangled([symbol for symbol, _ in own]), own, strict=True):
        name = kernel_name(signature)
        for ours, cudas in _NAMES_OF_TYPES.items():
            name = name.replace(ours, cudas)
        if _last(name) in kernels:
            found[name] = offset
    return found


def _last(name: str) -> str:
    """`softmax` of `ns::softmax<float, 256>`."""
    return name.partition("<")[0].split("::")[-1].strip()
