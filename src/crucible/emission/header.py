"""The head of the file: the plan in words."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

from crucible.algebra.convolution.fused import Convolution
from crucible.algebra.convolution.reducing import ReducingConvolution
from crucible.algebra.product import Product
from crucible.emission.handing import Beside
from crucible.emission.operator import Operator
from crucible.plan.rules import BIASED
from crucible.plan.steps import Call, Fused, Plan
from crucible.schedule.convolution.questions import Tuned

_WIDTH = 110


def header(
    plan: Plan, name: str, operators: Sequence[Operator], served: Mapping[str, Fused], beside: Beside | None = None
) -> str:
    """What shares a kernel, what it moves, what is kept for backward, and what stays with PyTorch; `served` says whose
    operator a step calls, `beside` what was measured."""
    by_step = {op.step.name: op for op in operators}
    inputs = ", ".join(f"{v.name} {list(v.tensor.shape)} {v.tensor.dtype}" for v in plan.graph.inputs)
    title = f"{name}, fused by Crucible for {inputs} on {plan.gpu.name}. Other inputs go through PyTorch."
    lines = [*textwrap.wrap(title, _WIDTH), ""]
    lines += _item(beside.words) if beside else []
    if beside and beside.hands_all:
        lines += _item("the plan, of which nothing is called:")
    for note in plan.rewrites:
        lines += _item(f"algebraic rewrite: {note}; the same in exact arithmetic, for finite inputs")
    for step in plan.steps:
        if isinstance(step, Call):
            lines += _of_call(step)
        elif served[step.name] is step:
            lines += _of_kernel(step, by_step[step.name], plan)
        else:
            lines += _item(f"{', '.join(step.results)} = {served[step.name].name} again; {_size(step.bytes_moved)}")
    if isinstance(plan.gpu, Tuned) and plan.gpu.notes:
        lines += _item(f"divisions of these kernels were measured on {plan.gpu.name}, each verified in float64 first:")
        lines += [line for note in plan.gpu.notes for line in _item(note, indent="    ")]
    asked = plan.asked or plan.graph
    eager, ours = asked.bytes_moved, sum(step.bytes_moved for step in plan.steps)
    lines += ["", f"Forward moves {_size(ours)} in {len(plan.steps)} steps; operation by operation it would be"]
    lines[-1] += f" {_size(eager)} in {len(asked.operations)}."
    return "\n".join(lines) + "\n"


def _of_call(step: Call) -> list[str]:
    why = f": {step.why}" if step.why else ""
    return _item(f"{', '.join(step.results)} = {step.operation.kind} by PyTorch{why}")


def _of_kernel(step: Fused, op: Operator, plan: Plan) -> list[str]:
    kinds = [plan.graph.producers[name].kind for name in step.covers if name in plan.graph.producers]
    if not isinstance(step.compute, Convolution | ReducingConvolution | Product):
        kinds = [f"bias of {kind}" if kind in BIASED else kind for kind in kinds]
    what = f"{step.reads[0]}, laid anew; its gradient is taken as it lies" if step.is_copy else " -> ".join(kinds)
    lines = _item(f"{step.name}: {what}; {_size(step.bytes_moved)}")
    lines += [line for note in step.notes for line in _item(note, indent="    ")]
    notes = dict.fromkeys(note for host in op.hosts for each in host.lowered for note in each.notes)
    lines += [line for note in notes for line in _item(note, indent="    ")]
    if op.backward is not None:
        kept = [name for name in op.backward.takes if name not in step.upstream]
        again = "the chain is" if any(name in step.reads for name in kept) else "nothing is"
        lines += _item(f"backward keeps {', '.join(kept) or 'nothing'}; {again} computed again", indent="    ")
    if step.keeps_apart:
        lines += _item(f"forward writes {_size(step.saved_bytes)} more where gradients are taken", indent="    ")
    return lines


def _size(count: float) -> str:
    for unit in ("bytes", "KB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} GB"


def _item(text: str, indent: str = "") -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent=f"{indent}- ", subsequent_indent=f"{indent}  ")
