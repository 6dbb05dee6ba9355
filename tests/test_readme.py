"""The README says what the recorded results say."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from rich.console import Console

import crucible
from crucible import fusing
from crucible.cli import app
from crucible.report import table
from crucible.run import run_from_json
from crucible.task import Task

VERBS = typer.main.get_command(app).commands  # type: ignore[attr-defined]
ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
RESULTS = ROOT / "benchmarks/results"


def test_figures_are_the_recorded_ones() -> None:
    """docs/results.md whole, and the README's table."""
    script = ROOT / "benchmarks/results_page.py"
    found = subprocess.run([sys.executable, str(script), "--check"], capture_output=True, text=True)
    assert (found.returncode, found.stdout, found.stderr) == (0, "", "")


def test_the_readme_is_short_and_its_links_lead_somewhere() -> None:
    assert len(README.splitlines()) <= 120
    links = re.findall(r"\]\(([^)#]+)(#[^)]*)?\)", README)
    assert len(links) >= 15
    for file, anchor in links:
        assert (ROOT / file).exists(), file
        assert not anchor or f'<a id="{anchor[1:]}"></a>' in (ROOT / file).read_text(), anchor


def test_the_site_is_built_from_the_docs(tmp_path: Path) -> None:
    """Broken links and pages that nobody reaches are errors."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    found = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    assert (tmp_path / "benchmarks/results/kernelbench_level2_tf32_h200_curve.svg").exists()
    pages = {page.stem for page in (ROOT / "docs").glob("*.md")} - {"index"}
    assert all((tmp_path / page / "index.html").exists() for page in pages)


def test_every_recorded_verdict_is_the_one_its_candidate_states() -> None:
    record = json.loads((RESULTS / "verdicts_h200.json").read_text())
    assert record["device"] == "NVIDIA H200"
    assert all(candidate["as_stated"] for run in record["runs"] for candidate in run["candidates"])


FIRST = {
    "atomic_max_float": "no form of `atomicMax` takes these arguments",
    "cut_off_softmax": "nothing of output is ever written",
    "doubled_braces": "its CUDA string has the doubled braces of an f-string and is none",
    "empty": "the file holds no code",
    "no_input_gradient": "no gradient reaches conv_transpose.bias, conv_transpose.weight, input[0]: its own backward",
    "placeholder_kernels": "the bodies of kernels are placeholders",
    "shared_memory_overflow": "a launch is refused",
    "wrong_weight_layout": "it computes the reference with conv_transpose.weight read as if laid out [out, in, ...]",
}
"""What the first finding on each bad candidate says, on a GPU too."""


def test_the_recorded_findings_name_each_cause_first() -> None:
    record = json.loads((RESULTS / "verdicts_h200.json").read_text())
    candidates = [candidate for run in record["runs"] for candidate in run["candidates"]]
    bad = {each["name"]: each["explanations"][0]["claim"] for each in candidates if not each["evaluation"]}
    assert bad.keys() == FIRST.keys()
    assert all(claim.startswith(FIRST[name]) for name, claim in bad.items())
    slow = [f["claim"] for each in candidates if each["evaluation"] for f in each["explanations"]]
    assert not any(claim.startswith(cause) for claim in slow for cause in FIRST.values())


COMMAND = re.compile(r"^ *(?:\$ |- run: |run: )?(?:\.venv/bin/)?(crucible [a-z].*?)(?: +#.*)?$", re.MULTILINE)
"""A line of a code block that calls the command line; what follows two spaces and `#` is a comment."""


def commands(text: str) -> list[str]:
    fenced = re.findall(r"^```(\w*)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    blocks = [block for language, block in fenced if language != "python"]
    blocks += re.findall(r"(?:^ {4}.*\n)+", text, re.MULTILINE)
    joined = "\n".join(blocks).replace("\\\n", " ")
    return [found for found in COMMAND.findall(joined) if "|" not in found and "${{" not in found]


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))], ids=lambda page: page.stem
)
def test_every_command_that_is_shown_is_one(page: Path) -> None:
    """Verbs and options; what they do is tried by the tests of the verbs."""
    found = commands(page.read_text())
    assert found or page.name not in ("README.md", "fleet.md", "serve.md", "files.md", "loops.md", "fuse.md")
    for command in found:
        for one in command.split(" && "):
            _, verb, *arguments = shlex.split(one.partition(" >")[0])
            VERBS[verb].make_context(verb, arguments)  # raises for what it is not


def test_a_command_that_is_none_would_be_seen() -> None:
    (command,) = commands("    crucible judge task.py --no-such-option     # says nothing\n")
    _, verb, *arguments = shlex.split(command)
    with pytest.raises(Exception, match="No such option"):
        VERBS[verb].make_context(verb, arguments)


def test_the_sample_is_cut_from_the_record() -> None:
    run = run_from_json(json.loads((RESULTS / "make_judge_cpu.json").read_text()))
    text = io.StringIO()
    table.show(run, Console(file=text, width=100, color_system=None))
    shown = iter([line.rstrip() for line in text.getvalue().splitlines()])
    sample = README.split("$ crucible judge tasks/conv3d_leakyrelu_sum_clamp_gelu\n")[1].split("```")[0].splitlines()
    assert len(sample) >= 12
    assert all(line in shown for line in sample)  # in their order


def test_the_python_example_uses_what_the_package_offers() -> None:
    example = README.split("```python\n")[2].split("```")[0]
    compile(example, "README.md", "exec")
    assert len(example.strip().splitlines()) <= 10
    for name in ("ranked", "best"):
        assert f"run.{name}" in example and hasattr(crucible.Run, name)


def test_the_plan_is_the_one_that_is_written() -> None:
    task = Task.load(ROOT / "tasks/convtranspose3d_leakyrelu_multiply_leakyrelu_maxpool")
    assert fusing.plan_of(fusing.write(task)) in (ROOT / "docs/fuse.md").read_text()


def test_what_is_made_is_a_target() -> None:
    makefile = (ROOT / "Makefile").read_text()
    contributing = (ROOT / "CONTRIBUTING.md").read_text()
    for target in re.findall(r"\bmake ([a-z-]+)\b", README + contributing):
        assert f"\n{target}:" in makefile, target
