"""Which kernels of the corpus differ between two trees, and whether their machine code does.

    python benchmarks/same_machine_code.py OLD NEW [--groups programs,pools] [--architecture sm_90a]
    python benchmarks/same_machine_code.py --renew [--groups programs]      tests/golden/hashes.json, from this tree

OLD and NEW are checkouts (`git worktree add ../old main`), or JSON files that `--texts FILE` wrote. Each checkout
makes its kernels by its own `tests/kernel_corpus.py`. Kernels whose text differs go through `nvcc -cubin`, and what the
GPU would run is compared byte for byte: the sections `.text.*`, what is constant, shared memory, parameters, and
registers. That needs no GPU. Exits with 1 where machine code differs, or where a kernel is in one tree alone.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import struct
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "src")]
GROUPS = ("programs", "pools", "products", "packers", "convolutions", "tasks", "modules", "sweep")
CODE = (".text.", ".nv.constant", ".nv.shared.", ".nv.local.")
HEADER, SECTION = struct.Struct("<16sHHIQQQIHHHHHH"), struct.Struct("<IIQQQQIIQQ")
NOBITS = 8
SPACE = r"kernel(\d\d\d)"
Key = tuple[str, str, str]
"""Group, case, kernel."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trees", nargs="*", type=Path)
    parser.add_argument("--groups", default=",".join(GROUPS))
    parser.add_argument("--architecture", default="sm_90a")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--renew", action="store_true", help="write the hashes of this tree")
    parser.add_argument("--texts", type=Path, help="write the texts of this tree")
    args = parser.parse_args()
    groups = args.groups.split(",")
    if args.renew or args.texts:
        made = here(groups)
        if args.texts:
            args.texts.write_text(json.dumps(made))
        if args.renew:
            renew(made)
        return
    if len(args.trees) != 2:
        parser.error("two trees are compared; or --renew, or --texts FILE, of this one")
    old, new = (flat(texts_of_tree(tree, groups)) for tree in args.trees)
    found = compared(old, new, args.architecture, args.processes)
    print(told(found))
    sys.exit(any(word not in ("same text", "same machine code") for word in found.values()))


# texts


def here(groups: list[str]) -> dict[str, dict[str, dict[str, str]]]:
    """All texts of this tree."""
    import kernel_corpus

    return {group: dict(kernel_corpus.GROUPS[group]()) for group in groups}


def renew(made: dict[str, dict[str, dict[str, str]]]) -> None:
    """Hashes of these groups; others stay as they were."""
    import kernel_corpus

    known = kernel_corpus.recorded() if kernel_corpus.HASHES.exists() else {}
    known |= {
        group: {case: kernel_corpus.hashed(texts) for case, texts in cases.items()} for group, cases in made.items()
    }
    lines = [
        f' "{group}": {{\n'
        + ",\n".join(f"  {json.dumps(case)}: {json.dumps(texts)}" for case, texts in cases.items())
        + "\n }"
        for group, cases in known.items()
    ]
    kernel_corpus.HASHES.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def texts_of_tree(tree: Path, groups: list[str]) -> dict[str, dict[str, dict[str, str]]]:
    """By the tree's own writer, in a process of its own."""
    if tree.is_file():
        kept: dict[str, dict[str, dict[str, str]]] = json.loads(tree.read_text())
        return {group: kept[group] for group in groups if group in kept}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "texts.json"
        command = [
            sys.executable,
            "benchmarks/same_machine_code.py",
            "--texts",
            str(file),
            "--groups",
            ",".join(groups),
        ]
        subprocess.run(command, cwd=tree, check=True, env={**os.environ, "PYTHONPATH": str(tree.resolve() / "src")})
        made: dict[str, dict[str, dict[str, str]]] = json.loads(file.read_text())
        return made


def flat(texts: dict[str, dict[str, dict[str, str]]]) -> dict[Key, str]:
    return {
        (g, c, k): text for g, cases in texts.items() for c, kernels in cases.items() for k, text in kernels.items()
    }


# machine code


BATCH = 40
"""Kernels that go through the compiler together: its headers take it longer than a kernel does."""
Code = tuple[tuple[str, bytes], ...]
"""What the GPU would run: sections, and the registers of each function."""


def compared(old: dict[Key, str], new: dict[Key, str], architecture: str, processes: int) -> dict[Key, str]:
    """A word for each kernel."""
    found = dict.fromkeys(old.keys() ^ new.keys(), "in one tree alone")
    found |= {key: "same text" for key in old.keys() & new.keys() if old[key] == new[key]}
    pairs = {key: (old[key], new[key]) for key in sorted(old.keys() & new.keys()) if old[key] != new[key]}
    different = list(dict.fromkeys(pairs.values()))
    batches = [different[k : k + BATCH] for k in range(0, len(different), BATCH)]
    with ThreadPoolExecutor(processes) as pool:
        told = itertools.chain(*pool.map(lambda batch: verdicts(batch, architecture), batches))
        words = dict(zip(different, told, strict=True))
    return found | {key: words[pair] for key, pair in pairs.items()}


def verdicts(pairs: Sequence[tuple[str, str]], architecture: str) -> list[str]:
    """A word for each; kernels of a batch that does not compile go one by one."""
    made = [code([pair[side] for pair in pairs], architecture) for side in (0, 1)]
    if len(pairs) > 1 and any(isinstance(each, str) for each in made):
        return [word for pair in pairs for word in verdicts([pair], architecture)]
    return [verdict(*(each if isinstance(each, str) else each[k] for each in made)) for k in range(len(pairs))]


def verdict(old: Code | str, new: Code | str) -> str:
    if isinstance(old, str) or isinstance(new, str):
        return f"does not compile: {old if isinstance(old, str) else new}"
    if old == new:
        return "same machine code"
    told = (
        f"{sum(len(held) for name, held in each if name.startswith(CODE[0]))} bytes, {_registers(each)} registers"
        for each in (old, new)
    )
    return f"other machine code: {' to '.join(told)}"


def _registers(code: Code) -> str:
    return ", ".join(held.decode() for name, held in code if name.startswith("registers"))


def code(texts: Sequence[str], architecture: str) -> list[Code] | str:
    """Of kernels, each in a namespace of its own; the compiler's first error where it has any."""
    lines = [line for text in texts for line in text.splitlines()]
    includes = dict.fromkeys(line for line in lines if line.startswith("#include"))
    spaces = [
        "\n".join([f"namespace {_space(k)} {{", *(x for x in t.splitlines() if not x.startswith("#include")), "}", ""])
        for k, t in enumerate(texts)
    ]
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "kernel.cu"
        source.write_text("\n".join([*includes, *spaces]))
        command = ["nvcc", "-cubin", f"-arch={architecture}", "-std=c++17", "-O3", "-Xptxas", "-v"]
        command += ["-o", "kernel.cubin", source.name]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            return next((line for line in done.stderr.splitlines() if "error" in line), done.stderr[-300:])
        found = read_cubin((Path(folder) / "kernel.cubin").read_bytes(), len(texts))
    for symbol, used in re.findall(r"Compiling entry function '(\S+)'[\s\S]*?Used (\d+) registers", done.stderr):
        own = re.search(SPACE, symbol)
        if own:
            found[int(own[1])][f"registers {symbol}"] = used.encode()
    return [tuple(sorted(each.items())) for each in found]


def _space(number: int) -> str:
    return f"kernel{number:03}"  # found again by SPACE in what the compiler calls it


def read_cubin(held: bytes, count: int) -> list[dict[str, bytes]]:
    """Of so many kernels the sections of a 64-bit ELF file that count."""
    *_, at, _, _, _, _, _, sections, names = HEADER.unpack_from(held)
    headers = [SECTION.unpack_from(held, at + i * SECTION.size) for i in range(sections)]
    start = headers[names][4]
    found: list[dict[str, bytes]] = [{} for _ in range(count)]
    for name_at, kind, _, _, offset, size, *_ in headers:
        name = held[start + name_at : held.index(b"\0", start + name_at)].decode()
        own = re.search(SPACE, name)
        if own and name.startswith(CODE):
            found[int(own[1])][name] = str(size).encode() if kind == NOBITS else held[offset : offset + size]
    return found


def told(found: dict[Key, str]) -> str:
    """How many of each group are what, and which differ."""
    lines = []
    for group in dict.fromkeys(key[0] for key in found):
        counted = Counter(word.partition(":")[0] for key, word in found.items() if key[0] == group)
        lines.append(f"{group}: {', '.join(f'{count} {word}' for word, count in counted.most_common())}")
    lines += [f"  {' / '.join(key)}: {word}" for key, word in sorted(found.items()) if not word.startswith("same")]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
