"""load_inline and load as PyTorch has them, for kernels that run on the CPU."""

from __future__ import annotations

import hashlib
import os
import re
import types
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from crucible.emulator import kept, recording, toolchain
from crucible.emulator.includes import inlined
from crucible.emulator.kernel_texts import KernelText
from crucible.emulator.refusals import in_pytorchs_words, refuse
from crucible.emulator.rewrite import Rewritten, rewrite
from crucible.emulator.session import Emulator, start
from crucible.emulator.sources import Loaded
from crucible.emulator.tokens import tokenize
from crucible.emulator.toolchain import HOST, BuildError, Toolchain

_ERRORS = {
    1: "invalid argument",
    9: "invalid configuration argument",
    700: "an illegal memory access was encountered",
    701: "too many resources requested for launch",
    702: "the launch timed out and was terminated",
    710: "device-side assert triggered",
    716: "misaligned address",
    719: "unspecified launch failure",
    720: "too many blocks in cooperative launch",
}


def build_inline(
    name: str,
    cpp_sources: Any,
    cuda_sources: Any = None,
    functions: Any = None,
    flags: Sequence[str] = (),
    *,
    checked: bool = True,
) -> types.ModuleType:
    """What `load_inline` does. Raises RuntimeError in PyTorch's words when it does not build, or NotCovered."""
    emulator = start()
    cpp, cuda = _joined(cpp_sources), _joined(cuda_sources)
    wanted = _function_names(functions)
    refuse(name, cpp, cuda, wanted)
    anchor = f"crucible_anchor_{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    rewritten = rewrite(cuda, anchor)
    units = _units(cpp, rewritten, wanted, anchor, bool(cuda))
    texts = {"main.cpp": cpp.split("\n"), **_texts(cuda)}
    tools = emulator.tools if checked else toolchain.prepare(checked=False)
    parts = (cuda_sources,) if isinstance(cuda_sources, str) else tuple(cuda_sources or ())
    return _built(emulator, tools, name, units, flags, rewritten, texts, parts)


def build_files(name: str, sources: Any, flags: Sequence[str] = ()) -> types.ModuleType:
    """What `load` does with `.cu` and `.cpp` files that hold a PYBIND11_MODULE."""
    emulator = start()
    units: dict[str, str] = {}
    kernels: tuple[KernelText, ...] = ()
    globals_: tuple[str, ...] = ()
    texts: dict[str, list[str]] = {}
    for i, file in enumerate([sources] if isinstance(sources, str) else sources):
        own = Path(file).read_text(encoding="utf-8", errors="replace")
        text = inlined(own, Path(file).parent, Path(file).name)
        anchor = f"crucible_anchor_{hashlib.sha256(name.encode()).hexdigest()[:8]}_{i}"
        rewritten = rewrite(text, anchor)
        kernels += rewritten.kernels
        globals_ += rewritten.globals
        texts |= _texts(text) | {Path(file).name: own.split("\n")}
        units[f"{i}.cpp"] = _unit(Path(file).name, rewritten.text, anchor)
    return _built(emulator, emulator.tools, name, units, flags, Rewritten("", kernels, globals_), texts)


def _built(
    emulator: Emulator,
    tools: Toolchain,
    name: str,
    units: dict[str, str],
    flags: Sequence[str],
    rewritten: Rewritten,
    texts: dict[str, list[str]],
    parts: tuple[str, ...] = (),
) -> types.ModuleType:
    out = _place(tools, [*units.items(), *flags, name, tools.checked])
    file = next((file for file in (str(out), str(_lean(out))) if file in emulator.sources.loaded), "")
    if not file:
        file, exports = _compiled(emulator, tools, name, units, flags, out)
        kept.asked_for(Path(file))
        emulator.sources.loaded[file] = Loaded(name, rewritten.kernels, rewritten.globals, texts, exports, parts)
    loaded = emulator.sources.loaded[file]
    module = types.ModuleType(name)
    module.__file__ = file
    for function, which in loaded.exports.items():
        setattr(module, function, _callable(emulator, loaded, function, which))
    return module


def _compiled(
    emulator: Emulator, tools: Toolchain, name: str, units: dict[str, str], flags: Sequence[str], out: Path
) -> tuple[str, dict[str, int]]:
    """Where it lies, built and loaded, and its exports. Raises RuntimeError in PyTorch's words."""
    told = [flag for flag in flags if re.match(r"-[DIU]", flag)]
    # Not as -D: a macro that the precompiled header looks at would have g++ throw the header away (7 s).
    named = f"#undef TORCH_EXTENSION_NAME\n#define TORCH_EXTENSION_NAME {name}\n"
    texts = {file: named + text for file, text in units.items()}
    if tools.leaner and not out.exists():
        with suppress(BuildError, ImportError):  # it needs more of PyTorch, or nothing can build it
            lean = _lean(out)
            if not lean.exists():
                tools.leaner.compile(texts, told, lean)
            return str(lean), emulator.native.load(str(lean))
    if not out.exists():
        try:
            toolchain.complete(tools)
            tools.compile(texts, told, out)
        except BuildError as error:
            raise in_pytorchs_words(name, str(error)) from None
    return str(out), emulator.native.load(str(out))


def _lean(out: Path) -> Path:
    """The same, built against PyTorch's tensors alone."""
    return out.with_stem(f"{out.stem}_lean")


def _callable(emulator: Emulator, loaded: Loaded, name: str, which: int) -> Callable[..., Any]:
    def call(*arguments: Any, **named: Any) -> Any:
        if recording.current:
            return recording.current[-1](run, arguments, named)
        result = run(*arguments, **named)
        for look in recording.watched:
            look((arguments, named), result, name)
        return result

    def run(*arguments: Any, **named: Any) -> Any:
        loaded.called = True
        result, pending = emulator.native.call(which, (*arguments, *named.values()))
        if pending:
            raise RuntimeError(f"CUDA error: {_ERRORS.get(pending, f'error {pending}')}{_fatal_words(emulator)}")
        return result

    call.__name__ = call.__qualname__ = name
    call.__doc__ = name
    return call


def _fatal_words(emulator: Emulator) -> str:
    """The last fault that ended a kernel, on lines of its own."""
    fatal = [fault for fault in emulator.faults() if fault.fatal]
    return f"\n{fatal[-1].words}" if fatal else ""


def _place(tools: Toolchain, parts: list[Any]) -> Path:
    """Where an extension is kept: beside the headers, or, where that is read-only, in a temporary folder."""
    key = hashlib.sha256(repr(parts).encode()).hexdigest()[:24]
    kept = tools.folder / "extensions" / f"{key}.so"
    if kept.exists() or os.access(tools.folder, os.W_OK):
        try:
            kept.parent.mkdir(exist_ok=True)
            probe = kept.parent / f".{os.getpid()}"
            probe.touch()
            probe.unlink()
            return kept
        except OSError:
            if kept.exists():
                return kept
    return Path(os.environ.get("TMPDIR", "/tmp")) / "crucible-extensions" / f"{key}.so"


def _texts(cuda: str) -> dict[str, list[str]]:
    """Lines by file name, as `#line 1 "name"` divides a source; `cuda.cu` is the whole."""
    parts = re.split(r'^#line 1 "([^"]+)"\n', cuda, flags=re.MULTILINE)
    named = dict(zip(parts[1::2], (text.split("\n") for text in parts[2::2]), strict=True))
    return {"cuda.cu": cuda.split("\n"), **named}


def _joined(sources: Any) -> str:
    return sources if isinstance(sources, str) else "\n".join(sources or [])


def _function_names(functions: Any) -> list[str] | None:
    if functions is None:
        return None
    return [functions] if isinstance(functions, str) else list(functions)


def _unit(file: str, text: str, anchor: str) -> str:
    return f'static const char {anchor} = 0;\n#line 1 "{file}"\n{text}\n'


def _units(cpp: str, cuda: Rewritten, functions: list[str] | None, anchor: str, has_cuda: bool) -> dict[str, str]:
    """One file where the C++ part only declares (half the time); otherwise two, as in PyTorch."""
    body = any(token.text == "{" for token in tokenize(cpp))
    if not has_cuda or body:
        main = rewrite(cpp, anchor).text
        exports = "".join(_export(function, f"&::{function}") for function in functions or ())
        kernels = {"cuda.cpp": _unit("cuda.cu", cuda.text, anchor)} if has_cuda else {}
        return {**kernels, HOST: _unit(HOST, main, anchor) + f'#line 1 "crucible_exports"\n{exports}'}
    declared: list[str] = []
    hoisted: list[str] = []
    for line in rewrite(cpp, anchor).text.split("\n"):
        (hoisted if line.lstrip().startswith("#") else declared).append(line)
    exports = "".join(_export(f, f"static_cast<decltype(&crucible_declared::{f})>(&::{f})") for f in functions or ())
    tail = "\n".join([*hoisted, "namespace crucible_declared {", '#line 1 "main.cpp"', *declared, "}", exports])
    return {"cuda.cpp": _unit("cuda.cu", cuda.text, anchor) + f'#line 1 "crucible_exports"\n{tail}\n'}


def _export(name: str, function: str) -> str:
    kind = f"::crucible::Export<{function}>"
    return f'static const ::crucible::Exporter crucible_export_{name}("{name}", &{kind}::call, {kind}::count);\n'
