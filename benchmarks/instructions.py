"""What a warpgroup instruction takes: clocks of m64nNk8 (TF32) in a row, in P38's order of taps: one JSON file.

    python benchmarks/instructions.py FILE

Each way runs alone on all multiprocessors: weights in shared memory or in registers, inputs that begin at whole 128
bytes or at the taps' places, by one warpgroup or two at once. Needs a GPU of compute capability 9.0; takes a minute
at most, half of it nvcc's.
"""

from __future__ import annotations

import argparse
import itertools
import json
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.utils.cpp_extension import load_inline

from crucible import hardware
from crucible.target import sm90

COLUMNS = (8, 16, 24, 32, 40, 48, 56, 64, 72, 96, 128, 256)
TAPS, STEPS, ROUNDS, BLOCKS = 18, 4, 64, 132
PLACES = (0, 1, 40, 41)
"""Of P38's taps, in positions of 16 bytes."""
BEFORE = (sm90.ADDRESS, sm90.FENCE_PROXY_ASYNC, sm90.MAKE_SMEM_DESC, sm90.WGMMA_FENCE, sm90.WGMMA_COMMIT)
"""Functions that stand before all kernels."""


class Way(NamedTuple):
    columns: int
    warpgroups: int
    shifted: bool
    """Whether taps begin at their places, not all at the first position."""
    registers: bool
    """Whether weights are in registers."""

    @property
    def name(self) -> str:
        words = ["n", self.columns, "groups", self.warpgroups]
        return "_".join(map(str, [*words, *["shifted"] * self.shifted, *["registers"] * self.registers]))


KINDS = ((False, False), (True, False), (True, True))
WAYS = [Way(*each, *kind) for *each, kind in itertools.product(COLUMNS, (1, 2), KINDS)]


def kernel(way: Way) -> str:
    points = way.columns + PLACES[-1]
    a, b = TAPS * STEPS * 128, STEPS * 2 * points
    products = []
    for step, tap in itertools.product(range(STEPS), range(TAPS)):
        place = step * 2 * points + (PLACES[tap % len(PLACES)] if way.shifted else 0)
        rows = "weights" if way.registers else f"a + {(step * TAPS + tap) * 128}"
        products.append(f"wgmma_m64n{way.columns}k8_tf32(sums, {rows}, b + {place}, true);")
    lines = "\n        ".join(products)
    return f"""\
__global__ void __launch_bounds__({128 * way.warpgroups}, 1) {way.name}(float* out, long long* clocks) {{
    extern __shared__ uint4 memory[];
    for (int p = threadIdx.x; p < {a + b}; p += blockDim.x) memory[p] = uint4{{}};
    fence_proxy_async();
    __syncthreads();
    const unsigned long long a = make_smem_desc(memory, 64), b = make_smem_desc(memory + {a}, {points});
    unsigned weights[4];
    for (int i = 0; i < 4; ++i) weights[i] = __float_as_uint(out[i * blockDim.x + threadIdx.x]);
    float sums[{way.columns // 2}] = {{}};
    const long long begin = clock64();
    for (int round = 0; round < {ROUNDS}; ++round) {{
        wgmma_fence();
        {lines}
        wgmma_commit();
        wgmma_wait(sums);
    }}
    clocks[blockIdx.x] = clock64() - begin;
    float total = 0;
    for (float sum : sums) total += sum;
    out[blockIdx.x * blockDim.x + threadIdx.x] = total;
}}"""


def source() -> str:
    """All ways in spaces of their own, as functions of a number of columns have the same names."""
    parts = list(BEFORE)
    for columns in COLUMNS:
        own = dict.fromkeys(text for rows in ("held", "described") for text in sm90.wgmma(columns, rows=rows).values())
        own |= dict.fromkeys(kernel(way) for way in WAYS if way.columns == columns)
        parts.append(f"namespace n{columns} {{\n" + "\n".join(own) + "\n}")
    return "\n".join(parts)


def launcher() -> str:
    cases = []
    for number, way in enumerate(WAYS):
        name, size = f"n{way.columns}::{way.name}", 16 * (TAPS * STEPS * 128 + STEPS * 2 * (way.columns + PLACES[-1]))
        cases.append(
            f"case {number}: cudaFuncSetAttribute({name}, cudaFuncAttributeMaxDynamicSharedMemorySize, {size});"
            f" {name}<<<{BLOCKS}, {128 * way.warpgroups}, {size}>>>(out.data_ptr<float>(),"
            " reinterpret_cast<long long*>(clocks.data_ptr<int64_t>())); break;"
        )
    return "void run(int64_t way, torch::Tensor out, torch::Tensor clocks) { switch (way) {\n" + "\n".join(cases) + "}}"


def measured() -> dict[str, Any]:
    """Clocks an instruction of a multiprocessor, the least of five launches' medians over blocks."""
    module = load_inline(
        "instructions",
        "#include <torch/extension.h>\nvoid run(int64_t way, torch::Tensor out, torch::Tensor clocks);",
        "#include <torch/extension.h>\n" + source() + "\n" + launcher(),
        functions=["run"],
        extra_cuda_cflags=["-O3", "-gencode=arch=compute_90a,code=sm_90a"],
    )
    out = torch.zeros(BLOCKS * 256, device="cuda")  # weights too, where they are in registers
    clocks = torch.zeros(BLOCKS, dtype=torch.int64, device="cuda")
    found = {}
    for number, way in enumerate(WAYS):
        each = []
        for _ in range(5):
            module.run(number, out, clocks)
            torch.cuda.synchronize()
            each.append(clocks.double().median().item())
        found[way.name] = min(each) / (ROUNDS * TAPS * STEPS * way.warpgroups)
        print(f"{way.name}: {found[way.name]:.1f} clocks (products {way.columns / 2:.0f})", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    args = parser.parse_args()
    device = hardware.find_device()
    record = {"device": device.name, "driver": device.driver, "versions": hardware.versions(), "clocks": measured()}
    args.file.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
