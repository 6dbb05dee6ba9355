"""The corpus: planted faults are found with kind and line, repaired twins and right kernels are clean.

All of it under the emulator's compiler; with CRUCIBLE_CORPUS=all under g++ and clang both, where they are installed
(clang's headers alone take 40 s of processor time).
"""

from __future__ import annotations

import os
import types
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import corpus
import pytest
import torch

from crucible import emulator, hardware
from crucible.emulator import session, toolchain
from support import some

BATCH = 13
"""Kernels in one translation unit: the more, the fewer times 1.4 s of headers; g++ holds 1 GB for as many."""
FAULTY = [corpus.Kernel(path) for path in sorted((corpus.KERNELS / "faults").glob("*.cu"))]
FIELD = [corpus.Kernel(path) for path in sorted((corpus.KERNELS / "field").glob("*.cu"))]
FIRST = {kernel.kind: kernel for kernel in reversed(FAULTY)}
CORPUS = {
    "faults": some(FAULTY, 2, lambda kernel: kernel is FIRST[kernel.kind]),
    "twins": some(FAULTY, 4),
    "field": some(FIELD, 2),
}
"""Of faults some of each kind; all of them at night."""
ALL = os.environ.get("CRUCIBLE_CORPUS") == "all"


@pytest.fixture(scope="module", autouse=True)
def one_second_a_thread() -> Iterator[None]:
    """Loops without end are planted: no need to wait for them long."""
    session.start().thread_limit(1.0)
    yield
    session.start().thread_limit(10.0)


def everywhere(which: str) -> pytest.MarkDecorator:
    """Kernels under each compiler that is installed."""
    compilers = hardware.compilers() if ALL else (hardware.cxx(),)
    cases = [(kernel, compiler) for compiler in compilers for kernel in CORPUS[which]]
    names = [f"{kernel.path.stem}-{Path(compiler).name}" for kernel, compiler in cases]
    return pytest.mark.parametrize(("kernel", "compiler"), cases, ids=names)


@cache
def built(which: str, batch: int, compiler: str) -> types.ModuleType:
    """The extension that holds a batch of the corpus."""
    chosen = CORPUS[which][batch * BATCH : (batch + 1) * BATCH]
    running = session.start()
    usual, running.tools = running.tools, toolchain.prepare(compiler)
    try:
        return corpus.build(chosen, f"{which}_{batch}", repaired=which == "twins")
    finally:
        running.tools = usual


def outcome(which: str, kernel: corpus.Kernel, compiler: str) -> corpus.Outcome:
    place = CORPUS[which].index(kernel)
    return corpus.run(built(which, place // BATCH, compiler), kernel)


@everywhere("faults")
def test_a_planted_fault_is_found_with_its_line(kernel: corpus.Kernel, compiler: str) -> None:
    found = outcome("faults", kernel, compiler)
    of_the_kind = [fault for fault in found.faults if fault.kind == kernel.kind]
    assert of_the_kind, [fault.words for fault in found.faults]
    assert kernel.lines & {line for fault in of_the_kind for line in (fault.line, fault.other_line)}, of_the_kind


@everywhere("twins")
def test_a_repaired_twin_is_clean(kernel: corpus.Kernel, compiler: str) -> None:
    found = outcome("twins", kernel, compiler)
    assert (found.error, [fault.words for fault in found.faults]) == ("", [])


@everywhere("field")
def test_a_kernel_of_the_field_is_right_and_clean(kernel: corpus.Kernel, compiler: str) -> None:
    found = outcome("field", kernel, compiler)
    assert (found.error, [fault.words for fault in found.faults]) == ("", [])
    near = corpus.tolerance(kernel)
    for got, want in zip(
        corpus.tensors(found.result), corpus.tensors(kernel.reference()(*kernel.inputs())), strict=True
    ):
        torch.testing.assert_close(got, want.to(got.dtype), rtol=near, atol=near)


@pytest.mark.parametrize("order", ["reverse", "random"])
@pytest.mark.parametrize("kernel", FIELD[::4], ids=lambda kernel: kernel.path.stem)
def test_a_right_kernel_is_right_in_any_order(kernel: corpus.Kernel, order: str) -> None:
    with emulator.schedule(order):
        test_a_kernel_of_the_field_is_right_and_clean(kernel, hardware.cxx())
