"""Kernels as people may be told of them: a profiler has them with namespaces, types and parameters."""

from __future__ import annotations

import re

_WORDS = re.compile(r"[A-Za-z_~]\w*")
_LONGEST = 60
_GENERAL = re.compile(r"elementwise_kernel|reduce_kernel")
_INNER = re.compile(r"\w*(?:[Ff]unctor|[Kk]ernel|launch_clamp)\w*")
_WRAPPERS = re.compile(r"gpu_kernel_impl|elementwise_kernel|reduce_kernel|^[ABU]+naryFunctor|BinaryFunctor")


def short(name: str) -> str:
    """`softmax_kernel` of `void ns::(anonymous namespace)::softmax_kernel<float, 4>(float*, int)`.

    PyTorch's elementwise kernels are told apart by what they compute: `elementwise_kernel: direct_copy_kernel_cuda`.
    """
    outer = _without_brackets(name.replace("(anonymous namespace)::", ""))
    words = _WORDS.findall(outer)
    last = words[-1] if words else name
    inner = [word for word in _INNER.findall(name) if not _WRAPPERS.search(word)] if _GENERAL.search(last) else []
    text = f"{last}: {inner[0]}" if inner else last
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _without_brackets(text: str) -> str:
    """What is outside of <> and (), up to the parameters."""
    depth, kept = 0, []
    for mark in text:
        if mark == "(" and depth == 0:
            break
        depth += (mark == "<") - (mark == ">")
        if depth <= 0 and mark != ">":
            kept.append(mark)
    return "".join(kept)
