"""Extensions as candidates build them: watched, compiled only where nothing can run, and sped up by a
precompiled `torch/extension.h`.
"""

from __future__ import annotations

import inspect
import shutil
import subprocess
import sysconfig
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch.utils import cpp_extension

from crucible import emulator

COMPILE_ONLY_ARCH = "90"
"""Compute capability for which CUDA sources are compiled on a machine that cannot run them (H100, H200)."""


class CompiledOnly(BaseException):
    """Raised in a candidate's import once its sources compiled on a machine that cannot run them.

    A BaseException, so that a candidate's own `except Exception` does not turn it into a fallback.
    """


class OutsideEmulator(BaseException):
    """Raised in a candidate's import when its sources use what the emulator does not know."""


@dataclass(frozen=True)
class Build:
    """One call of load or load_inline."""

    name: str
    seconds: float
    error: str
    """Empty when it built."""


class Watcher:
    """Wraps `load` and `load_inline` so that each call is on record, also where the candidate hides a failure."""

    def __init__(self, compile_only: bool, emulated: bool = False) -> None:
        self.builds: list[Build] = []
        self.compile_only = compile_only
        self.not_covered = ""
        """What the emulator does not know of the candidate's sources."""
        inline = _emulated_inline if emulated else cpp_extension.load_inline
        files = _emulated_load if emulated else cpp_extension.load
        cpp_extension.load_inline = self._watched(inline, _inline_cuda_text)
        cpp_extension.load = self._watched(files, _file_cuda_text)

    @property
    def compiled(self) -> bool:
        """Whether, on a machine that cannot run it, something compiled."""
        return self.compile_only and any(not build.error for build in self.builds)

    def _watched(self, build: Callable[..., Any], cuda_text: Callable[..., str]) -> Callable[..., Any]:
        def watched(*args: Any, **kwargs: Any) -> Any:
            start = time.monotonic()
            name = str(kwargs.get("name") or (args[0] if args else "?"))
            try:
                text = cuda_text(*args, **kwargs)
                if self.compile_only and text:
                    compile_cuda(text)
                built = None if self.compile_only and text else build(*args, **kwargs)
            except emulator.NotCovered as error:
                self.not_covered = str(error)
                raise OutsideEmulator(str(error)) from None
            except Exception as error:
                self.builds.append(Build(name, time.monotonic() - start, f"{type(error).__name__}: {error}"))
                raise
            self.builds.append(Build(name, time.monotonic() - start, ""))
            if self.compile_only and text:
                raise CompiledOnly(name)
            return built

        return watched


_real_inline, _real_load = cpp_extension.load_inline, cpp_extension.load


def _emulated_inline(*args: Any, **kwargs: Any) -> Any:
    """`load_inline` on the emulator; one without CUDA sources builds as ever, and its tensors are CPU tensors."""
    inspect.signature(_real_inline).bind(*args, **kwargs)  # raises PyTorch's own TypeError
    return emulator.load_inline(**_named(_real_inline, args, kwargs))


def _emulated_load(*args: Any, **kwargs: Any) -> Any:
    return emulator.load(**_named(_real_load, args, kwargs))


def _named(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    return dict(inspect.signature(function).bind(*args, **kwargs).arguments)


def compile_cuda(text: str) -> None:
    """Compiles CUDA source with nvcc as `load_inline` would, without linking. Raises RuntimeError like it."""
    folder = Path(cpp_extension._get_build_directory("compile_only", False))
    (folder / "cuda.cu").write_text(text)
    macros = folder / "c10/cuda/impl/cuda_cmake_macros.h"
    macros.parent.mkdir(parents=True, exist_ok=True)
    macros.write_text("#pragma once\n")  # PyTorch's CPU builds lack this generated header
    includes = [*cpp_extension.include_paths("cpu"), sysconfig.get_path("include"), str(folder)]
    command = [
        "nvcc",
        "-c",
        "cuda.cu",
        "-o",
        "cuda.o",
        "-std=c++20",
        "-Xcompiler",
        "-fPIC",
        "-DTORCH_EXTENSION_NAME=candidate",
    ]
    command += [f"-gencode=arch=compute_{COMPILE_ONLY_ARCH},code=sm_{COMPILE_ONLY_ARCH}"]
    command += cpp_extension.COMMON_NVCC_FLAGS + [part for path in includes for part in ("-isystem", path)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        raise RuntimeError(f"Error building extension 'compile_only':\n{done.stdout}{done.stderr}")


def precompile_header(folder: Path) -> None:
    """Compiles `torch/extension.h` into `folder`, with the flags of a plain `load_inline`.

    With `CPATH=folder`, g++ takes it for sources built with those flags and ignores it for others. Measured on 2
    cores: once 48 s; then 11 s for a `main.cpp` that takes 27 s without.
    """
    torch_include = cpp_extension.include_paths("cpu")
    building = folder.with_name(folder.name + ".building")
    shutil.rmtree(building, ignore_errors=True)
    header = building / "torch/extension.h"
    header.parent.mkdir(parents=True)
    header.write_text(f'#include "{torch_include[0]}/torch/extension.h"\n')
    command = [cpp_extension.get_cxx_compiler(), "-x", "c++-header", str(header), "-o", f"{header}.gch"]
    command += ["-DTORCH_API_INCLUDE_EXTENSION_H", "-fPIC", "-std=c++20"]
    command += [part for path in [*torch_include, sysconfig.get_path("include")] for part in ("-isystem", path)]
    subprocess.run(command, check=True, capture_output=True)
    building.rename(folder)


def _inline_cuda_text(name: str, cpp_sources: Any = None, cuda_sources: Any = None, *_: Any, **options: Any) -> str:
    sources = [cuda_sources] if isinstance(cuda_sources, str) else list(cuda_sources or [])
    headers = [] if options.get("no_implicit_headers") else ["torch/types.h", "cuda.h", "cuda_runtime.h"]
    return "\n".join([*(f"#include <{h}>" for h in headers), *sources]) if sources else ""


def _file_cuda_text(name: str, sources: Any = (), *_: Any, **options: Any) -> str:
    files = [sources] if isinstance(sources, str) else list(sources)
    return "\n".join(Path(file).read_text() for file in files if str(file).endswith(".cu"))
