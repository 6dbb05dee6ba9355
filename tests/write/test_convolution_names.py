"""Tensors of convolutions may be called anything: their kernels are the same but for names."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, reduce
from typing import Any

import pytest
import test_convolution
import test_pooled_convolution
import test_scatters
import test_warpgroup_phases
import test_warpgroup_pools
import test_warpgroup_streams
import test_warpgroups
import test_warpgroups_exact
from conv_harness import CHAINS, TWO, Case, build, is_right
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pooled_harness import WANTED

from crucible.algebra.convolution.fused import Convolution
from crucible.algebra.expression import substitute
from crucible.algebra.program import Reduction
from crucible.kinds.convolution.backward import kept
from crucible.kinds.convolution.lower import lower_convolution
from crucible.print.written import Lowered
from crucible.schedule.convolution.tiling import Tiling
from crucible.target.names import KEYWORDS, MARK
from support import NIGHTLY, some

TOKEN = re.compile(r"\.?[A-Za-z_]\w*|\d[\w.]*|\S")
COMMENT = re.compile(r"//.*")
LEAVES = {"product", "pooled", "choice", "given"}
"""What chains read that is no tensor: a tensor of that name would be another value."""
Kind = tuple[Convolution, Tiling]


def case(module: Any, name: str) -> Any:
    return next(each for each in module.CASES if each.name == name)


def plain(of: Case, chain: str = "") -> Kind:
    """A case, perhaps with another chain."""
    found = replace(of, chain=chain) if chain else of
    return found.fused, found.divided


def reducing(of: Case) -> Kind:
    """Whose product is reduced where it is, to a maximum and what is relative to it."""
    conv, tiling = plain(of, "shifted")
    (result,) = conv.results
    largest = Reduction("largest", "max", result.expr)
    total = Reduction("total", "sum", (result.expr - largest.leaf).exp())
    return replace(conv, results=(), reductions=(largest, total)), tiling


def pooled(of: Any, keeping: bool = False) -> Kind:
    conv = of.fused
    further = kept(conv, WANTED, "upstream") if keeping else ()
    return replace(conv, results=(*conv.results, *further)), of._tiling(conv)


def spreading(of: Any) -> Kind:
    """Streamed, from a gradient of windows."""
    conv = of.fused
    found = test_warpgroup_streams.stream(of.correlation, 4, TWO, test_warpgroup_streams.Moved(spread=of.sizes))
    return conv, replace(found, **of.way)


SPREAD = next(each for each in test_warpgroup_streams.SPREAD if each.chosen)
KINDS: dict[str, Callable[[], Kind]] = {
    "warps": lambda: plain(case(test_convolution, "three_dims")),
    "warps, sums": lambda: plain(case(test_convolution, "sums"), "of_two"),
    "warps, a chain in front": lambda: plain(case(test_convolution, "front_grouped")),
    "warps, reductions": lambda: reducing(case(test_convolution, "three_dims")),
    "warps, a pool": lambda: pooled(test_pooled_convolution.CASES[0], keeping=True),
    "weights that stay, bulk": lambda: plain(case(test_warpgroups, "brought_two")),
    "weights that stay, rows": lambda: plain(case(test_warpgroups, "rows")),
    "weights that stay, exact": lambda: plain(case(test_warpgroups_exact, "all_held")),
    "phases": lambda: plain(case(test_warpgroup_phases, "reads_shares")),
    "phases, sums": lambda: plain(case(test_warpgroup_phases, "sums_by_shares")),
    "phases and a pool": lambda: pooled(test_warpgroup_pools.ROWS),
    "phases and a pool that turns": lambda: pooled(test_warpgroup_pools.SIGNED[0], keeping=True),
    "streamed weights": lambda: plain(case(test_warpgroup_streams, "streamed_summed")),
    "streamed weights, windows": lambda: spreading(SPREAD),
    "scattered taps": lambda: plain(case(test_scatters, "image")),
}


def renamed(conv: Convolution, names: Sequence[str]) -> Convolution:
    """With all its tensors called so."""
    word = iter(names)
    source, weight = (replace(each, name=next(word)) for each in (conv.source, conv.weight))
    operands = tuple(replace(each, name=next(word)) for each in conv.operands)
    reductions = tuple(replace(each, name=next(word)) for each in conv.reductions)
    results = tuple(replace(each, name=next(word)) for each in conv.results)
    old = (*conv.operands, *conv.reductions)
    leaves = {one.leaf: other.leaf for one, other in zip(old, (*operands, *reductions), strict=True)}
    pool, spread = conv.pool, conv.spread
    return replace(
        conv, source=source, weight=weight, operands=operands,
        results=tuple(replace(each, expr=substitute(each.expr, leaves)) for each in results),
        reductions=tuple(replace(each, expr=substitute(each.expr, leaves)) for each in reductions),
        pool=pool and replace(pool, before=substitute(pool.before, leaves)),
        spread=spread and replace(spread, choices=spread.choices and next(word)),
    )  # fmt: skip


@cache
def kind(name: str) -> tuple[Convolution, Tiling, tuple[str, ...]]:
    """With the texts of its kernels."""
    conv, tiling = KINDS[name]()
    return conv, tiling, tuple(each.text for each in lower_convolution(conv, tiling, TWO).kernels)


@cache
def words_of_kernels() -> tuple[str, ...]:
    """All that kernels call anything, and the language."""
    words = {word for name in KINDS for text in kind(name)[2] for word in re.findall(r"[A-Za-z_]\w*", text)}
    return tuple(sorted((words | KEYWORDS | {"t", "EOF", "INFINITY", "NULL"}) - LEAVES))


def differences(text: str, other: str) -> list[str]:
    """What is no mere renaming, in words; a name must not become a word that the text has, nor the language."""
    one, two = (TOKEN.findall(COMMENT.sub("", each)) for each in (text, other))
    if len(one) != len(two):
        return [f"{len(one)} words, and {len(two)}"]
    there, back = dict[str, str](), dict[str, str]()
    wrong = [f"{a} is {b}" for a, b in zip(one, two, strict=True)
             if there.setdefault(a, b) != b or back.setdefault(b, a) != a]  # fmt: skip
    taken = [f"{a} is {b}" for a, b in there.items() if a != b and (b in KEYWORDS or not (a + b).isidentifier())]
    return [*wrong, *taken]


hostile = st.lists(
    st.deferred(lambda: st.sampled_from(words_of_kernels())) | st.from_regex(r"[a-z][a-z_0-9]{0,6}", fullmatch=True),
    min_size=9, max_size=9, unique=True,
).filter(lambda names: not LEAVES & set(names))  # fmt: skip
OF_KERNELS = ("three_dims", "sums", "front_grouped", "brought_two", "rows", "all_held", "reads_shares", "image", "stem")
ENDS = ("t", "x", "x_value", "x_pack", "x_row", "x_value_2", "exp", "x_parts", "x_total")
FURTHER = [
    list(OF_KERNELS),
    ["own", "threadIdx", "Pack", "sums", "c", "all", "EOF", "relu", "load"],
    ["f", "e", "LL", "KiB", "It", "A", "Each", "INFINITY", "x0"],
    list(ENDS),
    list(reversed(OF_KERNELS)),
    list(reversed(ENDS)),
]


def all_of(lists: Sequence[list[str]]) -> Callable[[Any], Any]:
    """Each as an example of its own."""
    return lambda test: reduce(lambda made, names: example(names=names)(made), lists, test)


@pytest.mark.parametrize("name", KINDS)
@given(names=hostile)
@example(names=["t", "int", "tile", "lane", "value", "product_2", "total", "best", "n"])
@all_of(some(FURTHER, 3))
@settings(max_examples=6 if NIGHTLY else 2, deadline=None)
def test_kernels_are_the_same_but_for_names(name: str, names: list[str]) -> None:
    conv, tiling, _ = kind(name)
    mild = [f"{chr(ord('A') + place)}{'q' * (len(each) - 1)}" for place, each in enumerate(names)]  # lengths count
    kernels, others = (lower_convolution(renamed(conv, called), tiling, TWO).kernels for called in (mild, names))
    for one, each in zip(kernels, others, strict=True):
        assert differences(one.text, each.text) == []
        assert not any(MARK in word for word in (each.text, *each.reads, *each.writes))
        assert set(each.reads[:1]) <= {names[0], names[1]}


def test_a_name_that_hides_is_seen() -> None:
    text = "void f(float* x) {\n    const int i = g(x);\n    x[i] = 0;\n}"
    assert differences(text, text.replace("x", "y")) == []
    assert differences(text, text.replace("x", "i"))
    assert differences(text, text.replace("x", "g"))
    assert differences(text, text.replace("x", "int"))
    assert differences(text, text.replace("= 0", "= 1"))


@dataclass(frozen=True)
class Hostile(Case):
    """A case whose kernels call tensors otherwise than whoever runs them does."""

    names: tuple[str, ...] = ()

    def lowered(self) -> Lowered:
        conv = self.fused
        (*read, out) = self.names
        made = lower_convolution(renamed(conv, [*read[: 2 + len(conv.operands)], out]), self.divided, TWO)
        back = dict(zip(read, ("x", "weight", *(each.name for each in conv.operands)), strict=False)) | {out: "out"}
        kernels = tuple(
            replace(
                each, reads=tuple(back.get(n, n) for n in each.reads), writes=tuple(back.get(n, n) for n in each.writes)
            )
            for each in made.kernels
        )
        return replace(made, kernels=kernels)


@pytest.mark.slow
def test_kernels_of_such_tensors_compute_the_same(no_faults: object) -> None:
    """Through a compiler, which reads what a name hides as it is."""
    assert set(CHAINS) >= {"biased", "shifted"}
    found = [
        (case(test_convolution, "three_dims"), ("t", "int", "tile", "lane", "product_2")),
        (case(test_warpgroup_phases, "two_dims"), ("channel", "threadIdx", "t", "wait")),
        (case(test_scatters, "image_in_bands"), ("row", "Pack", "put", "EOF")),
    ]
    cases = [Hostile(**{field: getattr(of, field) for field in Case.__dataclass_fields__}, names=names)
             for of, names in found]  # fmt: skip
    run = build(cases)
    assert [is_right(run, each) for each in cases] == [""] * len(cases)
