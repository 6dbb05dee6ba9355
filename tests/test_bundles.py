"""Nested values come back from structure and tensors, from disk too, and nothing but plain data passes."""

from __future__ import annotations

import gc
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from crucible.judge.boundary.bundles import (
    NotPlain,
    link_bundle,
    numbers_to_tensors,
    put_together,
    raw_bytes,
    read_bundle,
    spread_part,
    take_apart,
    write_bundle,
)

DTYPES = [
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.int64,
    torch.int8,
    torch.uint8,
    torch.bool,
    torch.complex64,
]
quick = settings(deadline=None, max_examples=40)


def some_tensor(shape: list[int], dtype: torch.dtype, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(shape, generator=generator) * 3).to(dtype)


tensors = st.builds(some_tensor, st.lists(st.integers(0, 3), max_size=3), st.sampled_from(DTYPES), st.integers(0, 999))
plain = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
leaves = tensors | plain | st.sampled_from(DTYPES)
trees = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


def same(a: Any, b: Any) -> bool:
    """Equal in structure, types, dtypes and bits."""
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and bytes(raw_bytes(a)) == bytes(raw_bytes(b))
    if isinstance(a, dict):
        return set(a) == set(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, tuple | list):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


@quick
@given(trees)
def test_what_is_taken_apart_can_be_put_together(value: Any) -> None:
    structure, found = take_apart(value, "value")
    again = put_together(json.loads(json.dumps(structure)), [leaf.tensor for leaf in found])
    assert same(again, value)


@quick
@given(trees)
def test_a_bundle_holds_the_whole_tree(tmp_path_factory: pytest.TempPathFactory, value: Any) -> None:
    folder = tmp_path_factory.mktemp("bundle")
    write_bundle(folder / "case0.inputs", value)
    assert same(read_bundle(folder / "case0.inputs"), value)
    assert sorted(file.name for file in folder.iterdir()) == ["case0.inputs.bin", "case0.inputs.json"]


@pytest.mark.parametrize("shape", [[], [0], [2, 0, 3], [5]])
def test_a_bundle_holds_every_dtype_and_size(tmp_path: Path, shape: list[int]) -> None:
    value = [some_tensor(shape, dtype, seed) for seed, dtype in enumerate(DTYPES)]
    write_bundle(tmp_path / "x", value)
    assert same(read_bundle(tmp_path / "x"), value)


def test_a_bundle_holds_views_and_gradients_as_plain_contents(tmp_path: Path) -> None:
    value = torch.arange(6.0).reshape(2, 3).T.requires_grad_()
    write_bundle(tmp_path / "x", value)
    again = read_bundle(tmp_path / "x")
    assert torch.equal(again, value)
    assert not again.requires_grad


def test_a_bundle_that_is_written_again_is_the_new_one(tmp_path: Path) -> None:
    write_bundle(tmp_path / "x", [torch.zeros(1000)])
    write_bundle(tmp_path / "x", [torch.ones(2)])
    assert same(read_bundle(tmp_path / "x"), [torch.ones(2)])


def test_special_numbers_pass_through_a_bundle(tmp_path: Path) -> None:
    write_bundle(tmp_path / "x", [math.inf, -math.inf, math.nan, 10**30])
    again = read_bundle(tmp_path / "x")
    assert again[:2] == [math.inf, -math.inf]
    assert math.isnan(again[2])
    assert again[3] == 10**30


def test_the_order_of_a_dicts_keys_is_no_part_of_its_structure() -> None:
    one, two = torch.zeros(1), torch.zeros(2)
    (structure, leaves), (other, others) = (take_apart(d, "x") for d in ({"b": one, "a": two}, {"a": two, "b": one}))
    assert structure == other
    assert [leaf.name for leaf in leaves] == [leaf.name for leaf in others] == ["x['a']", "x['b']"]


def test_leaves_are_named_by_where_they_stand() -> None:
    value = [torch.zeros(1), {"mask": torch.zeros(1), "more": (torch.zeros(1),)}]
    names = [leaf.name for leaf in take_apart(value, "output")[1]]
    assert names == ["output[0]", "output[1]['mask']", "output[1]['more'][0]"]
    assert take_apart(torch.zeros(1), "output")[1][0].name == "output"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (object(), "value is a object"),
        ([1, {2, 3}], r"value\[1\] is a set"),
        ({"a": [b"x"]}, r"value\['a'\]\[0\] is a bytes"),
        ({1: "x"}, "keys that are not strings"),
        ([torch.nn.Linear(1, 1)], r"value\[0\] is a Linear"),
        (1j, "value is a complex"),
    ],
)
def test_anything_else_is_refused_by_name(value: Any, words: str) -> None:
    with pytest.raises(NotPlain, match=words):
        take_apart(value, "value")


def test_raw_bytes_are_the_tensors_own_memory() -> None:
    value = torch.zeros(4)
    view = raw_bytes(value)
    assert (view.nbytes, view.format, view.readonly) == (16, "B", False)
    view[:4] = torch.ones(1).numpy().tobytes()
    assert value.tolist() == [1, 0, 0, 0]


def test_raw_bytes_keep_their_tensor_alive() -> None:
    """Large, so that freed memory goes back to the system at once, and a read of it would crash or change."""
    view = raw_bytes(torch.full((8 << 20,), 7, dtype=torch.uint8))[5 : 4 << 20]
    gc.collect()
    others = [torch.full((8 << 20,), 9, dtype=torch.uint8) for _ in range(3)]
    assert set(view[::4096]) == {7}
    assert len(others) == 3


def test_nothing_has_no_bytes() -> None:
    assert len(raw_bytes(torch.empty(0, 3))) == 0


def test_numbers_become_tensors_without_dims() -> None:
    x = torch.zeros(2)
    out = numbers_to_tensors({"a": (1, 2.5, True), "b": [x, None, "text"]})
    one, half, true = out["a"]
    assert (one.dtype, half.dtype, true.dtype) == (torch.int64, torch.float64, torch.int64)
    assert (int(one), float(half), int(true), one.shape) == (1, 2.5, 1, ())
    assert out["b"][0] is x
    assert out["b"][1:] == [None, "text"]


@pytest.mark.parametrize("conjugate", [False, True])
def test_complex_tensors_become_pairs(conjugate: bool) -> None:
    value = torch.tensor([1 + 2j, 3 - 4j])
    pairs = numbers_to_tensors(value.conj() if conjugate else value)
    sign = -1 if conjugate else 1
    assert pairs.tolist() == [[1, sign * 2], [3, sign * -4]]
    assert pairs.dtype == torch.float32


# --- parts


@quick
@given(st.integers(0, 200), st.integers(0, 50), st.floats(0, 1, exclude_max=True))
def test_a_spread_part_is_at_even_distances_and_no_more_than_asked_for(count: int, most: int, start: float) -> None:
    flat = torch.arange(count)
    part = spread_part(flat, most, start)
    if not most or count <= most:
        assert torch.equal(part, flat)
        return
    assert most / 2 <= len(part) + 1
    assert len(part) <= most
    distances = (part[1:] - part[:-1]).unique()
    assert len(distances) <= 1
    assert part[0] < -(-count // most)


def test_every_element_may_be_in_a_spread_part() -> None:
    flat = torch.arange(100)
    assert set(torch.cat([spread_part(flat, 7, start / 50) for start in range(50)]).tolist()) == set(range(100))


def test_a_bundle_that_is_another_takes_no_room_and_stays_when_that_is_replaced(tmp_path: Path) -> None:
    first, second = tmp_path / "case0.state", tmp_path / "case1.state"
    write_bundle(first, {"weight": torch.arange(5.0)})
    for _ in range(2):  # the same again changes nothing
        link_bundle(second, first)
    names = {file.name for file in tmp_path.iterdir()}
    assert names == {"case0.state.bin", "case0.state.json", "case1.state.bin", "case1.state.json"}
    assert (tmp_path / "case0.state.bin").samefile(tmp_path / "case1.state.bin")
    write_bundle(first, {"bias": torch.zeros(2)})
    assert torch.equal(read_bundle(second)["weight"], torch.arange(5.0))
    link_bundle(second, first)
    assert torch.equal(read_bundle(second)["bias"], torch.zeros(2))
