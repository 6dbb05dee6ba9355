"""GPU tests: run by `make gpu-test` on a machine that has one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from crucible import hardware

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The hook sees every item of the session; only this folder's are its business."""
    if hardware.find_device().kind != "cuda":
        for item in (item for item in items if item.path.parent == HERE):
            item.add_marker(pytest.mark.skip(reason="this machine has no NVIDIA GPU"))


class _AtOnce:
    """Tells of a failure when it happens: machines with a GPU are lent by the minute, and who is cut short gets to no
    summary."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        terminal = self.config.pluginmanager.get_plugin("terminalreporter")
        if report.failed and terminal is not None:
            terminal.write_line(f"\n{report.nodeid}, {report.when}:\n{report.longreprtext[-4000:]}")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_AtOnce(config))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """A file's tests go to one worker, since they share what is built; those of tasks share nothing, and take minutes
    each. (`--dist loadgroup` does not see its marks under pytest 9.2.)"""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.split("::")[0]
            return nodeid if file.endswith("test_tasks_on_gpu.py") else file

    return ByFile(config, log)
