"""The oracle within its means: memory and time are known before a case is run, and what this machine's PyTorch lacks is
worked round in the reference."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from crucible import hardware
from crucible.errors import JudgeError, TaskError
from crucible.judge.oracle.footprint import SHARE, footprint
from crucible.judge.oracle.noise import perturbed
from crucible.judge.oracle.reference import Reference
from crucible.judge.process.limits import Limits
from crucible.judge.verdict.stop import Stop, stop_if_raised
from crucible.task import Task
from support import SMALL_TASK, write
from test_oracle import claims, prepared, source

CPU = torch.device("cpu")
MIB = 1 << 20


def reference(text: str, path: str = "task.py") -> Reference:
    return Reference(text, path, {}, mode="train", seed=0, device=CPU)


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


LOSS = source("    def forward(self, x, y):\n        return ((x - y).pow(2) * x.sigmoid()).mean()\n",
              "torch.randn(1 << 18), torch.randn(1 << 18)")  # fmt: skip
ROWS = source("    def forward(self, x):\n        return (x.sigmoid() * x).sum(1)\n", "torch.randn(64, 1 << 14)")


def held(text: str, dtype: torch.dtype, backward: bool = False) -> int:
    made = reference(text)
    found = footprint(made, made.inputs(1), dtype, backward=backward)
    assert found is not None
    return found


def test_a_footprint_is_what_the_tensors_hold() -> None:
    narrow, wide = (held(ROWS, dtype) for dtype in (torch.float32, torch.float64))
    given = 64 * (1 << 14) * 4
    assert 3 * given <= narrow <= 6 * given  # the input twice, a clone, and what two operations make
    assert 1.6 * narrow <= wide <= 2 * narrow
    assert held(ROWS, torch.float32, backward=True) > narrow


@pytest.mark.parametrize("training", [False, True])
def test_a_loss_of_two_large_vectors_is_float32_where_float64_does_not_fit(tmp_path: Path, training: bool) -> None:
    backward = True  # a contract with gradients compares them in its first case
    between = (held(LOSS, torch.float32, backward) + held(LOSS, torch.float64, backward)) / 2
    oracle = prepared(tmp_path, LOSS, memory_bytes=int(resident() + between / SHARE), training=training)
    assert oracle.answers.exact == torch.float32
    assert "float64 does not fit, and the batch cannot be divided" in claims(oracle)
    assert "float64 does not fit" not in claims(prepared(tmp_path / "roomy", LOSS, memory_bytes=8 << 30))


def test_what_does_not_fit_at_all_is_refused_before_it_is_run(tmp_path: Path) -> None:
    with pytest.raises(JudgeError, match=r"would need .* GiB in float32 .*are free.*--scale small"):
        prepared(tmp_path, LOSS, memory_bytes=resident() + 4 * MIB)


def test_a_batch_of_independent_items_is_divided_until_it_fits(tmp_path: Path) -> None:
    room = held(ROWS, torch.float64, backward=True) / 4
    oracle = prepared(tmp_path, ROWS, memory_bytes=int(resident() + room / SHARE))
    assert oracle.answers.exact == torch.float64 and 1 <= oracle.answers.part_items <= 16
    whole = prepared(tmp_path / "whole", ROWS)
    assert whole.answers.part_items == 0
    assert torch.equal(oracle.cases[0].outputs[0].values, whole.cases[0].outputs[0].values)


def test_values_are_moved_in_parts_as_far_as_at_once() -> None:
    value = torch.randn((1 << 24) + 5)
    moved = perturbed(value, 1e-3, torch.Generator().manual_seed(0))
    ratio = (moved / value - 1).abs()
    assert moved.shape == value.shape and float(ratio.max()) <= 1.01e-3 and float(ratio.mean()) > 4e-4


def test_the_judges_own_cases_are_left_out_where_time_ends(tmp_path: Path) -> None:
    oracle = prepared(tmp_path, ROWS, oracle_s=1e-3)
    assert [case.label for case in oracle.cases] == ["its own inputs", "its own inputs, another seed"]
    assert "left out for want of time: its own inputs, new weights" in claims(oracle)
    assert "want of time" not in claims(prepared(tmp_path / "b", ROWS, oracle_s=600.0))


def test_no_batch_grows_that_scale_had_cut_and_no_other_size_far(tmp_path: Path) -> None:
    text = (SMALL_TASK / "reference.py").read_text().replace("batch_size = 4", "batch_size = 128\nheight = 512")
    text = text.replace("torch.rand(batch_size, in", "torch.rand(batch_size, height, in")
    file = write(tmp_path / "task.py", text + "\nSMALL = {'batch_size': 2, 'height': 16}\n")
    task = Task.load(file).at(scale="small", training=False, mode="train", small_by_default=True).cut_down(own=True)
    tried = [sizes for tries in task.further for sizes in tries]
    assert tried
    for sizes in tried:
        assert sizes.get("batch_size", 0) <= 2 and sizes.get("height", 0) <= 100, sizes


# --- what PyTorch lacks here

IN_PLACE = source(
    "\n        self.act = nn.ReLU(inplace=True)\n"
    "    def forward(self, x):\n        return self.act(x.sigmoid() - 0.5 * x.sigmoid()) * 1.0\n"
)
OVERWRITES = source(
    "\n        self.act = nn.Sequential(nn.Sigmoid(), nn.Hardtanh(-0.5, 0.5, inplace=True))\n"
    "    def forward(self, x):\n        return self.act(x)\n"
)  # fmt: skip
POOL = source("\n        self.pool = nn.AvgPool3d(2)\n    def forward(self, x):\n        return self.pool(x) * 3.0\n",
              "torch.randn(batch, 2, 4, 4, 4)")  # fmt: skip
ASKS = source(
    "\n        self.fc = nn.Linear(6, 6).cuda()\n        self.mask = torch.ones(6, 6, device='cuda').tril()\n"
    "    def forward(self, x):\n        return self.fc(x.to('cuda:0')) @ self.mask + torch.arange(6, device='cuda')\n",
    "torch.rand(batch, 6, device=torch.device('cuda', 0), pin_memory=False).cuda()",
)


def test_modules_that_overwrite_what_gradients_need_leave_it_alone(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="inplace operation"):
        x = torch.randn(4, requires_grad=True)
        torch.nn.Hardtanh(-0.5, 0.5, inplace=True)(x.sigmoid()).sum().backward()
    oracle = prepared(tmp_path, OVERWRITES, training=True)
    assert "left it alone" in " ".join(f["evidence"] for f in oracle.description()["findings"])
    case = oracle.cases[0]
    (x,), cotangent = case.inputs, oracle.answers.cotangents(case)[0].double()
    wide = x.double().requires_grad_()
    torch.nn.functional.hardtanh(wide.sigmoid(), -0.5, 0.5).backward(cotangent)
    assert wide.grad is not None
    got = case.gradients["input[0]"].values.reshape(x.shape)
    assert torch.allclose(got.double(), wide.grad, rtol=1e-9, atol=1e-12)
    plain = prepared(tmp_path / "plain", IN_PLACE, training=True)
    assert "left it alone" not in str(plain.description()["findings"])


def test_a_16_bit_operation_that_the_cpu_lacks_is_float32s_rounded(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="not implemented for 'BFloat16'"):
        torch.nn.AvgPool3d(2)(torch.ones(1, 1, 2, 2, 2, dtype=torch.bfloat16))
    oracle = prepared(tmp_path, POOL, contract="bf16")
    assert oracle.answers.dtypes == [torch.bfloat16]
    said = " ".join(f["evidence"] for f in oracle.description()["findings"])
    assert "bfloat16 as float32, every result rounded: on a CPU" in said
    (output,) = oracle.cases[0].outputs
    assert 1e-4 < output.relative_l2_allowed < 0.1  # bfloat16's own noise, not float32's


def test_a_candidate_is_not_charged_for_what_the_cpu_lacks() -> None:
    reply = {"raised": "NotImplementedError", "line": 3, "out_of_memory": False, "build_failure": False,
             "message": "NotImplementedError: \"avg_pool3d_out_frame\" not implemented for 'BFloat16'"}  # fmt: skip
    with pytest.raises(Stop) as stop:
        stop_if_raised(reply, "forward")
    assert stop.value.outcome.kind == "not-judged"
    with pytest.raises(Stop) as stop:
        stop_if_raised({**reply, "message": "NotImplementedError: forward"}, "forward")
    assert stop.value.outcome.kind == "raises"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_reference_that_asks_for_a_gpu_runs_on_the_cpu_where_there_is_none(tmp_path: Path) -> None:
    oracle = prepared(tmp_path, ASKS)
    assert "what asks for a GPU ran on the CPU" in str(oracle.description()["findings"])
    case = oracle.cases[0]
    state = {name: value.double() for name, value in case.state.items()}
    x = case.inputs[0].double()
    wanted = torch.nn.functional.linear(x, state["fc.weight"], state["fc.bias"]) @ torch.ones(6, 6).tril().double()
    assert torch.allclose(case.outputs[0].values.double().view(wanted.shape), wanted + torch.arange(6), rtol=1e-6)


@pytest.mark.parametrize(("module", "package"), [("einops_is_not_here", "einops_is_not_here"), ("cv2.gapi", "opencv")])
def test_a_missing_import_says_what_to_install(module: str, package: str) -> None:
    with pytest.raises(TaskError, match=rf"line 1: importing it raises ModuleNotFoundError.*pip install {package}"):
        reference(f"import {module}\n" + ROWS)


def test_memory_limits_come_from_what_is_free_and_from_control_groups(tmp_path: Path) -> None:
    assert 0 < Limits().memory <= hardware.available_bytes() * 1.2 <= hardware.memory_bytes() * 1.2
    write(tmp_path / "cgroup", "0::/a/b\n")
    for folder, limit, used in (("a", "max", "1"), ("a/b", str(300 * MIB), str(120 * MIB))):
        write(tmp_path / "root" / folder / "memory.max", limit)
        write(tmp_path / "root" / folder / "memory.current", used)
        write(tmp_path / "root" / folder / "memory.stat", f"anon 1\ninactive_file {20 * MIB}\n")
    assert hardware._left_in_groups(tmp_path / "cgroup", tmp_path / "root") == [200 * MIB]
