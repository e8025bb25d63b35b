"""`pytest --graphdbg`: turns each failing test that compiled into a verified repro.

Each process of the tests is armed (`toolkit.recorder.armed`), which keeps what a test compiled and called until it
fails; where no graph of it fails, the test is run again by itself under the recorder. pytest loads this module in every
run, so it imports nothing else until torch is there. Results are below graphdbg-pytest/ in the folder where pytest was
started; with pytest-xdist the search begins after all tests have ended.

    pytest --graphdbg --graphdbg-time 300 tests/
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Generator
from typing import Any

import pytest

from . import FOLDER, INSIDE

ARM = "GRAPHDBG_ARM"
TIME_S = 600.0
"""Seconds that all failing tests together may take."""
_AT_LEAST_S = 20.0


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds --graphdbg and --graphdbg-time."""
    group = parser.getgroup("graphdbg", "repros of what torch.compile gets wrong")
    group.addoption(
        "--graphdbg",
        action="store_true",
        help=f"keep what tests compile; the graph of each that fails and a verified repro are left below {FOLDER}/",
    )
    about = f"what that may take for all tests (default: {TIME_S:.0f} s)"
    group.addoption("--graphdbg-time", type=float, default=TIME_S, metavar="S", help=about)
    group.addoption(
        "--graphdbg-baseline",
        metavar="FILE",
        help="fail tests that compile to more graph breaks, recompiles, "
        "graphs, nodes or kernels than FILE says of them",
    )
    group.addoption(
        "--graphdbg-update", action="store_true", help="write what the tests compile to into that FILE instead"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Registers what watches for failures, and what counts, where it is asked for."""
    if config.getoption("graphdbg_update") and not config.getoption("graphdbg_baseline"):
        raise pytest.UsageError("--graphdbg-update needs the file that it writes: --graphdbg-baseline FILE")
    if config.getoption("graphdbg_baseline") and INSIDE not in os.environ:
        from .baseline import CountsBaseline

        config.pluginmanager.register(CountsBaseline(config), "graphdbg-baseline")
    if config.getoption("graphdbg") and INSIDE not in os.environ:
        config.pluginmanager.register(Failures(config), "graphdbg-failures")
        if not config.getoption("graphdbg_baseline"):  # which counts by a recording of its own
            _arm()


def _arm() -> None:
    """Arms this process: now if torch is there, else when it is imported."""
    if "torch" not in sys.modules:
        os.environ[ARM] = "pytest"
        return
    from ...toolkit.recorder.armed.entry import begin

    begin(at_end=False)


class Failures:
    """Collects the failing tests of this run that compiled something or called compiled code."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.failed: dict[str, str] = {}
        """Test -> path of the run with what it had called, or empty."""
        self.crashed: list[str] = []
        self.before = 0

    def pytest_runtest_logstart(self) -> None:
        """Called before the fixtures of a test: notes how much was compiled."""
        self.before = _compiled()
        if (ring := _ring()) is not None:
            ring.forget()

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, None]:
        """Marks the report of a test to be searched, which xdist's worker sends on. Failures of `assert_graphs` are not
        marked: they have no repro."""
        outcome = yield
        report = outcome.get_result()
        by_comparison = call.excinfo is not None and call.excinfo.typename == "GraphsDifferError"
        ring = _ring()
        ran_compiled = _compiled() > self.before or (ring is not None and ring.has_called())
        report.graphdbg = bool(report.failed) and not by_comparison and ran_compiled
        report.graphdbg_run = self._saved(item.nodeid) if report.graphdbg else ""

    def _saved(self, test: str) -> str:
        """Saves what the failing test has called as a run; returns its path, empty where there is none."""
        ring = _ring()
        if ring is None or test in self.failed:
            return ""
        from ...dumps.errors import GraphdbgError
        from ...toolkit.recorder.armed.saving import save
        from .failing import folder_of

        try:
            folder = folder_of(self.config, test)
            folder.mkdir(parents=True)
            return str(save(ring, None, folder / "run").path)
        except (GraphdbgError, OSError, RuntimeError):
            return ""  # it is run again

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keeps a failing test, once, and one whose worker crashed."""
        crashed = "crashed while running" in str(report.longrepr) and report.when not in ("setup", "call", "teardown")
        if (getattr(report, "graphdbg", False) or crashed) and report.nodeid not in self.failed:
            self.failed[report.nodeid] = getattr(report, "graphdbg_run", "")
            self.crashed += [report.nodeid] if crashed else []

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Runs the failing tests again, and reports the outcome of each."""
        if not self.failed or hasattr(self.config, "workerinput"):  # a worker of xdist's reports them to its controller
            return
        from ...toolkit.recorder.armed import rings
        from .failing import Failing, folder_of

        terminalreporter.section("graphdbg")
        left = rings.recovered() if self.crashed else []
        if len(left) == len(self.crashed) == 1:  # what the worker that crashed left
            folder = folder_of(self.config, self.crashed[0])
            folder.mkdir(parents=True)
            self.failed[self.crashed[0]] = str(left[0].run.rename(folder / "run"))
        until = time.monotonic() + float(self.config.option.graphdbg_time)
        for number, (test, run) in enumerate(self.failed.items()):
            left_s = until - time.monotonic()
            if left_s < _AT_LEAST_S and number:
                rest = f"{len(self.failed) - number} more failing test(s) compiled and were not run again"
                terminalreporter.write_line(f"{rest}: the time is over (--graphdbg-time)")
                break
            share_s = max(left_s / (len(self.failed) - number), _AT_LEAST_S)
            try:
                lines = Failing(self.config, test, share_s, terminalreporter.write_line, run).found()
            except OSError as error:  # no room, or no right to write
                lines = [f"{test}: {error.strerror or error} ({error.filename or FOLDER}): nothing could be written"]
            for line in lines:
                terminalreporter.write_line(line)
            terminalreporter.write_line("")


def _ring() -> Any:
    """The ring buffer of this process, if it is armed."""
    entry = sys.modules.get(f"{__name__.partition('.')[0]}.toolkit.recorder.armed.entry")
    return entry.armed() if entry is not None else None


def _compiled() -> int:
    """How often Dynamo began to compile in this process."""
    if "torch" not in sys.modules:
        return 0
    from ...toolkit.live.torch_state import compiles

    return compiles()
