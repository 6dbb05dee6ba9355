"""A dataset of the FlashInfer Trace schema: one definition with everything that a workload may hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from support import write

REFERENCE = """
import torch

def make_inputs(axes_and_scalars, device):
    return {"x": torch.rand(axes_and_scalars["rows"], axes_and_scalars["columns"], device=device) + 1}

@torch.no_grad()
def run(x, weight, eps):
    y = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight
    return y, y.sum(-1)
"""
RIGHT = REFERENCE.replace("torch.rsqrt(", "1 / torch.sqrt(")
INTO = """
from .helper import scaled

def run(x, weight, eps, y, total):
    y.copy_(scaled(x, weight, eps))
    torch.sum(y, -1, out=total)
"""
HELPER = RIGHT.replace("    return y, y.sum(-1)", "    return y").replace("def run", "def scaled")
DEFINITION: dict[str, Any] = {
    "name": "scaled_norm",
    "op_type": "rmsnorm",
    "axes": {"rows": {"type": "var"}, "columns": {"type": "const", "value": 8}},
    "inputs": {
        "x": {"shape": ["rows", "columns"], "dtype": "float32"},
        "weight": {"shape": ["columns"], "dtype": "float32"},
        "eps": {"shape": None, "dtype": "float32"},
    },
    "outputs": {
        "y": {"shape": ["rows", "columns"], "dtype": "float32"},
        "total": {"shape": ["rows"], "dtype": "float32"},
    },
    "reference": REFERENCE,
}
RANDOM = {
    "uuid": "w-random",
    "axes": {"rows": 4},
    "inputs": {"x": {"type": "random"}, "weight": {"type": "random"}, "eps": {"type": "scalar", "value": 1e-6}},
}
STORED = {
    "uuid": "w-stored",
    "axes": {"rows": 3},
    "inputs": {
        "x": {"type": "random"},
        "weight": {"type": "safetensors", "path": "blob/weights.safetensors", "tensor_key": "weight"},
        "eps": {"type": "scalar", "value": 0.5},
    },
}
CUSTOM = {
    "uuid": "w-custom",
    "axes": {"rows": 5},
    "inputs": {"x": {"type": "custom"}, "weight": {"type": "custom"}, "eps": {"type": "scalar", "value": 1e-6}},
}


def solution(name: str, text: str, *, into: bool = False, sol: bool = False, **more: str) -> dict[str, Any]:
    spec: dict[str, Any] = {"target_hardware": ["cuda"], "entry_point": "kernel.py::run", "dependencies": []}
    spec |= {"languages": ["pytorch"]} if sol else {"language": "python"}
    sources = {"kernel.py": text, **more}
    return {
        "name": name,
        "definition": "scaled_norm",
        "author": "somebody",
        "spec": {**spec, "destination_passing_style": into},
        "sources": [{"path": path, "content": content} for path, content in sources.items()],
    }


def dataset(root: Path, workloads: list[dict[str, Any]], solutions: list[dict[str, Any]]) -> Path:
    """FlashInfer-Bench's folders."""
    write(root / "definitions/rmsnorm/scaled_norm.json", json.dumps(DEFINITION))
    lines = [{"definition": "scaled_norm", "workload": one, "solution": None, "evaluation": None} for one in workloads]
    write(root / "workloads/rmsnorm/scaled_norm.jsonl", "".join(f"{json.dumps(line)}\n" for line in lines))
    for one in solutions:
        write(root / f"solutions/{one['author']}/rmsnorm/{one['name']}.json", json.dumps(one))
    return root
