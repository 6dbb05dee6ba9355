"""What was measured, as a page: docs/results.md, and the table of the README, from benchmarks/results.

    python benchmarks/results_page.py            writes both
    python benchmarks/results_page.py --check    writes nothing; 1 where one of them is not what the records say

Run it when a record has changed; a test holds both files to the records.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import baselines
import before_and_after
import kernelbench_report
import record_verdicts
import sweep
import written_modules
import zoo

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks/results"
PAGE = ROOT / "docs/results.md"
README = ROOT / "README.md"
BEGIN, END = "<!-- figures: benchmarks/results_page.py -->", "<!-- figures end -->"
COVERS = ("forward", "forward+backward")
Record = Mapping[str, Any]
LEVEL_2 = "kernelbench_level2_h100"
NEWEST = {
    "kernelbench_level2_tf32_h200": "TF32 allowed to all, H200",
}
"""The newest whole run with TF32, and what README says of it."""
KEPT_NEWEST = "kernelbench_level2_default_h200"
"""The newest run of what keeps float32, in place of an older record's."""
LEVEL_2_TASKS = 100
HALVES_NEWEST = "kernelbench_level2_bf16_h200"
"""The newest of half types, likewise."""
RANDOM = "kernelbench_random_h200"
COLUMNS = {
    "tf32": "TF32 allowed to all",
    "default": "PyTorch's default flags, against float32's precision from us",
    "bf16": "modules and inputs in bfloat16",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    stale = {file: text for file, text in made().items() if not file.exists() or file.read_text() != text}
    for file, text in stale.items():
        if check:
            print(f"{file.relative_to(ROOT)} is not what the records say: run python benchmarks/results_page.py")
        else:
            file.write_text(text)
    sys.exit(1 if check and stale else 0)


def made() -> dict[Path, str]:
    """The two files as they should be."""
    before, _, rest = README.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    return {PAGE: page(), README: f"{before}{BEGIN}\n{figures()}\n{END}{after}"}


# the README's table


def figures() -> str:
    """Speed-ups in the geometric mean, a row a record."""
    tasks, modules = (_compiled(read(name)["modules"]) for name in ("written_tasks_h200", "written_modules_h200"))
    ours = [s for s in read("sweep_h200")["shapes"].values() if not s.get("kept", True)]
    rows = [
        ("the three founding pipelines, TF32", tasks, "written_tasks_h200"),
        ("43 modules, TF32", modules, "written_modules_h200"),
        (f"{len(ours)} single convolutions, TF32", _compiled(dict(enumerate(ours))), "sweep_h200"),
    ]
    lines = ["| written by `crucible fuse` | forward | least | with gradients | least |", "|---|---|---|---|---|"]
    lines += [_row(f"[{what}](docs/results.md#{name})", found) for what, found, name in rows]
    newest = [(name, words, read(name)["columns"]["tf32"]["tasks"]) for name, words in NEWEST.items()]
    _, (flags, as_they_come), (kept, _), (halves, _) = level_2()
    newest += [(LEVEL_2, f"{flags}, H100", as_they_come)]
    newest += [(KEPT_NEWEST, f"{kept}, H200", read(KEPT_NEWEST)["columns"]["default"]["tasks"])]
    in_halves = read(HALVES_NEWEST)["columns"]["bf16"]["tasks"]
    missing = LEVEL_2_TASKS - len(in_halves)
    newest += [(HALVES_NEWEST, f"{halves}{f', {missing} not reached' if missing else ''}, H200", in_halves)]
    for name, words, tasks in newest:
        lines.append(_row_of(name, f"KernelBench level 2, {{right}} tasks right, {words}", tasks))
    drawn = read(RANDOM)["columns"]["tf32"]["tasks"]
    lines.append(_row_of(RANDOM, "random modules of its grammar, {right} right, TF32 allowed to all, H200", drawn))
    column = read("networks_autotune_h100")["columns"]["tf32"]
    networks, handed = column["tasks"], column["summary"]["handed over"]
    left = " and ".join(str(handed[covers]) for covers in COVERS)
    right = sum(bool(each.get("right")) for each in networks.values())
    what = f"{right} networks, TF32, over max-autotune too, with its `--race`: {left} left to it, H100"
    found = {covers: _over_best(networks, covers) for covers in COVERS}
    lines.append(_row(f"[{what}](docs/results.md#networks_autotune_h100)", found))
    return "\n".join(lines)


def level_2() -> Iterator[tuple[str, Record]]:
    """Who may round what in four ways, and the tasks. By PyTorch's default flags convolutions may round to TF32 and
    products may not: a task has one of the two, as its name says, so it was measured in one column or the other."""
    columns = read(LEVEL_2)["columns"]
    tf32, default = columns["tf32"]["tasks"], columns["default"]["tasks"]
    yield "TF32 allowed to all", tf32
    yield "PyTorch's default flags", {name: (tf32 if "Conv" in name else default)[name] for name in tf32}
    yield "the same flags, against float32's precision from us in convolutions too", default
    yield "bfloat16", columns["bf16"]["tasks"]


def _row(what: str, found: Mapping[str, list[float]]) -> str:
    cells = [cell for covers in COVERS for cell in (f"{mean(found[covers]):.2f}", f"{min(found[covers]):.2f}")]
    return f"| {what} | {' | '.join(cells)} |"


def _row_of(name: str, what: str, tasks: Record) -> str:
    """Of a run of `kernelbench.py`; `{right}` are those that are right, of all."""
    right = sum(bool(each.get("right")) for each in tasks.values())
    words = what.format(right=f"{right} of {len(tasks)}")
    return _row(f"[{words}](docs/results.md#{name})", {covers: _over_best(tasks, covers) for covers in COVERS})


def _compiled(entries: Mapping[Any, Record]) -> dict[str, list[float]]:
    return {
        covers: [found[covers]["over"]["compile"]["ratio"] for found in entries.values() if covers in found]
        for covers in COVERS
    }


def _over_best(tasks: Record, covers: str) -> list[float]:
    found = (kernelbench_report.over(task, covers, kernelbench_report.TIE) for task in tasks.values())
    return [each["ratio"] for each in found if each]


def mean(ratios: Iterable[float]) -> float:
    """The geometric mean."""
    kept = list(ratios)
    return math.exp(math.fsum(map(math.log, kept)) / len(kept))


def read(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text())


# the page


def page() -> str:
    head = (
        "# Results\n\nWritten by `benchmarks/results_page.py` from `benchmarks/results`; the tests hold it to them.\n"
        "Speed-ups are paired, from turns taken in one run, with 95 % intervals; times are medians between CUDA\n"
        "events from a cold L2. What bounds each kernel, and what was tried, is in `benchmarks/notes.md`."
    )
    return "\n\n".join([head, *(section(name, *told) for name, told in SECTIONS.items())]) + "\n"


def section(name: str, title: str, words: str, body: Callable[[Any], str]) -> str:
    """Of one record: what it is, what it ran on, its table."""
    record = read(name)
    ground = f"`benchmarks/results/{name}.json`{''.join(f', {word}' for word in _ground(record))}."
    return "\n\n".join((f'<a id="{name}"></a>', f"## {title}", f"{words} {ground}".lstrip(), body(record)))


def _ground(record: Any) -> Iterator[str]:
    """Device, driver, torch and date, as far as a record says."""
    if not isinstance(record, Mapping):
        return
    if "device" in record:
        yield str(record["device"])
    if "driver" in record:
        yield f"driver {record['driver']}"
    torch = record.get("torch") or record.get("versions", {}).get("torch")
    if torch:
        yield f"torch {torch}"
    if "date" in record:
        yield str(record["date"])


def _level_2(record: Record) -> str:
    gpu = kernelbench_report.short(next(iter(record["columns"].values()))["device"]).lower()
    return _columns(record, f"kernelbench_level{record['level']}_{gpu}")


def _level_2_by_flags(record: Record) -> str:
    """Both columns, and in front what they say of PyTorch's own flags."""
    _, (_, tasks), *_ = level_2()
    column = {"summary": kernelbench_report.summary(tasks), "tasks": tasks}
    words = "PyTorch's default flags for all, from convolutions of one column and products of the other"
    told = kernelbench_report.told(words, column).replace("\n  ", "\n- ")
    return f"{told}\n\n{_level_2(record)}"


def _columns(record: Record, plot: str = "") -> str:
    """Of a run of `kernelbench.py`: its plot, if there is one, and for each precision the summary and the table."""
    parts = [f"![Speed-ups over the better of torch.compile's](../benchmarks/results/{plot}.svg)"] if plot else []
    for name, column in record["columns"].items():
        parts += [column["note"]] if "note" in column else []
        summary = kernelbench_report.told(COLUMNS[name], column).replace("\n  ", "\n- ")
        parts += [f"{column['device']}. {summary}", kernelbench_report.table(name, column["tasks"]).split("\n\n", 1)[1]]
    return "\n\n".join(parts)


def _training(record: Record) -> str:
    lines = [
        "| network | precision | fused | torch.compile | strict float32 | a step's MB: eager | torch.compile | fused |"
    ]
    lines.append("|---" * 8 + "|")
    for name, network in record["networks"].items():
        for precision, each in network["apart"].items():
            strict = f"{each['strict float32']:.1e}" if "strict float32" in each else "-"
            memory = " | ".join(f"{each['step_mb'][who]:.0f}" for who in ("eager", "torch.compile", "fused"))
            apart = f"{each['fused']:.1e} | {each['torch.compile']:.1e} | {strict}"
            lines.append(f"| {name} | {precision} | {apart} | {memory} |")
    return "\n".join(lines)


def _products(record: Record) -> str:
    lines = ["| rows × features × columns | | ms | cuBLAS float32 (ms) | times as fast | error over cuBLAS's |"]
    lines.append("|---|---|---|---|---|---|")
    for each in record["products"]:
        ours, theirs = each["results"]["ours"], each["results"]["fp32"]
        lines.append(
            f"| {' × '.join(map(str, each['shape']))} | {each['direction']} | {ours['ms']:.3g} | {theirs['ms']:.3g} "
            f"| {theirs['ms'] / ours['ms']:.2f} | {ours['relative_l2'] / theirs['relative_l2']:.2f} |"
        )
    return "\n".join(lines)


def _inside(record: Record) -> str:
    lines = ["| work | outside (ms) | inside (ms) | inside over outside |", "|---|---|---|---|"]
    for name, each in record["workloads"].items():
        found = each["inside_over_outside"]
        interval = f"{found['value']:.4f} [{found['low']:.4f}, {found['high']:.4f}]"
        lines.append(f"| {name} | {each['outside_ms']:.4g} | {each['inside_ms']:.4g} | {interval} |")
    return "\n".join(lines)


def _counts(*names: str) -> Callable[[Record], str]:
    def body(record: Record) -> str:
        found = record.get("summary", record)
        return "\n".join(["| | |", "|---|---|", *(f"| {name} | {found[name]} |" for name in names)])

    return body


def _judged(record: Record) -> str:
    """How many are True, and what was said of those that are not."""
    tasks: Mapping[str, Any] = record["tasks"]
    right = [name for name, each in tasks.items() if each["evaluation"]]
    vacuous = [name for name in right if any("the task is vacuous" in said for said in tasks[name]["of_the_task"])]
    lines = [f"{len(tasks)} judged with gradients, {len(right)} True; told as vacuous: {', '.join(vacuous) or 'none'}"]
    beyond = Counter((came, rule) for name in right for rule, came in tasks[name].get("stress", {}).items())
    kept = sum(times for (came, _), times in beyond.items() if came == "right")
    broken = [f"{rule} {times}" for (came, rule), times in sorted(beyond.items()) if came not in ("right", "not tried")]
    lines[0] += f". Of what is tried beyond their own inputs {kept} right, not right: {', '.join(broken) or 'none'}"
    for name in (name for name in tasks if name not in right):
        again = [str(each["evaluation"]) for each in tasks[name].get("again", ())]
        words = " ".join(tasks[name]["words"].partition("crucible: ")[2].split() or tasks[name]["words"].split())
        lines.append(f"- {name}: {words}{f' (again, other seeds: {chr(44).join(again)})' if again else ''}")
    return "\n".join(lines)


SECTIONS: dict[str, tuple[str, str, Callable[[Any], str]]] = {
    "written_tasks_h200": (
        "The three founding pipelines, written",
        "What `crucible fuse` writes beside eager and `torch.compile` in one process, float32 with TF32 allowed to "
        "all; outputs and all gradients were held against float64 first.",
        written_modules.markdown,
    ),
    "written_fp32_h200": (
        "The same in float32's precision",
        "Nobody is allowed TF32; ours is three TF32 products for each.",
        written_modules.markdown,
    ),
    "written_bf16_h200": ("The same in bfloat16", "", written_modules.markdown),
    "kernelbench_level2_h100": (
        "KernelBench level 2",
        "All 100 tasks, with TF32 allowed to all, and at PyTorch's default flags: its convolutions may round to TF32 "
        "there, while ours are float32's; so 24 are slower, all of them convolutions, for each product of which ours "
        "make three. One of the default column is called wrong by a rule that is the same for all: in 76 one of 8.4 "
        "million values lies so near 0 that its ReLU turns over (its outputs are 2.3e-7 from float64, eager's 5.7e-7). "
        "Of those within 1e-4 of strict float32 for eager alone, 14 is ten times nearer to float64 than eager. Tasks "
        "whose plan is an algebraic rewrite are told apart.",
        _level_2_by_flags,
    ),
    "kernelbench_level2_tf32_h200": (
        "KernelBench level 2 on H200s, TF32",
        "All 100 tasks in one call of 270 s on four H200s, with TF32 allowed to all: 99 are not slower than "
        "torch.compile forward (5 takes 1.03 times as long) and all with gradients.",
        lambda record: _columns(record, "kernelbench_level2_tf32_h200"),
    ),
    "kernelbench_level2_tf32_h100": (
        "KernelBench level 2 on H100s, TF32",
        "All 100 tasks in one call of 382 s on four H100s, with TF32 allowed to all: none is slower than "
        "torch.compile. 72 is nearer to float64 than the day before, by twelve small kernels more, which take 1 ms "
        "with gradients.",
        lambda record: _columns(record, "kernelbench_level2_tf32_h100"),
    ),
    "kernelbench_level2_default_h200": (
        "KernelBench level 2 on H200s, float32 kept by us alone",
        "All 100 tasks in one call of 472 s on two H200s. PyTorch's default flags, by which its convolutions round to "
        "TF32, against float32's precision from us: three products of fp16 for each number, in stages that have a "
        "scale each, runs of positions over rows, taps in parts.",
        lambda record: _columns(record, "kernelbench_level2_default_h200"),
    ),
    "kernelbench_level2_bf16_h200": (
        "KernelBench level 2 on H200s, in bfloat16",
        "88 of the 100 tasks in one call, the others hours later. 32 and 36 take a minimum over channels, whose place "
        "counts among numbers of so few digits, and leave it to PyTorch.",
        lambda record: _columns(record, "kernelbench_level2_bf16_h200"),
    ),
    "kernelbench_level2_logsumexp_h200": (
        "KernelBench level 2's tasks with a logsumexp, as they are written since",
        "The text of these six changed after the tables above, so that an infinity stays one.",
        _columns,
    ),
    "kernelbench_random_h200": (
        "Random modules of the same grammar",
        "200 modules of operations, sizes and odd shapes that a generator drew from the seed of the day, all of them, "
        "TF32 allowed to all. None is wrong. The one that is slower has a dropout behind a convolution that is "
        "PyTorch's, which is drawn as PyTorch draws it.",
        lambda record: _columns(record, "kernelbench_random_h200"),
    ),
    "before_and_after_h100": (
        "Two versions in turns",
        "The three tasks, 43 modules and the sweep's shapes as written before there was a kernel IR (c7e8bee5) and on "
        "2026-11-27. What took longest in comparison kept products for backward that it computes again since.",
        lambda record: f"```\n{before_and_after.told(record['cases'])}\n```",
    ),
    "before_and_after_again_h100": (
        "The same once more, of what was slower",
        "The eleven modules that took more than 1.03 times as long above, once products that are cheap to make are "
        "computed again: with gradients seven of nine take what they took. Forward, `conv2d_bfloat16_silu_"
        "multiply_group_norm` spilled registers; it does not since.",
        lambda record: f"```\n{before_and_after.told(record['cases'])}\n```",
    ),
    "before_and_after_left_h100": (
        "What is left of it",
        "The four that were slower, once more. `conv2d_bfloat16_silu_multiply_group_norm` takes what it took. The "
        "norm of `conv2d_instance_norm_divide` sent its loads out one by one, and the rows of "
        "`conv2d_softshrink_hardshrink_add_residual` were not asked for ahead: both are written otherwise since, "
        "which the next table has timed of the second. `conv_transpose3d_batch_norm_train_avg_pool_twice` had its "
        "pools in the weight, which with gradients costs two passes, and was less exact: they are behind it again.",
        lambda record: f"```\n{before_and_after.told(record['cases'])}\n```",
    ),
    "before_and_after_last_h100": (
        "And since",
        "What was written otherwise after the table above, and one more whose text changed with it: none takes longer "
        "than before there was a kernel IR.",
        lambda record: f"```\n{before_and_after.told(record['cases'])}\n```",
    ),
    "before_and_after_h200": (
        "Two versions in turns, on H200s",
        "All 143 in one call. Of the four two are noise (intervals of paired samples hold 1); the others are written "
        "otherwise since: weights of a second turn begin at whole rows of banks, and instructions of few columns are "
        "estimated by what they take.",
        lambda record: f"```\n{before_and_after.told(record['cases'])}\n```",
    ),
    "before_and_after_again_h200": (
        "And since, on H200s",
        "What is written otherwise since the table above, and the two that were noise in it: none takes longer "
        "than before there was a kernel IR.",
        lambda record: f"```\n{before_and_after.told(record['cases'])}\n```",
    ),
    "rows_ahead_h100": (
        "Rows asked for ahead",
        "Streams with and without the next stage's rows asked for ahead to the L2 cache. Since then they are where the "
        "chain loads a tensor, as two of these do: the residual ones.",
        lambda record: f"```\n{before_and_after.told(record['cases'])}\n```",
    ),
    "judged_level2_h100": (
        "KernelBench level 2, judged",
        "What `crucible fuse` writes, judged by `crucible judge --training --contract tf32` at the benchmark's own "
        "sizes (`benchmarks/judge_level.py`), several judges on each GPU at once: no runtimes. The last eleven a day "
        "later than the others, of which three had come out otherwise: 41 was convicted of a buffer whose expected "
        "values the judge itself had lost, 72 of roundings that are mended, and 66, which draws its dropout, was "
        "refused.",
        _judged,
    ),
    "judged_level2_h200": (
        "KernelBench level 2, judged on H200s",
        "The same on H200s, by newer judges of 2026-11-28 and -29: all 100 are True, of 80 and 83 with the word that "
        "the task is vacuous. 98 had been convicted at first by a mistake of the judge's: TF32 moves one or two of its "
        "1,024 maxima to another element, which the noise did not have. 2, 5, 16, 55, 56, 59 and 100, the largest, "
        "were judged last, in 169 to 431 s each, up to five of them at once.",
        _judged,
    ),
    "judged_level2_small_cpu": (
        "KernelBench level 2, judged without a GPU",
        "All 100 on the emulator, at the sizes that `benchmarks/small_level.py` gives. What is infinite or NaN beyond "
        "the tasks' own inputs comes out otherwise where an algebraic rewrite makes one product of many (14, 18, 42, "
        "50, 65), or a constant of a forward (80, 83). The six with a logsumexp were judged again as they are written "
        "since: of 43 and 58 infinities had been wrong, too.",
        _judged,
    ),
    "judged_level2_small_fp32_cpu": (
        "KernelBench level 2 in float32, judged without a GPU",
        "The same under `fp32`. An infinite input gives NaN where PyTorch has an infinity, since the second half of "
        "one is a NaN, or behind an algebraic rewrite (14, 18, 42, 50, 98); of 5 and 91 a NaN is in more outputs than "
        "it belongs to, since there are zeros among the weights.",
        _judged,
    ),
    "judged_level2_small_bf16_cpu": (
        "KernelBench level 2 in bfloat16, judged without a GPU",
        "The same with modules and inputs in bfloat16 (`small_level.py --dtype bfloat16`). PyTorch has no average pool "
        "of volumes in bfloat16 on a CPU, which is worked round in a reference and leaves a candidate unjudged. Tiny "
        "inputs of 3: a sum whose rounding to bfloat16 is a tie in one channel, which what is below it breaks where "
        "the convolution's result is not rounded first.",
        _judged,
    ),
    "judged_level2_small_fp16_cpu": (
        "KernelBench level 2 in float16, judged without a GPU",
        "The same in float16. A first run convicted 5 of 20, exact copies too, by cotangents 1024 times as large, "
        "which leave float16's range; and 15 had a variance in float16. Left are equal numbers in front of 79's norm "
        "(its mean's rounding) and tiny ones in front of 52's.",
        _judged,
    ),
    "judged_level1_small_cpu": (
        "KernelBench level 1, judged without a GPU",
        "All 100, single operations, at the sizes that `benchmarks/small_level.py` gives; two have no backward, since "
        "their outputs are whole numbers (51, 52). In a first run 81 could not be written, and the judge, which did "
        "not refuse training for those two, convicted them. Infinities and NaN of one group of channels reach others "
        "where kernels of ours take several groups at once, with zeros between them (72, 75, 82 to 86); a product of "
        "large values (90, PyTorch's own `cumprod`) leaves float32's range.",
        _judged,
    ),
    "judged_level3_small_cpu": (
        "KernelBench level 3, judged without a GPU",
        "40 of 50, networks and their parts, likewise; the others, at their own sizes of 224 and 240, were not begun. "
        "33 cannot be written: it writes to a tensor that is no buffer. 16, DenseNet201, is said to be made for one "
        "size, since 224 is a number of its channels too, and at another size, whose last batch norms are over 16 "
        "numbers, one of its gradients is off by twice what is allowed; under another seed it is True. In a first run "
        "44 was convicted, and so was an honest copy of it: the judge copied a module without what its lambdas hold.",
        _judged,
    ),
    "judged_random_small_cpu": (
        "Random modules of its grammar, judged without a GPU",
        "All 200 that `benchmarks/random_tasks.py --scale small --seed 20261129` draws. Six (7, 41, 107, 131, 152, "
        "180) were judged again as they are written since: infinities of a logsumexp had been wrong. What is not right "
        "beyond the modules' own inputs is behind algebraic rewrites.",
        _judged,
    ),
    "kernelbench_level2_h200": (
        "KernelBench level 2 on an H200, before",
        "At default flags ten of linear layers and batched products, and with TF32 those that lost to torch.compile "
        "before or are rewritten: two days before the whole run above.",
        _level_2,
    ),
    "networks_h200": (
        "Networks",
        "An older record, on another GPU: 27 of the 33 networks of `tests/networks` (six were not reached), as "
        "`crucible fuse --race` writes them: what torch.compile did faster when both were built, it computes. No "
        "max-autotune among the baselines. Times of networks of small kernels are the host's, and vary as it does.",
        lambda record: _columns(record, "networks_h200"),
    ),
    "networks_autotune_h100": (
        "Networks, with max-autotune among the baselines",
        "25 of the 33, as `crucible fuse --race-max-autotune` writes them: 24 on four GPUs of one host, all built "
        "first, for 22 minutes, and measured with nobody compiling; 22 a few hours later on another H100, likewise. "
        "The other eight were not built by then, since max-autotune compiles a network for ten minutes and more; seven "
        "of them are in the record below.",
        lambda record: _columns(record, "networks_autotune_h100"),
    ),
    "networks_autotune_first_h100": (
        "Networks, with max-autotune among the baselines, a first run",
        "32 of the 33 (of 31, the diffusion U-Net, max-autotune had not ended after 27 minutes), a day before, "
        "measured while others compiled on the same host, as what max-autotune chooses was timed. One is wrong by the "
        "rule that holds for all: what max-autotune made of 24 has gradients 5.7 times as far from float64 as "
        "eager's, and it was handed over to that, which a race does no more. Of 22, whose time is the host's, both "
        "compute the same; the interval of its 0.93 is 0.79 to 1.04. Before loops over parts were taken together "
        "(`plan/batched.py`), which is for these two.",
        lambda record: _columns(record, "networks_autotune_first_h100"),
    ),
    "zoo": (
        "Networks of others: what is taken",
        "Architectures of timm (the smallest model of each family), torchvision, transformers (two layers each), "
        "MONAI and segmentation_models_pytorch, "
        "traced, planned and written on a CPU, without a kernel being built; the file is run over tensors without "
        "elements, and the plan carried out in float64 beside the module, where a call of eager takes less than 0.6 s "
        "(2 s of the last two libraries). "
        "`longest` is the time to write one. Of those listed with a time the comparison was not at its end then; "
        "convit makes float32 tensors of its own, which eager refuses beside float64.",
        zoo.markdown,
    ),
    "training_h200": (
        "A training run",
        "200 steps, fused without `--race`, beside eager and torch.compile: how far logarithms of losses are from "
        "eager's, in the mean over all steps (of strict float32: from eager's in TF32), and the memory of a step.",
        _training,
    ),
    "written_modules_h200": (
        "43 modules, written",
        "`tests/modules` at full size, TF32 allowed to all; each entry names its commit.",
        written_modules.markdown,
    ),
    "sweep_h200": (
        "Single layers",
        "Convolutions with a bias and a ReLU, of 1 to 256 channels and taps 1 to 7 wide, and linear layers, TF32.",
        sweep.markdown,
    ),
    "products_h100": (
        "Products of float32 matrices",
        "By three products on the tensor cores, of which two are of bfloat16 from a depth of 1024 on, beside cuBLAS's "
        "float32.",
        _products,
    ),
    "products_h200": (
        "Products of float32 matrices, before",
        "By three TF32 products on the tensor cores, beside cuBLAS's float32.",
        _products,
    ),
    "baselines_h200": ("What PyTorch makes of the three pipelines, and the floor", "", baselines.markdown),
    "verdicts_h200": (
        "The three pipelines, judged",
        "Candidates and baselines at full size, contract `tf32`; `written_by_crucible` is an earlier text than the "
        "one timed above. Error is a multiple of the noise that the contract's precision makes in the reference "
        "itself; 4 is allowed.",
        record_verdicts.markdown,
    ),
    "sandbox_speed_h200": ("What the sandbox costs", "The same kernels inside and outside of it.", _inside),
    "explain_mutants": (
        "Explanations of single mistakes",
        "Right CUDA kernels, each with single mistakes; the words of a right diagnosis were written down before.",
        _counts("mutants", "right"),
    ),
    "emulator_on_gpu": (
        "The emulator beside a GPU",
        "Right kernels, planted faults and clean twins, on the emulator, on the GPU and under compute-sanitizer.",
        _counts(
            "right kernels", "right as the emulator", "faults", "found by the emulator", "found by the GPU or a tool"
        ),
    ),
    "emulator_mutation": (
        "Mutants of the emulator's kernels",
        "",
        _counts("kernels", "mutants", "caught", "equivalent", "missed"),
    ),
}


if __name__ == "__main__":
    main()
