"""At which of several sizes a reference is judged: what is little work, what hides nothing, whose weights shrink."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from crucible.judge.oracle.sizing import ENOUGH, MORE, LongLook, Rated, Survey, choices, collapsed, in_order
from crucible.shapes import Sizes
from crucible.task import Task
from support import write
from test_oracle import claims, prepared

NETWORK = """
import torch
from torch import nn

batch_size = 16
input_channels = 3
height = width = 96

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 8, stride=8)
    def forward(self, x):
        return self.conv(x).mean((2, 3))

def get_inputs():
    return [torch.rand(batch_size, input_channels, height, width)]

def get_init_inputs():
    return []
"""
LARGE = NETWORK.replace("batch_size = 16", "batch_size = 2048")
PERCEPTRON = """
import torch
from torch import nn

batch_size = 1024
in_features, out_features = 8192, 4096
bias_shape = (out_features,)
hidden = [2048] * 2

class Model(nn.Module):
    def __init__(self, in_features, out_features, bias_shape, hidden):
        super().__init__()
        widths = [in_features, *hidden, out_features]
        self.layers = nn.Sequential(*(nn.Linear(a, b) for a, b in zip(widths, widths[1:])))
        self.bias = nn.Parameter(torch.randn(bias_shape))
    def forward(self, x):
        return self.layers(x) + self.bias

def get_inputs():
    return [torch.rand(batch_size, in_features)]

def get_init_inputs():
    return [in_features, out_features, bias_shape, hidden]
"""


def survey(text: str) -> Survey:
    return Survey(text, "task.py", {}, mode="train", seed=0)


def task(tmp_path: Path, text: str) -> Task:
    loaded = Task.load(write(tmp_path / "a_task.py", text))
    return loaded.at(scale=None, training=False, mode="train", small_by_default=True).cut_down(own=False)


def test_a_size_at_which_a_mean_is_over_one_element_is_known() -> None:
    of = survey(NETWORK)
    assert of.rate({"height": 32, "width": 32}).collapsed == ""
    assert of.rate({"height": 8, "width": 32}).collapsed == (
        "dimension 2 of what convolution gives has 1 element there, 12 at the task's own sizes"
    )


PRODUCT = """
import torch
from torch import nn

M, K, N = 1024, 4096, 2048

class Model(nn.Module):
    def forward(self, a, b):
        return {result}

def get_inputs():
    return [torch.rand(M, K), torch.rand(K, N)]

def get_init_inputs():
    return []
"""


@pytest.mark.parametrize(
    ("result", "summed"),
    [
        ("a @ b", ["K"]),
        ("(a @ b).amax(1)", ["K", "N"]),
        ("a.mean() * b", ["M"]),
        ("torch.cat([a.flatten(), b.flatten()])", []),
        ("(a @ b).relu_()" + ".add_(1)" * 100, []),  # a network, at which nobody looks so long
    ],
)
def test_what_only_lengthens_sums_is_kept_as_long_as_it_is(result: str, summed: list[str]) -> None:
    cut: Sizes = {"M": 64, "K": 64, "N": 64}
    own = {"M": 1024, "K": 4096, "N": 2048}
    longer = {**cut, **{name: own[name] for name in summed}}
    found = survey(PRODUCT.format(result=result)).with_long_sums([cut])
    assert found == ([longer, cut] if summed else [cut])


def test_the_benchmarks_rule_is_for_sums_of_its_own_length(tmp_path: Path) -> None:
    text = PRODUCT.format(result="a @ b")
    tries = list(task(tmp_path, text).first)
    at = {contract: prepared(tmp_path, text, first=tries, contract=contract) for contract in ("kernelbench", "fp32")}
    assert {name: oracle.make.sizes["K"] for name, oracle in at.items()} == {"kernelbench": 4096, "fp32": 64}


def test_what_has_one_element_of_its_own_hides_nothing() -> None:
    assert survey(NETWORK.replace("96", "8")).rate({"batch_size": 2}).collapsed == ""


def test_other_operations_are_not_compared() -> None:
    assert collapsed([("relu", ((3,),))], [("sigmoid", ((1,),))]) == ""


def test_it_is_cut_less_where_that_would_hide_a_mistake(tmp_path: Path) -> None:
    """A sum in place of the mean is right over one element."""
    tries = [{"height": 8, "width": 8}, {"height": 16, "width": 16}]
    assert "sizes cut down for the emulator: height = 16, width = 16" in claims(prepared(tmp_path, LARGE, first=tries))


@pytest.mark.parametrize("tries", [[{"batch_size": 2}], [{"height": 8, "width": 8}]])
def test_what_is_little_work_at_its_own_sizes_is_not_cut(tmp_path: Path, tries: list[Sizes]) -> None:
    """A candidate with a CUDA graph for the task's own sizes alone, and one answer in every call, passed at others."""
    oracle = prepared(tmp_path, NETWORK, first=tries)
    assert oracle.description()["cases"][0]["outputs"][0]["shape"] == [16, 4]
    assert oracle.make.sizes == {}
    assert "cut down" not in claims(oracle)


def test_where_it_takes_no_other_the_check_is_said_to_be_weak(tmp_path: Path) -> None:
    found = claims(prepared(tmp_path, LARGE, first=[{"height": 8, "width": 8}]))
    assert "the check is weak at sizes cut down so far: dimension 2 of what convolution gives has 1 element" in found


def test_channels_are_not_cut_as_space_is(tmp_path: Path) -> None:
    """A network wants its own three: with another number its ragged shape would be refused."""
    network = task(tmp_path, NETWORK)
    assert network.first[0] == {"batch_size": 2, "input_channels": 3, "height": 48, "width": 48}
    assert network.tries[0][0] == {"batch_size": 3, "height": 67, "width": 37}


def test_of_large_weights_the_sizes_are_cut_with_what_is_made_of_them(tmp_path: Path) -> None:
    of = task(tmp_path, PERCEPTRON)
    chosen = next(choices(list(of.first), list(of.smaller_weights), survey(PERCEPTRON).rate))
    assert chosen.is_little
    assert chosen.sizes == {"batch_size": 32, "in_features": 512, "out_features": 512, "hidden": [512, 512]}
    oracle = prepared(tmp_path, PERCEPTRON, first=[], smaller_weights=[chosen.sizes])
    assert oracle.reference.state()["bias"].shape == (512,)
    assert oracle.description()["cases"][0]["outputs"][0]["shape"] == [32, 512]


def test_weights_that_are_no_trouble_stay(tmp_path: Path) -> None:
    smaller = PERCEPTRON.replace("8192, 4096", "1024, 600").replace("2048", "64")
    of = task(tmp_path, smaller)
    assert next(choices(list(of.first), list(of.smaller_weights), survey(smaller).rate)).sizes == {"batch_size": 256}


def test_a_size_that_the_module_itself_reads_is_not_one_of_weights(tmp_path: Path) -> None:
    reads = PERCEPTRON.replace("self.layers(x)", "self.layers(x[:, :in_features])")
    assert "in_features" not in task(tmp_path, reads).smaller_weights[0]
    assert "in_features" in task(tmp_path, PERCEPTRON).smaller_weights[0]


def test_a_batch_with_large_weights_alone_is_ragged_at_its_smallest(tmp_path: Path) -> None:
    """Not at 48, the last of the list but one: where all is much work, the least is taken."""
    text = PERCEPTRON.replace("in_features, out_features = 8192, 4096", "out_features = 4096")
    text = text.replace("return [in_features", "return [8192").replace("batch_size, in_features", "batch_size, 8192")
    of = task(tmp_path, text)
    assert next(in_order(list(of.tries[0]), survey(text).rate)).sizes == {"batch_size": 5}


def test_much_work_at_sizes_cut_down_is_done_for_two_inputs_and_not_for_five(tmp_path: Path) -> None:
    text = PERCEPTRON.replace("8192, 4096", "2048, 1024").replace("[2048] * 2", "[]")
    few, many = [{"batch_size": 16}], [{"batch_size": 640}]
    for first, cases in ((few, 5), (many, 2)):
        oracle = prepared(tmp_path, text, first=first, contract="kernelbench")
        assert len(oracle.description()["cases"]) == cases


NORMED = PERCEPTRON.replace("hidden = [2048] * 2", "hidden = []\nnum_groups = 512").replace("4096", "8192")
NORMED = NORMED.replace(", hidden)", ", hidden, num_groups)").replace(", hidden]", ", hidden, num_groups]")
NORMED = NORMED.replace("*(nn.Linear", "nn.GroupNorm(num_groups, in_features), *(nn.Linear")


def test_groups_are_cut_as_their_channels_are(tmp_path: Path) -> None:
    """512 groups of 512 channels would have one each: what is normed is zero whatever a kernel does."""
    of = task(tmp_path, NORMED)
    chosen = next(choices(list(of.first), list(of.smaller_weights), survey(NORMED).rate)).sizes
    assert chosen == {"batch_size": 64, "in_features": 512, "out_features": 512, "num_groups": 32}


SEQUENCE = """
import torch
from torch import nn

batch_size, sequence_length = 8, 4096

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(8, 8, batch_first=True)
    def forward(self, x):
        return self.lstm(x)[0]

def get_inputs():
    return [torch.rand(batch_size, sequence_length, 8)]

def get_init_inputs():
    return []
"""


def test_a_long_sequence_is_not_looked_at_to_its_end() -> None:
    """Each step is operations: to rate six layers at 512 steps took a minute of a processor."""
    of = survey(SEQUENCE)
    assert of.rate({}).cost == math.inf
    assert of.rate({"sequence_length": 16}).cost < 1
    with pytest.raises(LongLook, match="more than 3000 operations"):
        of.work()


COSTS = {1: Rated({"n": 1}, 0.5, "hidden"), 2: Rated({"n": 2}, 3.0), 3: Rated({"n": 3}, MORE + 1),
         4: Rated({"n": 4}, math.inf), 5: Rated({"n": 5}, 0.9), 6: Rated({"n": 6}, 2.0)}  # fmt: skip


def rate(sizes: Sizes) -> Rated:
    return COSTS[sizes["n"]]


@pytest.mark.parametrize(
    ("tries", "order"),
    [
        ([4, 3, 2, 1, 5], [5, 2, 1, 3, 4]),
        ([3, 1, 4, 2, 6], [6, 2, 1, 3, 4]),
        ([1], [1]),
    ],
)
def test_little_work_first_then_what_hides_nothing_then_what_costs_least(tries: list[int], order: list[int]) -> None:
    assert [rated.sizes["n"] for rated in in_order([{"n": n} for n in tries], rate)] == order


def test_smaller_weights_are_for_where_they_make_a_difference() -> None:
    few, many = [{"n": 3}], [{"n": 5}]
    assert MORE + 1 > ENOUGH
    assert [rated.sizes["n"] for rated in choices(few, many, rate)] == [5, 3]
    assert [rated.sizes["n"] for rated in choices(few, [{"n": 4}], rate)] == [3]
    assert next(choices([{"n": 2}], many, rate)).sizes == {"n": 2}


FORGETFUL = """
import torch
from torch import nn

batch_size, steps, width = 4, 500, 500

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(8, 8)
    def forward(self, x, beside):
        h = c = x.new_ones(batch_size, 8)
        for i in range(x.shape[1]):
            h, c = self.cell(x[:, i], (h, c))
        if beside.shape[1] % 2:
            beside = nn.functional.pad(beside, (0, 1))
        return h + beside.mean()

def get_inputs():
    return [torch.rand(batch_size, steps, 8), torch.rand(1, width)]

def get_init_inputs():
    return []
"""


def test_a_sequence_cut_to_few_steps_hides_what_is_forgotten_after_more() -> None:
    """An LSTM with another first cell state is right after 512 steps and wrong after two."""
    of = survey(FORGETFUL)
    told = of.rate({"steps": 4, "width": 500}).collapsed
    assert told == "steps counts steps, 4 there and 500 at the task's own sizes"
    assert of.rate({"steps": 40, "width": 4}).collapsed == ""  # an operation more where it is odd: no sequence
    assert survey(FORGETFUL.replace("500,", "5,")).rate({"steps": 5}).collapsed == ""


def test_a_sequence_keeps_as_many_steps_as_the_work_allows(tmp_path: Path) -> None:
    tries = [{"steps": n} for n in (256, 4, 32, 16)]
    assert next(choices(tries, [], survey(FORGETFUL).rate)).sizes["steps"] >= 32
