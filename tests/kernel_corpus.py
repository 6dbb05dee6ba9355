"""Every kernel of the corpus as text: what a change of the writer is held against.

`tests/golden/hashes.json` keeps a hash of each. `benchmarks/same_machine_code.py` renews it and says of two trees which
kernels differ, and whether their machine code does.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parent
HASHES = TESTS / "golden" / "hashes.json"
DIGITS = 12
"""Of a SHA-256: with 2,000 kernels two share them by chance once in 10^8 records."""
WITH_CASES = (
    "test_convolution", "test_pooled_convolution", "test_reducing_convolutions", "test_scatters",
    "test_warpgroup_phases", "test_warpgroup_pools", "test_warpgroup_streams", "test_warpgroup_weight_windows",
    "test_warpgroup_weights", "test_warpgroups", "test_warpgroups_exact",
)  # fmt: skip
"""Tests whose CASES say how they are lowered."""
BESIDE = re.compile(r"_(pack|finish)( \d+)?$")
"""Kernels of a convolution beside the one that multiplies, by their names."""
CONTRACTS = ("tf32", "fp32", "bf16")
Texts = dict[str, str]
"""The whole text of each kernel, what it calls included, by the kernel's name."""
Group = Iterator[tuple[str, Texts]]


def text_of(kernel: Any) -> str:
    """As it would stand in a file of its own."""
    return "\n\n".join([*kernel.preamble, kernel.text, ""])


def texts_of(lowered: Iterable[Any]) -> Texts:
    kernels = [kernel for each in lowered for kernel in getattr(each, "kernels", ())]
    found: Texts = {}
    for kernel in kernels:  # two stages of one name are told apart by their place
        name = kernel.name if kernel.name not in found else f"{kernel.name} {len(found)}"
        found[name] = text_of(kernel)
    return found


def hashed(texts: Texts) -> dict[str, str]:
    return {name: hashlib.sha256(text.encode()).hexdigest()[:DIGITS] for name, text in texts.items()}


# what tests lower by themselves: seconds


def programs() -> Group:
    of = imported("test_families")
    for name, step in of.STEPS.items():
        yield name, texts_of([step.lowered])
    for name, make in of.SHOWN.items():
        yield f"shown {name}", texts_of(of.lower(step) for step in of.stages(make()))


def pools() -> Group:
    of, shown = imported("test_pools"), imported("test_pool_text")
    for name, case in {**of.CASES, **{f"shown {name}": case for name, case in shown.TYPICAL.items()}}.items():
        kernels = shown.kernels(case)
        yield name, {kernel.name: text_of(kernel) for kernel in kernels}
    yield "beyond 32 bits", {kernel.name: text_of(kernel) for kernel in shown.beyond_32_bits()}


def products() -> Group:
    of = imported("test_products")
    for name, product in of.CASES.items():
        made = [product, *(product.gradient(each.name, "upstream") for each in (product.left, product.right))]
        for gpu in (of.H200, replace(of.H200, sms=2)):
            yield f"{name}, {gpu.sms} multiprocessors", texts_of(of.lower_product(each, gpu) for each in made)


@cache
def _of_convolutions() -> dict[str, Texts]:
    found = {}
    for test in WITH_CASES:
        for case in imported(test).CASES:
            if hasattr(case, "lowered"):
                lowered = case.lowered() if callable(case.lowered) else case.lowered
                found[f"{test} {case.name}"] = texts_of([lowered])
    return found


def convolutions() -> Group:
    """What multiplies."""
    for name, texts in _of_convolutions().items():
        yield name, {kernel: text for kernel, text in texts.items() if not BESIDE.search(kernel)}


def packers() -> Group:
    """What puts convolutions' weights in order, and what adds up the parts of a weight's gradient."""
    for name, texts in _of_convolutions().items():
        own = {kernel: text for kernel, text in texts.items() if BESIDE.search(kernel)}
        if own:
            yield name, own


# modules: traced and planned, which takes minutes


def modules() -> Group:
    """Small, as tests run them."""
    for file in sorted((TESTS / "modules").glob("*.py")):
        for contract in CONTRACTS[:2]:
            yield f"{file.stem} {contract}", _of_task(file, "small", contract)


def tasks() -> Group:
    """The three tasks at their own sizes."""
    for file in sorted((TESTS.parent / "tasks").glob("*/reference.py")):
        for contract in CONTRACTS:
            yield f"{file.parent.name} {contract}", _of_task(file, "full", contract)


def sweep() -> Group:
    """The shapes that `benchmarks/sweep.py` times."""
    sys.path.insert(0, str(TESTS.parent / "benchmarks"))
    of = importlib.import_module("sweep")
    for shape in (*of.SHAPES, *of.FURTHER):
        subject = of.loaded(shape, "full")
        yield shape.name, _of_module(subject.module, subject.inputs, {"tf32": True, "tf32_linear": True})


QUICK: dict[str, Callable[[], Group]] = {"programs": programs, "pools": pools, "products": products}
GROUPS: dict[str, Callable[[], Group]] = {
    **QUICK, "packers": packers, "convolutions": convolutions, "tasks": tasks, "modules": modules, "sweep": sweep,
}  # fmt: skip


def recorded() -> dict[str, dict[str, dict[str, str]]]:
    """Group, case, kernel: hash."""
    found: dict[str, dict[str, dict[str, str]]] = json.loads(HASHES.read_text())
    return found


def imported(name: str) -> Any:
    for folder in (TESTS, TESTS / "write"):
        if str(folder) not in sys.path:
            sys.path.append(str(folder))
    return importlib.import_module(name)


def _of_task(file: Path, scale: str, contract: str) -> Texts:
    import torch

    from crucible.judge.surface import Reference
    from crucible.task import Task

    task = Task.load(file).at(scale=scale, training=True, mode="train", small_by_default=True)
    reference = Reference(task.source, str(file), task.sizes, mode=task.mode, seed=0, device=torch.device("cpu"))
    module, inputs = reference.model, list(reference.inputs(0))
    if contract == "bf16":
        module = module.to(torch.bfloat16)
        inputs = [each.bfloat16() if isinstance(each, torch.Tensor) else each for each in inputs]
    inputs = [
        each.requires_grad_() if isinstance(each, torch.Tensor) and each.is_floating_point() else each
        for each in inputs
    ]
    return _of_module(module, inputs, {"tf32": contract != "fp32"})


def _of_module(module: Any, inputs: Any, rounding: dict[str, bool]) -> Texts:
    from crucible.capture import trace
    from crucible.emission.lower import lowered_backward, lowered_forward
    from crucible.gpus import H200
    from crucible.plan.planner import fuse
    from crucible.plan.steps import Fused

    planned = fuse(trace(module, inputs, drops=True), gpu=H200, **rounding)
    fused = [step for step in planned.steps if isinstance(step, Fused)]
    lowered = [each for step in fused for each in lowered_forward(step, H200)]
    lowered += [each for step in fused if step.keeps_apart for each in lowered_forward(step, H200, keeping=True)]
    takes = [step for step in fused if step.wanted and not step.is_copy]
    return texts_of([*lowered, *(each for step in takes for each in lowered_backward(step, H200).lowered)])
