"""CUDA extensions built by halves: kernels by nvcc, host functions by g++ beside it, for PyTorch's own `ninja` run.

A unit with `torch/types.h` takes nvcc 32 s, its halves 5 and 10 (`emulator/halves.py` says when they are the same).
PyTorch has written `build.ninja` with the candidate's flags by then: the halves are built by that file, changed in
three lines. Whatever does not go through is built whole, by PyTorch's file as it was, so that a failure is the
compiler's own words on the candidate's own lines.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crucible.emulator.halves import Halves, halves, unmet
from crucible.emulator.nvcc import demangled
from crucible.emulator.tokens import tokenize

_FOR_NVCC_ALONE = re.compile(
    r"-{1,2}(gencode|generate-code|arch|gpu-architecture|code|gpu-code)=.*|-{1,2}use_fast_math|-{1,2}(lineinfo|generate-line-info)"
    r"|-{1,2}(expt-relaxed-constexpr|expt-extended-lambda|extended-lambda)|-{1,2}(fmad|ftz|prec-div|prec-sqrt|maxrregcount|threads|split-compile)=.*"
    r"|-{1,2}ptxas-options=.*|-Xptxas=.*|-t=?\d+"
)
_WITH_A_VALUE = {"-gencode", "--generate-code", "-arch", "--gpu-architecture", "-code", "-Xptxas", "--ptxas-options",
                 "-maxrregcount", "--maxrregcount", "-ccbin", "--threads", "-t", "-fmad", "--fmad"}  # fmt: skip
_GCC = re.compile(r"(.*/)?([\w-]+-)?(gcc|g\+\+|cc|c\+\+)(-\d+)?")
"""What `-ccbin` may name: PyTorch hands `CC` on, and g++ builds the host's half whichever of them it is."""
_HOST_OPTIONS = {"-Xcompiler", "--compiler-options"}
_FOR_BOTH = re.compile(r"-[DU]\w.*|-I.+|-{1,2}std=c\+\+\d\w|-O[0-3]")
_FOR_THE_HOST = re.compile(r"-fPIC|-O[0-3]|-W[\w-]*|-fno-strict-aliasing")
WHY_WHOLE = "why_whole.txt"
BINDING_HEADER = "crucible_binding.h"
"""Includes those that follow, and is precompiled."""
BINDING = ("torch/types.h", "torch/csrc/utils/pybind.h", "torch/csrc/Exceptions.h")
_CONVERTED = {"torch::Tensor", "at::Tensor", "c10::optional", "torch::optional", "std::optional", "std::vector",
              "std::tuple", "std::pair", "std::string", "std::array"}  # fmt: skip
_KEEP_TEMPLATES = "-static-global-template-stub=false"
"""From nvcc 12.8 on templates' instances are their file's alone unless it is told this; before they never were, and it
does not know the word: then it is the whole that is built."""


@dataclass(frozen=True)
class _Plan:
    """What PyTorch's `build.ninja` becomes."""

    halves: Halves
    text: str
    host: Path
    device: Path
    binding: Path
    binding_text: str


def install() -> None:
    """From here on `load` and `load_inline` of this process build by halves where they may."""
    from torch.utils import cpp_extension

    real: Any = getattr(cpp_extension, "_run_ninja_build", None)
    if real is None:
        return

    def build(build_directory: str, verbose: bool, error_prefix: str) -> None:
        folder = Path(build_directory)
        if not _built(folder):
            real(build_directory, verbose, error_prefix)

    cpp_extension._run_ninja_build = build


def _built(folder: Path) -> bool:
    """Whether the extension in this folder was built by halves; else the folder is as PyTorch left it, but for what
    both ways have in common."""
    file = folder / "build.ninja"
    try:
        text = file.read_text(encoding="utf-8")
        plan = _planned(folder, text)
    except (OSError, ValueError, LookupError) as error:
        plan = f"{type(error).__name__}: {error}"
    if isinstance(plan, str):
        return _whole(folder, plan)
    why = "a half does not build, or what one lacks the other has not"
    try:
        plan.host.write_text(plan.halves.host, encoding="utf-8")
        plan.device.write_text(plan.halves.device, encoding="utf-8")
        plan.binding.write_text(plan.binding_text, encoding="utf-8")
        file.write_text(plan.text, encoding="utf-8")
        command = ["ninja", "-j", "3"]
        done = subprocess.run(command, cwd=folder, capture_output=True, check=False)
        if done.returncode == 0 and not _unmet(plan.halves, folder):
            return True
    except (OSError, subprocess.SubprocessError) as error:
        why = f"{type(error).__name__}: {error}"
    finally:
        file.write_text(text, encoding="utf-8")
    for made in (*folder.glob("*.o"), *folder.glob("*.so")):
        made.unlink()
    return _whole(folder, why)


def _whole(folder: Path, why: str) -> bool:
    """Leaves word of why it was not built by halves, for whoever wonders where the seconds go."""
    with contextlib.suppress(OSError):
        (folder / WHY_WHOLE).write_text(why, encoding="utf-8", errors="replace")
    return False


def _planned(folder: Path, text: str) -> _Plan | str:
    """Why not, in words, where it is not one CUDA source beside one of C++ as `load_inline` writes them, or a flag is
    not known."""
    main = re.search(r"^build main\.o: compile (\S+)$", text, re.MULTILINE)
    edge = re.search(r"^build cuda\.cuda\.o: cuda_compile (\S+)$", text, re.MULTILINE)
    link = re.search(r"^build (\S+\.so): link (main\.o cuda\.cuda\.o)$", text, re.MULTILINE)
    flags = re.findall(r"^(cuda_cflags|cuda_post_cflags) = (.*)$", text, re.MULTILINE)
    if not main or not edge or not link or len(flags) != 2 or Path(edge[1]) != folder / "cuda.cu":
        return "not one CUDA source beside one of C++"
    try:
        host_flags = for_the_host([word for _, line in flags for word in shlex.split(line.replace("$$", "$"))])
    except LookupError as unknown:
        return f"a flag of nvcc's that is not known here: {unknown.args[0]}"
    unit = folder / "cuda.cu"
    two = halves(unit.read_text(encoding="utf-8"), str(unit))
    if two is None:
        return "its source cannot be divided"
    host, device, binding = folder / "host.cpp", folder / "device.cu", folder / "binding.cpp"
    more = f"\n  cuda_post_cflags = $cuda_post_cflags {_KEEP_TEMPLATES}" if two.templates else ""
    flags_line = shlex.join(host_flags).replace("$", "$$")
    new = text.replace(edge[0], f"build cuda.cuda.o: cuda_compile {device}{more}")
    new = new.replace(
        link[0], f"build host.o: compile {host}\n  cflags = {flags_line}\n  post_cflags =\n\n{link[0]} host.o"
    )
    new = new.replace(main[0], f"build main.o: compile {binding}")
    return _Plan(two, new, host, device, binding, bound(Path(main[1]).read_text(encoding="utf-8")))


def bound(text: str) -> str:
    """The unit that binds functions to Python, with three headers for all of PyTorch's where its functions take and
    give nothing but what those can convert; else as it is.

    All of them hold 8 s of code that g++ compiles into each extension, precompiled or not; the three hold 2.
    """
    implicit = "#include <torch/extension.h>\n"
    declared, _, _ = text.removeprefix(implicit).partition("PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {")
    if not text.startswith(implicit) or re.search(r"[#{]", declared) or not _CONVERTED.issuperset(_types(declared)):
        return text
    headers = [BINDING_HEADER] if precompiled(BINDING_HEADER) else BINDING
    return "".join(f"#include <{header}>\n" for header in headers) + text.removeprefix(implicit)


def precompiled(header: str) -> bool:
    """Whether there is one of that name where compilers look first."""
    return any(Path(folder, f"{header}.gch").exists() for folder in os.environ.get("CPATH", "").split(os.pathsep))


def _types(declared: str) -> set[str]:
    """All qualified names, and words that stand for more than themselves."""
    tokens = [token.text for token in tokenize(declared) if token.matters]
    qualified = {f"{a}::{c}" for a, b, c in zip(tokens, tokens[1:], tokens[2:], strict=False) if b == "::"}
    return qualified | {
        word for word in tokens if word in ("using", "namespace", "struct", "class", "template", "auto")
    }


def for_the_host(flags: Sequence[str]) -> list[str]:
    """Of nvcc's flags, what it hands on to the host's compiler. Raises LookupError with one that is not known."""
    found: list[str] = []
    words = iter(flags)
    for word in words:
        if word in _HOST_OPTIONS or word.startswith(("-Xcompiler=", "--compiler-options=")):
            value = next(words, "") if word in _HOST_OPTIONS else word.partition("=")[2]
            options = value.strip("'\"").split(",")
            if not all(_FOR_THE_HOST.fullmatch(option) for option in options):
                raise LookupError(f"{word} {value}")
            found += options
        elif word in _WITH_A_VALUE:
            value = next(words, "")
            if not value or (word == "-ccbin" and not _GCC.fullmatch(value)):
                raise LookupError(f"{word} {value}")
        elif word in ("-isystem", "-D", "-U", "-I"):
            found += [word, next(words, "")]
        elif _FOR_BOTH.fullmatch(word):
            found.append(word.replace("--std", "-std"))
        elif not _FOR_NVCC_ALONE.fullmatch(word):
            raise LookupError(word)
    return found


def _unmet(two: Halves, folder: Path) -> bool:
    wanted, defined = _symbols(folder / "host.o", "-u"), _symbols(folder / "cuda.cuda.o", "--defined-only", "-g")
    names = dict(zip(wanted, demangled(wanted), strict=True))
    return bool(unmet(two, wanted, defined, names))


def _symbols(file: Path, *which: str) -> list[str]:
    done = subprocess.run(["nm", *which, str(file)], capture_output=True, text=True, check=True)
    return [line.split()[-1] for line in done.stdout.splitlines() if line.strip()]
