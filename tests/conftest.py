"""What all tests share: an empty home for each, two tiny tasks, a look at the processes that are alive."""

from __future__ import annotations

import contextlib
import gc
import importlib
import itertools
import os
import pkgutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import torch

import crucible
from crucible import emulator
from support import NIGHTLY, SMALL_TASK, TESTS, Judge, write

QUICK: dict[str, Any] = {
    "device": "cpu",
    "baselines": "none",
    "limits": crucible.Limits(race_s=0.05, shrink_s=0, stress_s=0),
    "seed": 0,
}
"""A race of the fewest rounds, nothing beyond a task's own inputs, no smaller shapes: most tests are about verdicts."""
os.environ.setdefault("OMP_NUM_THREADS", "1")
"""For all that judge and candidates start: threads of two processes on two cores wait for each other (a plain pass
takes 4.3 s of processor time with one, 5.3 with two)."""
torch.set_num_threads(1)  # here, too: beside another worker test_kinks.py takes 13 s of processor time, 41 with two
# A busy machine takes 200 ms for nothing. Each run draws other examples.
hypothesis.settings.register_profile("any machine", deadline=None, max_examples=100 if NIGHTLY else 50)
hypothesis.settings.load_profile("any machine")
LONGEST = (
    "test_cheats",
    "test_bad_input",
    "test_emulated",
    "test_shown_commands",
    "test_tasks",
    "test_own_failures",
    "test_tuning",
    "test_at_once",
    "test_stress",
    "test_sanitizer",
    "test_drop_in",
    "test_oracle",
    "test_extension",
    "test_batch_norm",
    "test_corpus",
    "test_fuse_command",
    "test_half_macros",
    "test_sweep",
    "test_emulator",
    "test_baselines",
    "test_warpgroups_exact",
    "test_plans",
    "test_halved",
    "test_warpgroup_phases",
    "test_warpgroup_streams",
    "test_kept",
    "test_odd_builds",
    "test_isolation",
    "test_sizing",
    "test_buffers",
    "test_worker",
    "test_forkserver",
    "test_autograd",
    "test_scatters",
    "test_triton",
    "test_variants",
    "test_loading",
    "test_folded",
    "test_kernelbench",
    "test_judge_level",
    "test_families",
    "test_convolution_names",
    "test_kernel_verify",
    "test_walk_meaning",
    "test_convolution",
    "test_written_modules",
    "test_local",
    "test_reducing_convolutions",
    "test_shrinking",
    "test_random_graphs",
    "test_warpgroups",
    "test_scoring",
    "test_resources",
    "test_backend",
    "test_crossing",
    "test_scatter_meaning",
    "test_stream_meaning",
    "test_identical",
    "test_measuring",
    "test_parts_within",
    "test_warpgroup_pools",
    "test_divisions_measured",
    "test_uses_told_apart",
    "test_warp_meaning",
    "test_phase_meaning",
    "test_weight_groups_meaning",
    "test_warpgroup_weights",
    "test_warpgroup_weight_windows",
)
"""Files of 8 s and more in CI, the longest first: so the end of a run with `-n` is not one of them alone."""


OTHER_ROOMS = ("cli", "emission", "emulator", "fleet", "interchange", "modules", "plan", "report", "serve", "write")
WHOLE = ("test_backend", "test_bad_input", "test_buffers", "test_capture", "test_cheats", "test_host_work")
WHOLE += ("test_identical", "test_isolation", "test_judge_level", "test_kernelbench", "test_layers", "test_loops")
WHOLE += ("test_modules",)
WHOLE += ("test_mutants_table", "test_own_failures", "test_pytest_plugin", "test_random_tasks", "test_rates")
WHOLE += ("test_readme", "test_resources", "test_roofline", "test_sandbox", "test_shown_commands", "test_smallest")
WHOLE += ("test_spread", "test_stated_tolerance", "test_sweep", "test_tasks", "test_tf32", "test_tuning", "test_work")
"""Folders and files whose tests are of other rooms than the judge, or of it as a whole. That its own tests run 90 % of
it is measured in those alone: a tracer makes 2.4 times the time of plain Python, 1.7 times of a process with torch; and
those of them that judge run 17 lines of 11,575 that no other file runs."""


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """The tests of a file share judged batches, so with `-n` they go to one worker."""
    os.environ.setdefault("CRUCIBLE_EMULATOR_HOME", str(TESTS.parent / "build/emulator"))  # half a minute to make
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # as a shell starts what it puts behind: no Ctrl-C is heard
        signal.signal(signal.SIGINT, signal.default_int_handler)
    gc.disable()  # while 5,700 tests are collected, a third of the time of each process
    if getattr(config.option, "dist", "no") == "load":
        config.option.dist = "loadfile"
        config.option.loadscopereorder = False


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int | None:
    """One more than there are cores: a judge that waits (for a sleeper, a limit, a process to end) leaves its core to
    another worker. Only races want a core for themselves, and they hold a lock on one."""
    return None if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ else len(os.sched_getaffinity(0)) + 1


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first."""
    items.sort(key=lambda item: LONGEST.index(item.path.stem) if item.path.stem in LONGEST else len(LONGEST))


def pytest_collection_finish() -> None:
    """What was collected stays to the end: nobody looks through it for garbage again."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """Without a tracer: it sees the judge's modules being imported, which is all there is to see of them here."""
    if _tracer(session.config) is not None:
        judge = importlib.import_module("crucible.judge")  # of `crucible` it is the function
        for module in pkgutil.walk_packages(judge.__path__, "crucible.judge."):
            importlib.import_module(module.name)
    with _untraced(session.config):
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Without a tracer, here and in what is started, where coverage is not asked for."""
    if not (item.path.stem in WHOLE or item.path.parent.name in OTHER_ROOMS):
        return (yield)
    with _untraced(item.config):
        return (yield)


def _tracer(config: pytest.Config) -> Any:
    return getattr(config.pluginmanager.get_plugin("_cov"), "cov_controller", None)


@contextlib.contextmanager
def _untraced(config: pytest.Config) -> Iterator[None]:
    tracer = _tracer(config)
    if tracer is None:
        yield
        return
    settings = os.environ.pop("COVERAGE_PROCESS_CONFIG", None)
    tracer.cov.stop()
    try:
        yield
    finally:
        tracer.cov.start()
        if settings is not None:
            os.environ["COVERAGE_PROCESS_CONFIG"] = settings


@pytest.fixture(scope="session")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Folders that are not there yet: most tests need none."""
    folder = tmp_path_factory.mktemp("homes")
    return (folder / f"home-{number}" for number in itertools.count())


@pytest.fixture(autouse=True)
def crucible_home(homes: Iterator[Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own for each test: nothing is answered from an earlier run."""
    home = next(homes)
    monkeypatch.setenv("CRUCIBLE_HOME", str(home))
    return home


@pytest.fixture(autouse=True)
def seeded() -> None:
    """The same random numbers whatever ran before."""
    torch.default_generator.manual_seed(0)  # of all devices' it takes 2 ms: it keeps the stack, for those to come
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(0)


@pytest.fixture
def no_faults() -> Iterator[None]:
    """Nothing that the emulator finds fault with may happen in the test; what earlier tests planted is forgotten."""
    emulator.forget()
    yield
    assert [fault.words for fault in emulator.faults() if fault.kind != "never-ran"] == []  # others run later


@pytest.fixture(scope="module")
def judge_batch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., crucible.Run]]:
    """`crucible.judge` for fixtures that judge many candidates in one run, in a home of its own."""

    def judge(task: Path, candidates: list[Path], **options: Any) -> crucible.Run:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("CRUCIBLE_HOME", str(tmp_path_factory.mktemp("home")))
            return crucible.judge(task, candidates, **{**QUICK, **options})

    yield judge


@pytest.fixture
def judge_source(tmp_path: Path) -> Judge:
    """Writes a candidate's text to a file and returns the verdict on it."""

    def judge(source: str, task: str | Path = SMALL_TASK, **options: Any) -> crucible.Verdict:
        name = options.pop("name", "candidate_under_test")
        file = write(tmp_path / f"{name}.py", source)
        return crucible.judge(task, [file], **{**QUICK, **options}).verdict(name)

    return judge
