"""The oracle in this process: its answers, what they may differ by, and what it refuses to answer."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import threading
import types
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from crucible.errors import TaskError
from crucible.judge.boundary.bundles import (
    numbers_to_tensors,
    raw_bytes,
    read_bundle,
    spread_part,
    take_apart,
)
from crucible.judge.boundary.modules import gradients_of
from crucible.judge.boundary.recipe import read_recipe
from crucible.judge.boundary.slot import take
from crucible.judge.oracle import batches, expected, power, timed_cases
from crucible.judge.oracle.oracle import Oracle
from crucible.judge.oracle.server import serve
from crucible.judge.process.channel import Channel, ChannelClosed, pair
from crucible.judge.verdict.evidence import TensorError
from crucible.judge.verdict.verdict import from_json

BATCH = 8
CONVOLUTION = """
        self.conv = nn.Conv2d(3, 5, 3)
        self.register_buffer("shift", torch.randn(5, 1, 1))
    def forward(self, x):
        return torch.relu(self.conv(x) + self.shift)
"""


MANY = "torch.randn(batch * 2000, 3, 6, 6)"
"""Of these no forward is little work."""


def source(body: str, inputs: str = "torch.randn(batch, 3, 6, 6)") -> str:
    """A task's file: a constructor's lines and a forward, and what `get_inputs` lists."""
    if not body.lstrip().startswith(("self.", "pass")):
        body = "\n        pass\n" + body
    return (
        "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"
        f"batch = {BATCH}\n"
        "class Model(nn.Module):\n    def __init__(self):\n        super().__init__()"
        f"{body}\n"
        f"def get_inputs():\n    return [{inputs}]\n"
        "def get_init_inputs():\n    return []\n"
    )


def returning(expression: str, inputs: str = "torch.randn(batch, 3, 6, 6)") -> str:
    return source(f"    def forward(self, x):\n        return {expression}\n", inputs)


def settings(tmp_path: Path, text: str, **changes: Any) -> dict[str, Any]:
    for name in ("inputs", "vault"):
        (tmp_path / name).mkdir(exist_ok=True, parents=True)
    return {
        "source": text,
        "path": "task.py",
        "sizes": {},
        "first": [],
        "smaller_weights": [],
        "further": [],
        "asked": False,
        "mode": "train",
        "training": False,
        "contract": "tf32",
        "device": "cpu",
        "seed": 0,
        "secrets": [[7, 8, 9], [11, 12, 13]],
        "folder": str(tmp_path / "inputs"),
        "vault": str(tmp_path / "vault"),
        **changes,
    }


def prepared(tmp_path: Path, text: str, **changes: Any) -> Oracle:
    oracle = Oracle(settings(tmp_path, text, **changes), lambda text: None)
    oracle.prepare()
    return oracle


def claims(oracle: Oracle) -> str:
    return "\n".join(f"{f['claim']}: {f['evidence']}" for f in oracle.description()["findings"])


def model_of(text: str, mode: str = "train") -> torch.nn.Module:
    module = types.ModuleType("a_task")
    exec(text, module.__dict__)
    model: torch.nn.Module = module.__dict__["Model"]()
    return model.train(mode == "train")


WHOLE = {"most": 0, "start": 0.0}


def compared(
    oracle: Oracle,
    case: int,
    part: str,
    tensors: list[torch.Tensor],
    names: tuple[str, ...] = (),
    part_of: dict[str, Any] = WHOLE,
) -> Any:
    """What the oracle says of tensors that come through a pipe."""
    reading, writing = os.pipe()

    def write() -> None:
        for tensor in tensors:
            view = raw_bytes(tensor.detach().contiguous())
            while view:
                view = view[os.write(writing, view) :]
        os.close(writing)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        return oracle.compare({"case": case, "part": part, "names": list(names), "part_of": part_of}, reading)
    finally:
        thread.join()
        os.close(reading)


def errors(reply: dict[str, Any]) -> list[TensorError]:
    return [from_json(tensor) for tensor in reply["tensors"]]


def right(oracle: Oracle, case: int = 0) -> list[torch.Tensor]:
    return [e.values.to(e.dtype, copy=True).reshape(e.shape) for e in oracle.cases[case].outputs]


# --- cases and answers


def test_each_case_is_written_for_candidates_and_no_answer_with_it(tmp_path: Path) -> None:
    oracle = prepared(tmp_path, source(CONVOLUTION))
    labels = [case["label"] for case in oracle.description()["cases"]]
    assert labels == ["its own inputs", "its own inputs, another seed", "its own inputs, new weights"]
    written = {file.stem for file in (tmp_path / "inputs").iterdir()}
    assert written == {"case0.cotangents", "case2.cotangents"} | {
        f"case{i}.{what}" for i in range(3) for what in ("inputs", "state")
    }
    for i, case in enumerate(oracle.cases):
        (inputs,) = read_bundle(tmp_path / f"inputs/case{i}.inputs")
        assert torch.equal(inputs, case.inputs[0])
        state = read_bundle(tmp_path / f"inputs/case{i}.state")
        assert all(torch.equal(state[name], value) for name, value in case.state.items())
    assert not torch.equal(oracle.cases[0].inputs[0], oracle.cases[1].inputs[0])
    assert torch.equal(oracle.cases[0].state["conv.weight"], oracle.cases[1].state["conv.weight"])
    assert not torch.equal(oracle.cases[0].state["conv.weight"], oracle.cases[2].state["conv.weight"])


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_expected_values_are_the_float64_references(tmp_path: Path, mode: str) -> None:
    text = source(CONVOLUTION.replace("self.conv(x)", "F.dropout(self.conv(x), 0.5, self.training and False)"))
    oracle = prepared(tmp_path, text, training=True, mode=mode)
    assert oracle.description()["precision"] == "float64"
    for i in (0, 2):
        model = model_of(text, mode).double()
        model.load_state_dict(read_bundle(tmp_path / f"inputs/case{i}.state"))
        x = read_bundle(tmp_path / f"inputs/case{i}.inputs")[0].double().requires_grad_()
        out = model(x)
        wanted = {"input[0]": x, **dict(model.named_parameters())}
        gradients = gradients_of([out], wanted, read_bundle(tmp_path / f"inputs/case{i}.cotangents"))
        case = oracle.cases[i]
        torch.testing.assert_close(case.outputs[0].values, out.detach().flatten(), rtol=1e-12, atol=1e-12)
        assert case.outputs[0].scale == pytest.approx(float(out.detach().pow(2).mean().sqrt()))
        assert set(case.gradients) == set(gradients) == {"input[0]", "conv.weight", "conv.bias"}
        for name, gradient in gradients.items():
            torch.testing.assert_close(case.gradients[name].values, gradient.flatten(), rtol=1e-12, atol=1e-12)
    assert not oracle.cases[1].gradients


def test_weights_that_cases_share_are_written_once(tmp_path: Path) -> None:
    oracle = prepared(tmp_path, source(CONVOLUTION))
    files = [tmp_path / f"inputs/case{i}.state.bin" for i in range(len(oracle.cases))]
    seeded = [file.samefile(files[0]) for file in files]
    assert seeded == [not case.new_weights for case in oracle.cases]
    assert {True, False} <= set(seeded[1:])


def test_the_description_holds_form_but_no_values(tmp_path: Path) -> None:
    found = prepared(tmp_path, source(CONVOLUTION)).description()
    assert found["cases"][0]["outputs"] == [{"name": "output", "dtype": "float32", "shape": [BATCH, 5, 4, 4]}]
    assert found["inputs"] == ["input[0]"]
    assert found["structure"] == ["tensor", 0]
    assert found["cases"][0]["gradients"]["conv.weight"]["shape"] == [5, 3, 3, 3]
    assert (found["aliases"], found["mutated"], found["device"]) == ([], [], "cpu")
    assert not any(isinstance(value, torch.Tensor) for value in found.values())


def test_a_seed_gives_the_same_answers_again_and_another_gives_others(tmp_path: Path) -> None:
    one, two, other = (
        prepared(tmp_path / str(i), source(CONVOLUTION), seed=seed).cases[0].outputs[0]
        for i, seed in enumerate((3, 3, 4))
    )
    assert torch.equal(one.values, two.values)
    assert one.peak_allowed == two.peak_allowed
    assert not torch.equal(one.values, other.values)


def test_nothing_with_a_name_holds_an_expected_value(tmp_path: Path) -> None:
    oracle = prepared(tmp_path, source(CONVOLUTION), training=True)
    assert list((tmp_path / "vault").iterdir()) == []
    values = oracle.cases[0].outputs[0].values
    for file in (tmp_path / "inputs").iterdir():
        content = file.read_bytes()
        assert values.numpy().tobytes()[:64] not in content
        assert values.float().numpy().tobytes()[:64] not in content


# --- tolerances


def test_tolerances_grow_with_the_contracts_rounding(tmp_path: Path) -> None:
    allowed = {}
    for contract in ("fp32", "tf32", "bf16"):
        case = prepared(tmp_path / contract, source(CONVOLUTION), contract=contract).cases[0]
        allowed[contract] = [e.relative_l2_allowed for e in [case.outputs[0], *case.gradients.values()]]
        assert case.outputs[0].peak_allowed > 0
    for fp32, tf32, bf16 in zip(*allowed.values(), strict=True):
        assert 1e-8 < fp32 < tf32 / 50
        assert tf32 < bf16 / 3 < 0.1


def test_a_task_without_products_is_held_to_its_dtypes_rounding(tmp_path: Path) -> None:
    expected = prepared(tmp_path, returning("x * 1.5")).cases[0].outputs[0]
    assert 4 * 2.0**-24 <= expected.relative_l2_allowed < 1e-2


@pytest.mark.parametrize(
    ("contract", "error", "ok"), [("fp32", 2e-4, False), ("tf32", 2e-4, True), ("tf32", 1e-2, False)]
)
def test_an_answer_is_right_within_the_contract(tmp_path: Path, contract: str, error: float, ok: bool) -> None:
    oracle = prepared(tmp_path, source(CONVOLUTION), contract=contract)
    (answer,) = right(oracle)
    noisy = answer + error * answer.pow(2).mean().sqrt() * torch.randn(answer.shape)
    assert errors(compared(oracle, 0, "forward", [answer]))[0].ok
    assert errors(compared(oracle, 0, "forward", [noisy]))[0].ok is ok


def test_gradients_are_compared_by_name(tmp_path: Path) -> None:
    oracle = prepared(tmp_path, source(CONVOLUTION))
    case = oracle.cases[0]
    names = ("conv.bias", "input[0]")
    tensors = [case.gradients[name].values.float() for name in names]
    found = errors(compared(oracle, 0, "gradient", [tensors[0], tensors[1] * 1.1], names))
    assert [(e.name, e.ok) for e in found] == [("gradient of conv.bias", True), ("gradient of input[0]", False)]


def test_the_first_case_is_compared_with_eager_pytorch_too(tmp_path: Path) -> None:
    oracle = prepared(tmp_path, source(CONVOLUTION))
    reply = compared(oracle, 0, "forward", [right(oracle)[0] + 1e-3])
    (rule,) = reply["rule"]
    assert (rule["name"], rule["elements"], rule["nan"]) == ("output", BATCH * 5 * 16, 0)
    assert rule["beyond"] > 0.5 * rule["elements"]
    assert compared(oracle, 1, "forward", right(oracle, 1))["rule"] == []


def test_what_does_not_arrive_is_missing(tmp_path: Path) -> None:
    oracle = prepared(tmp_path, source(CONVOLUTION))
    assert "ended" in compared(oracle, 0, "forward", [right(oracle)[0][:3]])["missing"]


# --- what is compared while a candidate is timed


def drawn(oracle: Oracle, seed: int) -> list[torch.Tensor]:
    """What a timed call is given: out of the slot, as candidates take it."""
    descriptor = oracle.timed.draw(seed)
    found = [torch.empty_like(x) for x in oracle.cases[0].inputs]
    take(descriptor, found)
    os.close(descriptor)
    return found


def test_timed_cases_are_inputs_under_the_secrets_on_the_verified_weights(tmp_path: Path) -> None:
    oracle = prepared(tmp_path, source(CONVOLUTION), training=True)
    cases = len(oracle.cases)
    forward, backward = oracle.description()["timed"]
    assert forward == [[7, 0, cases], [8, 2, cases + 1], [9, 0, cases + 2]]
    assert backward == [[11, 0, cases + 3], [12, 2, cases + 4], [13, 0, cases + 5]]
    assert oracle.description()["weights_of"] == [0, 2]
    (cotangent,) = read_bundle(tmp_path / "inputs/case0.cotangents")
    model = model_of(source(CONVOLUTION))
    answers_ = {}
    for seed, weights, number in (*forward, *backward):
        model.load_state_dict(read_bundle(tmp_path / f"inputs/case{weights}.state"))
        (x,) = drawn(oracle, seed)
        answers_[number] = model(x.requires_grad_())
        if number >= cases + 3:
            (gradient,) = torch.autograd.grad(answers_[number], x, cotangent)
            assert errors(compared(oracle, number, "gradient", [gradient], ("input[0]",)))[0].ok
            other = backward[(number - cases - 2) % 3][2]
            assert not errors(compared(oracle, other, "gradient", [gradient], ("input[0]",)))[0].ok
    for number, answer in answers_.items():
        for part in ("forward", "earlier"):
            assert [n for n in answers_ if errors(compared(oracle, n, part, [answer]))[0].ok] == [number]


@pytest.mark.parametrize(("below", "answered"), [(BATCH * 5 * 4 * 4 * 4 - 1, (2, 2)), (BATCH * 5 * 4 * 4 * 4, (3, 2))])
def test_of_what_is_large_two_contents_are_answered_and_looked_at_for_kinks(
    below: int, answered: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes of the output alone, or with what has gradients."""
    monkeypatch.setattr(timed_cases, "LARGE_BYTES", below)
    oracle = prepared(tmp_path, source(CONVOLUTION), training=True)
    assert tuple(map(len, oracle.description()["timed"])) == answered
    assert len(oracle.timed.planned(True)) == answered[1]


def test_without_secrets_of_backward_none_is_timed(tmp_path: Path) -> None:
    oracle = prepared(tmp_path, source(CONVOLUTION), secrets=[[7, 8]])
    assert [len(numbered) for numbered in oracle.description()["timed"]] == [2, 0]


def test_no_two_contents_have_a_sum_an_end_or_a_value_in_common(tmp_path: Path) -> None:
    """What an answer could be kept by; the order of elements is the least of it."""
    oracle = prepared(tmp_path, source("    def forward(self, x):\n        return x * 2\n", "torch.randn(4, 8)"))
    seen = [drawn(oracle, seed)[0] for seed in (7, 8, 100, 101, 1 << 62)]
    for of in (torch.sum, torch.max, torch.min, lambda x: x.abs().sum(), lambda x: x.prod()):
        assert len({float(of(x)) for x in seen}) == len(seen)
    assert not set(seen[0].flatten().tolist()) & set(seen[1].flatten().tolist())
    assert torch.equal(drawn(oracle, 101)[0], seen[3])


def test_contents_are_the_tasks_own_whatever_it_draws(tmp_path: Path) -> None:
    """Indices stay in their range, matrices symmetric, offsets in order."""
    inputs = "(lambda m: [m + m.T, torch.randint(0, 9, (7,)), torch.randint(0, 5, (6,)).cumsum(0)])(torch.rand(5, 5))"
    oracle = prepared(
        tmp_path, source("    def forward(self, m, i, o):\n        return m @ m, m.flatten()[i + o[0]]\n", f"*{inputs}")
    )
    for seed in (7, 8, 12345):
        matrix, indices, offsets = drawn(oracle, seed)
        assert torch.equal(matrix, matrix.T)
        assert int(indices.min()) >= 0 and int(indices.max()) < 9
        assert bool((offsets.diff() >= 0).all())


def test_contents_that_were_drawn_can_be_answered_afterwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timed_cases, "LATE_S", 60.0)  # a busy machine is not what this is about
    oracle = prepared(tmp_path, source(CONVOLUTION))
    assert oracle.description()["late"]
    model = model_of(source(CONVOLUTION))
    for weights, seed in ((0, 4321), (2, 99)):
        model.load_state_dict(read_bundle(tmp_path / f"inputs/case{weights}.state"))
        answer = model(*drawn(oracle, seed))
        number = oracle.answered_late(seed, weights, None)
        assert errors(compared(oracle, number, "forward", [answer]))[0].ok
        assert not errors(compared(oracle, number, "forward", [answer * 1.1]))[0].ok


def test_large_contents_are_drawn_by_a_recipe_that_the_process_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(timed_cases.INSIDE_BYTES, "cpu", 64)
    oracle = prepared(tmp_path, source(CONVOLUTION))
    assert oracle.description()["inside"]
    recipe = read_recipe(tmp_path / "inputs/timed.json")
    model = model_of(source(CONVOLUTION))
    for seed, weights, number in oracle.description()["timed"][0]:
        model.load_state_dict(read_bundle(tmp_path / f"inputs/case{weights}.state"))
        answer = model(*recipe.drawn(seed, torch.device("cpu")))
        assert errors(compared(oracle, number, "forward", [answer]))[0].ok
        assert not errors(compared(oracle, number, "forward", [answer * 1.1]))[0].ok


def test_large_contents_without_a_recipe_go_through_the_slot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(timed_cases.INSIDE_BYTES, "cpu", 64)
    inputs = "torch.rand(8, 9) * random.random()"
    oracle = prepared(tmp_path, "import random\n" + source("    def forward(self, x):\n        return x * 2\n", inputs))
    assert not oracle.description()["inside"]
    assert not torch.equal(drawn(oracle, 7)[0], drawn(oracle, 8)[0])


def test_inputs_are_to_be_what_they_were_to_the_bit(tmp_path: Path) -> None:
    oracle = prepared(tmp_path, source(CONVOLUTION))
    (seed, _, number), *_ = oracle.description()["timed"][0]
    (x,) = drawn(oracle, seed)
    assert errors(compared(oracle, number, "inputs", [x], ("0",)))[0].ok
    x.view(-1)[3] = torch.nextafter(x.view(-1)[3], torch.tensor(9.0))
    assert not errors(compared(oracle, number, "inputs", [x], ("0",)))[0].ok


def test_what_a_seed_gave_cannot_be_changed_and_another_seeds_is_elsewhere(tmp_path: Path) -> None:
    """A process may keep the descriptor of an earlier call: nobody writes there again."""
    oracle = prepared(tmp_path, source(CONVOLUTION))
    kept, other = oracle.timed.draw(7), oracle.timed.draw(8)
    first, again = ([torch.empty_like(x) for x in oracle.cases[0].inputs] for _ in range(2))
    take(kept, first)
    for descriptor in (kept, os.open(f"/proc/self/fd/{kept}", os.O_RDWR)):
        with pytest.raises(OSError):
            os.pwrite(descriptor, b"x", 0)
        with pytest.raises(OSError):
            os.ftruncate(descriptor, 0)
        with pytest.raises(OSError):
            mmap.mmap(descriptor, 64)
    os.close(oracle.timed.draw(9))
    take(kept, again)
    assert torch.equal(first[0], again[0])
    assert os.fstat(kept).st_ino != os.fstat(other).st_ino
    os.close(kept)
    os.close(other)


def test_nobody_can_read_what_is_compared_while_it_is_timed(tmp_path: Path) -> None:
    oracle = prepared(tmp_path, source(CONVOLUTION), training=True)
    given = {file.stem for file in (tmp_path / "inputs").iterdir()}
    assert not any(f"case{i}." in name for name in given for i in range(len(oracle.cases), len(oracle.cases) + 6))
    assert not any("7" in name or "8" in name for name in given)


@pytest.mark.parametrize("most", [1, 7, 100, 10**6])
@pytest.mark.parametrize("start", [0.0, 0.5, 0.999])
def test_a_part_says_whether_the_whole_is_right(tmp_path: Path, most: int, start: float) -> None:
    oracle = prepared(tmp_path, source(CONVOLUTION))
    (answer,) = right(oracle)
    part = spread_part(answer.flatten(), most, start)
    part_of = {"most": most, "start": start}
    assert errors(compared(oracle, 0, "forward", [part], part_of=part_of))[0].ok
    assert not errors(compared(oracle, 0, "forward", [part * 1.1 + 0.1], part_of=part_of))[0].ok


def test_a_reference_that_does_not_take_its_inputs_under_other_seeds_is_timed_on_the_same_contents(
    tmp_path: Path,
) -> None:
    body = """
    calls = []

    def forward(self, x):
        self.calls.append(tuple(x.detach().float().flatten()[:3].tolist()))
        if len(dict.fromkeys(self.calls)) > 40:
            raise ValueError("enough")
        return x * 2
"""
    oracle = prepared(tmp_path, source(body, "torch.rand(8, 5)"), secrets=[list(range(60))])
    assert oracle.description()["timed"] == [[], []]
    assert "timed on the same contents each time" in claims(oracle)


# --- the benchmark's contract

TOLD_OF_TF32 = "on a GPU this rule may refuse what is exact"


def test_tiny_answers_keep_the_benchmarks_tolerance_and_the_check_is_called_weak(tmp_path: Path) -> None:
    """A softmax over many elements: an absolute 1e-4 takes zeros for the answer, and a stricter rule is told beside."""
    text = returning("torch.softmax(x.flatten(1), 1) * 0.01", "torch.randn(batch, 3, 64, 64)")
    oracle = prepared(tmp_path, text, contract="kernelbench")
    (expected,) = oracle.cases[0].outputs
    assert expected.absolute == 1e-4
    assert "the check is weak here: zeros everywhere" in claims(oracle)
    (answer,) = right(oracle)
    assert errors(compared(oracle, 0, "forward", [answer]))[0].ok
    zeros = compared(oracle, 0, "forward", [torch.zeros_like(answer)])
    assert errors(zeros)[0].ok
    stricter = from_json(zeros["rule"][0]["stricter"])
    assert not stricter.ok and stricter.relative_l2 == pytest.approx(1)


def test_the_benchmarks_inputs_are_drawn_as_it_draws_them(tmp_path: Path) -> None:
    oracle = prepared(tmp_path, source(CONVOLUTION), contract="kernelbench")
    assert [e.absolute for case in oracle.cases for e in case.outputs] == [1e-4] * 5
    (found,) = oracle.description()["findings"]
    assert TOLD_OF_TF32 in found["claim"]
    assert oracle.description()["cases"][0]["gradients"] == {}
    torch.manual_seed(42)
    seeds = [int(torch.randint(0, 2**32 - 1, (1,)).item()) for _ in range(5)]
    for seed, case in zip(seeds, oracle.cases, strict=True):
        torch.manual_seed(seed)
        (x,) = oracle.reference._names["get_inputs"]()
        assert torch.equal(case.inputs[0], x)


LAYERS = """
import torch
import torch.nn.functional as F
import torch.nn as nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = {layer}

    def forward(self, x):
        return self.layer(x){taken}

def get_inputs():
    return [4 * torch.rand(4, 16, 64)]

def get_init_inputs():
    return []
"""


@pytest.mark.parametrize(
    ("layer", "taken", "rounded"),
    [
        ("nn.Conv1d(16, 8, 9)", "", True),
        ("nn.ConvTranspose1d(16, 8, 9)", "", True),
        ("nn.LSTM(64, 128, 2)", "[1][1]", True),
        ("nn.Linear(64, 64)", "", False),
        ("nn.Sequential(nn.Linear(64, 64), nn.Conv1d(16, 8, 1))[0]", "", False),
    ],
)
def test_the_benchmarks_rule_is_told_to_round_on_a_gpu(tmp_path: Path, layer: str, taken: str, rounded: bool) -> None:
    """PyTorch's defaults take TF32 for what is cuDNN's, and eager is what the rule compares with."""
    text = LAYERS.format(layer=layer, taken=taken)
    assert (TOLD_OF_TF32 in claims(prepared(tmp_path / "rule", text, contract="kernelbench"))) is rounded
    assert TOLD_OF_TF32 not in claims(prepared(tmp_path / "own", text, contract="tf32"))


# --- power


def test_a_check_that_cannot_tell_wrong_from_right_says_so(tmp_path: Path) -> None:
    oracle = prepared(tmp_path, returning("torch.clamp(x * x, max=-1.0)"))
    assert "the check is weak here" in claims(oracle)
    assert "its mean everywhere" in claims(oracle)


def test_wider_inputs_are_added_until_the_check_has_power(tmp_path: Path) -> None:
    """Under its own inputs the clamp hides everything."""
    oracle = prepared(tmp_path, returning("torch.clamp(x, -10, 0.5)", "torch.rand(batch, 3, 6, 6) + 1"))
    assert [case.label for case in oracle.cases][3:] == ["wider inputs"]
    assert oracle.description()["findings"] == []
    assert (tmp_path / "inputs/case3.inputs.bin").exists()


# --- what has no answer


def test_nan_is_no_answer(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="output has NaN on its own inputs"):
        prepared(tmp_path, returning("torch.log(x)"))


def test_an_answer_that_overflows_at_the_contracts_precision_is_none(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="overflows at the contract's precision on its own inputs"):
        prepared(tmp_path, returning("torch.exp(x + 100)"))


def test_infinities_that_belong_to_the_answer_are_answers(tmp_path: Path) -> None:
    text = returning("x.masked_fill(torch.ones_like(x).triu(1).bool(), float('-inf'))", "torch.randn(batch, 6, 6)")
    oracle = prepared(tmp_path, text)
    assert errors(compared(oracle, 0, "forward", right(oracle)))[0].ok
    finite = right(oracle)[0].clamp(min=-1e30)
    assert not errors(compared(oracle, 0, "forward", [finite]))[0].ok


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (returning("undefined_name"), "task.py, line 10: Model.forward raises NameError"),
        (returning("x").replace("super().__init__()", "raise SystemExit(3)"), "line 7: .*raises SystemExit: 3"),
        (returning("x", "1 / 0"), r"line 13: get_inputs\(\) raises ZeroDivisionError"),
        (returning("x").replace("return []", "return 1 / 0"), r"line 15: get_init_inputs\(\) raises"),
        ("import nothing_of_that_name\n", "line 1: importing it raises ModuleNotFoundError"),
    ],
)
def test_what_the_task_raises_is_named_with_its_line(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(TaskError, match=words):
        prepared(tmp_path, text)


# --- precision


def test_a_reference_that_needs_float32_is_answered_in_float32_and_that_is_said(tmp_path: Path) -> None:
    oracle = prepared(tmp_path, returning("x.flatten(1) @ torch.ones(108, 4)"))
    assert oracle.description()["precision"] == "float32"
    assert "computed in strict float32" in claims(oracle)
    assert oracle.cases[0].outputs[0].values.dtype == torch.float32
    assert errors(compared(oracle, 0, "forward", right(oracle)))[0].ok


def test_large_answers_are_kept_as_float32(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expected, "EXACT_BYTES", 1000)
    case = prepared(tmp_path, source(CONVOLUTION)).cases[0]
    assert case.outputs[0].values.dtype == torch.float32
    assert case.gradients["conv.bias"].values.dtype == torch.float64


@pytest.mark.parametrize("contract", ["fp32", "tf32", "bf16", "kernelbench"])
@pytest.mark.parametrize("dtype", ["half", "bfloat16", "double"])
def test_a_reference_with_a_dtype_of_its_own_can_be_judged(tmp_path: Path, contract: str, dtype: str) -> None:
    body = (
        f"\n        self.linear = nn.Linear(6, 4).{dtype}()\n    def forward(self, x):\n        return self.linear(x)\n"
    )
    oracle = prepared(tmp_path, source(body, f"torch.randn(batch, 6).{dtype}()"), contract=contract)
    assert errors(compared(oracle, 0, "forward", right(oracle)))[0].ok


def test_bf16_means_tensors_of_bfloat16(tmp_path: Path) -> None:
    oracle = prepared(tmp_path, source(CONVOLUTION), contract="bf16")
    found = oracle.description()
    assert {found["cases"][0]["outputs"][0]["dtype"], found["cases"][0]["gradients"]["conv.weight"]["dtype"]} == {
        "bfloat16"
    }
    assert read_bundle(tmp_path / "inputs/case0.inputs")[0].dtype == torch.bfloat16
    assert oracle.cases[0].outputs[0].values.dtype == torch.float64


def test_bf16_at_sizes_cut_down_is_bfloat16_too(tmp_path: Path) -> None:
    oracle = prepared(tmp_path, source(CONVOLUTION, MANY), contract="bf16", first=[{"batch": 2}])
    assert oracle.make.sizes == {"batch": 2}
    assert oracle.answers.dtypes == [torch.bfloat16]


EQUAL = """
    def forward(self, x):
        return F.layer_norm(F.hardtanh(x, -0.7, 0.7).amax((2, 3)), (8,)) + 1
"""


@pytest.mark.parametrize("contract", ["fp32", "tf32"])
@pytest.mark.parametrize(("units", "ok"), [(3, True), (3000, False)])
def test_a_norm_of_equal_numbers_is_right_in_any_order_of_its_sum(
    tmp_path: Path, contract: str, units: int, ok: bool
) -> None:
    """Eager adds eight times 0.7 up exactly. By another order its mean may be a few units off, and what lies behind
    the norm some hundred times that."""
    oracle = prepared(tmp_path, source(EQUAL, "torch.rand(batch, 8, 6, 6) * 3"), contract=contract)
    (x,) = read_bundle(tmp_path / "inputs/case0.inputs")
    largest = F.hardtanh(x, -0.7, 0.7).amax((2, 3))
    mean = largest.mean(1, keepdim=True) * (1 + units * 2.0**-24)
    tensors = [(largest - mean) * (1e-5 + largest.var(1, unbiased=False, keepdim=True)).rsqrt() + 1]
    assert [each.ok for each in errors(compared(oracle, 0, "forward", tensors))] == [ok]


# --- parts of the batch


def test_parts_say_what_the_whole_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    smooth = CONVOLUTION.replace("relu", "sigmoid")  # of kinks parts find others: their inputs move otherwise
    whole = prepared(tmp_path / "whole", source(smooth), training=True)
    monkeypatch.setattr(batches, "PART_BYTES", 3 * 5 * 16 * 4)
    parts = prepared(tmp_path / "parts", source(smooth), training=True)
    assert (whole.answers.part_items, parts.answers.part_items) == (0, 3)
    told = [oracle.description() for oracle in (whole, parts)]
    assert [case.pop("watched") for one in told for case in one["cases"]] == [False, False, True, *[False] * 3]
    assert told[0] == told[1]
    for one, other in zip(whole.cases, parts.cases, strict=True):
        assert set(one.gradients) == set(other.gradients)
        pairs = [(one.outputs[0], other.outputs[0]), *((one.gradients[n], other.gradients[n]) for n in one.gradients)]
        for a, b in pairs:
            assert a.shape == b.shape
            torch.testing.assert_close(a.values, b.values, rtol=1e-11, atol=1e-11)
            assert b.scale == pytest.approx(a.scale)
            assert b.relative_l2_allowed == pytest.approx(a.relative_l2_allowed, rel=0.05)
            assert b.peak_allowed == pytest.approx(a.peak_allowed, rel=0.2)
    torch.testing.assert_close(whole.cases[0].rule[0].values, parts.cases[0].rule[0].values)


@pytest.mark.parametrize(
    "text",
    [
        source("\n        self.norm = nn.BatchNorm2d(3)\n    def forward(self, x):\n        return self.norm(x)\n"),
        source(
            "\n        self.norm = nn.BatchNorm1d(6)\n    def forward(self, x):\n        return self.norm(x)\n",
            "torch.randn(batch, 6)",
        ),
        returning("x - x.mean(0)"),
        returning("x.sum(0)"),
        returning("x.reshape(batch, -1).cumsum(0)"),
        returning("x[: batch // 2]"),
        returning("x[0] if len(x) == 1 else (x, x)"),
        returning("x.flatten(1).repeat(1, len(x))"),
    ],
    ids=["batch norm", "batch norm of vectors", "mean", "sum", "fixed size", "half", "another form", "batch's width"],
)
def test_items_that_depend_on_each_other_are_not_parted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setattr(batches, "PART_BYTES", 1)
    oracle = prepared(tmp_path, text)
    assert oracle.answers.part_items == 0
    assert errors(compared(oracle, 0, "forward", right(oracle)))[0].ok


def test_in_eval_mode_batch_norm_can_be_parted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "PART_BYTES", 1)
    text = source("\n        self.norm = nn.BatchNorm2d(3)\n    def forward(self, x):\n        return self.norm(x)\n")
    assert prepared(tmp_path, text, mode="eval").answers.part_items == 1


# --- odd outputs and inputs


@pytest.mark.parametrize(
    ("expression", "outputs"),
    [
        ("x.flatten(1).argmax(1)", {"output": "int64"}),
        ("x > 0", {"output": "bool"}),
        ("torch.fft.fft(x)", {"output": "float32"}),
        (
            "(x * 2, [x.argmax(), {'mask': x > 1}])",
            {"output[0]": "float32", "output[1][0]": "int64", "output[1][1]['mask']": "bool"},
        ),
        ("x.sum(), float(x.shape[0]), None", {"output[0]": "float32", "output[1]": "float64"}),
        ("x, x[:0]", {"output[0]": "float32", "output[1]": "float32"}),
        ("torch.sort(x.flatten(1))", {"output[0]": "float32", "output[1]": "int64"}),
    ],
)
def test_every_form_of_output_is_answered(tmp_path: Path, expression: str, outputs: dict[str, str]) -> None:
    oracle = prepared(tmp_path, returning(expression))
    found = oracle.description()["cases"][0]["outputs"]
    assert {o["name"]: o["dtype"] for o in found} == outputs
    for i, case in enumerate(oracle.cases):
        out = model_of(returning(expression))(read_bundle(tmp_path / f"inputs/case{i}.inputs")[0])
        tensors = [leaf.tensor for leaf in take_apart(numbers_to_tensors(out), "output")[1]]
        assert [list(t.shape) for t in tensors] == [o["shape"] for o in found]
        assert all(error.ok for error in errors(compared(oracle, i, "forward", tensors)))
        assert [e.name for e in case.outputs] == list(outputs)


def test_wrong_integers_are_wrong(tmp_path: Path) -> None:
    oracle = prepared(tmp_path, returning("x.flatten(1).argmax(1)"))
    (answer,) = right(oracle)
    answer[3] += 1
    (error,) = errors(compared(oracle, 0, "forward", [answer]))
    assert not error.ok
    assert error.worst_index == (3,)


def test_a_reference_that_hands_its_input_on_is_described_so(tmp_path: Path) -> None:
    assert prepared(tmp_path, returning("x[1:]")).description()["aliases"] == [[0, 0]]


@pytest.mark.parametrize("contract", ["kernelbench", "tf32"])
def test_a_reference_that_writes_to_its_input_is_described_so(tmp_path: Path, contract: str) -> None:
    found = prepared(tmp_path, returning("x.mul_(2)"), contract=contract).description()
    assert (found["aliases"], found["mutated"]) == ([[0, 0]], [0])


def test_integer_inputs_have_no_gradient_and_are_not_widened(tmp_path: Path) -> None:
    body = "\n        self.table = nn.Embedding(9, 4)\n    def forward(self, x):\n        return self.table(x)\n"
    oracle = prepared(tmp_path, source(body, "torch.randint(0, 9, (batch, 3))"), training=True)
    assert set(oracle.description()["cases"][0]["gradients"]) == {"table.weight"}


@pytest.mark.parametrize(
    ("signature", "inputs"),
    [("self, x, y=2.0", "{'x': torch.randn(batch, 3), 'y': 3.0}"), ("self, xs, y", "[[torch.randn(batch, 3)], 3.0]")],
)
def test_inputs_may_be_nested_and_named(tmp_path: Path, signature: str, inputs: str) -> None:
    text = source(
        f"    def forward({signature}):\n        return {signature.split(', ')[1]}\n".replace(" xs\n", " xs[0] * y\n")
    )
    text = text.replace("return [torch.randn(batch, 3, 6, 6)]", f"return {inputs}")
    oracle = prepared(tmp_path, text.replace("return x\n", "return x * y\n"))
    torch.testing.assert_close(right(oracle)[0], 3 * take_apart(oracle.cases[0].inputs, "input")[1][0].tensor)


def test_a_reference_without_inputs_has_an_answer(tmp_path: Path) -> None:
    body = """
        self.weight = nn.Parameter(torch.randn(4, 4))
    def forward(self):
        return self.weight @ self.weight
"""
    oracle = prepared(tmp_path, source(body, ""))
    assert set(oracle.description()["cases"][0]["gradients"]) == {"weight"}
    assert oracle.description()["inputs"] == []


def test_buffers_that_forward_writes_to_are_as_given_in_every_evaluation(tmp_path: Path) -> None:
    body = """
        self.register_buffer("count", torch.zeros(()))
    def forward(self, x):
        self.count += 1
        return x * self.count
"""
    oracle = prepared(tmp_path, source(body))
    torch.testing.assert_close(right(oracle)[0], oracle.cases[0].inputs[0])


# --- as a process


class Client:
    """The judge's end of `serve`, which runs in a thread."""

    def __init__(self) -> None:
        ours, theirs = pair()
        self.channel = Channel(ours)
        self.thread = threading.Thread(target=self._serve, args=(Channel(theirs),))
        self.thread.start()

    def _serve(self, channel: Channel) -> None:
        try:
            serve(channel)
        except ChannelClosed:
            channel.close()

    def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        self.channel.send(message)
        self.told: list[str] = []
        while {"progress", "written"} & (reply := self.channel.receive(60)).keys():
            self.told += reply
        return reply

    def close(self) -> None:
        self.channel.close()
        self.thread.join(10)
        assert not self.thread.is_alive()


def test_the_oracle_serves_until_the_judge_hangs_up(tmp_path: Path) -> None:
    client = Client()
    reply = client.ask({"do": "prepare", **settings(tmp_path, source(CONVOLUTION))})
    assert reply["ready"]["cases"][0]["outputs"][0]["name"] == "output"
    assert client.told.count("written") == 1
    assert read_bundle(tmp_path / "inputs/init") == []
    model = model_of(source(CONVOLUTION))
    for index in (0, 1, 0):
        model.load_state_dict(read_bundle(tmp_path / f"inputs/case{index}.state"))
        (x,) = read_bundle(tmp_path / f"inputs/case{index}.inputs")
        reading, writing = os.pipe()
        client.channel.send({"do": "attach"}, (reading,))
        os.close(reading)
        out = model(x).detach()
        os.write(writing, raw_bytes(out))
        reply = client.ask({"do": "compare", "case": index, "part": "forward", "names": [], "part_of": WHOLE})
        assert errors(reply)[0].ok
        client.channel.send({"do": "detach"})
        os.close(writing)
    client.close()


@pytest.mark.parametrize(
    ("text", "changes", "kind", "words"),
    [
        (returning("torch.log(x)"), {}, "task", "has NaN"),
        (returning("x", "object()"), {}, "task", r"input[0] is a object"),
        (returning("x, set()"), {}, "task", "output[1] is a set"),
        (returning("x"), {"vault": "/proc/nowhere"}, "judge", "the oracle failed"),
        (returning("x + torch.empty(10**15)[:6]"), {}, "judge", "the oracle ran out of memory"),
        (
            source("    def forward(self, x):\n        raise RuntimeError('CUDA error: out of memory')\n"),
            {},
            "judge",
            "the oracle ran out of memory: CUDA error: out of memory",
        ),
    ],
)
def test_what_cannot_be_answered_is_an_error_reply(
    tmp_path: Path, text: str, changes: dict[str, Any], kind: str, words: str
) -> None:
    client = Client()
    reply = client.ask({"do": "prepare", **settings(tmp_path, text, **changes)})
    client.close()
    assert reply["error"]["kind"] == kind
    assert words in reply["error"]["message"]
    assert "Traceback" in reply["trace"]


# --- memory

MEASURE = """
import resource, sys, threading, time
sys.path.insert(0, {tests!r})
import torch
import torch.nn.functional as F
torch.set_num_threads(1)
from pathlib import Path
from crucible.judge.boundary.slot import take
from crucible.judge.oracle import batches, expected, oracle, power
from test_oracle import settings
batches.PART_BYTES, expected.EXACT_BYTES, power.SAMPLE_ELEMENTS = 4 << 20, 1 << 20, 1 << 18

def anonymous():
    lines = open("/proc/self/status").read().splitlines()
    return next(int(l.split()[1]) for l in lines if l.startswith("RssAnon")) << 10

def watch():
    while not done.is_set():
        peak[0] = max(peak[0], anonymous())
        time.sleep(0.02)

folder = Path(sys.argv[1])
small = settings(folder / "warm", {warm!r})
oracle.Oracle(small, lambda text: None).prepare()
one = oracle.Oracle(settings(folder, {text!r}, secrets=[[7], [8]]), lambda text: None)
baseline, anonymous_baseline = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10, anonymous()
done, peak = threading.Event(), [0]
thread = threading.Thread(target=watch)
thread.start()
one.prepare()
done.set()
thread.join()
assert one.answers.part_items
total = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
print(total - baseline, peak[0] - anonymous_baseline)
"""
TENSOR_BYTES = 32 << 20
"""Of an output. Peaks are 20 MiB below what is allowed: one tensor more shows."""
BUFFERS = 128 << 20
"""Allowed beside the tensors: where an rms is summed, three float64 temporaries of 4 Mi elements and a mask
(100 MiB); elsewhere the float64 temporaries of a part of 4 MiB (below 70 MiB); slack of the allocator."""


@pytest.mark.slow
def test_memory_is_that_of_the_tensors_and_of_one_part(tmp_path: Path) -> None:
    """Anonymous memory: the cotangents, of an output's size, and buffers. Resident memory also counts the pages
    of the expected values' files (three cases and the benchmark's rule), which the kernel may drop at any time."""
    body = (
        "\n        self.w = nn.Parameter(torch.randn(512, 1))\n    def forward(self, x):\n        return x * self.w\n"
    )
    text = source(body, "torch.randn(batch, 1, 512)").replace(f"batch = {BATCH}", "batch = 32")
    warm = text.replace("batch = 32", "batch = 8")  # in parts too: what that imports takes 75 MiB
    code = MEASURE.format(tests=str(Path(__file__).parent), text=text, warm=warm)
    # Blocks of a part go back to the system at once, as those of a part of the real size always do.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": str(1 << 20), "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    resident, anonymous = map(int, done.stdout.split())
    print(f"\npeak over baseline: {resident >> 20} MiB resident, {anonymous >> 20} MiB of it anonymous")
    assert TENSOR_BYTES / 2 < anonymous <= TENSOR_BYTES + BUFFERS
    assert resident <= 5 * TENSOR_BYTES + BUFFERS


def test_the_power_check_looks_at_a_sample_only() -> None:
    assert power.SAMPLE_ELEMENTS * 8 <= 64 << 20


# --- other sizes


def at_other_sizes(tmp_path: Path, text: str, further: list[list[dict[str, int]]], **changes: Any) -> Oracle:
    return prepared(tmp_path, text, further=further, **changes)


def test_a_further_shape_is_one_more_case_with_shapes_of_its_own(tmp_path: Path) -> None:
    oracle = at_other_sizes(tmp_path, source(CONVOLUTION), [[{"batch": 3}]], training=True)
    last = oracle.description()["cases"][-1]
    assert (last["label"], last["sizes"], last["backward"]) == ("other sizes: batch = 3", {"batch": 3}, True)
    assert last["outputs"][0]["shape"] == [3, 5, 4, 4]
    assert last["gradients"]["input[0]"]["shape"] == [3, 3, 6, 6]
    assert read_bundle(tmp_path / "inputs" / f"case{last['index']}.inputs")[0].shape == (3, 3, 6, 6)
    assert oracle.cases[0].outputs[0].shape == (BATCH, 5, 4, 4)
    assert "judged at another shape too: batch = 3" in claims(oracle)


def test_the_benchmarks_rule_too_is_held_against_a_size_above_a_blocks_threads(tmp_path: Path) -> None:
    """Cut down to 64 columns, a kernel with a thread for each column passed that computes 1024 of 4095."""
    oracle = prepared(
        tmp_path, source(CONVOLUTION), contract="kernelbench", beyond=[{"batch": 3}], further=[[{"batch": 5}]]
    )
    assert [case["sizes"] for case in oracle.description()["cases"] if case["sizes"]] == [{"batch": 3}]


PICKY = "    def forward(self, x):\n        assert x.shape[0] % 2 == 0\n        return x * 2\n"


def test_the_first_sizes_that_the_reference_takes_are_its_further_shape(tmp_path: Path) -> None:
    oracle = at_other_sizes(tmp_path, source(PICKY), [[{"batch": 3}, {"batch": 6}, {"batch": 2}]])
    assert oracle.description()["cases"][-1]["sizes"] == {"batch": 6}


def test_sizes_that_are_too_much_work_are_passed_over(tmp_path: Path) -> None:
    sizes = [{"batch": 100_000}, {"batch": 7}, {"batch": 3}]
    oracle = at_other_sizes(tmp_path, source(CONVOLUTION), [sizes])
    assert oracle.description()["cases"][-1]["sizes"] == {"batch": 7}


def test_where_all_is_too_much_work_the_least_is_taken(tmp_path: Path) -> None:
    sizes = [{"batch": 40_000}, {"batch": 30_000}]
    oracle = at_other_sizes(tmp_path, source(CONVOLUTION), [sizes])
    assert oracle.description()["cases"][-1]["sizes"] == {"batch": 30_000}


def test_a_reference_that_takes_no_other_size_is_judged_at_its_own_and_that_is_said(tmp_path: Path) -> None:
    fixed = f"    def forward(self, x):\n        return x.view({BATCH}, -1)[:, :3] * 2\n"
    oracle = at_other_sizes(tmp_path, source(fixed, "torch.randn(batch, 5)"), [[{"batch": 3}, {"batch": 2}]])
    assert [case["sizes"] for case in oracle.description()["cases"]] == [{}] * len(oracle.cases)
    assert "one shape only: the reference takes no other of those that were tried: batch = 3; batch = 2" in claims(
        oracle
    )


def test_a_shape_that_was_asked_for_and_is_refused_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"Model.forward \(other sizes: batch = 3\) raises AssertionError"):
        at_other_sizes(tmp_path, source(PICKY), [[{"batch": 3}]], asked=True)


def test_the_judges_only_other_size_may_be_refused_all_the_same(tmp_path: Path) -> None:
    """One size to try is no size that was asked for."""
    oracle = at_other_sizes(
        tmp_path, source(PICKY, "torch.randn(batch, 270_000)"), [[{"batch": 3}]], first=[{"batch": 5}]
    )
    assert "judged at one shape only" in claims(oracle) and "judged at its full size" in claims(oracle)


def test_a_ragged_size_without_an_answer_is_passed_over(tmp_path: Path) -> None:
    """Its forward runs there, and gives NaN."""
    nan_at_3 = "    def forward(self, x):\n        return x * (float('nan') if x.shape[0] == 3 else 2.0)\n"
    oracle = at_other_sizes(tmp_path, source(nan_at_3), [[{"batch": 3}, {"batch": 2}]])
    assert oracle.description()["cases"][-1]["sizes"] == {"batch": 2}


def test_sizes_in_place_of_the_tasks_own_hold_for_every_case(tmp_path: Path) -> None:
    oracle = prepared(tmp_path, source(CONVOLUTION, MANY), first=[{"batch": 1000_000}, {"batch": 2}, {"batch": 1}])
    assert {case["outputs"][0]["shape"][0] for case in oracle.description()["cases"]} == {4000}
    assert oracle.description()["sizes"] == {"batch": 2}
    assert "sizes cut down for the emulator: batch = 2" in claims(oracle)


LEVEL_2_TASK_80 = """
        self.gemm = nn.Linear(6, 5)
    def forward(self, x):
        x = torch.max(self.gemm(x), dim=1, keepdim=True).values
        return F.gelu(x - x.mean(dim=1, keepdim=True))
"""
LEVEL_2_TASK_83 = """
        self.conv = nn.Conv3d(3, 8, 3)
        self.norm = nn.GroupNorm(4, 8)
        self.drop = nn.Dropout(0.2)
    def forward(self, x):
        x = torch.min(self.norm(self.conv(x)), torch.tensor(0.0, device=x.device))
        return self.drop(torch.clamp(x, min=0.0, max=1.0))
"""
VACUOUS = {
    "80": source(LEVEL_2_TASK_80, "torch.randn(batch, 6)"),
    "83": source(LEVEL_2_TASK_83, "torch.rand(batch, 3, 5, 6, 7)"),
}


@pytest.mark.parametrize("contract", ["tf32", "kernelbench"])
@pytest.mark.parametrize("name", VACUOUS)
def test_a_task_whose_output_depends_on_nothing_is_called_vacuous(tmp_path: Path, name: str, contract: str) -> None:
    oracle = prepared(tmp_path, VACUOUS[name], contract=contract)
    assert "the task is vacuous: its output does not depend on its inputs: every element is 0" in claims(oracle)


def test_a_task_whose_output_depends_on_wider_inputs_alone_is_not(tmp_path: Path) -> None:
    text = returning("torch.clamp(x, min=3.0)", "torch.rand(batch, 3, 6, 6)")
    assert "vacuous" not in claims(prepared(tmp_path, text))
