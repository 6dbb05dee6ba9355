"""C++: all steps of a forward in one function, for networks that take longer to be called from Python than to be
computed: the 67 launches of a BERT of three layers took an H200's host 1.86 ms, its kernels 1.20."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence

from crucible.emission.calls import RESHAPED, SPLIT
from crucible.emission.host import SCALAR
from crucible.emission.updates import at_the_end, counted, detached, of_kernels, read_by, waiting
from crucible.graph import Argument, Operation, Ref
from crucible.plan.steps import Call, Fused, Plan

FUNCTION = "at_once"
"""What it is called, there and in Python."""
FEWEST_STEPS = 4
"""For which it pays to have one."""
_LARGEST_INT = 2**31 - 1
_OWN = frozenset({"given", "library", "variable_list", "unlearned", "are_plain", FUNCTION})
"""Names that the function has for other things."""


def _convolution(rank: int, turned: bool) -> str:
    given, window = "{input}, {weight}, {bias}", "{stride}, {padding}"
    if turned:
        return f"at::conv_transpose{rank}d({given}, {window}, {{output_padding}}, {{groups}}, {{dilation}})"
    return f"at::conv{rank}d({given}, {window}, {{dilation}}, {{groups}})"


FORMS = {
    **{f"conv{rank}d.default": _convolution(rank, False) for rank in (1, 2, 3)},
    **{f"conv_transpose{rank}d.{word}": _convolution(rank, True)
       for rank, word in ((1, "default"), (2, "input"), (3, "input"))},
    "linear.default": "at::linear({input}, {weight}, {bias})",
    "matmul.default": "at::matmul({self}, {other})",
    "mm.default": "at::mm({self}, {mat2})",
    "bmm.default": "at::bmm({self}, {mat2})",
    "cat.default": "at::cat(variable_list{tensors}, {dim})",
    "stack.default": "at::stack(variable_list{tensors}, {dim})",
    "scaled_dot_product_attention.default": "at::scaled_dot_product_attention({query}, {key}, {value}, {attn_mask}, "
                                            "{dropout_p}, {is_causal}, {scale}, {enable_gqa})",
    "embedding.default": "at::embedding({weight}, {indices}, {padding_idx}, {scale_grad_by_freq}, {sparse})",
    "dropout.default": "at::dropout({input}, {p}, {train})",
    "add.Tensor": "at::add({self}, {other}, {alpha})",
    "cumsum.default": "at::cumsum({self}, {dim}, {dtype})",
    "glu.default": "at::glu({self}, {dim})",
    "roll.default": "at::roll({self}, {shifts}, {dims})",
    "flip.default": "{self}.flip({dims})",
    "pixel_unshuffle.default": "at::pixel_unshuffle({self}, {downscale_factor})",
    "permute.default": "{self}.permute({dims})",
    "transpose.int": "{self}.transpose({dim0}, {dim1})",
    "unsqueeze.default": "{self}.unsqueeze({dim})",
    "squeeze.dim": "{self}.squeeze({dim})",
    "select.int": "{self}.select({dim}, {index})",
    "slice.Tensor": "{self}.slice({dim}, {start}, {end}, {step})",
    "unbind.int": "{self}.unbind({dim})",
    "chunk.default": "{self}.chunk({chunks}, {dim})",
    "expand.default": "{self}.expand({size})",
    "contiguous.default": "{self}.contiguous()",
    "detach.default": "{self}.detach()",
    "broadcast_tensors.default": "at::broadcast_tensors(variable_list{tensors})",
    "einsum.default": "at::einsum({equation}, variable_list{tensors})",
    "index.Tensor": "at::index({self}, c10::List<std::optional<at::Tensor>>({indices}))",
    "max.dim": "at::max({self}, {dim}, {keepdim})",
    "min.dim": "at::min({self}, {dim}, {keepdim})",
    "pad.default": "at::constant_pad_nd({self}, {pad}, {value})",
    "constant_pad_nd.default": "at::constant_pad_nd({self}, {pad}, {value})",
    "pixel_shuffle.default": "at::pixel_shuffle({self}, {upscale_factor})",
    "mse_loss.default": "at::mse_loss({self}, {target}, {reduction})",
    "cross_entropy_loss.default": "at::cross_entropy_loss({self}, {target}, {weight}, {reduction}, {ignore_index}, "
                                  "{label_smoothing})",
    **{f"upsample_nearest{rank}d.vec": f"at::upsample_nearest{rank}d({{input}}, std::nullopt, {{scale_factors}})"
       for rank in (1, 2, 3)},
    **{f"upsample_{kind}.vec": f"at::upsample_{kind}({{input}}, std::nullopt, {{align_corners}}, {{scale_factors}})"
       for kind in ("bilinear2d", "trilinear3d")},
    "to.dtype": "{self}.to({options}.dtype())",  # its device stays
    "arange.default": "at::arange({end}, {options})",
    "arange.start": "at::arange({start}, {end}, {options})",
    "zeros.default": "at::zeros({size}, {options})",
    "ones.default": "at::ones({size}, {options})",
    "eye.default": "at::eye({n}, {options})",
}  # fmt: skip
"""By operator and overload of `aten`, with their arguments by name; `options` are the dtype, and a device as that of
the first tensor from outside."""
_LISTS = frozenset({"unbind.int", "chunk.default", "broadcast_tensors.default"})
"""Of these they are a list."""
_VALUES_AND_PLACES = frozenset({"max.dim", "min.dim"})
"""Of these the results are a pair."""
_NEEDED: dict[str, dict[str, Argument]] = {
    "contiguous.default": {"memory_format": 0},
    "pad.default": {"mode": "constant"},
    "expand.default": {"implicit": False},
    "to.dtype": {"non_blocking": False, "copy": False, "memory_format": None},
    "einsum.default": {"path": None},
    **{f"upsample_{kind}.vec": {"output_size": None}
       for kind in ("nearest1d", "nearest2d", "nearest3d", "bilinear2d", "trilinear3d")},
}  # fmt: skip
"""What arguments must be that their form does not say."""
_OPTIONS = frozenset({"dtype", "layout", "device", "pin_memory"})
"""Arguments that `options` stands for."""
UNLEARNED = """\
// A step that has no gradient: one that is asked for all the same is the operator's to miss, in PyTorch's words.
template <typename Run, typename... Given>
static variable_list unlearned(Run run, const std::string& library, const std::string& name, const Given&... given) {
  if (c10::GradMode::is_enabled() && (given.requires_grad() || ...)) return call_operator(library, name, {given...});
  return run(given...);
}
"""
PYTHON = f"""\
def _{FUNCTION}(state):
    \"\"\"What all steps make of these tensors, computed by one function in C++; nothing where somebody looks on.\"\"\"
    if torch.compiler.is_compiling() or torch._C._len_torch_function_stack() or not _PLAIN.issuperset(map(type, state)):
        return []
    return kernels.{FUNCTION}(state, library.ns)
"""


def is_written(plan: Plan) -> bool:
    """Whether there is such a function: all steps are known here, and they are several."""
    calls = [step.operation for step in plan.steps if isinstance(step, Call)]
    read = read_by(plan)
    makes_own = any(constant.value.name in read for constant in plan.graph.constants)
    fuses = any(isinstance(step, Fused) for step in plan.steps)
    several = len(plan.steps) >= FEWEST_STEPS and bool(plan.graph.outputs)
    return fuses and several and not makes_own and all(map(is_known, calls))


def is_known(operation: Operation) -> bool:
    """Whether there is a form that says all of its arguments."""
    name, args = operation.target.removeprefix("aten."), operation.args
    if name in RESHAPED or name in SPLIT:
        return True
    form, needed = FORMS.get(name, ""), _NEEDED.get(name, {})
    implied = {*needed, *(_OPTIONS if "{options}" in form else ())}
    said = {word for word in args if word not in implied}
    all_said = all(f"{{{word}}}" in form for word in said)  # nothing that a form leaves out
    plain = not any(isinstance(args[word], str) for word in said - {"equation"})
    return all_said and plain and needed.items() <= args.items() and operation.outputs[0].tensor.dtype in SCALAR


def outside(plan: Plan) -> list[str]:
    """The tensors that the function takes, by the graph's names: inputs, parameters and buffers that are read or
    changed, or are results."""
    graph = plan.graph
    wanted = {*read_by(plan), *(each.buffer for each in graph.mutations), *graph.outputs}
    wanted |= {buffer for step in plan.steps if isinstance(step, Fused) for buffer in step.updates.values()}
    held = [value.name for value in graph.inputs] + [each.value.name for each in graph.parameters]
    return [name for name in held if name in wanted]


def function(plan: Plan, served: Mapping[str, Fused]) -> str:
    """The function: it takes what `outside` says and makes the graph's outputs, or nothing where somebody looks on."""
    words = _Words(plan)
    lines = [
        "#ifdef GPU_IS_EMULATED  // no tensor is a GPU's there",
        f"variable_list {FUNCTION}(const variable_list&, const std::string&) {{ return {{}}; }}",
        "#else",
        f"variable_list {FUNCTION}(const variable_list& given, const std::string& library) {{",
        "  if (!are_plain(given)) return {};",
        *(f"  const torch::Tensor& {words(name)} = given[{place}];" for place, name in enumerate(outside(plan))),
    ]
    later, added = waiting(plan), counted(plan)
    for step in plan.steps:
        if isinstance(step, Fused):
            lines += _fused(step, served[step.name], later, words)
        elif step.results[0] not in added:
            lines += _called(step, words)
    lines += _copied([(buffer, name) for name, buffer in later.items()], words)
    lines += _changed(plan, added, words)
    return "\n".join([*lines, f"  return {{{', '.join(map(words, plan.graph.outputs))}}};", "}", "#endif", ""])


class _Words:
    """What the function calls tensors: as the plan does, unless it has that name for something else."""

    def __init__(self, plan: Plan) -> None:
        made = {name for step in plan.steps if isinstance(step, Fused) for name in step.beside}
        made |= {name for step in plan.steps for name in step.names}
        names = {*plan.graph.values, *made}
        self._taken = names | _OWN
        self._renamed = {name: self.new(name) for name in sorted(names) if _is_own(name)}

    def __call__(self, name: str) -> str:
        return self._renamed.get(name, name)

    def new(self, wanted: str) -> str:
        """A name that nothing has."""
        while wanted in self._taken or _is_own(wanted):
            wanted = f"{wanted}_" if wanted in _OWN or wanted in self._taken else f"of_{wanted}"
        self._taken.add(wanted)
        return wanted


def _is_own(name: str) -> bool:
    return name in _OWN or name.startswith(("fused_", "run_"))


def _fused(step: Fused, served: Fused, later: Mapping[str, str], words: _Words) -> list[str]:
    """A step of ours; new values of buffers that others still read are copied there at once."""
    apart = detached(step)
    given = ", ".join(f"{words(name)}{'.detach()' * (name in apart)}" for name in step.reads)
    call = f'unlearned(&run_{served.name}, library, "{served.name}", {given})'
    if step.wanted:
        call = f"fused_{served.name}({given}, library)"
    if len(step.readable) == 1 and not step.beside:
        return [f"  const torch::Tensor {words(step.result)} = {call}{'' if step.wanted else '[0]'};"]
    every = words.new(f"{step.result}_and_more")
    lines = [f"  const variable_list {every} = {call};"]
    for place, name in enumerate(step.readable):
        lines.append(f"  const torch::Tensor {words(name)} = {every}[{place}];")
    for place, name in enumerate(step.beside):
        lines.append(f"  const torch::Tensor {words(name)} = {every}[{every}.size() - {len(step.beside) - place}];")
    return [*lines, *_copied([(buffer, name) for name, buffer in step.updates.items() if name not in later], words)]


def _copied(pairs: Sequence[tuple[str, str]], words: _Words) -> list[str]:
    """New values into buffers."""
    if len(pairs) < 2:
        return [f"  {words(buffer)}.copy_({words(name)});" for buffer, name in pairs]
    buffers, names = (", ".join(words(pair[which]) for pair in pairs) for which in (0, 1))
    return [f"  at::_foreach_copy_(variable_list{{{buffers}}}, variable_list{{{names}}});"]


def _changed(plan: Plan, added: Mapping[str, int], words: _Words) -> list[str]:
    """What else is copied, and added, to buffers at the end."""
    copied, more = at_the_end(plan, added)
    together, apart = of_kernels(plan, copied)
    lines = _copied(together, words) + [line for pair in apart for line in _copied([pair], words)]
    adding = [
        f"  at::_foreach_add_(variable_list{{{', '.join(map(words, buffers))}}}, {n});" for n, buffers in more.items()
    ]
    return [*lines, *adding]


def _called(step: Call, words: _Words) -> list[str]:
    """A call of PyTorch."""
    operation = step.operation
    name, args = operation.target.removeprefix("aten."), operation.args
    if name in RESHAPED:
        call = f"{_given(next(iter(args.values())), words)}.reshape({_given(operation.output.tensor.shape, words)})"
    elif name in SPLIT:
        dim = args["dim"]
        assert isinstance(dim, int)
        sizes = tuple(each.tensor.shape[dim] for each in operation.outputs)
        call = f"at::split_with_sizes({_given(args['self'], words)}, {_given(sizes, words)}, {dim})"
    else:
        options = f"given[0].options().dtype(torch::{SCALAR[operation.outputs[0].tensor.dtype]})"
        call = FORMS[name].format(**{word: _given(argument, words) for word, argument in args.items()}, options=options)
    if name in _VALUES_AND_PLACES:
        both = words.new(f"{step.results[0]}_and_places")
        each = [f"  const torch::Tensor {words(made)} = std::get<{n}>({both});" for n, made in enumerate(step.results)]
        return [f"  const auto {both} = {call};", *each]
    if name not in SPLIT and name not in _LISTS:
        return [f"  const torch::Tensor {words(step.results[0])} = {call};"]
    every = words.new(f"parts_of_{step.results[0]}")
    each = [f"  const torch::Tensor {words(result)} = {every}[{n}];" for n, result in enumerate(step.results)]
    return [f"  const variable_list {every} = {call};", *each]


def _given(argument: Argument, words: _Words) -> str:
    """An argument in C++."""
    if isinstance(argument, Ref):
        return words(argument.name)
    if isinstance(argument, tuple):
        items = ", ".join(_given(each, words) for each in argument)
        if any(isinstance(each, Ref) for each in argument):
            return f"{{{items}}}"
        of = "at::ArrayRef<double>" if any(isinstance(each, float) for each in argument) else "at::IntArrayRef"
        return f"{of}({{{items}}})" if items else f"{of}()"
    if argument is None:
        return "{}"
    if isinstance(argument, bool):
        return "true" if argument else "false"
    if isinstance(argument, float) and not math.isfinite(argument):
        return "NAN" if argument != argument else f"{'-' * (argument < 0)}INFINITY"
    if isinstance(argument, str):
        return json.dumps(argument)
    return f"{argument}LL" if isinstance(argument, int) and abs(argument) > _LARGEST_INT else repr(argument)
