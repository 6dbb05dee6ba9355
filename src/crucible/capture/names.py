"""Names for values: the module's attributes and PyTorch's operations, as words of Python and C++."""

from __future__ import annotations

import keyword
import re


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_RESERVED = _words(
    "alignas alignof and_eq asm auto bitand bitor bool case catch char compl concept const const_cast consteval"
    " constexpr constinit decltype default delete do double dynamic_cast enum explicit export extern float friend"
    " goto inline int long mutable namespace new noexcept not_eq nullptr operator or_eq private protected public"
    " register reinterpret_cast requires short signed sizeof static static_assert static_cast struct switch template"
    " this thread_local throw typedef typeid typename union unsigned using virtual void volatile wchar_t xor xor_eq"
    " char8_t char16_t char32_t co_await co_return co_yield true false self half torch kernels library variable_list"
    # of the host's functions
    " stream guard laid at c10 std ctx given kept made device error allow_shared"
    # functions of kernels
    " accumulate address arrive begin_products bits commit_products copy_ahead copy_in"
    " describe exchanged exp2_approx expect fetch finish_products follow high higher leave_registers load load_matrix"
    " load_turned low lower max_nan min_nan moved_on multiply prepare publish put raw read reciprocal_approx"
    " rounded settle"
    " settled store take take_registers taken team_together together wait wait_for_copies"
    " fence_proxy_async make_smem_desc mbarrier_arrive mbarrier_init mbarrier_wait setmaxnreg_dec setmaxnreg_inc"
    " tf32_high tf32_low wgmma_commit wgmma_fence wgmma_wait"
    # of CUDA
    " expf expm1f logf log1pf sinf cosf erff tanhf sqrtf rsqrtf powf fabsf fmaf fmaxf fminf isnan isinf min max"
    " blockIdx threadIdx blockDim gridDim cudaStream_t cudaGetLastError cudaError_t dim3 float2 float4 uint2 uint4 int4"
)
"""Keywords of C++, and what emitted code calls something else."""
_DERIVED = re.compile(
    r"(grad|saved|parts|partial|direct|shared|size|run|launch|fused|multiply|the)_.*"
    r"|.*_(product|pooled|choice|parts|packed|each|whole|row|ties|total|given|value|own|is|part|pack|chosen|gradient)"
    r"|.*_(sum|squared|stride_\d+|again(_\d+)?)"
    r"|(max|min|sum)_over_.*|product|pooled|choice"
)
"""What plan and writer call tensors and functions of their own, mostly by the names of others: no value of the module's
is called so, or one kernel would have two tensors of a name."""
_DUNDERS = {"and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor"}
_ALIASES = {
    "absolute": "abs", "arccos": "acos", "arcsin": "asin", "arctan": "atan", "clip": "clamp", "concat": "cat",
    "concatenate": "cat", "divide": "div", "true_divide": "div", "fix": "trunc", "greater": "gt",
    "greater_equal": "ge", "less": "lt", "less_equal": "le", "multiply": "mul", "negative": "neg", "not_equal": "ne",
    "special_erf": "erf", "special_exp2": "exp2", "special_expit": "sigmoid", "special_expm1": "expm1",
    "special_log1p": "log1p", "special_log_softmax": "log_softmax", "special_logsumexp": "logsumexp",
    "special_round": "round", "special_sinc": "sinc", "special_softmax": "softmax", "subtract": "sub",
    "swapaxes": "transpose", "swapdims": "transpose",
}  # fmt: skip


def kind_of(operation: str, overload: str) -> str:
    """PyTorch's name without the underscore of what is in place, aliases under one name."""
    if overload == "other" and operation in ("max", "min"):
        return f"{operation}imum"
    if operation.startswith("__"):
        word = operation.strip("_")
        return _DUNDERS.get(word, word)
    word = operation.rstrip("_")
    return _ALIASES.get(word, word)


class Names:
    """Names given so far."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def give(self, wanted: str) -> str:
        """The word wanted, or the next free one: `relu`, `relu_2`, `relu_3`."""
        word = re.sub(r"\W", "_", wanted)
        if not re.match(r"[A-Za-z]", word):
            word = f"value{word}" if word.startswith("_") else f"value_{word}"
        if keyword.iskeyword(word) or word in _RESERVED:
            word = f"{word}_value"
        elif _DERIVED.fullmatch(word):
            word = f"the_{word}"
        count, name = 1, word
        while name in self._taken:
            count += 1
            name = f"{word}_{count}"
        self._taken.add(name)
        return name


def layer_name(stack: dict[str, tuple[str, object]] | None) -> str | None:
    """The attribute that holds the layer of torch.nn which an operation belongs to; None where it is the user's own
    module, or has a number for a name."""
    if not stack:
        return None
    path, class_ = list(stack.values())[-1]
    name = path.rpartition(".")[2].partition("@")[0]
    known = class_ if isinstance(class_, str) else getattr(class_, "__module__", "")
    return name if known.startswith("torch.nn.") and name.isidentifier() else None
