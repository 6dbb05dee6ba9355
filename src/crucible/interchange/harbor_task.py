"""A task as a folder in Harbor's form: what an agent is asked, where it works, and how its answer is judged.

The answer is judged apart from where the agent worked (`environment_mode = "separate"`): only the one file that it
wrote comes along, so it cannot touch the judge.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from crucible.errors import MisuseError, StoreError
from crucible.task import Task

ANSWER = "/app/kernel.py"
"""Where the agent leaves its candidate."""
REWARD = "/logs/verifier/reward.json"
IMAGE = "nvidia/cuda:13.0.1-devel-ubuntu24.04"
"""With nvcc, which extensions are built with."""
_BACKTICKS = re.compile(r"`{3,}")


@dataclass(frozen=True)
class Exported:
    """What the folder shall say."""

    task: Task
    options: Sequence[str] = ()
    """Of `crucible judge`, as a command line has them."""
    install: str = "crucible-kernels"
    """What pip installs the judge from: a name with a version, an address, or a wheel's path in the build."""
    image: str = IMAGE
    gpu_types: Sequence[str] = ()
    """As Harbor names them (`H100`); empty: any."""
    solution: str = ""
    """A candidate that is right; empty: the reference as its own replacement."""


def export(what: Exported, folder: Path) -> None:
    """Writes the folder, all of it or nothing. Raises MisuseError where something is there already, StoreError where it
    cannot be written."""
    if folder.is_symlink() or (folder.exists() and not (folder.is_dir() and not any(folder.iterdir()))):
        raise MisuseError(f"{folder} holds something already: name a folder that is not there yet")
    try:
        folder.absolute().parent.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(prefix=f".{folder.name[:40]}.", dir=folder.absolute().parent))
    except OSError as error:
        raise StoreError(f"cannot write {folder}: {error}") from error
    try:
        for name, text in texts(what).items():
            file = beside / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8", errors="backslashreplace")
            file.chmod(0o755 if name.endswith(".sh") else 0o644)
        beside.chmod(0o755)
        os.replace(beside, folder)
    except OSError as error:
        shutil.rmtree(beside, ignore_errors=True)
        raise StoreError(f"cannot write {folder}: {error}") from error


def texts(what: Exported) -> dict[str, str]:
    """Each file's text by its path in the folder."""
    source = what.task.source
    return {
        "task.toml": _settings(what),
        "instruction.md": _instruction(what),
        "environment/Dockerfile": _dockerfile(what, "reference.py", "/app/reference.py", "/app"),
        "environment/reference.py": source,
        "tests/Dockerfile": _dockerfile(what, ".", "/tests", "/app"),
        "tests/reference.py": source,
        "tests/test.sh": _test(what),
        "solution/solve.sh": _solve(what.solution or f"{source}\n\nModelNew = Model\n"),
    }


def _settings(what: Exported) -> str:
    slug = re.sub(r"[^a-z0-9._-]+", "-", what.task.name.lower()).strip("-.") or "task"
    kinds = [f"gpu_types = {json.dumps(list(what.gpu_types))}"] if what.gpu_types else []
    machine = ["build_timeout_sec = 1800.0", "cpus = 4", "memory_mb = 32768", "storage_mb = 40960", "gpus = 1", *kinds]
    return "\n".join(
        [
            'schema_version = "1.3"',
            f"artifacts = [{json.dumps(ANSWER)}]",
            "",
            "[task]",
            f'name = "crucible/{slug}"',
            f"description = {json.dumps(f'A faster {what.task.name}, judged by Crucible.')}",
            'keywords = ["gpu", "kernels", "performance"]',
            "",
            "[environment]",
            'os = "linux"',
            *machine,
            "",
            "[agent]",
            "timeout_sec = 3600.0",
            "",
            "[verifier]",
            'environment_mode = "separate"',
            "timeout_sec = 1800.0",
            "",
            "[verifier.environment]",
            *machine,
            "",
        ]
    )


def _instruction(what: Exported) -> str:
    fence = "`" * (max((len(found) for found in _BACKTICKS.findall(what.task.source)), default=2) + 1)
    options = f" {shlex.join(what.options)}" if what.options else ""
    gradients = "\nIts gradients are judged too: of every floating input and of every parameter.\n"
    return f"""# Write a faster GPU kernel

Below is a PyTorch module, `Model` (also in `/app/reference.py`). Write a replacement, `ModelNew`, that gives the same
answers and is faster, to `{ANSWER}`: one Python file, with kernels in CUDA C++ (built through
`torch.utils.cpp_extension.load_inline`), in Triton, or in plain PyTorch.

- `ModelNew` is constructed with what `get_init_inputs()` returns and called with what `get_inputs()` returns.
- Its parameters and buffers have the names and shapes of `Model`'s: the weights are copied by name.
- It is judged on inputs and weights that you do not know. Answers must be computed anew in each call.
- Only `{ANSWER}` is looked at. Without it the reward is 0.
{gradients if what.task.training or "--training" in what.options else ""}
The reward is 0 for what is wrong, else how many times it is faster than PyTorch's own best (eager or compiled), the
lower end of the 95 % interval. To try it as it will be judged: `crucible judge /app/reference.py {ANSWER}{options}`.

{fence}python
{what.task.source.rstrip()}
{fence}
"""


def _dockerfile(what: Exported, source: str, target: str, place: str) -> str:
    return f"""FROM {what.image}
RUN apt-get update && apt-get install -y --no-install-recommends python3 python3-dev python3-venv g++ \\
    && rm -rf /var/lib/apt/lists/* && python3 -m venv /opt/crucible
ENV PATH=/opt/crucible/bin:$PATH
RUN pip install --no-cache-dir {shlex.quote(what.install)}
COPY {source} {target}
WORKDIR {place}
"""


def _test(what: Exported) -> str:
    """Code 0 where there is a reward, whatever it is; else the judge's own, and no file: the machine broke."""
    options = f" {shlex.join(what.options)}" if what.options else ""
    return f"""#!/bin/bash
# The reward goes to {REWARD}. Where the judge itself fails there is none, and the code is not 0.
set -u
here=$(cd "$(dirname "${{BASH_SOURCE[0]}}")" && pwd)
answer=${{CRUCIBLE_ANSWER:-{ANSWER}}}
reward=${{CRUCIBLE_REWARD:-{REWARD}}}
mkdir -p "$(dirname "$reward")" || exit 3
rm -f "$reward" || exit 3
if [ ! -f "$answer" ]; then  # nothing was written: judged as the empty file that it is
    empty=$(mktemp -d) || exit 3
    trap 'rm -rf "$empty"' EXIT
    answer=$empty/kernel.py
    : > "$answer" || exit 3
fi
crucible judge "$here/reference.py" "$answer" --reward "$reward"{options}
code=$?
[ "$code" -le 1 ] && [ -f "$reward" ] && exit 0
[ "$code" -le 1 ] && exit 3
exit "$code"
"""


def _solve(solution: str) -> str:
    mark = "END_OF_KERNEL"
    while mark in solution:
        mark += "_"
    return f"#!/bin/bash\nset -e\ncat > \"${{CRUCIBLE_ANSWER:-{ANSWER}}}\" <<'{mark}'\n{solution.rstrip()}\n{mark}\n"
