"""Operators: what PyTorch is told about a fused step, so that autograd and torch.compile know it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from crucible.emission.beside import side_by_side
from crucible.emission.host import Host
from crucible.emission.lower import lowered_backward, lowered_forward
from crucible.gpus import Gpu
from crucible.graph import TensorType
from crucible.plan.layouts import packed
from crucible.plan.steps import Fused


@dataclass(frozen=True)
class Operator:
    """A fused step with its host functions."""

    step: Fused
    forward: Host
    keeping: Host | None
    """Forward where a gradient will be taken, if that makes tensors more."""
    backward: Host | None
    """None where nothing takes a gradient, or all gradients are 0."""

    @property
    def hosts(self) -> tuple[Host, ...]:
        return tuple(host for host in (self.forward, self.keeping, self.backward) if host is not None)

    @property
    def learning(self) -> tuple[Host, str]:
        """The function that gradients are taken of, and the operator's name."""
        name = self.step.name
        return (self.forward, name) if self.keeping is None else (self.keeping, f"{name}_keeping")

    @property
    def kept(self) -> tuple[str, ...]:
        """The tensors that backward reads beside the gradient, in the order in which it takes them."""
        return tuple(self.backward.takes)[len(self.step.upstream) :] if self.backward else ()


def operator(step: Fused, types: Mapping[str, TensorType], gpu: Gpu) -> Operator:
    """The operator of a step; `types` are those of the tensors in memory."""
    takes = {name: types[name] for name in step.reads}
    buffers = {name: types[buffer] for name, buffer in step.updates.items()}
    beside = {**step.measured, **buffers}
    makes = {**step.results, **step.saved, **beside}
    held = {**step.operands, **dict.fromkeys(step.joined, step.result)}
    begins = {name: part.begin({**types, **step.results}[held[name]]) for name, part in step.parts.items()}
    keeping = None
    if step.keeps_apart:
        lowered = side_by_side(lowered_forward(step, gpu, keeping=True), held, gpu)
        keeping = Host(f"run_{step.name}_keeping", takes, makes, {}, held, lowered)
        makes = {**step.results, **beside}
    lowered = side_by_side(lowered_forward(step, gpu), held, gpu)
    forward = Host(f"run_{step.name}", takes, makes, {}, held, lowered, begins)
    backward = _backward(step, takes, gpu) if step.wanted and not step.is_copy else None
    return Operator(step, forward, keeping, backward)


def _backward(step: Fused, takes: Mapping[str, TensorType], gpu: Gpu) -> Host | None:
    """Takes the gradients, then of the tensors and of what was saved those that it reads."""
    found = lowered_backward(step, gpu)
    if not found.gradients:
        return None
    read = {step.operands.get(name, name) for each in found.lowered for kernel in each.kernels for name in kernel.reads}
    known = {**takes, **step.results, **step.saved}
    given = step.upstream | {name: type_ for name, type_ in known.items() if name in read}
    whole = {name: _whole(step, name) for name in found.gradients}
    makes = {whole[name]: packed(takes[step.operands[name]]) for name in found.gradients}
    inside = {f"grad_{name}": whole[name] for name in found.gradients if name in step.parts}
    inside |= {f"grad_{name}": f"grad_{step.result}" for name in step.joined}
    held, laid = {**step.operands, **inside}, {**takes, **step.upstream, **makes}
    names = {f"{word}{name}": part for name, part in step.parts.items() for word in ("", "grad_")}
    begins = {name: part.begin(laid[held[name]]) for name, part in names.items() if held.get(name) in laid}
    lowered = side_by_side(found.lowered, held, gpu)
    return Host(f"run_{step.name}_backward", given, makes, found.partials, held, lowered, begins)


def _whole(step: Fused, operand: str) -> str:
    """The tensor that an operand's gradient is, or is a part of."""
    return f"grad_{step.operands[operand] if operand in step.parts else operand}"


def registration(op: Operator) -> list[str]:
    """Python: the operator's schema, implementation, shapes and gradient, and the function that forward calls."""
    lines = _defined(op.forward, op.step.name)
    lines += _defined(*op.learning) if op.keeping else []
    if op.step.wanted:
        lines += _defined(op.backward, f"{op.step.name}_backward") if op.backward else []
        lines += _passed_on(op.step) if op.step.is_copy else _autograd(op)
        lines += _registered(op)
    return [*lines, *_called(op)]


def _defined(host: Host, name: str) -> list[str]:
    arguments = ", ".join(f"Tensor {each}" for each in host.takes)
    results = ", ".join("Tensor" for _ in host.makes)
    like = next(iter(host.takes))
    fakes = [
        f"{like}.new_empty_strided({_tuple(t.shape)}, {_tuple(t.strides)}, dtype=torch.{t.dtype})"
        for t in host.makes.values()
    ]
    made = f"({results})" if len(host.makes) > 1 else results
    given = ", ".join(host.takes)
    call = f"kernels.{host.name}({given})"
    return [
        f'library.define("{name}({arguments}) -> {made}")',
        "",
        "",
        f'@torch.library.impl(library, "{name}", "CompositeExplicitAutograd")',
        f"def {host.name}({given}):",
        f"    return {f'tuple({call})' if len(fakes) > 1 else f'{call}[0]'}",
        "",
        "",
        f'@torch.library.register_fake(f"{{library.ns}}::{name}", lib=library)',
        f"def {host.name}_shapes({given}):",
        *_returned(fakes),
        "",
        "",
    ]


def _returned(values: list[str]) -> list[str]:
    if len(values) == 1:
        return [f"    return {values[0]}"]
    return ["    return (", *(f"        {value}," for value in values), "    )"]


def _passed_on(step: Fused) -> list[str]:
    """The gradient of a copy is taken as it lies, as with PyTorch's own `contiguous`."""
    return [
        f"def {step.name}_keeps(ctx, inputs, output):",
        "    ctx.set_materialize_grads(False)",
        "",
        "",
        f"def {step.name}_gradients(ctx, grad_{step.result}):",
        f"    return grad_{step.result}",
        "",
        "",
    ]


def _autograd(op: Operator) -> list[str]:
    step, host = op.step, op.backward
    inputs = [name for name in op.kept if name in step.reads]
    saved = [name for name in op.kept if name in {*step.results, *step.saved}]
    outputs, count = (*step.results, *step.saved, *step.beside), len(step.results)
    lines = [f"def {step.name}_keeps(ctx, inputs, output):"]
    if inputs:
        lines.append(f"    {_unpacked(step.reads, inputs)} = inputs")
    if saved:
        lines.append(f"    {_unpacked(outputs, saved)} = output")
    # Without, autograd would fill a tensor of zeros for each output that only backward reads.
    lines.append("    ctx.set_materialize_grads(False)")
    if outputs[count:]:
        lines.append(f"    ctx.mark_non_differentiable(*output[{count}:])")
    lines.append(f"    ctx.save_for_backward({', '.join(op.kept)})")
    upstream, given = ", ".join(step.upstream), ", ".join(f"grad_{name}" for name in step.results)
    rest = ", *_" if outputs[count:] else ""
    lines += ["", "", f"def {step.name}_gradients(ctx, {given}{rest}):"]
    lines += _given_gradients(step)
    if host:
        given = f"{upstream}, *ctx.saved_tensors" if op.kept else upstream
        lines.append(f"    {', '.join(host.makes)} = operators.{step.name}_backward({given})")
    return [*lines, f"    return {', '.join(_gradient(op, name) for name in step.reads)}", "", ""]


def _given_gradients(step: Fused) -> list[str]:
    """Nothing is computed where none comes; where one of several does not, it is 0. An operator makes each result under
    one name: what comes back by others is in its gradient already."""
    names = [f"grad_{name}" for name in step.results]
    nothing = f"        return {', '.join('None' for _ in step.reads)}"
    if len(names) == 1:
        lines = [f"    if {names[0]} is None:", nothing]
    else:
        all_ = ", ".join(names)
        lines = [f"    some = next((each for each in ({all_}) if each is not None), None)"]
        lines += ["    if some is None:", nothing]
        for name in names:
            lines += [f"    if {name} is None:", f"        {name} = {_zeros('some', step.upstream[name])}"]
    other = {f"grad_{name}": f"grad_{held}" for name, held in step.again.items()}
    return lines + [f"    {name} = {_zeros(held, step.upstream[name])}" for name, held in other.items()]


def _zeros(like: str, type_: TensorType) -> str:
    return f"{like}.new_zeros({_tuple(type_.shape)}, dtype=torch.{type_.dtype})"


def _registered(op: Operator) -> list[str]:
    """The gradient, told to the operator."""
    return [
        "torch.library.register_autograd(",
        f'    f"{{library.ns}}::{op.learning[1]}",',
        f"    {op.step.name}_gradients,",
        f"    setup_context={op.step.name}_keeps,",
        "    lib=library,",
        ")",
        "",
        "",
    ]


def function(step: Fused) -> str:
    """The name of its autograd function, in C++."""
    return "Fused" + "".join(word.capitalize() for word in step.name.split("_"))


def _called(op: Operator) -> list[str]:
    """What forward calls: the kernels where it can, else the operator."""
    step, given = op.step, ", ".join(op.step.reads)
    lines = [f"def fused_{step.name}({given}):"]
    operators = _returned_by(step, f"operators.{step.name}({given})")
    if not step.wanted:  # a gradient that nobody wrote is the operator's to miss, in PyTorch's words
        lines += [
            f"    if _is_unwatched({given}) and not _takes_gradient({given}):",
            *(f"    {line}" for line in _returned_by(step, f"{op.forward.name}({given})")),
        ]
        return [*lines, *operators, "", ""]
    lines += [
        f"    if _is_unwatched({given}):",
        f"        return kernels.fused_{step.name}({given}, library.ns)",
    ]
    if op.keeping:
        learns = ", ".join(dict.fromkeys(held for name, held in step.operands.items() if name in step.wanted))
        lines += [
            f"    if _takes_gradient({learns}):",
            f"        return operators.{op.learning[1]}({given}){'' if step.beside else '[0]'}",
        ]
    return [*lines, *operators, "", ""]


def _returned_by(step: Fused, call: str) -> list[str]:
    """What the module reads of what an operator makes: the first of it, where there is more, by all names."""
    more = bool(step.saved) and not step.keeps_apart
    count, ends = len(step.results), bool(step.beside)
    if not step.again:
        only = "" if ends or not more else "[0]" if count == 1 else f"[:{count}]"
        return [f"    return {call}{only}"]
    place = {name: n for n, name in enumerate(step.results)}
    alone = count == 1 and not more and not ends
    words = ["made" if alone else f"made[{place[step.again.get(name, name)]}]" for name in step.readable]
    rest = [f"*made[{count}:]"] if ends else []
    return [f"    made = {call}", f"    return {', '.join([*words, *rest])}"]


def _unpacked(all_: tuple[str, ...], wanted: list[str]) -> str:
    names = [name if name in wanted else "_" for name in all_]
    return ", ".join(names) + ("," if len(names) == 1 else "")


def gradients(op: Operator, tensor: str) -> list[tuple[str, TensorType]] | None:
    """What adds up to the gradient of a tensor, one for each operand that reads it, with their types: what backward
    makes, or is given; none where the gradient is 0 everywhere, None where none is wanted."""
    step = op.step
    wanted = [name for name in step.wanted if step.operands[name] == tensor]
    names = [step.passed.get(name, f"grad_{name}") for name in wanted if name not in step.parts]
    names += dict.fromkeys(_whole(step, name) for name in wanted if name in step.parts)
    known = {**step.upstream, **(op.backward.makes if op.backward else {})}
    known |= {f"grad_{name}": step.parts[name].of(step.type) for name in step.joined}
    return [(name, known[name]) for name in names if name in known] if names else None


def seen(step: Fused, gradient: str, words: Callable[[str], str]) -> str:
    """A gradient that comes, or is made: of a part of what the step makes, a part of its gradient."""
    part = step.parts.get(gradient.removeprefix("grad_")) if gradient.removeprefix("grad_") in step.joined else None
    if part is None:
        return words(gradient)
    return f"{words(f'grad_{step.result}')}.{part.words}"


def _gradient(op: Operator, tensor: str) -> str:
    """In Python. That it is 0 everywhere takes no kernel."""
    found, type_ = gradients(op, tensor), op.forward.takes[tensor]
    if found is None:
        return "None"
    terms = ((seen(op.step, name, str), of) for name, of in found)
    words = (term if of.shape == type_.shape else f"{term}.reshape({_tuple(type_.shape)})" for term, of in terms)
    return " + ".join(words) or f"grad_{op.step.result}.new_zeros({_tuple(type_.shape)}, dtype=torch.{type_.dtype})"


def _tuple(numbers: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, numbers))}{',' if len(numbers) == 1 else ''})"
