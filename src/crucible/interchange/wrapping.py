"""A definition with a workload as a task, a solution as its candidate: text around the reference's and the solution's
own.

Scalars are written out: a workload fixes them. A model's inputs are the tensors, in the definition's order; its outputs
too, a tuple where there are several.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from crucible.candidate import Candidate
from crucible.errors import MisuseError
from crucible.interchange.definition import NATIVE, PYTHON, SOURCES, Definition, Solution, Tensor, Workload
from crucible.task import Task

_OUTPUTS = '''
def _outputs(found):
    """In the definition's order, whatever form `run` gives them."""
    if isinstance(found, dict):
        found = [found[name] for name, _ in _FORMS]
    several = list(found) if isinstance(found, (tuple, list)) else [found]
    if len(several) != len(_FORMS):
        raise ValueError(f"run gives {len(several)} outputs, the definition has {len(_FORMS)}")
    tensors = [
        one if isinstance(one, torch.Tensor) else torch.tensor(one, dtype=dtype)
        for one, (_, dtype) in zip(several, _FORMS)
    ]
    return tensors[0] if len(tensors) == 1 else tuple(tensors)
'''
_RANDOM = '''
def _random(shape, dtype):
    """As the benchmarks draw it: normal floats, integers of 11 bits at most."""
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, dtype=dtype)
    if not dtype.is_floating_point:
        most = 128 if dtype == torch.int8 else 1024
        return torch.randint(-most, most, shape, dtype=dtype)
    if dtype.itemsize == 1:
        return torch.randn(shape).clamp(-2, 2).to(dtype)
    return torch.randn(shape, dtype=dtype)
'''
_STORED = '''
def _stored(file, key, shape, dtype):
    """A tensor of a safetensors file, which the workload names."""
    try:
        from safetensors import safe_open
    except ImportError as error:
        raise ImportError("stored inputs need safetensors: pip install 'crucible-kernels[traces]'") from error

    with safe_open(file, framework="pt") as opened:
        tensor = opened.get_tensor(key)
    if tuple(tensor.shape) != shape or tensor.dtype != dtype:
        raise ValueError(f"{key} of {file} is {tuple(tensor.shape)} {tensor.dtype}, not {shape} {dtype}")
    return tensor
'''
_FILES = """
_folder = tempfile.mkdtemp(prefix="solution-", dir=os.environ.get("TMPDIR"))
for _path, _text in _SOURCES.items():
    os.makedirs(os.path.dirname(os.path.join(_folder, _path)), exist_ok=True)
    with open(os.path.join(_folder, _path), "w", encoding="utf-8") as _file:
        _file.write(_text)
"""


def task_of(definition: Definition, workload: Workload, root: Path) -> Task:
    """The task; files that the workload names lie below `root`. Raises MisuseError for what cannot be a task."""
    sizes = definition.sizes(workload)
    tensors = [one for one in definition.inputs if one.shape is not None]
    drawn = {one.name: _drawn(definition, workload, one, sizes, root) for one in tensors}
    custom = [name for name, text in drawn.items() if not text]
    made = f"    made = {definition.entry}({_axes_and_scalars(definition, workload, sizes)}, torch.empty(0).device)\n"
    values = ", ".join(drawn[one.name] or f"made[{one.name!r}]" for one in tensors)
    text = "\n".join(
        [
            definition.reference.rstrip(),
            "",
            "",
            f"# {definition.name}, workload {workload.uuid}, as a module: written by Crucible".replace("\n", " "),
            "import torch",
            "import torch.nn as nn",
            "",
            f"_FORMS = {_forms(definition)}",
            "_run = run",
            _OUTPUTS,
            _RANDOM if any(text.startswith("_random(") for text in drawn.values()) else "",
            _STORED if any(text.startswith("_stored(") for text in drawn.values()) else "",
            "class Model(nn.Module):",
            f"    def forward(self, {', '.join(one.name for one in tensors)}):",
            f"        return _outputs(_run({_arguments(definition, workload)}))",
            "",
            "",
            "def get_inputs():",
            f"{made if custom else ''}    return [{values}]",
            "",
            "",
            "def get_init_inputs():",
            "    return []",
            "",
        ]
    )
    name = f"{definition.name}-{workload.uuid[:8]}"
    return Task(name, Path(f"{definition.name}.py"), text, {}, tolerance=_tolerance(definition, workload))


def candidate_of(definition: Definition, workload: Workload, solution: Solution) -> Candidate:
    """Raises MisuseError for a solution that cannot be built here, whoever is judging."""
    sizes = definition.sizes(workload)
    native = bool(solution.languages & NATIVE)
    if not native and not solution.languages & PYTHON:
        raise MisuseError(f"{solution.name}: no way is known to build {', '.join(sorted(solution.languages))}")
    if native and (solution.binding or ("torch" if solution.is_sol else "tvm-ffi")) != "torch":
        raise MisuseError(f"{solution.name}: only solutions bound by PyTorch (binding torch) are judged, not tvm-ffi")
    head = _native(solution) if native else _python(solution)
    tensors = [one.name for one in definition.inputs if one.shape is not None]
    call = f"_run({_arguments(definition, workload)})"
    lines = [f"        return _outputs({call})"]
    if solution.takes_outputs:
        fill = "zeros" if solution.is_sol else "empty"
        rows = [
            f"torch.{fill}({definition.shape(one, sizes)!r}, dtype=torch.{one.dtype}, device={_device(tensors)})"
            for one in definition.outputs
        ]
        call = f"_run({', '.join(filter(None, [_arguments(definition, workload), '*made']))})"
        lines = [f"        made = [{', '.join(rows)}]", f"        {call}", "        return _outputs(made)"]
    text = "\n".join(
        [
            head.rstrip(),
            "",
            "",
            f"# {solution.name} as a module: written by Crucible".replace("\n", " "),
            "import torch",
            "import torch.nn as nn",
            "",
            f"_FORMS = {_forms(definition)}",
            _OUTPUTS,
            "",
            "class ModelNew(nn.Module):",
            f"    def forward(self, {', '.join(tensors)}):",
            *lines,
            "",
        ]
    )
    return Candidate(solution.name, Path(f"{solution.name}.py"), text)


def _python(solution: Solution) -> str:
    """One file as it stands, so that its lines are its own; several as files of one folder."""
    file, function = solution.entry
    if len(solution.sources) == 1:
        return f"{solution.sources[file].rstrip()}\n\n_run = {function}"
    module = Path(file).with_suffix("").as_posix().replace("/", ".")
    return "\n".join(
        [
            "import importlib, os, sys, tempfile",
            "",
            _written_out(solution.sources),
            _FILES,
            "sys.path.insert(0, _folder)",
            f"_run = importlib.import_module({module!r}).{function}",
        ]
    )


def _native(solution: Solution) -> str:
    """Built by PyTorch's own loader, with its flags."""
    files = [path for path in solution.sources if path.endswith(SOURCES)]
    if not files:
        raise MisuseError(f"{solution.name} has no C++ or CUDA file ({', '.join(SOURCES)})")
    known = {"cflags": "extra_cflags", "cuda_cflags": "extra_cuda_cflags", "ld_flags": "extra_ldflags"}
    flags = [f"    {known[name]}={value!r}," for name, value in solution.flags.items() if name in known]
    paths = ", ".join(f"os.path.join(_folder, {path!r})" for path in files)
    return "\n".join(
        [
            "import os, tempfile",
            "from torch.utils.cpp_extension import load",
            "",
            _written_out(solution.sources),
            _FILES,
            "_run = load(",
            '    name="solution",',
            f"    sources=[{paths}],",
            "    extra_include_paths=[_folder],",
            *flags,
            f").{solution.entry[1]}",
        ]
    )


def _written_out(sources: Mapping[str, str]) -> str:
    """A dict of texts, a line of each on a line."""
    rows = ["_SOURCES = {"]
    for path, text in sources.items():
        rows += [
            f"    {path!r}: (",
            *(f"        {line!r}" for line in text.splitlines(keepends=True) or [""]),
            "    ),",
        ]
    return "\n".join([*rows, "}"])


def _arguments(definition: Definition, workload: Workload) -> str:
    """Of `run`: tensors by name, scalars by value."""
    return ", ".join(
        one.name if one.shape is not None else repr(_scalar(definition, workload, one)) for one in definition.inputs
    )


def _scalar(definition: Definition, workload: Workload, one: Tensor) -> float | bool:
    """The workload's value; one drawn by its uuid where it says `random`. Raises MisuseError."""
    given = workload.inputs.get(one.name, {"type": "random"})
    if given.get("type") == "scalar" and isinstance(given.get("value"), bool | int | float):
        return given["value"]  # type: ignore[no-any-return]
    if given.get("type") != "random":
        raise MisuseError(f"{definition.name}: scalar {one.name} is {given!r} in workload {workload.uuid}")
    chance = random.Random(f"{workload.uuid} {one.name}")
    if one.dtype == "bool":
        return chance.random() < 0.5
    return chance.gauss(0, 1) if "float" in one.dtype else chance.randrange(-128, 128)


def _drawn(definition: Definition, workload: Workload, one: Tensor, sizes: Mapping[str, int], root: Path) -> str:
    """The expression that makes a tensor; empty where the reference's own function does."""
    given = workload.inputs.get(one.name, {"type": "random"})
    shape, dtype = definition.shape(one, sizes), f"torch.{one.dtype}"
    kind = given.get("type")
    if kind == "custom" and definition.entry.isidentifier():
        return ""
    if kind == "safetensors":
        file = root / str(given.get("path"))
        if not file.is_file():
            raise MisuseError(f"{definition.name}, workload {workload.uuid}: no file {file} for input {one.name}")
        return f"_stored({str(file.resolve())!r}, {str(given.get('tensor_key'))!r}, {shape!r}, {dtype})"
    if kind != "random":
        raise MisuseError(f"{definition.name}, workload {workload.uuid}: input {one.name} is {json.dumps(given)[:200]}")
    drawn = f"_random({shape!r}, {dtype})"
    return f"{drawn}.softmax(-1)" if definition.op_type == "sampling" and one.name == "probs" else drawn


def _axes_and_scalars(definition: Definition, workload: Workload, sizes: Mapping[str, int]) -> str:
    scalars: dict[str, Any] = {
        name: given["value"] for name, given in workload.inputs.items() if given.get("type") == "scalar"
    }
    return repr({**sizes, **scalars})


def _tolerance(definition: Definition, workload: Workload) -> dict[str, float]:
    """SOL-ExecBench's, where the workload states one, with its own defaults. Raises MisuseError."""
    given = workload.tolerance
    if not given:
        return {}
    found = {
        "atol": given.get("max_atol", 1e-2),
        "rtol": given.get("max_rtol", 1e-2),
        "matched": given.get("required_matched_ratio", 0.99),
        "cap": given.get("max_error_cap"),
    }
    stated = {name: value for name, value in found.items() if value is not None}
    if not all(type(value) in (int, float) and 0 <= value < math.inf for value in stated.values()):
        raise MisuseError(f"{definition.name}, workload {workload.uuid}: its tolerance is {json.dumps(given)[:200]}")
    return {name: float(value) for name, value in stated.items()}


def _forms(definition: Definition) -> str:
    return f"[{', '.join(f'({one.name!r}, torch.{one.dtype})' for one in definition.outputs)}]"


def _device(tensors: list[str]) -> str:
    return f"{tensors[0]}.device" if tensors else "None"
