"""Honest candidates of odd build, each right: the text of a file that replaces `data/odd_task`, by name.

Most differ from the reference in how they hold their weights, the others in how they compute.
"""

from __future__ import annotations

import textwrap

HEAD = """
import collections, copy, dataclasses, functools, math
import torch
from torch import nn
import torch.nn.functional as F
from torch.nn.utils import parametrizations, parametrize

def compute(x, w, b, scale, shift, left, right):
    hidden = F.gelu(F.layer_norm(F.linear(x, w, b), (16,), scale, shift))
    return F.linear(hidden, left) * torch.tanh(F.linear(hidden, right))

class Reference(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.first = nn.Linear(width, inner)
        self.norm = nn.LayerNorm(inner)
        self.left = nn.Linear(inner, inner, bias=False)
        self.right = nn.Linear(inner, inner, bias=False)

    def weights(self):
        first, norm = self.first, self.norm
        return first.weight, first.bias, norm.weight, norm.bias, self.left.weight, self.right.weight

    def forward(self, x):
        return compute(x, *self.weights())
"""
"""What all may use. `Reference` has the reference's names."""

INIT, FORWARD = "def __init__(self, width, inner):", "def forward(self, x):"


def module(init: str, forward: str, base: str = "nn.Module", more: str = "") -> str:
    """A class ModelNew with these bodies."""
    parts = [f"class ModelNew({base}):", f"    {INIT}", "        super().__init__()"]
    parts[2] = "        super().__init__(width, inner)" if base == "Reference" else parts[2]
    body = textwrap.indent(textwrap.dedent(init).strip(), "        ")
    run = textwrap.indent(textwrap.dedent(forward).strip(), "        ")
    extra = textwrap.indent(textwrap.dedent(more).strip(), "    ")
    return "\n".join([*parts, body, f"    {FORWARD}", run, extra, ""])


def same_names(forward: str, init: str = "pass", more: str = "") -> str:
    """A candidate with the reference's names and a forward of its own."""
    return module(init, forward, "Reference", more)


LAYERS = "nn.Linear(width, inner), nn.LayerNorm(inner), nn.Linear(inner, inner, False), nn.Linear(inner, inner, False)"
TENSORS = "first.weight, first.bias, norm.weight, norm.bias, left.weight, right.weight"
MADE = f"first, norm, left, right = {LAYERS}"
RENAMED = f"self.gemm, self.ln, self.value, self.gate = {LAYERS}"
OF_RENAMED = "self.gemm.weight, self.gemm.bias, self.ln.weight, self.ln.bias, self.value.weight, self.gate.weight"

WEIGHTS_ELSEWHERE = {
    "renamed": module(RENAMED, f"return compute(x, {OF_RENAMED})"),
    "sequential": module(
        "self.body = nn.Sequential(nn.Linear(width, inner), nn.LayerNorm(inner), nn.GELU())\n"
        "self.ends = nn.Sequential(nn.Linear(inner, inner, False), nn.Linear(inner, inner, False))",
        "hidden = self.body(x)\nreturn self.ends[0](hidden) * torch.tanh(self.ends[1](hidden))",
    ),
    "prefix": module("self.inner = Reference(width, inner)", "return self.inner(x)"),
    "prefix_twice": module("self.a = nn.Module()\nself.a.b = Reference(width, inner)", "return self.a.b(x)"),
    "compiled_inside": module(
        "self.fast = torch.compile(Reference(width, inner), backend='eager')", "return self.fast(x)"
    ),
    "module_list": module(
        f"self.layers = nn.ModuleList([{LAYERS}])",
        "a, n, b, c = self.layers\nreturn compute(x, a.weight, a.bias, n.weight, n.bias, b.weight, c.weight)",
    ),
    "module_dict": module(
        f"self.layers = nn.ModuleDict(dict(zip('abcd', [{LAYERS}])))",
        "a, n, b, c = self.layers.values()\nreturn compute(x, a.weight, a.bias, n.weight, n.bias, b.weight, c.weight)",
    ),
    "parameter_list": module(
        f"{MADE}\nself.weights = nn.ParameterList([{TENSORS}])", "return compute(x, *self.weights)"
    ),
    "parameter_dict": module(
        f"{MADE}\nself.p = nn.ParameterDict(dict(zip('abcdef', [{TENSORS}])))",
        "return compute(x, *(self.p[key] for key in 'abcdef'))",
    ),
    "bare_parameters": module(
        f"{MADE}\nself.w1, self.b1, self.g, self.b, self.w2, self.w3 = {TENSORS}",
        "return compute(x, self.w1, self.b1, self.g, self.b, self.w2, self.w3)",
    ),
    "as_buffers": module(
        f"{MADE}\nfor name, weight in zip('abcdef', [{TENSORS}]):\n"
        "    self.register_buffer(name, weight.detach().clone())",
        "return compute(x, self.a, self.b, self.c, self.d, self.e, self.f)",
    ),
    "norm_as_buffers": module(
        f"{MADE}\nself.first, self.left, self.right = first, left, right\n"
        "self.register_buffer('scale', torch.ones(inner))\nself.register_buffer('shift', torch.zeros(inner))",
        "return compute(x, self.first.weight, self.first.bias, self.scale, self.shift, self.left.weight, "
        "self.right.weight)",
    ),
    "transposed": module(
        f"{MADE}\nself.wt = nn.Parameter(first.weight.detach().t().contiguous())\n"
        "self.first_bias, self.norm = first.bias, norm\n"
        "self.lt, self.rt = (nn.Parameter(w.weight.detach().t().contiguous()) for w in (left, right))",
        "return compute(x, self.wt.t(), self.first_bias, self.norm.weight, self.norm.bias, self.lt.t(), self.rt.t())",
    ),
    "transposed_under_its_name": same_names(
        "return compute(x, self.first.weight, self.first.bias, self.norm.weight, self.norm.bias, "
        "self.left.weight.t(), self.right.weight.t())",
        "for layer in (self.left, self.right):\n"
        "    layer.weight = nn.Parameter(layer.weight.detach().t().contiguous())",
    ),
    "fused_left_and_right": module(
        f"{MADE}\nself.first, self.norm = first, norm\n"
        "self.both = nn.Parameter(torch.cat([left.weight, right.weight]).detach())",
        "left, right = self.both.chunk(2)\n"
        "return compute(x, self.first.weight, self.first.bias, self.norm.weight, self.norm.bias, left, right)",
    ),
    "fused_the_other_way_round": module(
        f"{MADE}\nself.first, self.norm = first, norm\n"
        "self.both = nn.Parameter(torch.cat([right.weight.t(), left.weight.t()], 1).detach().contiguous())",
        "right, left = self.both.chunk(2, 1)\n"
        "return compute(x, self.first.weight, self.first.bias, self.norm.weight, self.norm.bias, left.t(), right.t())",
    ),
    "stacked": module(
        f"{MADE}\nself.first, self.norm = first, norm\n"
        "self.both = nn.Parameter(torch.stack([left.weight, right.weight]).detach())",
        "return compute(x, self.first.weight, self.first.bias, self.norm.weight, self.norm.bias, *self.both)",
    ),
    "one_flat_vector": module(
        f"{MADE}\nself.shapes = [t.shape for t in ({TENSORS})]\n"
        f"self.flat = nn.Parameter(torch.cat([t.detach().flatten() for t in ({TENSORS})]))",
        "parts = self.flat.split([s.numel() for s in self.shapes])\n"
        "return compute(x, *(p.view(s) for p, s in zip(parts, self.shapes)))",
    ),
    "norm_in_one": module(
        f"{MADE}\nself.first, self.left, self.right = first, left, right\n"
        "self.norm = nn.Parameter(torch.cat([torch.ones(inner), torch.zeros(inner)]))",
        "scale, shift = self.norm.chunk(2)\n"
        "return compute(x, self.first.weight, self.first.bias, scale, shift, self.left.weight, self.right.weight)",
    ),
    "padded": module(
        f"{MADE}\nself.norm, self.left, self.right, self.first_bias = norm, left, right, first.bias\n"
        "self.padded = nn.Parameter(F.pad(first.weight.detach(), (0, 0, 0, 16)))",
        "return compute(x, self.padded[:16], self.first_bias, self.norm.weight, self.norm.bias, self.left.weight, "
        "self.right.weight)",
    ),
    "with_ones_in_its_shape": same_names(
        "return compute(x, self.first.weight, self.first.bias.flatten(), self.norm.weight, self.norm.bias, "
        "self.left.weight, self.right.weight)",
        "self.first.bias = nn.Parameter(self.first.bias.detach().view(1, -1, 1))",
    ),
    "one_by_one_convolution": module(
        "self.first = nn.Conv1d(width, inner, 1)\nself.norm = nn.LayerNorm(inner)\n"
        "self.left, self.right = (nn.Conv1d(inner, inner, 1, bias=False) for _ in range(2))",
        "hidden = F.gelu(self.norm(self.first(x[:, :, None])[:, :, 0]))[:, :, None]\n"
        "return (self.left(hidden) * torch.tanh(self.right(hidden)))[:, :, 0]",
    ),
    "halves": same_names(
        "cast = [w.float() for w in self.weights()]\nreturn compute(x, *cast)",
        "self.left.double()\nself.norm.double()",
    ),
    "built_in_another_order": module(
        "self.first = nn.Linear(width, inner)\nleft = nn.Linear(inner, inner, False)\n"
        "right = nn.Linear(inner, inner, False)\nself.right, self.left = right, left\nself.ln = nn.LayerNorm(inner)",
        "return compute(x, self.first.weight, self.first.bias, self.ln.weight, self.ln.bias, self.left.weight, "
        "self.right.weight)",
    ),
    "renamed_in_another_order": module(
        f"{MADE}\nself.gate, self.value, self.ln, self.gemm = right, left, norm, first",
        f"return compute(x, {OF_RENAMED})",
    ),
    "another_zero_vector": module(
        f"self.offset = nn.Parameter(torch.zeros(inner))\n{RENAMED}\nself.zero = nn.Parameter(torch.zeros(inner))",
        f"return compute(x, {OF_RENAMED}) + self.offset.sum() * 0 + self.zero.sum() * 0",
    ),
    "an_unused_parameter": same_names("return super().forward(x)", "self.spare = nn.Parameter(torch.rand(5))"),
    "tied_by_name": same_names("return compute(x, *self.weights()[:5], self.alias)", "self.alias = self.right.weight"),
    "deep_copies": same_names("return super().forward(x)", "self.first = copy.deepcopy(self.first)"),
    "own_state_dict_prefix": same_names(
        "return super().forward(x)",
        "self._register_state_dict_hook(lambda module, state, prefix, local: state)",
    ),
    "repacks_in_a_hook": same_names(
        "return compute(x, self.packed.t(), *self.weights()[1:])",
        "self.repack()\nself.register_load_state_dict_post_hook(lambda module, keys: module.repack())",
        "def repack(self, *_):\n    self.packed = self.first.weight.detach().t().contiguous()",
    ),
    "reads_through_views": same_names(
        "return compute(x, self.view.t(), *self.weights()[1:])", "self.view = self.first.weight.detach().t()"
    ),
    "holds_by_reference": same_names("return compute(x, *self.kept)", "self.kept = self.weights()"),
}

COMPUTED_WEIGHTS = {
    "identity_parametrization": same_names(
        "return super().forward(x)", "parametrize.register_parametrization(self.first, 'weight', nn.Identity())"
    ),
    "weight_norm": same_names("return super().forward(x)", "parametrizations.weight_norm(self.first)"),
    "old_weight_norm": same_names(
        "return F.linear(F.gelu(self.norm(self.first(x))), self.left.weight) "
        "* torch.tanh(self.right(F.gelu(self.norm(self.first(x)))))",
        "torch.nn.utils.weight_norm(self.first)",
    ),
    "exponential_parametrization": module(
        "class Exponential(nn.Module):\n    def forward(self, v):\n        return v.exp()\n"
        "    def right_inverse(self, w):\n        return w.log()\n"
        f"{RENAMED}\nself.factor = nn.Parameter(torch.ones(()))\n"
        "parametrize.register_parametrization(self, 'factor', Exponential())",
        f"return compute(x, {OF_RENAMED}) * self.factor",
    ),
    "two_parametrizations": same_names(
        "return super().forward(x)",
        "for layer in (self.left, self.right):\n"
        "    parametrize.register_parametrization(layer, 'weight', nn.Identity())",
    ),
    "pre_hook": same_names(
        "return compute(x, self.first.weight, *self.weights()[1:])",
        "self.register_forward_pre_hook(lambda module, args: (args[0] * 1,))",
    ),
    "forward_hook": same_names(
        "return super().forward(x) / 2", "self.register_forward_hook(lambda module, args, out: out * 2)"
    ),
    "packs_in_a_pre_hook": same_names(
        "return compute(x, self.packed.t(), *self.weights()[1:])",
        "self.register_forward_pre_hook(lambda module, args: module.pack())",
        "def pack(self):\n    self.packed = self.first.weight.t().contiguous()",
    ),
}

LAZY_AND_FACTORIES = {
    "lazy_linear": module(
        "self.first = nn.LazyLinear(inner)\nself.norm = nn.LayerNorm(inner)\n"
        "self.left = nn.LazyLinear(inner, bias=False)\nself.right = nn.LazyLinear(inner, bias=False)",
        "hidden = F.gelu(self.norm(self.first(x)))\nreturn self.left(hidden) * torch.tanh(self.right(hidden))",
    ),
    "lazy_and_renamed": module(
        "self.gemm = nn.LazyLinear(inner)\nself.ln = nn.LayerNorm(inner)\n"
        "self.value = nn.LazyLinear(inner, bias=False)\nself.gate = nn.LazyLinear(inner, bias=False)",
        "hidden = F.gelu(self.ln(self.gemm(x)))\nreturn self.value(hidden) * torch.tanh(self.gate(hidden))",
    ),
    "factory": "def ModelNew(width, inner):\n    return Reference(width, inner)\n",
    "lambda_factory": "ModelNew = lambda *sizes: Reference(*sizes)\n",
    "partial": "ModelNew = functools.partial(Reference, inner=16)\nModelNew = functools.partial(ModelNew.func)\n",
    "alias": "ModelNew = Reference\n",
    "callable_object": "class Make:\n    def __call__(self, width, inner):\n        return Reference(width, inner)\n\n"
    "ModelNew = Make()\n",
    "compiled_factory": "def ModelNew(*sizes):\n    return torch.compile(Reference(*sizes), backend='eager')\n",
    "scripted_sizes": module(
        "@dataclasses.dataclass\nclass Config:\n    width: int\n    inner: int = 16\n"
        "config = Config(width, inner)\nself.body = Reference(**dataclasses.asdict(config))",
        "return self.body(x)",
    ),
    "new_makes_it": "class ModelNew:\n    def __new__(cls, width, inner):\n        return Reference(width, inner)\n",
    "keyword_arguments": "class ModelNew(Reference):\n    def __init__(self, *args, **kwargs):\n"
    "        super().__init__(*args, **kwargs)\n",
}

COMPUTES_ODDLY = {
    "functional_call": same_names(
        "state = dict(self.named_parameters())\nreturn torch.func.functional_call(self.plain, "
        "{k: v for k, v in state.items()}, (x,))",
        "self.plain_holder = [Reference(width, inner).to('meta')]",
        "@property\ndef plain(self):\n    return self.plain_holder[0]",
    ),
    "vmap": same_names("return torch.func.vmap(lambda row: compute(row, *self.weights()))(x)"),
    "autograd_function": "class Product(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x, w):\n"
    "        ctx.save_for_backward(x, w)\n        return x @ w.t()\n    @staticmethod\n    def backward(ctx, g):\n"
    "        x, w = ctx.saved_tensors\n        return g @ w, g.t() @ x\n\n"
    + same_names(
        "hidden = F.gelu(self.norm(self.first(x)))\n"
        "return Product.apply(hidden, self.left.weight) * torch.tanh(Product.apply(hidden, self.right.weight))"
    ),
    "in_place_on_its_own": same_names(
        "hidden = F.gelu(self.norm(self.first(x)))\nout = self.right(hidden).tanh_()\n"
        "return self.left(hidden).mul_(out)"
    ),
    "out_argument": same_names(
        "with torch.no_grad():\n    hidden = F.gelu(self.norm(self.first(x)))\n    out = torch.empty(len(x), 16)\n"
        "    torch.mm(hidden, self.left.weight.t(), out=out)\n    return out.mul_(torch.tanh(self.right(hidden)))"
    ),
    "channels_last_inside": same_names(
        "hidden = F.gelu(self.norm(self.first(x)))[:, :, None, None].to(memory_format=torch.channels_last)\n"
        "left, right = (F.conv2d(hidden, l.weight[:, :, None, None]) for l in (self.left, self.right))\n"
        "return (left * torch.tanh(right)).flatten(1)"
    ),
    "transposed_output": same_names(
        "hidden = F.gelu(self.norm(self.first(x))).t()\n"
        "return ((self.left.weight @ hidden) * torch.tanh(self.right.weight @ hidden)).t()"
    ),
    "double_inside": same_names("return compute(x.double(), *(w.double() for w in self.weights())).float()"),
    "einsum": same_names(
        "hidden = F.gelu(self.norm(self.first(x)))\n"
        "left, right = torch.einsum('bi,koi->kbo', hidden, torch.stack([self.left.weight, self.right.weight]))\n"
        "return left * torch.tanh(right)"
    ),
    "row_by_row": same_names("return torch.stack([compute(row, *self.weights()) for row in x])"),
    "checkpointed": same_names(
        "return torch.utils.checkpoint.checkpoint(compute, x, *self.weights(), use_reentrant=False)",
        "import torch.utils.checkpoint",
    ),
    "inference_only": same_names("with torch.no_grad():\n    return super().forward(x)"),
    "detached": same_names("return super().forward(x).detach()"),
    "packs_each_time": same_names(
        "packed = torch.cat([self.left.weight, self.right.weight])\n"
        "left, right = F.linear(F.gelu(self.norm(self.first(x))), packed).chunk(2, -1)\nreturn left * torch.tanh(right)"
    ),
    "own_call": same_names(
        "raise NotImplementedError", more="def __call__(self, x):\n    return Reference.forward(self, x)"
    ),
    "counts_its_calls": same_names(
        "self.calls += 1\nreturn super().forward(x)",
        "self.register_buffer('calls', torch.zeros((), dtype=torch.int64))",
    ),
    "fake_quantised_identity": same_names("return super().forward(x.contiguous().view(-1, 8)).view(len(x), 16)"),
    "keeps_its_last_hidden": same_names(
        "self.last = F.gelu(self.norm(self.first(x)))\nreturn self.left(self.last) * torch.tanh(self.right(self.last))"
    ),
}

TABLES = (WEIGHTS_ELSEWHERE, COMPUTED_WEIGHTS, LAZY_AND_FACTORIES, COMPUTES_ODDLY)
ODD_BUILDS = {name: f"{HEAD}\n{source}" for table in TABLES for name, source in table.items()}
