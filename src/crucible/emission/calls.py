"""Python: a call of PyTorch, as people write it.

A call by keyword through `torch.ops.aten.linear.default` takes 8.6 us of a CPU's time where `linear(x, w, b)` takes
4.8, a view 4.3 where a method takes 1.3 (Python 3.11; a small machine), and a network has hundreds.

Whatever PyTorch makes may lie otherwise on another device than where the module was traced: attention lays its
result in batch, heads, places or in batch, places, heads. So a view of other sizes is taken by `reshape`, which copies
where no view is; and what depends on strides themselves gets those that it was traced with.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from crucible.graph import Argument, Graph, Operation, Ref

Words = Callable[[Argument], str]
"""An argument as forward has it."""


class _Form(NamedTuple):
    """A function of PyTorch's that takes the same arguments by their places."""

    callee: str
    """One that begins with a dot is a method of the first."""
    defaults: tuple[tuple[str, Argument], ...] = ()
    """What need not be said."""
    by_name: frozenset[str] = frozenset()
    """What cannot be given by its place."""


def _form(callee: str, by_name: str = "", **defaults: Argument) -> _Form:
    return _Form(callee, tuple(defaults.items()), frozenset(by_name.split()))


def _convolution(kind: str, rank: int) -> _Form:
    ones, zeros = (1,) * rank, (0,) * rank
    if "transpose" not in kind:
        return _form(f"torch.{kind}", bias=None, stride=ones, padding=zeros, dilation=ones, groups=1)
    return _form(f"torch.{kind}", bias=None, stride=ones, padding=zeros, output_padding=zeros, groups=1, dilation=ones)


_OF_NN = "torch.nn.functional"
_FORMS = {
    **{f"conv{rank}d.{word}": _convolution(f"conv{rank}d", rank)
       for rank in (1, 2, 3) for word in ("default", "padding")},
    **{f"conv_transpose{rank}d.{word}": _convolution(f"conv_transpose{rank}d", rank)
       for rank, word in ((1, "default"), (2, "input"), (3, "input"))},
    "linear.default": _form(f"{_OF_NN}.linear", bias=None),
    **{f"{kind}.default": _form(f"torch.{kind}") for kind in ("matmul", "mm", "bmm", "cat", "stack")},
    "scaled_dot_product_attention.default": _form(
        f"{_OF_NN}.scaled_dot_product_attention", by_name="scale enable_gqa", attn_mask=None, dropout_p=0.0,
        is_causal=False, scale=None, enable_gqa=False,
    ),
    "embedding.default": _form("torch.embedding", padding_idx=-1, scale_grad_by_freq=False, sparse=False),
    "dropout.default": _form("torch.dropout"),
    "add.Tensor": _form("torch.add", by_name="alpha", alpha=1),
    "cumsum.default": _form("torch.cumsum", by_name="dtype", dtype=None),
    "glu.default": _form("torch._C._nn.glu"),
    "permute.default": _form(".permute"),
    "transpose.int": _form(".transpose"),
    "unsqueeze.default": _form(".unsqueeze"),
    "squeeze.dim": _form(".squeeze"),
    "select.int": _form(".select"),
    "unbind.int": _form(".unbind", dim=0),
    "chunk.default": _form(".chunk", dim=0),
    "expand.default": _form(".expand", by_name="implicit", implicit=False),
    "contiguous.default": _form(".contiguous", by_name="memory_format", memory_format=0),
}  # fmt: skip
"""By operator and overload of `aten`."""
RESHAPED = frozenset({
    "view.default", "_unsafe_view.default", "reshape.default", "view_as.default", "unflatten.int", "flatten.using_ints",
})  # fmt: skip
SPLIT = frozenset({"split.Tensor", "split_with_sizes.default", "split.sizes"})
_STRIDED = frozenset({"as_strided.default", "view_as_complex.default", "view.dtype"})
"""What depends on the strides of what it is given."""


def expression(operation: Operation, graph: Graph, words: Words, device: str) -> str:
    """The call; `device` is where forward makes tensors of its own."""
    name = operation.target.removeprefix("aten.")
    if name in RESHAPED:
        first = next(iter(operation.args.values()))
        return f"{words(first)}.reshape({', '.join(map(str, operation.output.tensor.shape)) or '()'})"
    if name in SPLIT:
        dim = operation.args["dim"]
        assert isinstance(dim, int)
        sizes = tuple(each.tensor.shape[dim] for each in operation.outputs)
        return f"torch.split_with_sizes({words(operation.args['self'])}, {words(sizes)}, {dim})"
    form = _FORMS.get(name)
    if form is not None:
        return _called(form, operation, words)
    given = [
        f"{name}={device if name == 'device' else _pinned(operation, argument, graph, words)}"
        for name, argument in operation.args.items()
        if name not in ("pin_memory", "layout")
    ]
    return f"torch.ops.{operation.target}({', '.join(given)})"


def _called(form: _Form, operation: Operation, words: Words) -> str:
    args, defaults = operation.args, dict(form.defaults)
    by_place = [name for name in args if name not in form.by_name]
    while by_place and by_place[-1] in defaults and args[by_place[-1]] == defaults[by_place[-1]]:
        by_place.pop()
    given = [words(args[name]) for name in by_place]
    given += [f"{name}={words(args[name])}" for name in args if name in form.by_name and args[name] != defaults[name]]
    if not form.callee.startswith("."):
        return f"{form.callee}({', '.join(given)})"
    return f"{given[0]}{form.callee}({', '.join(given[1:])})"


def _pinned(operation: Operation, argument: Argument, graph: Graph, words: Words) -> str:
    """An argument; where strides matter, laid as it was traced."""
    is_strided = operation.target.removeprefix("aten.") in _STRIDED
    if not (is_strided and isinstance(argument, Ref) and argument.name in graph.producers):
        return words(argument)
    return f"_lying({words(argument)}, {words(graph.values[argument.name].tensor.strides)})"


def needs_strides(graph: Graph) -> bool:
    """Whether `_lying` is called."""
    operations = (each for each in graph.operations if each.target.removeprefix("aten.") in _STRIDED)
    return any(name in graph.producers for each in operations for name in each.inputs)


LYING = '''\
def _lying(given, strides):
    """The tensor, in memory as what follows was written for: a GPU's kernels may lay theirs otherwise."""
    if given.stride() == strides:
        return given
    return torch.empty_strided(given.shape, strides, dtype=given.dtype, device=given.device).copy_(given)
'''
