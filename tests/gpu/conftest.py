"""GPU tests: run by `make gpu-test` on a machine that has one."""

from __future__ import annotations

from pathlib import Path

import pytest

from crucible import hardware

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The hook sees every item of the session; only this folder's are its business."""
    if hardware.find_device().kind != "cuda":
        for item in (item for item in items if item.path.parent == HERE):
            item.add_marker(pytest.mark.skip(reason="this machine has no NVIDIA GPU"))
