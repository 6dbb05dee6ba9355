"""The explanations put to the test: right kernels with one mistake each, and whether the first finding names it.

nice python benchmarks/explain_mutants.py [--only KERNEL ...]   # 3 minutes of processor time; no GPU

Judges every mutant on the emulator and holds the claim and the evidence of its first finding against words that were
written down before it was judged. Fails when fewer than 80 % are named rightly, or when a kernel without a mistake does
not pass or is given a cause. `--only` judges those kernels anew and keeps the other rows.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import crucible
from crucible.candidate import Candidate
from crucible.explain.gradients import inference_alone
from crucible.explain.speed import FINDERS as SPEED
from crucible.judge.verdict.evidence import Finding

ROOT = Path(__file__).parents[1]
KERNELS = ROOT / "benchmarks/mutants"
RESULTS = ROOT / "benchmarks/results/explain_mutants.json"
GOOD = "passed"
CONTRACT = "fp32"
"""The strictest: under `tf32`, the usual one, the tanh form, a rounding to float16 and another epsilon pass here."""
WANTED = 0.8
"""Share whose cause is to be named first."""


@dataclass(frozen=True)
class Mutant:
    """One mistake in one kernel."""

    kernel: str
    name: str
    mutation: str
    """What was done, in words."""
    old: str
    """Text of the kernel; it occurs once."""
    new: str
    claim: str
    """A pattern that a right claim has."""
    evidence: str = ""
    """A pattern that its evidence has as well."""

    @property
    def candidate(self) -> Candidate:
        """The kernel with the mistake. Raises ValueError where the text has moved on."""
        source = right(self.kernel).source
        if source.count(self.old) != 1:
            raise ValueError(f"{self.name}: {self.old!r} occurs {source.count(self.old)} times in {self.kernel}, not 1")
        return Candidate(self.name, KERNELS / self.kernel / "kernel.py", source.replace(self.old, self.new))

    def is_named_by(self, finding: Finding) -> bool:
        """Whether a finding is the diagnosis."""
        return bool(re.search(self.claim, finding.claim) and re.search(self.evidence, finding.evidence))


def right(kernel: str) -> Candidate:
    """A kernel without a mistake."""
    file = KERNELS / kernel / "kernel.py"
    return Candidate(kernel, file, file.read_text())


BEYOND = "goes outside of its tensor"
UNGUARDED = "race in shared memory|shared memory that nobody wrote"
MUTANTS = (
    Mutant(
        "bias_gelu",
        "gelu_dropped",
        "operator dropped: the GELU",
        "return 0.5f * y * (1.0f + erff(y * 0.70710678f));",
        "return y;",
        "the reference with gelu left out",
    ),
    Mutant(
        "bias_gelu",
        "gelu_by_tanh",
        "another function: the GELU's tanh form",
        "(1.0f + erff(y * 0.70710678f))",
        "(1.0f + tanhf(0.79788456f * (y + 0.044715f * y * y * y)))",
        r"gelu\(approximate='tanh'\)",
    ),
    Mutant(
        "bias_gelu",
        "default_slope",
        "wrong constant: slope 0.01 for 0.2",
        "y : 0.2f * y",
        "y : 0.01f * y",
        r"leaky_relu\(negative_slope=0.01\)",
    ),
    Mutant(
        "bias_gelu",
        "factor_dropped",
        "operator dropped: the factor 1.5",
        "y = y * 1.5f;",
        "",
        "mul left out|out of mul",
    ),
    Mutant(
        "bias_gelu",
        "through_half",
        "wrong dtype cast: through float16 before the GELU",
        "y = y * 1.5f;",
        "y = __half2float(__float2half(y * 1.5f));",
        "rounded to float16",
    ),
    Mutant(
        "bias_gelu",
        "bias_by_element",
        "wrong stride: the bias by element, not by channel",
        "chain(x[i], bias[i / area % channels])",
        "chain(x[i], bias[i % channels])",
        "bias read at",
    ),
    Mutant(
        "bias_gelu",
        "rest_left",
        "missing tail: what four does not divide is left",
        "if (rest < n && t < 4)",
        "if (false)",
        "never written.*the last|never written.*the end|never written: from element",
    ),
    Mutant("bias_gelu", "no_guard", "missing tail guard", "if (t < quads) {", "{", BEYOND, "past the end"),
    Mutant(
        "bias_gelu",
        "channel_not_wrapped",
        "wrong index: the channel of the second image goes on counting",
        "chain(x[i], bias[i / area % channels])",
        "chain(x[i], bias[i / area])",
        BEYOND,
        "past the end of `bias`",
    ),
    Mutant(
        "bias_gelu",
        "next_element",
        "index off by one: reads the next element",
        "chain(x[i],",
        "chain(x[i + 1],",
        "shifted by 1",
    ),
    Mutant(
        "layer_norm",
        "no_barrier_between_steps",
        "barrier removed: between the steps of the sum",
        "__syncthreads();  // this step's sums stand",
        "",
        "race in shared memory",
    ),
    Mutant(
        "layer_norm",
        "no_barrier_after_reading",
        "barrier removed: before shared memory is used again",
        "__syncthreads();  // all have read",
        "",
        "race in shared memory",
    ),
    Mutant(
        "layer_norm",
        "sample_variance",
        "wrong divisor: the variance by n - 1",
        "float variance = block_sum(part, shared) / features;",
        "float variance = block_sum(part, shared) / (features - 1);",
        "sample variance|unbiased|n - 1|correction",
    ),
    Mutant("layer_norm", "large_epsilon", "wrong constant: epsilon 1e-3 for 1e-5", "1e-5f", "1e-3f", r"eps=0\.001"),
    Mutant("layer_norm", "bias_dropped", "operator dropped: the bias", " + bias[i]", "", "bias"),
    Mutant("layer_norm", "relu_dropped", "operator dropped: the ReLU", "fmaxf(y, 0.0f)", "y", "relu left out"),
    Mutant(
        "layer_norm",
        "mean_without_last",
        "loop bound off by one: the mean leaves the last element out",
        "i < features; i += THREADS) part += row[i];",
        "i < features - 1; i += THREADS) part += row[i];",
        "last",
    ),
    Mutant(
        "layer_norm",
        "half_the_memory",
        "shared memory too small by half",
        "float shared[THREADS]",
        "float shared[THREADS / 2]",
        "goes outside of its shared memory",
    ),
    Mutant(
        "layer_norm",
        "wide_steps",
        "wrong stride: the last loop steps by two blocks",
        "i += THREADS) {",
        "i += 2 * THREADS) {",
        "never written.*indices 64 to 127 of dimension 2",
    ),
    Mutant(
        "pool_transpose", "count_all", "wrong divisor: padding counted", "sum / count", "sum / 9", "count_include_pad"
    ),
    Mutant(
        "pool_transpose",
        "no_top_padding",
        "index off by one: windows start one row lower",
        "2 * row - 1 + kh",
        "2 * row + kh",
        "padding",
    ),
    Mutant(
        "pool_transpose",
        "stride_one",
        "wrong stride: windows one column apart",
        "2 * column - 1",
        "column - 1",
        "stride",
    ),
    Mutant(
        "pool_transpose",
        "no_barrier",
        "barrier removed: between filling the tile and reading it",
        "    __syncthreads();\n",
        "",
        UNGUARDED,
    ),
    Mutant(
        "pool_transpose",
        "not_transposed",
        "wrong index: stored as it was read",
        "out[plane + to_row * rows + to_column]",
        "out[plane + to_column * columns + to_row]",
        "transpose left out|in the other order",
    ),
    Mutant(
        "pool_transpose",
        "no_store_guard",
        "missing tail guard: of the store",
        "if (to_row < columns && to_column < rows) {",
        "{",
        BEYOND,
        "past the end",
    ),
    Mutant(
        "pool_transpose",
        "grid_rounded_down",
        "missing tail: the grid rounded down",
        "(ow + TILE - 1) / TILE",
        "ow / TILE",
        r"never written.*\(the last\)|never written.*\(the end\)",
    ),
    Mutant("linear_tiles", "bias_dropped", "operator dropped: the bias", " + bias[column]", "", "bias"),
    Mutant("linear_tiles", "tanh_dropped", "operator dropped: tanh", "tanhf(y)", "y", "tanh left out"),
    Mutant(
        "linear_tiles",
        "no_second_barrier",
        "barrier removed: before the tiles are filled again",
        "__syncthreads();  // both are read",
        "",
        "race in shared memory",
    ),
    Mutant(
        "linear_tiles",
        "weight_transposed",
        "wrong stride: the weight read as [in, out]",
        "weight[w_row * ins + k]",
        "weight[k * outs + w_row]",
        "weight.*(transposed|exchanged|other order)|transposed weight",
    ),
    Mutant(
        "linear_tiles",
        "no_last_tile",
        "missing tail: the last tile of the sum",
        "start < ins; start += TILE",
        "start + TILE <= ins; start += TILE",
        "last",
    ),
    Mutant(
        "linear_tiles",
        "half_operands",
        "wrong dtype cast: operands through float16",
        "x_tile[threadIdx.y][i] * w_tile[threadIdx.x][i]",
        "__half2float(__float2half(x_tile[threadIdx.y][i])) * __half2float(__float2half(w_tile[threadIdx.x][i]))",
        "rounded to float16",
    ),
    Mutant(
        "linear_tiles",
        "no_column_guard",
        "missing tail guard: of the columns",
        "row < rows && column < outs",
        "row < rows",
        BEYOND,
        "past the end",
    ),
    Mutant(
        "conv_stride",
        "flipped",
        "wrong index: the window read backwards",
        "taps[c * 9 + kh * 3 + kw]",
        "taps[c * 9 + (2 - kh) * 3 + 2 - kw]",
        "flip|revers|mirror",
    ),
    Mutant(
        "conv_stride",
        "channel_left",
        "loop bound off by one: the last input channel is left out",
        "c < ins; ++c",
        "c < ins - 1; ++c",
        "channel",
    ),
    Mutant(
        "conv_stride",
        "weights_left",
        "wrong count: part of the weights is not copied",
        "i < ins * 9;",
        "i < ins * 8;",
        "reads shared memory that nobody wrote",
    ),
    Mutant(
        "conv_stride",
        "no_barrier",
        "barrier removed: after the weights are copied",
        "    __syncthreads();\n",
        "",
        UNGUARDED,
    ),
    Mutant(
        "conv_stride",
        "no_upper_bound",
        "operator dropped: the upper bound of the clamp",
        "fminf(fmaxf(sum, -0.6f), 0.8f)",
        "fmaxf(sum, -0.6f)",
        "without its upper bound",
    ),
    Mutant(
        "conv_stride",
        "loose_guard",
        "index off by one: a column more than there are",
        "w < width",
        "w <= width",
        BEYOND,
        "past the end",
    ),
    Mutant(
        "conv_stride", "first_bias", "wrong index: every channel takes the first bias", "bias[o]", "bias[0]", "bias"
    ),
)
"""Every pattern was written before its mutant was first judged."""


def judged(kernel: str, mutants: Sequence[Mutant], *also: Candidate) -> crucible.Run:
    """These mutants of one kernel, and what else is given, in one run on the emulator."""
    candidates = [*also, *(mutant.candidate for mutant in mutants)]
    limits = crucible.Limits(race_s=0.3)
    return crucible.judge(
        KERNELS / kernel,
        candidates,
        contract=CONTRACT,
        device="emulator",
        scale="full",
        baselines="none",
        limits=limits,
    )


def row(mutant: Mutant, run: crucible.Run) -> dict[str, Any]:
    """What the table says of a mutant."""
    first = next(iter(run.explanations[mutant.name]), Finding("nothing was found", ""))
    return {
        "kernel": mutant.kernel,
        "name": mutant.name,
        "mutation": mutant.mutation,
        "expected_claim": mutant.claim,
        "expected_evidence": mutant.evidence,
        "verdict": run.verdict(mutant.name).outcome.kind,
        "claim": first.claim,
        "evidence": first.evidence,
        "right": not run.verdict(mutant.name).evaluation and mutant.is_named_by(first),
    }


def unmutated(kernel: str, run: crucible.Run) -> dict[str, Any]:
    """What the table says of a kernel without a mistake; causes are all findings but those about speed and autograd."""
    verdict = run.verdict(kernel)
    harmless = {found.claim for look in (*SPEED, inference_alone) for found in look(verdict, run)}
    causes = [found.claim for found in run.explanations[kernel] if found.claim not in harmless]
    return {"kernel": kernel, "verdict": verdict.outcome.kind, "causes": causes}


def judge_kernel(kernel: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The rows of a kernel's mutants, and that of the kernel itself; prints a line for each."""
    mutants = [mutant for mutant in MUTANTS if mutant.kernel == kernel]
    run = judged(kernel, mutants, right(kernel))
    rows, control = [row(mutant, run) for mutant in mutants], unmutated(kernel, run)
    for of in rows:
        print(f"{'right' if of['right'] else 'WRONG'}  {kernel:14}  {of['mutation']:66}  {of['claim']}", flush=True)
    print(f"unmutated {kernel}: {control['verdict']}, causes {control['causes']}", flush=True)
    return rows, control


def table(only: Sequence[str]) -> dict[str, Any]:
    """All rows: of these kernels, or of all where none is named, judged now; of the others as they were."""
    kernels = list(dict.fromkeys(mutant.kernel for mutant in MUTANTS))
    old = json.loads(RESULTS.read_text()) if only else {"rows": [], "unmutated": []}
    kept = [of for of in old["rows"] if of["kernel"] not in only]
    controls = [of for of in old["unmutated"] if of["kernel"] not in only]
    for kernel in only or kernels:
        rows, control = judge_kernel(kernel)
        kept += rows
        controls.append(control)
    kept.sort(key=lambda of: kernels.index(of["kernel"]))
    controls.sort(key=lambda of: kernels.index(of["kernel"]))
    return {
        "date": datetime.date.today().isoformat(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "contract": CONTRACT,
        "right": sum(of["right"] for of in kept),
        "mutants": len(kept),
        "unmutated": controls,
        "rows": kept,
    }


def problems(found: dict[str, Any]) -> list[str]:
    """What is not as it should be, a line each."""
    bad = [f"{of['kernel']} itself: {of}" for of in found["unmutated"] if of["verdict"] != GOOD or of["causes"]]
    few = found["right"] < WANTED * found["mutants"]
    return bad + ([f"only {found['right']} of {found['mutants']} are named"] if few else [])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], metavar="KERNEL")
    asked = parser.parse_args()
    found = table(asked.only)
    print(f"{found['right']} of {found['mutants']} causes named first")
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    sys.exit("\n".join(problems(found)) or 0)


if __name__ == "__main__":
    main()
