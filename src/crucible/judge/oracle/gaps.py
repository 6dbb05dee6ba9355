"""What this machine's PyTorch lacks and a reference asks for: that is nobody's fault, so it is worked round.

A GPU where there is none, a 16-bit operation that a CPU does not have, gradients through a module that overwrites what
they need.
"""

from __future__ import annotations

import re
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_LACKS = re.compile(r"not implemented for '(BFloat16|Half)'")
_DTYPES = {"BFloat16": torch.bfloat16, "Half": torch.float16}
MANTISSA_BITS = {torch.bfloat16: 7, torch.float16: 10}
_PACKAGES = {
    "cv2": "opencv-python-headless", "PIL": "pillow", "sklearn": "scikit-learn", "skimage": "scikit-image",
    "yaml": "pyyaml", "flash_attn": "flash-attn", "mamba_ssm": "mamba-ssm",
}  # fmt: skip
"""Those whose package is called otherwise."""


class OnCpu(TorchFunctionMode):
    """While active, what asks for a CUDA device is on the CPU: factories, `.to("cuda")`, `.cuda()`."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in ("cuda", "pin_memory") and args and isinstance(args[0], torch.Tensor):
            return args[0]
        if func is torch.device:
            return _on_cpu(func(*args, **(kwargs or {})))
        given = {key: _on_cpu(value) for key, value in (kwargs or {}).items() if key != "pin_memory"}
        return func(*map(_on_cpu, args), **given)


def asks_for_cuda(source: str) -> bool:
    """Whether a reference may, on a machine that has none."""
    return "cuda" in source and not torch.cuda.is_available()


def _on_cpu(value: Any) -> Any:
    if isinstance(value, torch.device) and value.type == "cuda":
        return torch.device("cpu")
    return "cpu" if isinstance(value, str) and re.fullmatch(r"cuda(:\d+)?", value) else value


def lacking_dtype(error: BaseException) -> torch.dtype | None:
    """The 16-bit dtype that PyTorch has no such operation for on a CPU; None where that is not what happened."""
    found = _LACKS.search(str(error))
    return _DTYPES[found[1]] if found else None


def overwrites(error: BaseException) -> bool:
    """Whether autograd missed a value that something has written over."""
    said = str(error)
    return "modified by an inplace operation" in said or "used in an in-place operation" in said


def out_of_place(model: torch.nn.Module) -> bool:
    """Makes modules that may overwrite their input (`ReLU(inplace=True)`) leave it alone; whether there were any."""
    found = [module for module in model.modules() if getattr(module, "inplace", False) is True]
    for module in found:
        module.inplace = False  # type: ignore[assignment]
    return bool(found)


def remedy(error: BaseException) -> str:
    """What to install for a module that a task imports and this Python does not have; empty for other errors."""
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        return ""
    top = error.name.partition(".")[0]
    return f": install it beside Crucible (pip install {_PACKAGES.get(top, top)})"
