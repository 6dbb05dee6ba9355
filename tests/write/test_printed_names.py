"""The printer gives names: tensors may be called as anything, and a kernel stays the same but for names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import pytest
from harness import Step, assert_close, built, expected, random_storages
from hypothesis import example, given, settings
from hypothesis import strategies as st
from layouts import with_leaves
from test_families import MULTIPROCESSORS, PROGRAMS
from test_pools import CASES

from crucible.algebra.expression import substitute
from crucible.algebra.program import Program
from crucible.kinds.pooling.backward import lower_pool_backward
from crucible.kinds.program.lower import build, lower
from crucible.print.cuda import printed
from crucible.print.names import KEYWORDS
from crucible.print.written import Lowered

KERNELS = ("rows of a block", "turned to channels last")
COMMENT = re.compile(r"//.*")
TYPE = r"(?:float|double|unsigned char|unsigned(?! char)|int|size_t|bool|Pack<[^>]*>)"
DECLARED = re.compile(rf"\b{TYPE}\*? (?:__restrict__ )?(\w+)")
USED = re.compile(r"\w+(?=[<(])|threadIdx|blockIdx")


def renamed(program: Program, names: Sequence[str]) -> Program:
    """With operands and results called so."""
    operands = tuple(replace(each, name=name) for each, name in zip(program.operands, names, strict=False))
    rest = names[len(operands) :]
    results = tuple(replace(each, name=name) for each, name in zip(program.results, rest, strict=False))
    leaves = {old.leaf: new.leaf for old, new in zip(program.operands, operands, strict=True)}
    return with_leaves(replace(program, operands=operands, results=results), leaves)


@cache
def words_of_kernels() -> tuple[str, ...]:
    """All that kernels call anything, and the language."""
    texts = [each.text for name in KERNELS for each in lower(PROGRAMS[name], MULTIPROCESSORS.get(name, 132)).kernels]
    words = {word for text in texts for word in re.findall(r"[A-Za-z_]\w*", COMMENT.sub("", text))}
    own = {each.name for name in KERNELS for each in PROGRAMS[name].reductions}  # which a program's names must not be
    return tuple(sorted((words | KEYWORDS | {"t", "EOF", "INFINITY", "NULL"}) - own))


hostile = st.lists(st.sampled_from(words_of_kernels()) | st.from_regex(r"[a-z][a-z_0-9]{0,6}", fullmatch=True),
                   min_size=4, max_size=4, unique=True)  # fmt: skip


def shadowed(text: str) -> set[str]:
    """Names that are declared where they are seen already, or where what is called or named by the language is."""
    scopes: list[set[str]] = [set()]
    found: set[str] = set()
    code = COMMENT.sub("", text)
    taken = KEYWORDS | set(USED.findall(code))
    for line in code.splitlines():
        opens = line.endswith("{")
        if line.strip().startswith("}"):
            scopes.pop()
        signature = "__restrict__" in line
        if opens and not signature:
            scopes.append(set())
        for name in DECLARED.findall(line):
            if name in taken or any(name in scope for scope in scopes):
                found.add(name)
            scopes[-1].add(name)
    return found


@pytest.mark.parametrize("name", KERNELS)
@given(names=hostile)
@example(names=["t", "row", "threadIdx", "j"])
@example(names=["column", "exp", "load", "int"])
@settings(max_examples=10, deadline=None)
def test_no_name_hides_another(name: str, names: list[str]) -> None:
    program = renamed(PROGRAMS[name], names)
    (one,) = build(program, MULTIPROCESSORS.get(name, 132)).kernels
    body = printed(one).text
    assert len(DECLARED.findall(body)) > 10
    assert shadowed(body) == set()


@pytest.mark.parametrize("names", [("t", "threadIdx"), ("item", "in_w"), ("choice", "taken"), ("int", "best")])
def test_nor_in_a_pool(names: tuple[str, str]) -> None:
    pool = CASES["padded2d"].pool
    operands = tuple(replace(each, name=name) for each, name in zip(pool.operands, names, strict=True))
    leaves = {old.leaf: new.leaf for old, new in zip(pool.operands, operands, strict=True)}
    hard = replace(pool, operands=operands, before=substitute(pool.before, leaves))
    steps = lower_pool_backward(hard, names, "grad_out", ()).steps
    kernels = [kernel for each in steps if isinstance(each, Lowered) for kernel in each.kernels]
    assert len(kernels) == 2
    for text in (kernel.text for kernel in kernels):
        assert len(DECLARED.findall(text)) > 10
        assert shadowed(text) == set()


def test_a_hidden_name_is_seen() -> None:
    text = "void f(float* __restrict__ x) {\n    const int i = g(x);\n    {\n        const float i = 1.0f;\n    }\n}"
    assert shadowed(text) == {"i"}
    assert shadowed(text.replace("float i", "float g")) == {"g"}
    assert shadowed(text.replace("float i", "float j")) == set()


@pytest.mark.slow
def test_kernels_of_such_tensors_compute_the_same(no_faults: object) -> None:
    """Through a compiler, which reads what a name hides as it is."""
    words = iter(["t", "threadIdx", "int", "errno", "x_row", "parts", "EOF", "load", "sum_over_block", "row", "expf",
                  "column", "Pack", "class", "k", "vector"])  # fmt: skip
    steps = {}
    for name in ("rows of a block", "turned from channels last", "along rows", "planes"):
        program = PROGRAMS[name]
        hard = renamed(program, [next(words) for _ in (*program.operands, *program.results)])
        steps[name] = Step(hard, lower(hard, MULTIPROCESSORS.get(name, 132)))
    run = built("hard_names", steps)
    for name, step in steps.items():
        storages = random_storages(step.program, 3)
        found, wanted = run(name, storages), expected(step.program, storages)
        for result in step.program.results:
            assert_close(found[result.name], wanted[result.name], f"{name}: {result.name}")
