"""Extensions as candidates build them: watched, compiled only where nothing can run, and sped up by a
precompiled `torch/extension.h`.
"""

from __future__ import annotations

import functools
import inspect
import os
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crucible import emulator
from crucible.emulator import nvcc
from crucible.emulator.resources import Resources
from crucible.emulator.session import Emulator
from crucible.emulator.toolchain import BuildError
from crucible.judge.worker import halved

MESSAGE_LIMIT = 20_000
MOST_BUILDS, LONGEST_NAME = 64, 1000


def shortened(text: str) -> str:
    """Both ends of a long text: a compiler's first error and its last words."""
    half = MESSAGE_LIMIT // 2
    return text if len(text) <= MESSAGE_LIMIT else f"{text[:half]}\n...\n{text[-half:]}"


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

    def __init__(self, compile_only: bool, emulated: Emulator | None = None, architecture: str = "") -> None:
        """Extensions go to the emulator where there is one, and to nvcc for `architecture` where nothing can run."""
        from torch.utils import cpp_extension

        self.builds: list[Build] = []
        self.compile_only = compile_only
        self.not_covered = ""
        """What the emulator does not know of the candidate's sources."""
        self.nvcc = nvcc.find(architecture, cpp_extension.COMMON_NVCC_FLAGS) if compile_only or emulated else None
        self.resources = Resources(emulated, self.nvcc) if emulated and self.nvcc else None
        """What nvcc says of the emulated kernels; None where it is not here."""
        real_inline, real_files = _loaders()
        if not compile_only and not emulated:
            halved.install()
        inline = functools.partial(_emulated, emulator.load_inline, real_inline) if emulated else real_inline
        files = functools.partial(_emulated, emulator.load, real_files) if emulated else real_files
        cpp_extension.load_inline = self._watched(inline, real_inline, _inline_cuda_texts)
        cpp_extension.load = self._watched(files, real_files, _file_cuda_texts)

    @property
    def compiled(self) -> bool:
        """Whether, on a machine that cannot run it, something compiled."""
        return self.compile_only and any(not build.error for build in self.builds)

    def _watched(
        self, build: Callable[..., Any], real: Callable[..., Any], cuda_texts: Callable[..., list[str]]
    ) -> Callable[..., Any]:
        def watched(*args: Any, **kwargs: Any) -> Any:
            start = time.monotonic()
            name = str(kwargs.get("name") or (args[0] if args else "?"))
            try:
                texts = cuda_texts(*args, **kwargs)
                built = None
                if not self.compile_only or not texts:
                    built = build(*args, **kwargs)
                if texts and self.nvcc:
                    flags = list(_named(real, args, kwargs).get("extra_cuda_cflags") or ())
                    self._compile(name, built, texts, flags)
            except emulator.NotCovered as error:
                self.not_covered = str(error)
                raise OutsideEmulator(str(error)) from None
            except Exception as error:
                self._record(name, time.monotonic() - start, f"{type(error).__name__}: {error}")
                raise
            self._record(name, time.monotonic() - start, "")
            if self.compile_only and texts:
                raise CompiledOnly(name)
            return built

        return watched

    def _record(self, name: str, seconds: float, error: str) -> None:
        """Of the first builds, both ends of what the compiler said: it may print without end."""
        if len(self.builds) < MOST_BUILDS:
            self.builds.append(Build(name[:LONGEST_NAME], seconds, shortened(error)))

    def _compile(self, name: str, built: Any, texts: list[str], flags: list[str]) -> None:
        """By nvcc, what the emulator has built or what nothing can run. Raises RuntimeError in PyTorch's words."""
        assert self.nvcc is not None
        try:
            if built is None:
                for text in texts:
                    self.nvcc.unit(text, flags, name)
            elif self.resources is not None:
                self.resources.compile(built.__file__, texts, flags)
        except BuildError as error:
            if built is None or not nvcc.lacks_header(str(error)):
                raise RuntimeError(f"Error building extension '{name}':\n{error}") from None


@functools.cache
def _loaders() -> tuple[Callable[..., Any], Callable[..., Any]]:
    """PyTorch's `load_inline` and `load`.

    Imported no sooner than a candidate's process runs: on a machine with CUDA the module asks at its import whether
    there is a GPU, and after that no fork of this process may use one.
    """
    from torch.utils import cpp_extension

    return cpp_extension.load_inline, cpp_extension.load


def _emulated(load: Callable[..., Any], real: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """On the emulator; `load_inline` without CUDA sources builds as ever, and its tensors are CPU tensors."""
    return load(**_named(real, args, kwargs))  # where that does not fit, in PyTorch's own TypeError


def _named(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    return dict(inspect.signature(function).bind(*args, **kwargs).arguments)


def precompile_header(folder: Path) -> None:
    """Compiles `torch/extension.h` into `folder`, with the flags of a plain `load_inline`.

    With `CPATH=folder`, g++ takes it for sources built with those flags and ignores it for others. Measured on 2
    cores: once 48 s; then 11 s for a `main.cpp` that takes 27 s without.
    """
    _precompile(folder, {"torch/extension.h": (("torch/extension.h",), ("",))})


def precompile_for_halves(folder: Path) -> None:
    """The same of what extensions that are built by halves include first: `torch/types.h` for host functions, without
    optimisation and with -O3, and what binds them to Python.

    Processor time: once 26, 19 and 21 s, side by side; then 2.7 to 3.7 s for host functions that take 9 to 11
    without, and 4.6 s for a binding that takes 20.
    """
    types = {"torch/types.h": (("torch/types.h",), ("", "-O3"))}
    _precompile(folder, {**types, halved.BINDING_HEADER: (halved.BINDING, ("",))})


def _precompile(folder: Path, headers: dict[str, tuple[tuple[str, ...], tuple[str, ...]]]) -> None:
    """Makes headers that include others, each for every one of some flags. Raises CalledProcessError."""
    from torch.utils import cpp_extension

    flags = plain_flags()
    torch_include = cpp_extension.include_paths("cpu")
    building = folder.with_name(f"{folder.name}.{os.getpid()}.building")
    shutil.rmtree(building, ignore_errors=True)
    commands = []
    for name, (included, every_flag) in headers.items():
        header = building / name
        header.parent.mkdir(parents=True, exist_ok=True)
        header.write_text("".join(f'#include "{_found(each, torch_include)}"\n' for each in included))
        made = building / f"{name}.gch"
        made.mkdir()  # g++ takes the one of its files that fits
        for flag in every_flag:
            command = [cpp_extension.get_cxx_compiler(), "-x", "c++-header", str(header), "-o", f"{made}/plain{flag}"]
            commands.append([*command, *flags, *filter(None, [flag])])
    with ThreadPoolExecutor(len(commands)) as pool:
        list(pool.map(lambda command: subprocess.run(command, check=True, capture_output=True), commands))
    building.rename(folder)


class _Written(BaseException):
    """PyTorch has written what it would build."""


def plain_flags() -> list[str]:
    """What g++ is told for a plain `load_inline`, by the file that this PyTorch writes: a precompiled header counts for
    the very same macros and standard alone."""
    from torch.utils import cpp_extension

    def stop(build_directory: str, verbose: bool, error_prefix: str) -> None:
        raise _Written

    real = cpp_extension._run_ninja_build
    cpp_extension._run_ninja_build = stop
    with tempfile.TemporaryDirectory() as folder:
        try:
            cpp_extension.load_inline("plain", "", functions=[], build_directory=folder)
        except _Written:
            text = Path(folder, "build.ninja").read_text(encoding="utf-8")
        finally:
            cpp_extension._run_ninja_build = real
    line = next(line for line in text.splitlines() if line.startswith("cflags = "))
    words = shlex.split(line.removeprefix("cflags = ").replace("$$", "$"))
    return [word for word in words if not word.startswith("-DTORCH_EXTENSION_NAME=")]


def _found(header: str, folders: list[str]) -> Path:
    """By its whole path, since a header of this name stands in front of it."""
    return next(path for folder in folders if (path := Path(folder, header)).exists())


def _inline_cuda_texts(
    name: str, cpp_sources: Any = None, cuda_sources: Any = None, *_: Any, **options: Any
) -> list[str]:
    """The unit that `load_inline` makes of its sources, with their own line numbers."""
    sources = [cuda_sources] if isinstance(cuda_sources, str) else list(cuda_sources or [])
    headers = [] if options.get("no_implicit_headers") else ["torch/types.h", "cuda.h", "cuda_runtime.h"]
    return ["\n".join([*(f"#include <{h}>" for h in headers), '#line 1 "cuda.cu"', *sources])] if sources else []


def _file_cuda_texts(name: str, sources: Any = (), *_: Any, **options: Any) -> list[str]:
    files = [Path(file) for file in ([sources] if isinstance(sources, str) else sources)]
    return [f'#line 1 "{file.name}"\n{file.read_text(errors="replace")}' for file in files if file.suffix == ".cu"]
