"""The benchmark of a verdict's seconds: each second has a place, and what stands for missing packages is no module."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from support import TESTS

sys.path.insert(0, str(TESTS.parent / "benchmarks"))
import judge_speed

LOG = "# ninja log v5\n3\t5210\t17\tcuda.cuda.o\tab\n4\t2504\t17\tmain.o\tcd\n5212\t5420\t18\tfused.so\tef\n"


def _row(name: str, total_s: float, **steps: list[float]) -> dict[str, object]:
    told = {"stages_s": {"timing": 2.0}, "waits_s": {"oracle: draw": 0.5}, "steps_s": steps}
    return {"name": name, "verdict": "passed", "total_s": total_s, "build_s": 0.5, **told}


def test_every_second_of_a_verdict_has_a_place() -> None:
    found = judge_speed.stages([_row("a", 4.0), _row("b", 4.0), {**_row("c", 9.0), "verdict": "wrong"}])
    told = found["without a build"]
    assert told["candidates"] == 2
    assert told["seconds"] == {"its process: timing": 2.0, "oracle: draw": 0.5, "the judge's own code": 1.5}
    assert sum(told["seconds"].values()) == told["total_s"]


def test_what_was_built_is_told_apart_with_its_steps(tmp_path: Path) -> None:
    (tmp_path / "fused").mkdir()
    (tmp_path / "fused/.ninja_log").write_text(LOG)
    steps = judge_speed.ninja_steps(tmp_path)
    assert steps == {"cuda.cuda.o": [0.003, 5.21], "main.o": [0.004, 2.504], "fused.so": [5.212, 5.42]}
    found = judge_speed.stages([_row("a", 4.0), _row("b", 9.0, **steps)])
    assert found["with a build"]["steps_s"] == {"cuda.cuda.o": 5.207, "main.o": 2.5, "the library": 0.208}


def test_what_stands_for_missing_packages_bears_being_looked_at() -> None:
    stub = judge_speed._EVALUATE.partition("folder, task")[0]
    code = stub + (
        "Absent.names = {'a_package_nobody_has'}\nsys.meta_path.append(Absent())\n"
        "import a_package_nobody_has, inspect\n"
        "class Found(a_package_nobody_has.BaseModel):\n    compiled: bool = False\n"
        "assert Found(compiled=True).compiled and a_package_nobody_has.get() is None\n"
        "def here(): pass\n"
        "inspect.getmodule(here.__code__)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
