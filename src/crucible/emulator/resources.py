"""What the kernels that were launched take of a GPU: the compiler's account of each, with how it was launched."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field

from crucible.emulator import toolchain
from crucible.emulator.nvcc import Compiled, Nvcc, demangled, name_and_parameters
from crucible.emulator.session import Configuration, Emulator
from crucible.emulator.tokens import split, tokenize

# What the emulator's headers call these types, and CUDA's names for them.
_NAMES_OF_TYPES = {
    "crucible::Small<crucible::HalfRule>": "__half",
    "crucible::Small<crucible::Bfloat16Rule>": "__nv_bfloat16",
}
_NOT_IN_SOURCE = re.compile(r"lambda|[(&{']")
"""Template arguments that cannot be written down: lambdas, addresses of functions."""


# What the runtime calls the types that pointers are to, where signatures call them otherwise.
_TYPES = {"int64_t": "long", "uint8_t": "unsigned char", "half": r"\w*(?:half|Half|bfloat16|BFloat16)", "element": ""}


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
        loaded = self.emulator.sources.loaded[extension]
        symbols = _kernel_symbols(extension, {kernel.name for kernel in loaded.kernels})
        templates = {kernel.name for kernel in loaded.kernels if kernel.template >= 0}
        instances = [name for name in symbols if _last(name) in templates and not _NOT_IN_SOURCE.search(name)]
        made: dict[str, Compiled] = {}
        for text in texts:
            own = [name for name in instances if re.search(rf"\b{re.escape(_last(name))}\b", text)]
            found = self.nvcc.kernels(text, own, flags)
            found = self.nvcc.unit(text, flags, loaded.name) if found is None else found
            made.update((name_and_parameters(one.signature)[0], one) for one in found)
        self.compiled[extension] = made
        base = toolchain.base_of(extension)
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
            extension, name = self.names.get(one.address) or self._deduced(one)
            compiled = self.compiled.get(extension, {}).get(name)
            if compiled is not None:
                launched = Launched(name, one.threads, one.dynamic_shared_bytes, compiled)
                found[launched] = None
        return list(found)

    def _deduced(self, launch: Configuration) -> tuple[str, str]:
        """The instance of a launch that leaves template arguments to be deduced, where its pointers leave one only."""
        meant = [
            (file, name)
            for file, made in self.compiled.items()
            for name, compiled in made.items()
            if _last(name) == _last(launch.name) and _takes(compiled.signature, launch.types)
        ]
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
        name, _ = name_and_parameters(signature)
        for ours, cudas in _NAMES_OF_TYPES.items():
            name = name.replace(ours, cudas)
        if _last(name) in kernels:
            found[name] = offset
    return found


def _takes(signature: str, types: Sequence[str]) -> bool:
    """Whether a kernel's pointers are to these types."""
    _, inside = name_and_parameters(signature)
    parameters = ["".join(token.text for token in part) for part in split(tokenize(inside))]
    wanted = (_TYPES.get(name, name) for name in types)
    return all(re.search(rf"\b{name}\b", given) for given, name in zip(parameters, wanted, strict=False) if name)


def _last(name: str) -> str:
    """`softmax` of `ns::softmax<float, 256>`."""
    return name.partition("<")[0].split("::")[-1].strip()
