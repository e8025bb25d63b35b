"""`pytest --graphdbg`: a failing test that compiled is run again by itself under the recorder and ends in a verified repro.

pytest loads this module in every run, so it imports nothing else until such a test has failed. What it finds is below
graphdbg-pytest/ where pytest was started; with pytest-xdist the tests are run again where the others have ended.

    pytest --graphdbg --graphdbg-time 300 tests/
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Generator
from typing import Any

import pytest

INSIDE = "PYTEST_GRAPHDBG"
"""Set where a test is run again."""
FOLDER = "graphdbg-pytest"
TIME_S = 600.0
"""What all failing tests together may take."""
_AT_LEAST_S = 20.0


def pytest_addoption(parser: pytest.Parser) -> None:
    """Takes --graphdbg and --graphdbg-time."""
    group = parser.getgroup("graphdbg", "repros of what torch.compile gets wrong")
    group.addoption("--graphdbg", action="store_true", help="run each failing test that compiled again under the recorder; "
                    f"its graph and a verified repro are left below {FOLDER}/")  # fmt: skip
    group.addoption("--graphdbg-time", type=float, default=TIME_S, metavar="S",
                    help=f"what that may take for all tests (default: {TIME_S:.0f} s)")  # fmt: skip
    group.addoption("--graphdbg-baseline", metavar="FILE", help="fail tests that compile to more graph breaks, recompiles, "
                    "graphs, nodes or kernels than FILE says of them")  # fmt: skip
    group.addoption("--graphdbg-update", action="store_true", help="write what the tests compile to into that FILE instead")


def pytest_configure(config: pytest.Config) -> None:
    """Watches for failures, and counts, where it is asked to."""
    if config.getoption("graphdbg_update") and not config.getoption("graphdbg_baseline"):
        raise pytest.UsageError("--graphdbg-update needs the file that it writes: --graphdbg-baseline FILE")
    if config.getoption("graphdbg_baseline") and INSIDE not in os.environ:
        from .baseline import Baseline

        config.pluginmanager.register(Baseline(config), "graphdbg-baseline")
    if config.getoption("graphdbg") and INSIDE not in os.environ:
        config.pluginmanager.register(Failures(config), "graphdbg-failures")


class Failures:
    """The tests of this run that failed and had compiled."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.failed: list[str] = []
        self.before = 0

    def pytest_runtest_logstart(self) -> None:
        """Before its fixtures."""
        self.before = _compiled()

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, call: pytest.CallInfo[None]) -> Generator[None, Any, None]:
        """Marks the report, which xdist's worker sends on; not of `assert_graphs`, of which there is no repro."""
        outcome = yield
        report = outcome.get_result()
        told = call.excinfo is not None and call.excinfo.typename == "GraphsDifferError"
        report.graphdbg = bool(report.failed) and not told and _compiled() > self.before

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keeps the test, once."""
        if getattr(report, "graphdbg", False) and report.nodeid not in self.failed:
            self.failed.append(report.nodeid)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Runs them again, and says of each what came of it."""
        if not self.failed or hasattr(self.config, "workerinput"):  # a worker of xdist's tells them to its controller
            return
        from .failing import Failing

        terminalreporter.section("graphdbg")
        until = time.monotonic() + float(self.config.option.graphdbg_time)
        for number, test in enumerate(self.failed):
            left_s = until - time.monotonic()
            if left_s < _AT_LEAST_S and number:
                rest = len(self.failed) - number
                terminalreporter.write_line(f"{rest} more failing test(s) compiled and were not run again: the time is over "
                                            "(--graphdbg-time)")  # fmt: skip
                break
            share_s = max(left_s / (len(self.failed) - number), _AT_LEAST_S)
            try:
                lines = Failing(self.config, test, share_s, terminalreporter.write_line).found()
            except OSError as error:  # no room, or no right to write
                lines = [f"{test}: {error.strerror or error} ({error.filename or FOLDER}): nothing could be written"]
            for line in lines:
                terminalreporter.write_line(line)
            terminalreporter.write_line("")


def _compiled() -> int:
    """How often Dynamo was asked to compile in this process."""
    if "torch" not in sys.modules:
        return 0
    from ...toolkit.recorder.live_torch import counter

    return counter("frames", "total")
