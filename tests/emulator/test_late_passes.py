"""What is left out of g++'s work on a kernel: it is watched all the same."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest
import torch

from crucible import emulator
from crucible.emulator import toolchain

KERNEL = r"""
struct Row { float4 first; float rest[3]; };
void kernel(const float4* x, const Row* rows, float* y, volatile int* flag, int n) {
    for (int i = lane(); i < n; i += 32) {
        const float4 v = x[i];
        const float sum = v.x + v.y + rows[i].rest[i % 3];
        if (rows[i].first.w > sum) y[i] = sum;
        y[n + i] = y[n - i] > 0 ? y[i] * 2 : v.z;
        y[n] = sum;
    }
    while (!*flag) ++y[0];
    if (n > 3) y[1] = y[2]; else y[1] = y[2] + 1;
}
"""


def hooks(flags: list[str], folder: Path) -> Counter[str]:
    """How often each hook is called in the kernel's text."""
    tools = toolchain.prepare()
    tools = tools.leaner or tools
    (folder / "kernel.cpp").write_text(f"using namespace crucible;\n{KERNEL}")
    include = ["-include", str(tools.prefix), *tools.where]
    command = [tools.compiler, *flags, *include, "-S", "-o", "-", "kernel.cpp"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return Counter(re.findall(r"__(?:tsan|ubsan)_\w+", done.stdout))


def test_passes_that_are_left_out_change_nothing_of_what_is_watched(tmp_path: Path) -> None:
    flags = toolchain.prepare().flags
    whole = [flag for flag in flags if flag not in toolchain._LATE]
    found = hooks(flags, tmp_path)
    assert found == hooks(whole, tmp_path)
    assert found["__tsan_read16"] == 1 and found["__tsan_volatile_read4"] and found["__ubsan_handle_type_mismatch_v1"]


MISALIGNED = {
    "member": "out[0] = reinterpret_cast<const float4*>(x + 1)->y;",
    "whole_in_out": 'asm("add.f32 %0, %0, %1;" : "+f"(*reinterpret_cast<float*>((char*)out + 2)) : "f"(x[0]));',
    "whole_out": 'asm("mov.f32 %0, %1;" : "=f"(*reinterpret_cast<float*>((char*)out + 2)) : "f"(x[0]));',
    "member_in_out": 'asm("add.f32 %0, %0, %1;" : "+f"(reinterpret_cast<float4*>(out + 1)->y) : "f"(x[0]));',
    "member_out": 'asm("mov.f32 %0, %1;" : "=f"(reinterpret_cast<float4*>(out + 1)->y) : "f"(x[0]));',
    "member_in": 'asm("mov.f32 %0, %1;" : "=f"(out[0]) : "f"(reinterpret_cast<const float4*>(x + 1)->y));',
}
"""Whose addresses no 4 bytes tell: a member of a vector is where a float may be."""


@pytest.mark.parametrize("name", MISALIGNED)
def test_an_operand_of_inline_assembly_off_its_alignment_is_named_at_its_line(name: str) -> None:
    texts = [
        f"__global__ void {each}(const float* x, float* out) {{\n{text}\n}}\n" for each, text in MISALIGNED.items()
    ]
    arguments = "(x.data_ptr<float>(), out.data_ptr<float>());\n"
    calls = [f'if (which == "{each}") {each}<<<1, 1>>>{arguments}' for each in MISALIGNED]
    signature = "void run(torch::Tensor x, torch::Tensor out, std::string which)"
    source = "".join([*texts, signature, "{\n", *calls, "}\n"])
    module = emulator.load_inline("off_its_alignment", f"{signature};", source, ["run"])
    emulator.forget()
    with pytest.raises(RuntimeError, match="misaligned address"):
        module.run(torch.ones(16), torch.ones(16), name)
    (fault,) = [fault for fault in emulator.faults() if fault.kind != "never-ran"]
    assert (fault.kind, fault.kernel, fault.line) == ("misaligned", name, 3 * list(MISALIGNED).index(name) + 2)
