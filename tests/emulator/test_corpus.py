"""The corpus: planted faults are found with kind and line, repaired twins and right kernels are clean."""

from __future__ import annotations

import types
from collections.abc import Iterator
from functools import cache

import corpus
import pytest
import torch

from crucible import emulator
from crucible.emulator import extension

BATCH = 13
"""Kernels in one translation unit: the more, the fewer times 1.4 s of headers; g++ holds 1 GB for as many."""
FAULTY = [corpus.Kernel(path) for path in sorted((corpus.KERNELS / "faults").glob("*.cu"))]
FIELD = [corpus.Kernel(path) for path in sorted((corpus.KERNELS / "field").glob("*.cu"))]


@pytest.fixture(scope="module", autouse=True)
def one_second_a_thread() -> Iterator[None]:
    """Loops without end are planted: no need to wait for them long."""
    extension.start().thread_limit(1.0)
    yield
    extension.start().thread_limit(10.0)


@cache
def built(which: str, batch: int) -> types.ModuleType:
    """The extension that holds a batch of the corpus."""
    kernels = FIELD if which == "field" else FAULTY
    chosen = kernels[batch * BATCH : (batch + 1) * BATCH]
    return corpus.build(chosen, f"{which}_{batch}", repaired=which == "twins")


def outcome(which: str, kernel: corpus.Kernel) -> corpus.Outcome:
    place = (FIELD if which == "field" else FAULTY).index(kernel)
    return corpus.run(built(which, place // BATCH), kernel)


@pytest.mark.parametrize("kernel", FAULTY, ids=lambda kernel: kernel.path.stem)
def test_a_planted_fault_is_found_with_its_line(kernel: corpus.Kernel) -> None:
    found = outcome("faults", kernel)
    of_the_kind = [fault for fault in found.faults if fault.kind == kernel.kind]
    assert of_the_kind, [fault.words for fault in found.faults]
    assert kernel.lines & {line for fault in of_the_kind for line in (fault.line, fault.other_line)}, of_the_kind


@pytest.mark.parametrize("kernel", FAULTY, ids=lambda kernel: kernel.path.stem)
def test_a_repaired_twin_is_clean(kernel: corpus.Kernel) -> None:
    found = outcome("twins", kernel)
    assert (found.error, [fault.words for fault in found.faults]) == ("", [])


@pytest.mark.parametrize("kernel", FIELD, ids=lambda kernel: kernel.path.stem)
def test_a_kernel_of_the_field_is_right_and_clean(kernel: corpus.Kernel) -> None:
    found = outcome("field", kernel)
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
        test_a_kernel_of_the_field_is_right_and_clean(kernel)
