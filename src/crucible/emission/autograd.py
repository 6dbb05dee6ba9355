"""C++: the functions of a step, and how autograd calls them, past PyTorch's dispatcher and past Python."""

from __future__ import annotations

from crucible.emission.at_once import FUNCTION, UNLEARNED
from crucible.emission.extension import tensors
from crucible.emission.host import SCALAR, Host, braced
from crucible.emission.operator import Operator, function, gradients, seen
from crucible.plan.steps import Fused

_HEADERS = (
    "ATen/core/dispatch/Dispatcher.h",
    "c10/core/GradMode.h",
    "c10/core/impl/LocalDispatchKeySet.h",
    "torch/csrc/autograd/custom_function.h",
)
_NAMES = """\
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
"""
_PLAIN = """\
// Whether nobody but autograd has to know what is computed: no mode, no transform, no tensor of another kind.
// Past autograd, PyTorch's dispatcher would go to the kernels of the GPU at once.
bool are_plain(const variable_list& given) {
  const auto thread = c10::impl::tls_local_dispatch_key_set();
  c10::DispatchKeySet keys = thread.included_;
  for (const torch::Tensor& each : given) keys = keys | each.key_set();
  keys = keys - thread.excluded_ - c10::autograd_dispatch_keyset_with_ADInplaceOrView;
  keys = keys.remove(c10::DispatchKey::BackendSelect);
  return keys.highestPriorityTypeId() == c10::DispatchKey::CUDA;
}
"""
_WATCHED = """\
// Whether somebody looks on while a gradient is computed: also autograd, if it is asked for the gradient's own.
static bool is_watched(const torch::Tensor& given) {
  return c10::GradMode::is_enabled() || !are_plain({given});
}

// By an operator, for those who look on; `library` is where Python registered it.
static variable_list call_operator(const std::string& library, const std::string& name, const variable_list& given) {
  c10::Stack stack(given.begin(), given.end());
  c10::Dispatcher::singleton().findSchemaOrThrow((library + "::" + name).c_str(), "").callBoxed(stack);
  variable_list made;
  for (const auto& each : stack) made.push_back(each.toTensor());
  return made;
}
"""


def cpp(operators: list[Operator], whole: str = "") -> str:
    """The C++ source beside the kernels; `whole` is a function over all steps, if there is one."""
    hosts = [host for op in operators for host in op.hosts]
    learning = [op for op in operators if op.step.wanted]
    unlearned = bool(whole) and len(learning) < len(operators)
    shared = [_NAMES, _PLAIN, *([_WATCHED] if unlearned or any(op.backward for op in learning) else [])]
    ends = [*([UNLEARNED] if unlearned else []), *([whole] if whole else [])]
    return "\n".join([tensors(hosts, _HEADERS), *shared, *(_learning(op) for op in learning), *ends])


def exported(operators: list[Operator], whole: str = "") -> list[str]:
    """The names of the functions that Python calls."""
    hosts = [host.name for op in operators for host in op.hosts]
    fused = [f"fused_{op.step.name}" for op in operators if op.step.wanted]
    return [*hosts, "are_plain", *fused, *([FUNCTION] if whole else [])]


def _learning(op: Operator) -> str:
    """The step as autograd knows it, and the function that asks whether it has to."""
    name = function(op.step)
    return "\n".join(
        [
            f"struct {name} : torch::autograd::Function<{name}> {{",
            *_forward(op),
            "",
            *_backward(op),
            "};",
            "",
            *_called(op),
        ]
    )


def _forward(op: Operator) -> list[str]:
    """Only what the module reads goes out: what backward alone reads is no concern of autograd's."""
    host, step = op.learning[0], op.step
    made = list(host.makes)
    kept = [name if name in step.reads else f"made[{made.index(name)}]" for name in op.kept]
    lines = [
        f"  static {_result(op)} forward(AutogradContext* ctx, {_parameters(op)}, const std::string& library) {{",
        f"    const variable_list made = {host.name}({', '.join(step.reads)});",
        "    ctx->set_materialize_grads(false);",
    ]
    if op.backward:
        lines.append('    ctx->saved_data["library"] = library;')
    if kept:
        lines.append(f"    ctx->save_for_backward({{{', '.join(kept)}}});")
    if step.beside:
        lines.append(f"    ctx->mark_non_differentiable({{made.begin() + {len(step.results)}, made.end()}});")
    return [*lines, f"    return {_returned(step, learns=True)};", "  }"]


def _returned(step: Fused, *, learns: bool) -> str:
    """Of `made`, what the module reads, by all names. To autograd each name is a tensor of its own over the memory."""
    if not (step.again or step.further or step.beside):
        return "made[0]"
    if not step.again and step.beside:
        return "made"
    place = {name: n for n, name in enumerate(step.results)}
    words = [f"made[{n}]" for n in place.values()]
    words += [f"made[{place[held]}]{'.variable_data()' * learns}" for held in step.again.values()]
    words += [f"made[{len(place) + len(step.saved) + n}]" for n in range(len(step.beside))]
    return f"{{{', '.join(words)}}}"


def _backward(op: Operator) -> list[str]:
    step, host = op.step, op.backward
    lines = [
        "  static variable_list backward(AutogradContext* ctx, const variable_list& given) {",
        f"    if ({' && '.join(f'!given[{k}].defined()' for k in range(len(step.upstream)))}) "
        f"return variable_list({len(step.reads) + 1});",
    ]
    if len(step.upstream) > 1:
        lines += _all_given(step)
    if host:
        lines += _computed(op, host)
    of_tensors = ["given[0]"] if step.is_copy else [_gradient(op, name) for name in step.reads]
    return [*lines, f"    return {{{', '.join([*of_tensors, 'torch::Tensor()'])}}};", "  }"]


def _upstream(step: Fused, place: int) -> str:
    """The gradient of a result."""
    return f"{'upstream' if len(step.upstream) > 1 else 'given'}[{place}]"


def _all_given(step: Fused) -> list[str]:
    """Where the gradient of one of several does not come, it is 0."""
    count = len(step.upstream)
    lines = [
        f"    variable_list upstream = {{given.begin(), given.begin() + {count}}};",
        "    torch::Tensor some;",
        "    for (const torch::Tensor& each : upstream) some = each.defined() ? each : some;",
    ]
    for place, type_ in enumerate(step.upstream.values()):
        zeros = f"torch::zeros({braced(type_.shape)}, some.options().dtype(torch::{SCALAR[type_.dtype]}))"
        lines += [f"    if (!upstream[{place}].defined())", f"      upstream[{place}] = {zeros};"]
    return lines


def _computed(op: Operator, host: Host) -> list[str]:
    step = op.step
    upstream = [_upstream(step, k) for k in range(len(step.upstream))]
    given = ", ".join([*upstream, *(f"kept[{k}]" for k in range(len(op.kept)))])
    return [
        *(["    const variable_list kept = ctx->get_saved_variables();"] if op.kept else []),
        f"    const variable_list made = is_watched({upstream[0]})",
        f'        ? call_operator(ctx->saved_data["library"].toStringRef(), "{step.name}_backward", {{{given}}})',
        f"        : {host.name}({given});",
    ]


def _gradient(op: Operator, tensor: str) -> str:
    """The gradient of a tensor: of all operands that read it. That it is 0 everywhere takes no kernel."""
    found = gradients(op, tensor)
    if found is None:
        return "torch::Tensor()"
    made = list(op.backward.makes) if op.backward else []
    type_ = op.forward.takes[tensor]
    zero = f"torch::zeros({braced(type_.shape)}, {_upstream(op.step, 0)}.options().dtype(torch::{SCALAR[type_.dtype]}))"

    def word(name: str) -> str:
        return f"made[{made.index(name)}]" if name in made else _upstream(op.step, [*op.step.upstream].index(name))

    terms = []
    for name, of in found:
        term = seen(op.step, name, word)
        terms.append(term if of.shape == type_.shape else f"{term}.reshape({braced(type_.shape)})")
    return " + ".join(terms) or zero


def _called(op: Operator) -> list[str]:
    """What Python calls."""
    step = op.step
    reads = step.reads
    learns = dict.fromkeys(held for name, held in step.operands.items() if name in step.wanted)
    asks = " || ".join(f"{name}.requires_grad()" for name in learns)
    run = f"{op.forward.name}({', '.join(reads)})"
    ends = [f"  return {run}{'' if step.beside else '[0]'};"]
    if step.further or step.again:
        ends = [f"  const variable_list made = {run};", f"  return {_returned(step, learns=False)};"]
    return [
        f"{_result(op)} fused_{step.name}({_parameters(op)}, const std::string& library) {{",
        f"  if (c10::GradMode::is_enabled() && ({asks}))",
        f"    return {function(step)}::apply({', '.join([*reads, 'library'])});",
        *ends,
        "}",
        "",
    ]


def _result(op: Operator) -> str:
    several = op.step.beside or op.step.further or op.step.again
    return "variable_list" if several else "torch::Tensor"


def _parameters(op: Operator) -> str:
    return ", ".join(f"const torch::Tensor& {name}" for name in op.step.reads)
