"""What a candidate's text says of whom it looks for; what honest ones say of themselves is no sign."""

from __future__ import annotations

from pathlib import Path

import pytest

from crucible.judge.diagnosis.asks_who_judges import MOST, signs
from support import CHEATS, TASKS, TESTS

HONEST = [*CHEATS.glob("honest_*.py"), *(TESTS / "golden/written").glob("*.py")]
HONEST += [file for task in TASKS for file in (task / "candidates").glob("*.py")]


@pytest.mark.parametrize(
    ("line", "holds"),
    [
        ("import crucible.judge", "crucible"),
        ("from crucible import legible", "crucible"),
        ("known = 'crucible' in sys.modules", "crucible"),
        ("SOURCE = '''\n#ifdef CRUCIBLE_BRIDGE\n'''", "CRUCIBLE_BRIDGE"),
        ("SOURCE = '''\n#if !defined(__CUDACC__)\nreturn right();\n#endif'''", "__CUDACC__"),
        ("SOURCE = '''\n#ifdef GPU_IS_EMULATED\nreturn right();\n#endif'''", "GPU_IS_EMULATED"),
        ("kind = open('/proc/self/status').read()", "/proc/self/status"),
        ("open('/proc/1/cmdline')", "/proc/1/cmdline"),
        ("caller = sys._getframe(1)", "_getframe"),
        ("emulated = os.environ.get('TRITON_INTERPRET')", "TRITON_INTERPRET"),
        ("# faster than crucible's own, see /proc/self/status", ""),
        ("SOURCE = '// as crucible writes it'", ""),
        ("SOURCE = '/* seccomp\\n */ int x;'", ""),
        ("module = load_inline('crucible_fused', SOURCE)", ""),
        ("not python", ""),
    ],
)
def test_a_line_asks_who_runs_it_or_does_not(line: str, holds: str) -> None:
    found = signs(f'"""Judged by crucible."""\n{line}\n')
    assert (f"line 2 holds {holds}: " in "".join(found)) if holds else found == []


def test_no_more_is_told_than_somebody_reads() -> None:
    every = "import crucible, os\nos.getppid()\nx = 'seccomp', '/proc/self/status', 'TRITON_INTERPRET'\n"
    assert len(signs(every)) == MOST


@pytest.mark.parametrize("file", HONEST, ids=lambda file: file.stem)
def test_who_is_honest_does_not_ask(file: Path) -> None:
    assert signs(file.read_text()) == []
