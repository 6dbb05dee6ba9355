"""A training run: networks of tests/networks trained for some steps in eager PyTorch, under torch.compile and fused, in
TF32 and in bf16: loss curves, how far they are from eager's, and the memory of a step.

    python benchmarks/training.py FILE [--networks 01_resnet_basic,18_min_gpt] [--steps 200] [--precisions tf32,bf16]

A network learns what one of another seed gives for a few fixed batches. Noise is what eager itself differs by where its
products round otherwise: in strict float32 beside TF32, and under torch.compile.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

import crucible
from crucible import hardware, tf32
from crucible.judge.boundary.modules import construct
from crucible.judge.oracle.reference import Reference
from crucible.task import Task

NETWORKS = Path(__file__).parents[1] / "tests/networks"
DEVICE = "cuda"
BATCHES = 4
RATE, MOMENTUM = 1e-3, 0.9
PRECISIONS = {"tf32": (torch.float32, True), "fp32": (torch.float32, False), "bf16": (torch.bfloat16, True)}
Wrap = Callable[[nn.Module, list[Any]], Callable[..., Any]]
CONTESTANTS: dict[str, Wrap] = {
    "eager": lambda module, inputs: module,
    "torch.compile": lambda module, inputs: torch.compile(module),
    "fused": lambda module, inputs: crucible.fuse(module, *inputs),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--networks", default="01_resnet_basic,18_min_gpt")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--precisions", default="tf32,bf16")
    args = parser.parse_args()
    device = hardware.find_device()
    record: dict[str, Any] = {"device": device.name, "driver": device.driver, "versions": hardware.versions()}
    record |= {"steps": args.steps, "rate": RATE, "momentum": MOMENTUM, "networks": {}}
    for name in args.networks.split(","):
        runs: dict[str, Any] = {}
        for precision in args.precisions.split(","):
            runs[precision] = {who: trained(name, precision, wrap, args.steps) for who, wrap in CONTESTANTS.items()}
        if "tf32" in runs:
            runs["fp32"] = {"eager": trained(name, "fp32", CONTESTANTS["eager"], args.steps)}
        record["networks"][name] = {"runs": runs, "apart": apart(runs)}
        print(name, json.dumps(record["networks"][name]["apart"], indent=1), flush=True)
        args.file.write_text(json.dumps(record, indent=1) + "\n")


def trained(name: str, precision: str, wrap: Wrap, steps: int) -> dict[str, Any]:
    """Losses, and what a step takes at most beyond what is there before it, in MB."""
    dtype, rounds = PRECISIONS[precision]
    task = Task.load(NETWORKS / f"{name}.py").at(scale="full", training=True, mode="train", small_by_default=False)
    reference = Reference(task.source, str(task.path), task.sizes, mode=task.mode, seed=0, device=torch.device("cpu"))
    torch.manual_seed(1)
    teacher = construct(type(reference.model), reference.init_inputs).to(DEVICE, dtype)
    module, batches = (
        reference.model.to(DEVICE, dtype),
        [cast(reference.inputs(seed), dtype) for seed in range(BATCHES)],
    )
    with tf32.allowed(rounds, rounds):
        with torch.no_grad():
            targets = [first(teacher(*batch)).float() for batch in batches]
        call = wrap(module, batches[0])
        optimizer = torch.optim.SGD(module.parameters(), RATE, MOMENTUM)
        losses, peak = [], 0
        for step in range(steps):
            if step == BATCHES:  # all is built
                torch.cuda.synchronize()
                torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            optimizer.zero_grad()
            made = first(call(*batches[step % BATCHES]))
            loss = (made.float() - targets[step % BATCHES]).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
            peak = max(peak, torch.cuda.max_memory_allocated() - before) if step >= BATCHES else 0
    return {"losses": [float(f"{each:.6g}") for each in torch.stack(losses).tolist()], "step_mb": round(peak / 1e6, 1)}


def cast(inputs: list[Any], dtype: torch.dtype) -> list[Any]:
    tensors = [each.to(DEVICE) if isinstance(each, torch.Tensor) else each for each in inputs]
    return [e.to(dtype) if isinstance(e, torch.Tensor) and e.is_floating_point() else e for e in tensors]


def first(made: Any) -> torch.Tensor:
    found: torch.Tensor = made[0] if isinstance(made, tuple) else made
    return found


def apart(runs: dict[str, Any]) -> dict[str, Any]:
    """Mean distance of log losses from eager's, of the fused module and of noise; and steps' memory."""
    found: dict[str, Any] = {}
    for precision, each in runs.items():
        if precision == "fp32":
            continue
        eager = each["eager"]["losses"]
        found[precision] = {who: distance(run["losses"], eager) for who, run in each.items() if who != "eager"}
        found[precision]["fell_to"] = eager[-1] / eager[0]
        found[precision]["step_mb"] = {who: run["step_mb"] for who, run in each.items()}
    if "fp32" in runs:
        found["tf32"]["strict float32"] = distance(runs["fp32"]["eager"]["losses"], runs["tf32"]["eager"]["losses"])
    return found


def distance(one: list[float], other: list[float]) -> float:
    return math.fsum(abs(math.log(a / b)) for a, b in zip(one, other, strict=True)) / len(one)


if __name__ == "__main__":
    main()
