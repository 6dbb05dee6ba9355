"""GPU tests: run by `make gpu-test` on a machine that has one."""

from __future__ import annotations

import pytest

from crucible import hardware


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if hardware.find_device().kind != "cuda":
        for item in items:
            item.add_marker(pytest.mark.skip(reason="this machine has no NVIDIA GPU"))
