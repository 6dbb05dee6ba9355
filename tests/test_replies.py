"""What a candidate's process answers is believed only in its exact form."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from crucible.judge.boundary.bundles import take_apart
from crucible.judge.process.replies import MOST_TRACED, is_reply

RUN = {
    "done": "run",
    "structure": ["dict", [["a", ["tuple", [["tensor", 0], ["plain", None]]]], ["b", ["list", [["dtype", "int8"]]]]]],
    "outputs": [{"name": "output", "dtype": "float32", "shape": [2, 3], "device": "cpu"}],
    "aliases": [[0, 0]],
    "mutated": [0],
    "overwritten": [],
    "swallowed": ["line 3"],
    "operations": ["mm"],
    "weights": {"only_in_reference": [], "only_in_candidate": ["x"], "held": [], "paired": [], "ways": 1},
    "watched": ["norm.running_mean"],
    "changed": [],
    "forged": False,
}
LAUNCH = {
    "kernel": "copy<4>",
    "grid": [2, 1, 1],
    "block": [64, 1, 1],
    "shared_bytes": 0,
    "count": 1,
    "followed": 2,
    "dropped": 0,
}
LAUNCH |= dict.fromkeys(("accesses", "sectors", "l1_wavefronts", "touched_sectors"), 1)
LAUNCH |= dict.fromkeys(("half_flops", "tf32_flops", "float64_flops", "byte_flops"), 0)
LINE = {
    "kernel": "copy<4>",
    "file": "cuda.cu",
    "line": 4,
    "operation": "load",
    "space": "global",
    "width": 4,
    "requests": 4,
    "bytes": 512,
    "sectors": 16,
    "ideal_sectors": 16,
    "wavefronts": 0,
    "ideal_wavefronts": 0,
    "worst_ways": 0,
    "atomics": 0,
    "worst_in_warp": 0,
    "worst_on_address": 0,
}
REPLIES: dict[str, dict[str, Any]] = {
    "start": {"done": "start"},
    "import": {"done": "import", "flags": {"torch.x": "a -> b"}, "forked": False},
    "construct": {"done": "construct"},
    "run": RUN,
    "step": {"done": "step", "gradients": {}, "outputs": [[2, 3]], "dtypes": ["float32"]},
    "backward": {
        "done": "backward",
        "gradients": {"w": {"dtype": "float32", "shape": []}},
        "not_comparable": [],
        "computed": [],
        "mutated": [],
    },
    "trace": {"done": "trace", "trace": {"launches": [LAUNCH], "lines": [LINE]}, "operators": [["mm", 1, 64, 128]]},
    "send": {"done": "send"},
    "set_up": {"done": "set_up"},
    "sample": {"done": "sample", "device_ms": 1.5, "wall_ms": 2},
    "capture_graph": {"done": "capture_graph"},
    "profile": {
        "done": "profile",
        "first_call_s": 0.5,
        "peak_bytes": 1024,
        "allocations": 2,
        "kernels": [["gemm", 1, 0.25], ["relu", 2, 1]],
        "busy_ms": 1.25,
        "span_ms": 1.5,
        "streams": 1,
        "operators": [["add", 1, 0.1]],
        "operators_ms": 0.1,
        "call_ms": 0.6,
    },
    "audit": {
        "done": "audit",
        "replaced": ["torch.allclose"],
        "hunts": [],
        "flags": {},
        "builds": [{"name": "x", "seconds": 1.0, "error": ""}],
        "never_ran": [],
        "never_reached": [],
        "launched": ["k"],
        "resources": [["k<float>", 256, 32, 0, 0, 0, 1024, 0]],
    },
}
RAISED = {
    "raised": "ValueError",
    "message": "ValueError: no",
    "line": 3,
    "build_failure": False,
    "compiled_only": False,
    "out_of_memory": False,
    "forked": False,
    "builds": [],
}


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where the parts of a reply stand, each by the keys that lead there."""
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from places(item, (*path, key))


def changed(reply: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    other = copy.deepcopy(reply)
    part = other
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    return other


@pytest.mark.parametrize("verb", REPLIES)
def test_each_verb_has_its_answer(verb: str) -> None:
    assert is_reply(verb, REPLIES[verb])
    assert is_reply(verb, RAISED)


@pytest.mark.parametrize("verb", REPLIES)
def test_another_verbs_answer_is_none(verb: str) -> None:
    assert not any(is_reply(other, REPLIES[verb]) for other in REPLIES if other != verb)
    assert not is_reply(verb, {})


@pytest.mark.parametrize("verb", REPLIES)
def test_an_answer_with_a_part_missing_is_none(verb: str) -> None:
    for name in set(REPLIES[verb]) - {"forged", "forked"}:
        assert not is_reply(verb, {k: v for k, v in REPLIES[verb].items() if k != name}), name


@pytest.mark.parametrize("verb", ["import", "backward", "sample", "profile", "audit", "run", "trace"])
def test_an_answer_with_a_part_of_another_kind_is_none(verb: str) -> None:
    """Every part replaced by what it is not."""
    reply = REPLIES[verb]
    for path in places(reply):
        if path[0] not in ("structure", "forged"):
            for other in (None, {"x": None}):
                assert not is_reply(verb, changed(reply, path, other)), path


@pytest.mark.parametrize("part", ["launches", "lines"])
def test_a_trace_longer_than_is_kept_is_no_answer(part: str) -> None:
    item = REPLIES["trace"]["trace"][part][0]
    for count, answers in ((MOST_TRACED, True), (MOST_TRACED + 1, False)):
        assert is_reply("trace", changed(REPLIES["trace"], ("trace", part), [item] * count)) == answers


@pytest.mark.parametrize("name", sorted(set(RAISED) - {"builds"}))
def test_an_exception_must_be_whole(name: str) -> None:
    assert not is_reply("run", {k: v for k, v in RAISED.items() if k != name})
    assert not is_reply("run", {**RAISED, name: [1]})


@pytest.mark.parametrize(
    "structure",
    [
        None,
        [],
        ["tensor"],
        ["tensor", 1],
        ["tensor", -1],
        ["tensor", True],
        ["tensor", "0"],
        ["list", None],
        ["list", [["tensor", 9]]],
        ["dict", {"a": ["tensor", 0]}],
        ["dict", [["a"]]],
        ["dict", [[1, ["tensor", 0]]]],
        ["object", 0],
        [["tensor"], 0],
        "tensor",
    ],
)
def test_a_structure_that_take_apart_never_makes_is_none(structure: Any) -> None:
    assert not is_reply("run", {**RUN, "structure": structure})


def test_a_structure_nested_deeper_than_python_can_follow_is_none() -> None:
    structure: Any = ["tensor", 0]
    for _ in range(5000):
        structure = ["list", [structure]]
    assert not is_reply("run", {**RUN, "structure": structure})


trees = st.recursive(
    st.just(torch.zeros(1)) | st.none() | st.integers() | st.just(torch.float32),
    lambda inner: st.lists(inner, max_size=3) | st.tuples(inner) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@settings(deadline=None, max_examples=50)
@given(trees)
def test_every_structure_that_take_apart_makes_is_one(tree: Any) -> None:
    structure, leaves = take_apart(tree, "output")
    output = RUN["outputs"][0]  # type: ignore[index]
    assert is_reply("run", {**RUN, "structure": structure, "outputs": [output] * len(leaves)})


@pytest.mark.parametrize(
    ("cheat", "valid"),
    [(["tensor subclass", "x"], True), (["x"], False), ([1, 2], False), ("xy", False), (None, False)],
)
def test_a_cheat_that_the_worker_names_has_two_words(cheat: Any, valid: bool) -> None:
    assert is_reply("run", {"done": "run", "cheat": cheat}) is valid
    assert not is_reply("import", {"done": "import", "cheat": cheat})


@pytest.mark.parametrize("clock", ["device_ms", "wall_ms"])
@pytest.mark.parametrize("time", [True, "1", [1.0], None, {}, float("nan"), float("inf"), -float("inf")])
def test_a_samples_times_are_finite_numbers(clock: str, time: Any) -> None:
    assert not is_reply("sample", {**REPLIES["sample"], clock: time})


@pytest.mark.parametrize("kernel", [["gemm", 1], ["gemm", 1, 0.5, 0], ["gemm", 1.0, 0.5], [1, 1, 0.5], "gem", {}, None])
def test_a_kernel_is_a_name_a_count_and_a_time(kernel: Any) -> None:
    assert not is_reply("profile", {**REPLIES["profile"], "kernels": [["relu", 1, 0.5], kernel]})
    assert is_reply("profile", {**REPLIES["profile"], "kernels": []})


@pytest.mark.parametrize("operator", [["mm", 1, 64], ["mm", 1, 64, -1], ["mm", 1, 64, 1.5], [7, 1, 64, 1], "mm"])
def test_an_operator_that_is_no_count_is_no_answer(operator: object) -> None:
    assert not is_reply("trace", {**REPLIES["trace"], "operators": [operator]})
