"""The file: what a user reads, and a judge judges."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping

from crucible.emission import at_once
from crucible.emission.alike import alike
from crucible.emission.autograd import cpp, exported
from crucible.emission.body import body, returned_classes
from crucible.emission.calls import LYING, needs_strides
from crucible.emission.extension import HOST_FLAGS, digest, flags, kernels
from crucible.emission.fold import folded
from crucible.emission.handing import Beside
from crucible.emission.header import header
from crucible.emission.operator import Operator, operator, registration
from crucible.emission.reference import definitions
from crucible.graph import Literal, Ref
from crucible.plan.steps import Fused, Plan

_CHECK = '''\
def _fits(given, shape, dtype):
    """Whether the kernels, whose sizes are built in, were written for such a tensor."""
    if torch.is_autocast_enabled(given.device.type):
        raise RuntimeError("this module was written for fixed dtypes: call it outside of torch.autocast")
    return given.shape == shape and given.dtype == dtype
'''
_CALLS = '''\
def _is_unwatched(*given):
    """Whether nobody but autograd has to know what is computed: no compiler, no mode, no transform, no tensor of
    another kind. Then kernels are called without operators, whose Python takes as long as small kernels do."""
    return not torch.compiler.is_compiling() and _PLAIN.issuperset(map(type, given)) and kernels.are_plain(given)


_PLAIN = {torch.Tensor, torch.nn.Parameter}
'''
_ASKS = '''\
def _takes_gradient(*given):
    """Whether there will be a backward."""
    return torch.is_grad_enabled() and any(each.requires_grad for each in given)
'''


def emit(
    plan: Plan,
    name: str,
    source: str = "",
    loader: str = "torch.utils.cpp_extension",
    *,
    in_both_modes: bool = False,
    beside: Beside | None = None,
) -> str:
    """A Python file that computes what a module does, as planned: with a class `ModelNew` in the stead of the class
    `Model` in `source`, or without a source with a function `forward(self, ...)`, `self` being the module.

    `name` is for the header and the extension; `loader` is where `load_inline` comes from. `in_both_modes` says
    that the module computes the same after train() and eval(). What was measured `beside` torch.compile is told, and a
    class hands over to that what it does faster. Raises CaptureError for what cannot be written.
    """
    served = alike(plan)
    first = {step.name: step for step in served.values()}
    operators = [operator(step, plan.types, plan.gpu) for step in first.values()]
    computes = not (source and beside and beside.hands_all)
    whole = at_once.function(plan, served) if at_once.is_written(plan) else ""
    parts = [
        f'"""{header(plan, name, operators, served, beside)}"""',
        _imports(source, loader if operators and computes else "", returned_classes(plan.graph) if computes else {}),
        definitions_without_imports(source),
        *(_kernels(operators, name, whole) if computes else ()),
        _CHECK,
        LYING if computes and needs_strides(plan.graph) else "",
        _class(plan, served, in_both_modes=in_both_modes, beside=beside) if source else _function(plan, served),
    ]
    head, *code = (part.rstrip("\n") + "\n" for part in parts if part)
    return re.sub(r"\n{4,}", "\n\n\n", "\n\n".join([head, *map(folded, code)]))


def _imports(source: str, loader: str, classes: Mapping[tuple[str, str], str]) -> str:
    found = [line for line in definitions(source).splitlines() if re.match(r"(import|from) ", line)]
    ours = ["import torch", f"from {loader} import load_inline"] if loader else ["import torch"]
    ours += [f"from {module} import {name} as {word}" for (module, name), word in classes.items()]
    return "\n".join(dict.fromkeys([*found, *(line for line in ours if line not in found)]))


def definitions_without_imports(source: str) -> str:
    """The reference's class and what it uses, under the imports that all share."""
    lines = [line for line in definitions(source).splitlines() if not re.match(r"(import|from) ", line)]
    return "\n".join(lines).strip("\n")


def _kernels(operators: list[Operator], name: str, whole: str) -> list[str]:
    if not operators:
        return []
    hosts = [host for op in operators for host in op.hosts]
    functions = ", ".join(f'"{each}"' for each in exported(operators, whole))
    word, of_cuda, of_cpp = re.sub(r"\W", "_", name), kernels(hosts), cpp(operators, whole)
    build = [
        "kernels = load_inline(",
        f'    name="{word}_{digest(of_cpp, of_cuda)}",',  # another text is another extension
        "    cpp_sources=TENSORS,",
        "    cuda_sources=KERNELS,",
        f"    functions=[{functions}],",
        f"    extra_cflags={json.dumps(HOST_FLAGS)},",
        f"    extra_cuda_cflags={json.dumps(flags(hosts))},",
        "    no_implicit_headers=True,",
        ")",
        'library = torch.library.Library(f"crucible_{__name__}".replace(".", "_"), "DEF")',
        "operators = getattr(torch.ops, library.ns)",
    ]
    asks = any(op.keeping or not op.step.wanted for op in operators)
    return [
        f'KERNELS = r"""\n{of_cuda}"""',
        f'TENSORS = r"""\n{of_cpp}"""',
        "\n".join(build),
        _CALLS,
        at_once.PYTHON if whole else "",
        _ASKS if asks else "",
        "\n".join(line for op in operators for line in registration(op)).strip("\n"),
    ]


def _class(plan: Plan, served: Mapping[str, Fused], *, in_both_modes: bool, beside: Beside | None) -> str:
    """For other inputs, or in another mode, the module does what it did before."""
    handed = beside.lines(_arguments(plan)) if beside else []
    mode = [] if in_both_modes else ["self.training" if plan.graph.training else "not self.training"]
    checks = mode + _checks(plan)
    fits = [f"if not ({' and '.join(checks)}):", f"    return super().forward({', '.join(_arguments(plan))})"]
    computed = [] if beside and beside.hands_all else body(plan, served)
    lines = [*(fits if checks else []), *handed, *computed]
    start = ["class ModelNew(Model):", '    """The module, its parameters built as before."""', ""]
    start = [*beside.definitions, "", "", *start] if beside and handed else start
    return "\n".join([*start, f"    def forward({_parameters(plan)}):", *(f"        {line}" for line in lines)])


def _function(plan: Plan, served: Mapping[str, Fused]) -> str:
    refuse = '    raise ValueError("these kernels were written for inputs of other shapes or dtypes")'
    checks = _checks(plan)
    lines = [*([f"if not ({' and '.join(checks)}):", refuse] if checks else []), *body(plan, served)]
    return "\n".join([f"def forward({_parameters(plan)}):", *(f"    {line}" for line in lines)])


def _arguments(plan: Plan) -> dict[str, Literal | None]:
    """What forward calls its arguments: tensors as the graph does, numbers and None, on which the graph depends, by
    their places; with what they are written for."""
    given = enumerate(plan.graph.arguments)
    return dict((each.name, None) if isinstance(each, Ref) else (f"_{place}", each) for place, each in given)


def _parameters(plan: Plan) -> str:
    """Of forward; what no tensor follows need not be given."""
    words = list(_arguments(plan).items())
    tensors = [place for place, each in enumerate(plan.graph.arguments) if isinstance(each, Ref)]
    needed = tensors[-1] + 1 if tensors else 0
    named = [name for name, _ in words[:needed]] + [f"{name}={_literal(value)}" for name, value in words[needed:]]
    return ", ".join(["self", *named])


def _checks(plan: Plan) -> list[str]:
    """Whether forward's arguments are those that the kernels were written for."""
    tensors = [f"_fits({v.name}, {v.tensor.shape}, torch.{v.tensor.dtype})" for v in plan.graph.inputs]
    numbers = ((name, value) for name, value in _arguments(plan).items() if name.startswith("_"))
    return [*tensors, *(_is(name, value) for name, value in numbers)]


def _is(name: str, value: Literal | None) -> str:
    if value is None or isinstance(value, bool):
        return f"{name} is {value}"
    same = f"{name} != {name}" if value != value else f"{name} == {_literal(value)}"
    return f"type({name}) is {type(value).__name__} and {same}"


def _literal(value: Literal | None) -> str:
    return f'float("{value}")' if isinstance(value, float) and not math.isfinite(value) else repr(value)
