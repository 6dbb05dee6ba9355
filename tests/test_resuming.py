"""Benchmarks go on with a record of the same device, versions and settings, and with no other."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "benchmarks"))

from resuming import held  # noqa: E402

HEADER = {"device": "NVIDIA H200", "contract": "tf32"}


def test_a_record_of_the_same_header_is_gone_on_with(tmp_path: Path) -> None:
    file = tmp_path / "record.json"
    assert held(file, HEADER, "modules") is None
    file.write_text(json.dumps({**HEADER, "modules": {"one": 1}}))
    assert held(file, HEADER, "modules") == {"one": 1}


@pytest.mark.parametrize("other", [{**HEADER, "contract": "fp32"}, {"device": "NVIDIA H200"}, {"device": "an L40S"}])
def test_a_record_of_another_header_is_refused_by_what_differs(tmp_path: Path, other: dict[str, str]) -> None:
    file = tmp_path / "record.json"
    text = json.dumps({**other, "modules": {"one": 1}})
    file.write_text(text)
    with pytest.raises(SystemExit) as refused:
        held(file, HEADER, "modules")
    assert "record.json" in str(refused.value) and "another file" in str(refused.value)
    assert file.read_text() == text
