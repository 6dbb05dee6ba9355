"""Help: an example for each verb, no more than a screenful, the rare options on demand, completion."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

import crucible
from crucible.cli import app

COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]
SCREEN = 50
"""Lines of a usual terminal window at 100 columns."""


def shown(*arguments: str) -> str:
    done = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "100", "TERMINAL_WIDTH": "100"})
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize("verb", sorted(COMMANDS))
def test_a_verbs_help_has_an_example_that_parses_and_fits_a_screen(verb: str) -> None:
    text = shown(verb, "--help")
    assert len(text.splitlines()) <= SCREEN
    (example,) = [line.partition("Example:")[2] for line in text.splitlines() if "Example:" in line]
    for command in example.split("&&"):
        program, named, *arguments = shlex.split(command)
        assert program == "crucible"
        COMMANDS[named].make_context(named, arguments)  # raises for an option that there is not


def test_rare_options_are_shown_on_demand_and_none_is_missing() -> None:
    usual, everything = shown("judge", "--help"), shown("judge", "--help-all")
    names = {name for parameter in COMMANDS["judge"].params for name in parameter.opts if name.startswith("--")}
    assert {name for name in names if name not in everything} == set()
    assert "--stress-limit" not in usual and "--seed" not in usual
    assert "--training" in usual and "What is judged" in usual


def test_the_list_of_verbs_says_what_each_does_in_two_lines() -> None:
    text = shown("--help")
    for verb in COMMANDS:
        assert f" {verb} " in text
    assert len(text.splitlines()) <= SCREEN


def test_options_without_a_value_show_none() -> None:
    lines = shown("judge", "--help-all").splitlines()
    (watch,) = [line for line in lines if "--watch" in line]
    (contract,) = [line for line in lines if "--contract " in line]
    assert re.search(r"--watch +Judge again", watch)
    assert not re.search(r"--contract +Precision", contract)
    assert "<bool>" not in "".join(lines) + shown("--help")


def test_the_programs_own_help_says_what_it_is_and_how_to_begin() -> None:
    text = " ".join(shown("--help").split())
    assert "Fuse PyTorch modules into GPU kernels, and judge any kernel against the module that it replaces" in text
    begin = text.partition("Begin with: ")[2]
    for command in begin.split(" && "):
        program, named, *arguments = shlex.split(command)
        assert program == "crucible"
        COMMANDS[named].make_context(named, arguments)
    assert shown("--version") == f"crucible {crucible.__version__}\n"


def test_a_shell_completes_verbs_and_options() -> None:
    environment = {**os.environ, "_CRUCIBLE_COMPLETE": "complete_bash", "COMP_WORDS": "crucible co", "COMP_CWORD": "1"}
    code = "import sys; sys.argv[0] = 'crucible'; from crucible.cli import app; app(prog_name='crucible')"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["compare"]
