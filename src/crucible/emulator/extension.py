"""load_inline and load as PyTorch has them, for kernels that run on the CPU."""

from __future__ import annotations

import ctypes
import hashlib
import importlib.machinery
import importlib.util
import json
import os
import re
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crucible.emulator import pretended, toolchain
from crucible.emulator.faults import Fault, NotCovered
from crucible.emulator.nvcc import Compiled
from crucible.emulator.places import Places
from crucible.emulator.rewrite import KernelText, Rewritten, loop_head, rewrite
from crucible.emulator.tokens import tokenize
from crucible.emulator.toolchain import BuildError, Toolchain
from crucible.emulator.trace import Seen, from_runtime
from crucible.gpus import DEFAULT, Gpu, known_gpu

if TYPE_CHECKING:
    from crucible.emulator.triton.watch import Watch  # brings NumPy

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
_OF_CUDA = re.compile(
    r"(?!__(?:shfl|shfl_up|shfl_down|shfl_xor|any|all|ballot)$)"  # gone since sm_70: nvcc refuses them
    r"(?:cuda[A-Z]\w*|cu[A-Z]\w*|(?:cublas|cudnn|cufft|curand|cusolver|cusparse|__)\w+)"
)
"""Names as CUDA and its libraries have them; whether nvcc knows such a one is not known here."""
SCHEDULES = {"forward": 0, "reverse": 1, "random": 2}


@dataclass
class _Loaded:
    """An extension whose functions can be called."""

    name: str
    kernels: tuple[KernelText, ...]
    globals: tuple[str, ...]
    texts: dict[str, list[str]]
    exports: dict[str, int]
    """Numbers of its functions, by name."""
    parts: tuple[str, ...] = ()
    """What `cuda.cu` was joined from."""
    called: bool = False
    """Since the last `forget`."""

    def files_of(self, kernel: KernelText) -> list[str]:
        """The source file that holds a kernel, by its name at its line; others where it stands there too."""
        own = slice(kernel.line - 1, kernel.line)
        return [name for name, lines in self.texts.items() if kernel.name in "".join(lines[own])]


@dataclass(frozen=True)
class Configuration:
    """One way in which a kernel was launched."""

    name: str
    """As the source has it at the launch."""
    address: int
    """0 where the launch leaves template arguments to be deduced."""
    threads: int
    """Of a block."""
    dynamic_shared_bytes: int
    types: tuple[str, ...]
    """Of what each argument points to, in words; empty for what is no pointer."""


@dataclass
class Emulator:
    """The runtime in this process."""

    tools: Toolchain
    native: types.ModuleType
    runtime: ctypes.CDLL
    loaded: dict[str, _Loaded] = field(default_factory=dict)
    """By file of the shared object."""
    written_in: Places | None = None
    """The Python file that the sources stand in as strings."""
    triton: Watch | None = None
    """Triton kernels, where this process interprets them."""

    def faults(self) -> tuple[Fault, ...]:
        """All faults since the last `forget`, kernels that never ran among them."""
        records = json.loads(self._text("crucible_faults"))
        found = [fault for fault in self._resolved(records) if fault is not None]
        of_triton = self.triton.faults() if self.triton else ()
        return (*found, *of_triton, *self.never_ran(), *self.never_reached())

    def forget(self) -> None:
        """Faults from now on only."""
        self.runtime.crucible_forget_faults()
        for loaded in self.loaded.values():
            loaded.called = False
        if self.triton:
            self.triton.forget()

    def schedule(self, order: str, seed: int = 1) -> None:
        """In which order blocks, threads and lanes run: `forward`, `reverse` or `random`."""
        self.runtime.crucible_set_schedule(SCHEDULES[order], ctypes.c_uint(seed))
        if self.triton:
            self.triton.order = (order, seed)

    def thread_limit(self, seconds: float) -> None:
        """Processor time after which a single thread counts as running for ever."""
        self.runtime.crucible_set_thread_limit(ctypes.c_double(seconds))

    @contextmanager
    def trace(self) -> Iterator[Seen]:
        """Counts accesses inside; what is given has them afterwards, also when a kernel failed."""
        self.runtime.crucible_trace(1)
        seen = Seen()
        try:
            yield seen
        finally:
            self.runtime.crucible_trace(0)
            seen.trace = from_runtime(json.loads(self._text("crucible_traced")), toolchain.places)

    def pretend(self, gpu: Gpu) -> None:
        """From here on launches are held to that GPU's limits, and CUDA's property calls answer as it."""
        pretended.fill(self.runtime, gpu)

    def know(self, address: int, compiled: Compiled) -> None:
        """What nvcc made of the kernel at an address: occupancy, attributes and launches follow it."""
        self.runtime.crucible_set_compiled(
            ctypes.c_void_p(address),
            compiled.registers,
            ctypes.c_uint64(compiled.static_shared_bytes),
            ctypes.c_uint64(compiled.stack_bytes),
        )

    def configurations(self) -> list[Configuration]:
        """How kernels were launched since the process began, each way once, the first one first."""
        rows = [line.split("\t", 5) for line in self._text("crucible_configurations").splitlines()]
        rows.sort(key=lambda row: int(row[0]))
        return [
            Configuration(name, int(at), int(threads), int(shared), tuple(types.split(",")))
            for _, at, threads, shared, types, name in rows
        ]

    def launched(self) -> set[str]:
        """Names of kernels launched since the last `forget`, without template arguments."""
        of_triton = self.triton.ran if self.triton else set()
        return of_triton | {_plain(name) for name in self._text("crucible_launched").splitlines()}

    def is_of_the_gpu(self, address: int) -> bool:
        """Whether an address is among the tensors, or in a gap between them."""
        return bool(self.runtime.crucible_is_allocation(ctypes.c_void_p(address)))

    def _text(self, function: str) -> str:
        pointer = getattr(self.runtime, function)()
        text: str = ctypes.string_at(pointer).decode(errors="replace")
        self.runtime.crucible_release_text(ctypes.c_void_p(pointer))
        return text

    def _resolved(self, records: list[dict[str, Any]]) -> list[Fault | None]:
        where: dict[tuple[str, int], tuple[str, int]] = {}
        for file in {record["file"] for record in records}:
            own = [record for record in records if record["file"] == file]
            pcs = {pc for record in own for pc in (record["pc"], record.get("other_pc", 0)) if pc}
            where.update({(file, pc): place for pc, place in toolchain.places(file, pcs).items()})
        return [self._fault(record, where) for record in records]

    def _fault(self, record: dict[str, Any], where: dict[tuple[str, int], tuple[str, int]]) -> Fault | None:
        file, line = where.get((record["file"], record["pc"]), ("", record["line"]))
        _, other_line = where.get((record["file"], record.get("other_pc", 0)), ("", 0))
        if (
            record["kind"] == "divergent-barrier"
            and line
            and line == other_line
            and "different barriers" in record["detail"]
        ):
            return None  # one barrier of the source that the compiler copied
        if not line:
            line = self._line_of_kernel(record["kernel"])
        if record["kind"] == "runaway-loop":
            line = self._loop_around(record["file"], file, line)
        fault = Fault(
            kind=record["kind"],
            kernel=record["kernel"],
            block=_triple(record["block"]),
            thread=_triple(record["thread"]),
            line=line,
            memory=record["memory"],
            detail=record["detail"],
            other_block=_triple(record["other_block"]) if "other_block" in record else None,
            other_thread=_triple(record["other_thread"]) if "other_thread" in record else None,
            other_line=other_line,
            count=record["count"],
            fatal=bool(record["fatal"]),
            file=file or "cuda.cu",
        )
        owner = self.loaded.get(record["file"]) or self._owner_of(record["kernel"])
        return self._placed(self._with_global_named(fault, record["file"]), owner)

    def _placed(self, fault: Fault, loaded: _Loaded | None) -> Fault:
        """With the lines of the Python file, where that is known."""
        if self.written_in is None or loaded is None or fault.file != "cuda.cu":
            return fault
        line, other = (self.written_in.line(loaded.parts, n) if n else 0 for n in (fault.line, fault.other_line))
        return replace(fault, python_line=line, other_python_line=other)

    def _line_of_kernel(self, name: str) -> int:
        """Where a kernel is defined, for faults that no single access stands for."""
        kernels = [kernel for loaded in self.loaded.values() for kernel in loaded.kernels if kernel.defined]
        return next((kernel.line for kernel in kernels if kernel.name == _plain(name)), 0)

    def _owner_of(self, name: str) -> _Loaded | None:
        """The extension with a kernel of that name, for faults that were seen after it had ended."""
        owners = (e for e in self.loaded.values() if any(kernel.name == _plain(name) for kernel in e.kernels))
        return next(owners, None)

    def _loop_around(self, extension: str, file: str, line: int) -> int:
        """The head of the innermost loop around a line: that is what does not end."""
        loaded = self.loaded.get(extension)
        return loop_head("\n".join(loaded.texts.get(file, [])), line) if loaded else line

    def _with_global_named(self, fault: Fault, file: str) -> Fault:
        """An index beyond a `__constant__` array is seen by its type alone; its name stands in the source."""
        loaded = self.loaded.get(file)
        if fault.kind != "out-of-bounds-local" or loaded is None or not fault.line:
            return fault
        text = loaded.texts.get(fault.file, [])
        here = text[fault.line - 1] if fault.line <= len(text) else ""
        name = next((name for name in loaded.globals if re.search(rf"\b{name}\s*\[", here)), None)
        return replace(fault, kind="out-of-bounds-global", memory=f"{fault.memory} `{name}`") if name else fault

    def never_ran(self, launched: set[str] | None = None) -> list[Fault]:
        """Kernels of extensions that were called which are neither in `launched` nor among those launched lately."""
        launched = self.launched() | (launched or set())
        of_triton = self.triton.never_ran(launched) if self.triton else []
        return of_triton + [
            self._placed(_never_ran(kernel), loaded)
            for loaded in self.loaded.values()
            if loaded.called
            for kernel in loaded.kernels
            if kernel.defined and kernel.name not in launched
        ]

    def never_reached(self, launched: set[str] | None = None) -> list[Fault]:
        """Barriers of kernels that ran, as in `never_ran`, to which no thread has come since the runtime was started.

        Nothing is said of a kernel that ended in a fault.
        """
        launched = self.launched() | (launched or set())
        ended = {_plain(record["kernel"]) for record in json.loads(self._text("crucible_faults")) if record["fatal"]}
        reached = set(self._text("crucible_reached").splitlines())
        words = "no thread ever came to this barrier"
        return [
            self._placed(
                Fault("never-reached", kernel.name, (0, 0, 0), (0, 0, 0), line, "", words, file=files[0]), loaded
            )
            for file, loaded in self.loaded.items()
            if loaded.called
            for kernel in loaded.kernels
            if kernel.name in launched - ended and (files := loaded.files_of(kernel))
            for line in kernel.barriers
            if not any(f"{file}|{text}:{line}" in reached for text in files)
        ]


_current: list[Emulator] = []


def start(tools: Toolchain | None = None) -> Emulator:
    """The runtime of this process, loaded on first use; from then on CPU tensors lie where it can see them.

    It pretends to be the default GPU until told otherwise.
    """
    if not _current:
        tools = tools or toolchain.prepare()
        loader = importlib.machinery.ExtensionFileLoader("crucible_emulator", str(tools.module))
        spec = importlib.util.spec_from_loader("crucible_emulator", loader)
        assert spec is not None
        flags = sys.getdlopenflags()
        sys.setdlopenflags(flags | os.RTLD_GLOBAL)
        try:
            native = importlib.util.module_from_spec(spec)
        finally:
            sys.setdlopenflags(flags)
        runtime = ctypes.CDLL(str(tools.module))
        for text in ("faults", "launched", "reached", "traced", "configurations"):
            getattr(runtime, f"crucible_{text}").restype = ctypes.c_void_p
        native.use_arena()
        emulator = Emulator(tools, native, runtime)
        emulator.pretend(known_gpu(DEFAULT))
        emulator.thread_limit(float(os.environ.get("CRUCIBLE_EMULATOR_THREAD_S", "10")))
        _current.append(emulator)
    return _current[0]


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
    _refuse(name, cpp, cuda, wanted)
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
    texts = {}
    for i, file in enumerate([sources] if isinstance(sources, str) else sources):
        text = Path(file).read_text(encoding="utf-8", errors="replace")
        anchor = f"crucible_anchor_{hashlib.sha256(name.encode()).hexdigest()[:8]}_{i}"
        rewritten = rewrite(text, anchor)
        kernels += rewritten.kernels
        globals_ += rewritten.globals
        texts[Path(file).name] = text.split("\n")
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
    kept = [flag for flag in flags if re.match(r"-[DIU]", flag)]
    if not out.exists():
        try:
            # Not as -D: a macro that the precompiled header looks at would have g++ throw the header away (7 s).
            named = f"#undef TORCH_EXTENSION_NAME\n#define TORCH_EXTENSION_NAME {name}\n"
            tools.compile({file: named + text for file, text in units.items()}, kept, out)
        except BuildError as error:
            raise _in_pytorchs_words(name, str(error)) from None
    if str(out) not in emulator.loaded:
        exports = emulator.native.load(str(out))
        emulator.loaded[str(out)] = _Loaded(name, rewritten.kernels, rewritten.globals, texts, exports, parts)
    loaded = emulator.loaded[str(out)]
    module = types.ModuleType(name)
    module.__file__ = str(out)
    for function, which in loaded.exports.items():
        setattr(module, function, _callable(emulator, loaded, function, which))
    return module


def _callable(emulator: Emulator, loaded: _Loaded, name: str, which: int) -> Callable[..., Any]:
    def call(*arguments: Any, **named: Any) -> Any:
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


def _never_ran(kernel: KernelText) -> Fault:
    return Fault("never-ran", kernel.name, (0, 0, 0), (0, 0, 0), kernel.line, "", "this kernel was never launched")


def _joined(sources: Any) -> str:
    return sources if isinstance(sources, str) else "\n".join(sources or [])


def _function_names(functions: Any) -> list[str] | None:
    if functions is None:
        return None
    return [functions] if isinstance(functions, str) else list(functions)


def _refuse(name: str, cpp: str, cuda: str, functions: list[str] | None) -> None:
    """What PyTorch's own build of `main.cpp` and `cuda.cu` would not get past. Raises RuntimeError in its words."""
    if functions is None:
        return
    names = {token.text for token in tokenize(cpp) if token.kind == "name"}
    for function in functions:
        if function not in names:
            line = cpp.count("\n") + 4
            raise _in_pytorchs_words(name, f"main.cpp:{line}:1: error: ‘{function}’ was not declared in this scope\n")
    if "PYBIND11_MODULE" in names:
        raise _in_pytorchs_words(name, f"main.cpp:1:1: error: redefinition of ‘PyObject* PyInit_{name}()’\n")
    if any(token.text == "PYBIND11_MODULE" for token in tokenize(cuda)):
        words = f"cuda.cuda.o: multiple definition of `PyInit_{name}'; main.o: first defined here\n"
        raise _in_pytorchs_words(name, f"{words}collect2: error: ld returned 1 exit status\n")


_CLANGS_WORDS = (
    (r"use of undeclared identifier '(\w+)'", r"‘\1’ was not declared in this scope"),
    (r"unknown type name '(\w+)'", r"‘\1’ does not name a type"),
    (r"no (?:\w+ )+named '(\w+)' in namespace '([\w:]+)'", r"‘\1’ is not a member of ‘\2’"),
    (r"fatal error: '([^']+)' file not found", r"fatal error: \1: No such file or directory"),
)


def _in_gccs_words(output: str) -> str:
    """What clang says of names, as g++ says it, which is the compiler that PyTorch calls."""
    for words, ours in _CLANGS_WORDS:
        output = re.sub(words, ours, output)
    return output


def _in_pytorchs_words(name: str, output: str) -> RuntimeError:
    output = _in_gccs_words(output)
    header = re.search(r"fatal error: (\S+): No such file", output)
    if header and re.match(r"(cu|ATen|c10|torch|nv|thrust|mma|sm_)", header[1]):
        raise NotCovered(f"header {header[1]}")
    unknown = re.search(
        r"‘(\w+)’ is not a member of ‘((?:cub|cooperative_groups|nvcuda|at::cuda|c10::cuda)\b[^’]*)’", output
    )
    if unknown:
        raise NotCovered(f"{unknown[2]}::{unknown[1]}")
    unknown_name = _unknown_name(output)
    if unknown_name:
        raise NotCovered(unknown_name)
    return RuntimeError(f"Error building extension '{name}': {output}")


def _unknown_name(output: str) -> str:
    """A name of PyTorch's or CUDA's that the first error is about, with its line; empty when it is about another."""
    first = re.search(r":(\d+):\d+: error: (.*)", output)
    if not first:
        return ""
    member = re.match(r"‘(\w+)’ is not a member of ‘((?:torch|at|c10)(?:::\w+)*)’", first[2])
    space = re.match(r"‘((?:torch|at|c10)(?:::\w+)*)::(\w+)’ has not been declared", first[2])
    found = (member[2], member[1]) if member else (space[1], space[2]) if space else None
    if found and toolchain.is_in_pytorchs_headers(found[1]):
        return f"{found[0]}::{found[1]}, line {first[1]}"
    cuda = re.match(r"‘(\w+)’ (?:was not declared in this scope|does not name a type)", first[2])
    return f"{cuda[1]}, line {first[1]}" if cuda and _OF_CUDA.fullmatch(cuda[1]) else ""


def _unit(file: str, text: str, anchor: str) -> str:
    return f'static const char {anchor} = 0;\n#line 1 "{file}"\n{text}\n'


def _units(cpp: str, cuda: Rewritten, functions: list[str] | None, anchor: str, has_cuda: bool) -> dict[str, str]:
    """One file where the C++ part only declares (half the time); otherwise two, as in PyTorch."""
    body = any(token.text == "{" for token in tokenize(cpp))
    if not has_cuda or body:
        main = rewrite(cpp, anchor).text
        exports = "".join(_export(function, f"&::{function}") for function in functions or ())
        units = {"main.cpp": _unit("main.cpp", main, anchor) + f'#line 1 "crucible_exports"\n{exports}'}
        if has_cuda:
            units["cuda.cpp"] = _unit("cuda.cu", cuda.text, anchor)
        return units
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


def _plain(name: str) -> str:
    return re.split(r"\s*<", name, maxsplit=1)[0].split("::")[-1].strip("() ")


def _triple(values: list[int]) -> tuple[int, int, int]:
    x, y, z = values
    return x, y, z
