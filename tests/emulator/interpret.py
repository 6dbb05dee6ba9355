"""Runs the Triton corpus in a process of its own, which takes its CPU for a GPU from then on; prints JSON."""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from crucible.emulator import pretend, session
from crucible.emulator.triton import interpreter
from crucible.emulator.triton.watch import NotInterpreted
from crucible.gpus import DEFAULT, known_gpu

KERNELS = Path(__file__).parent / "triton_kernels"
TOLERANCE = {torch.float16: 2e-2, torch.bfloat16: 2e-2}


def main() -> None:
    emulator = session.start()
    pretend.install(known_gpu(DEFAULT))
    emulator.triton = interpreter.install(emulator.is_of_the_gpu, program_s=1.0, gpu=known_gpu(DEFAULT))
    right = functions("right", "case_")
    faults = functions("faults", "fault_")
    found: dict[str, Any] = {}
    for name, case in right.items():
        for order in ("forward", "reverse", "random"):
            emulator.schedule(order)
            found[f"{name}, {order}"] = outcome(emulator, lambda case=case: closeness(*case()))
    emulator.schedule("forward")
    for name, fault in faults.items():
        found[name] = outcome(emulator, lambda fault=fault: fault(0))
        found[f"{name}, repaired"] = outcome(emulator, lambda fault=fault: fault(1))
    found["waits"] = outcome(emulator, functions("faults", "waits")["waits"])
    found["never ran"] = [fault.words for fault in emulator.never_ran(ran)]
    json.dump(found, sys.stdout)


def functions(module: str, prefix: str) -> dict[str, Callable[..., Any]]:
    module_ = runpy.run_path(str(KERNELS / f"{module}.py"))
    return {name: value for name, value in module_.items() if name.startswith(prefix)}


ran: set[str] = set()
"""Kernels that any call launched."""


def outcome(emulator: session.Emulator, run: Callable[[], Any]) -> dict[str, Any]:
    """What came of one call: an error's words, and the faults that it left."""
    torch.manual_seed(0)
    emulator.forget()
    error = ""
    try:
        run()
    except NotInterpreted as unknown:
        error = str(unknown)
    except Exception as raised:  # noqa: BLE001 - the test says what should not have been raised
        error = f"{type(raised).__name__}: {raised}"
    ran.update(emulator.launched())
    faults = [fault for fault in emulator.faults() if fault.kind != "never-ran"]
    return {"error": error, "faults": [(fault.words, fault.line) for fault in faults]}


def closeness(got: torch.Tensor, want: torch.Tensor) -> None:
    tolerance = TOLERANCE.get(want.dtype, 1e-4)
    torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance)


main()
