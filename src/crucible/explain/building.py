"""Findings about what does not build, import or start."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from crucible.explain.source import line_text, plain_strings_with_doubled_braces
from crucible.judge.verdict.evidence import Finding
from crucible.judge.verdict.verdict import DoesNotBuild, DoesNotImport, Raises, Verdict
from crucible.run import Run
from crucible.syntax import tree_of


@dataclass(frozen=True)
class _Cause:
    """What an error of compiler, linker or Python usually comes from."""

    pattern: str
    claim: str
    """With the pattern's groups."""
    remedy: str
    confidence: str = "certain"


_BUILD = (
    _Cause(
        r"main\.cpp\W.*['‘\"](\w+)['’\"]\W.*(?:not declared|undefined)",
        "the binding of `{0}` finds no declaration: it is in `functions` and not in `cpp_sources`",
        "declare `{0}` in cpp_sources as it is defined in cuda_sources, or take it out of functions=[...]; the build "
        "stops at 1 undeclared binding",
    ),
    _Cause(
        r"([\w./+-]+\.(?:h|hpp|cuh|hh|inl)): No such file|cannot open source file \"([^\"]+)\"",
        "a header is missing: `{0}`",
        "take out the #include of 1 header, or give its folder in extra_include_paths",
    ),
    _Cause(
        r"[Uu]nsupported gpu architecture ['‘](\w+)|((?:sm|compute)_\d+\w*)['’]? is not (?:a )?(?:supported|defined)",
        "it asks for an architecture that this compiler does not know: `{0}`",
        "leave -arch and -gencode to PyTorch, or name the GPU's own architecture (the run's `gpu`)",
    ),
    _Cause(
        r"['‘](.+?)['’] requires? .*?(sm_\d+\w*)|(?:Instruction|Feature) '([^']+)' (?:requires|not supported)",
        "it uses `{0}`, which the GPU's architecture does not have",
        "put it behind `#if __CUDA_ARCH__ >= ...` with another way for this GPU",
    ),
    _Cause(
        r"uses too much shared data \((0x[0-9a-f]+) bytes, (0x[0-9a-f]+) max",
        "a kernel has {0} bytes of static shared memory; {1} are allowed",
        "make the tile smaller, or use dynamic shared memory with cudaFuncSetAttribute",
    ),
    _Cause(
        r"no (?:matching function for call to|instance of (?:overloaded )?function) ['‘\"](?:\w+::)*(\w+)",
        "no form of `{0}` takes these arguments",
        "give it arguments of a type that CUDA has an overload for",
    ),
    _Cause(
        r"['‘]([A-Z][A-Z0-9_]+)['’] was not declared|identifier \"([A-Z][A-Z0-9_]+)\" is undefined",
        "the macro or constant `{0}` is not defined",
        "define it in the source, as in `#define {0} 256` or `constexpr int {0} = 256;`, or fill it in from Python",
    ),
    _Cause(
        r"['‘](\w+)['’] was not declared|identifier \"(\w+)\" is undefined",
        "the name `{0}` is not defined where it is used",
        "declare `{0}` before that line, or correct its spelling",
    ),
    _Cause(
        r"undefined (?:reference to|symbol:?) [`'‘]?([\w:]+)",
        "`{0}` is declared and used, and defined nowhere",
        "define it with the signature that it was declared with, in cuda_sources for what launches kernels",
    ),
    _Cause(
        r"multiple definition of [`'‘]?([\w:]+)",
        "`{0}` is defined twice",
        "leave one of the 2 definitions: cpp_sources needs the declaration alone",
    ),
    _Cause(
        r"main\.cpp\W",
        "the bindings do not compile: a declaration in cpp_sources does not go with `functions` or with its definition",
        "make the signatures in cpp_sources those of cuda_sources, to the letter",
        "likely",
    ),
    _Cause(
        r"expected (.+)$",
        "a syntax error: the compiler expected {0}",
        "correct that line or the one before it: 1 error stops the build",
    ),
)
_IMPORT = (
    _Cause(
        r"No module named ['‘]([\w.]+)",
        "it imports `{0}`, which is not installed here",
        "take out the import, or install it",
    ),
    _Cause(
        r"construction: .*(?:takes|missing|unexpected) .*argument",
        "ModelNew cannot be constructed with the reference's get_init_inputs()",
        "give ModelNew.__init__ the parameters of the reference's Model.__init__, in their order",
    ),
    _Cause(r"syntax error", "the file is no Python: a syntax error", "correct that line; nothing else was looked at"),
    _Cause(
        r"the answer |code blocks? (?:defines|does not define)",
        "the answer holds no module that could be judged",
        "end it with one code block that defines ModelNew, and close its fence",
    ),
    _Cause(r"empty|holds no code", "the file holds no code", "write a class ModelNew: 0 were found"),
    _Cause(
        r"no (?:class )?ModelNew|defines no",
        "the file defines no class ModelNew",
        "name the module ModelNew: 0 were found",
    ),
)
_RAISED = (
    _Cause(
        r"expected scalar type (\w+) but found (\w+)",
        "it takes {0} tensors alone, and was given {1}",
        "choose the kernel by the tensor's dtype (AT_DISPATCH_FLOATING_TYPES_AND2), or use a contract of {0}",
    ),
    _Cause(
        r"written for (\w+), got (\w+)",
        "it takes {0} tensors alone, and was given {1}",
        "choose the kernel by the tensor's dtype, or judge it under a contract of {0}",
    ),
    _Cause(
        r"(?:size|shape)s? .*(?:mismatch|must match|cannot be multiplied|invalid for input)",
        "tensors do not fit together",
        "compare the shapes in that line with the reference's",
    ),
)


def why_it_does_not_build(verdict: Verdict, run: Run) -> Iterator[Finding]:
    """The compiler's first error in the candidate's own lines, with its usual cause."""
    outcome = verdict.outcome
    if not isinstance(outcome, DoesNotBuild):
        return
    source = run.sources.get(verdict.candidate, "")
    found = [*_doubled_braces(source, outcome), _compilers_error(source, outcome)]
    yield from found if _stumbles_over_braces(source, outcome) else reversed(found)


def _compilers_error(source: str, outcome: DoesNotBuild) -> Finding:
    cause, words = _recognised(_BUILD, outcome.message)
    claim = cause.claim.format(*words) if cause else "it does not compile"
    remedy = cause.remedy.format(*words) if cause else "correct that line: 1 error stops the build"
    if words[:1] == ["atomicMax"]:
        remedy = "compare floats as integers of their order (flip the bits of negative ones), or loop on atomicCAS"
    lone = _name_of_python(source, words[0]) if words else 0
    if lone and "not defined" in claim:
        claim += f"; it is a name of the Python file (line {lone}), which C++ does not see"
        remedy = f"fill it in (an f-string or str.replace), or pass -D{words[0]}=... in extra_cuda_cflags"
    evidence = _evidence(source, outcome.line, outcome.message)
    return Finding(claim, evidence, remedy, cause.confidence if cause else "certain", outcome.line)


def _doubled_braces(source: str, outcome: DoesNotBuild) -> Iterator[Finding]:
    line, doubled = plain_strings_with_doubled_braces(source)
    if doubled:
        yield Finding(
            "its CUDA string has the doubled braces of an f-string and is none",
            f"{doubled} times `{{{{` from line {line} on, and no single brace; {outcome.message}",
            f"put an f before the string, or take one of each 2 braces out ({doubled} pairs)",
            "certain" if _stumbles_over_braces(source, outcome) else "likely",
            line,
        )


def _stumbles_over_braces(source: str, outcome: DoesNotBuild) -> bool:
    """Two braces open a block within a block, which is often right; an error of syntax at them is not."""
    return "{{" in line_text(source, outcome.line) and "expected" in outcome.message


def why_it_does_not_import(verdict: Verdict, run: Run) -> Iterator[Finding]:
    """What Python said, with its usual cause."""
    outcome = verdict.outcome
    if not isinstance(outcome, DoesNotImport):
        return
    source = run.sources.get(verdict.candidate, "")
    cause, words = _recognised(_IMPORT, outcome.message)
    line = outcome.line or _syntax_error(source)
    yield Finding(
        cause.claim.format(*words) if cause else "importing or constructing it raises an exception",
        _evidence(source, line, outcome.message),
        cause.remedy.format(*words) if cause else "correct that line; nothing after it was looked at",
        line=line,
    )


def why_it_raises(verdict: Verdict, run: Run) -> Iterator[Finding]:
    """The exception of a forward or backward, with its line."""
    outcome = verdict.outcome
    if not isinstance(outcome, Raises):
        return
    source = run.sources.get(verdict.candidate, "")
    cause, words = _recognised(_RAISED, outcome.message)
    yield Finding(
        cause.claim.format(*words) if cause else f"its {outcome.stage} raises an exception",
        _evidence(source, outcome.line, outcome.message),
        cause.remedy.format(*words) if cause else f"correct that line; {outcome.stage} never returned",
        line=outcome.line,
    )


def _recognised(causes: tuple[_Cause, ...], message: str) -> tuple[_Cause | None, list[str]]:
    for cause in causes:
        found = re.search(cause.pattern, message)
        if found:
            return cause, [group for group in found.groups() if group] or [""]
    return None, []


def _evidence(source: str, line: int, message: str) -> str:
    text = line_text(source, line)
    return f"line {line}, `{text}`: {message}" if text else message


def _name_of_python(source: str, name: str) -> int:
    """The line that assigns a module-level name of the Python file; 0 where none does."""
    found = (
        re.search(rf"^{re.escape(name)}\s*(?::[^=\n]+)?=[^=]", source, re.MULTILINE) if name.isidentifier() else None
    )
    return source[: found.start()].count("\n") + 1 if found else 0


def _syntax_error(source: str) -> int:
    try:
        tree_of(source)
    except SyntaxError as error:
        return error.lineno or 0
    except (ValueError, RecursionError, MemoryError):
        return 0
    return 0
