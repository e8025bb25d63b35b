"""`pytest --graphdbg-baseline FILE`: compares what each test compiles with the counts in FILE.

Each test begins with torch.compiler.reset() where torch's compiler is imported, so that no number follows the order of
the tests. FILE is written only with --graphdbg-update: tests that ran and passed get new lines, other lines stay. With
pytest-xdist a worker judges its tests, the controller reports and writes.

"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ...dumps import opening
from ...dumps.atomic import write_file
from ...dumps.errors import GraphdbgError
from ...dumps.wording import counted
from ...toolkit.recorder.asserting import Counts, counting
from ...toolkit.recorder.session import active

_WORDS = {
    "breaks": "graph breaks",
    "recompiles": "recompiles",
    "graphs": "graphs",
    "nodes": "nodes",
    "kernels": "kernels",
}
_MOST = 20

Numbers = dict[str, int]


_ENTRY = msgspec.defstruct("_Entry", [(name, int) for name in _WORDS], forbid_unknown_fields=True)


class CountsBaseline:
    """Compares the counts of this run's tests with those of a file. Raises pytest.UsageError for a file that cannot be
    used."""

    def __init__(self, config: pytest.Config) -> None:
        self.config, self.update = config, bool(config.option.graphdbg_update)
        self.named = str(config.option.graphdbg_baseline)
        self.path = Path(config.invocation_params.dir, self.named)
        self.known = self._read()
        self.by_test: dict[str, Numbers] = {}
        self.lines: list[str] = []
        self.counts = Counts(Path())
        self.recorded = active() is not None or "GRAPHDBG" in os.environ

    def _read(self) -> dict[str, Numbers]:
        again = f"pytest --graphdbg-baseline {shlex.quote(self.named)} --graphdbg-update writes it again"
        try:
            entries = msgspec.json.decode(opening.read(self.path), type=dict[str, _ENTRY])
        except FileNotFoundError:
            if not self.path.parent.is_dir():
                raise pytest.UsageError(f"--graphdbg-baseline: there is no folder {self.path.parent}") from None
            if self.update:
                return {}
            why = f"there is no {self.named}; {again.removesuffix(' again')}"
        except OSError as error:
            why = f"cannot read {self.named}: {error.strerror or error}"
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            why = f"{self.named} is not a baseline ({error}); move it away, then {again}"
        else:
            return {test: msgspec.to_builtins(entry) for test, entry in entries.items()}
        raise pytest.UsageError(f"--graphdbg-baseline: {why}")

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_call(self) -> Generator[None, Any, None]:
        """Counts what the test itself compiles, without its fixtures, which others may share."""
        if self.recorded:
            yield
            return
        if _compiler_is_there():
            import torch

            torch.compiler.reset()
        with counting() as self.counts:
            yield

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, Any, None]:
        """Fails a test that passed and got worse; its numbers go with the report, which xdist's worker sends on."""
        outcome = yield
        report = outcome.get_result()
        if report.when != "call" or not report.passed or self.recorded:
            return
        report.graphdbg_counts = self.counts.numbers()
        if self.counts.errors:
            report.graphdbg_counts = self.counts.errors[0]
        elif not self.update and (worse := self._worse(item.nodeid)):
            report.outcome, report.longrepr = "failed", worse

    def _worse(self, test: str) -> str:
        old, new = self.known.get(test), self.counts.numbers()
        if old is None or not _is_worse(old, new):
            return ""
        lines = [f"{test} compiled to more than {self.named} says: {_changed(old, new)}"]
        if old["graphs"] and not new["graphs"]:
            lines = [f"{test} compiled nothing; {self.named} says: {_counts_text(old)}"]
        for name in ("breaks", "recompiles", "kernels"):
            entries: list[str] = getattr(self.counts, name) if new[name] > old[name] else []
            lines += [f"  {_WORDS[name].removesuffix('s')}: {entry}" for entry in entries[:_MOST]]
        return "\n".join([*lines, f"if this is intended: {self._command(test)}"])

    def _command(self, *tests: str) -> str:
        return shlex.join(["pytest", "--graphdbg-baseline", self.named, "--graphdbg-update", *tests])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Takes in the numbers of a test; the controller gets those of all workers."""
        numbers = getattr(report, "graphdbg_counts", None)
        if isinstance(numbers, dict):
            self.by_test[report.nodeid] = numbers if report.passed else self.known[report.nodeid]
        elif numbers is not None:
            self.lines.append(f"{report.nodeid}: not counted: {numbers}")

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Writes the file, with --graphdbg-update."""
        if not self.update or self.recorded or hasattr(self.config, "workerinput"):
            return
        kept = {test: old for test, old in self.known.items() if test not in self.by_test}
        compiling = {test: numbers for test, numbers in self.by_test.items() if any(numbers.values())}
        rows = [f"{json.dumps(test)}: {json.dumps(numbers)}" for test, numbers in sorted((kept | compiling).items())]
        try:
            write_file(self.path, "".join(["{\n", ",\n".join(rows), "\n}\n"]).encode())
        except (OSError, GraphdbgError) as error:
            self.lines.append(f"{self.named} is not written: {error}")
            session.exitstatus = pytest.ExitCode.USAGE_ERROR
            return
        new = compiling.keys() - self.known.keys()
        changed = [test for test, numbers in compiling.items() if test not in new and numbers != self.known[test]]
        gone = len((self.known.keys() & self.by_test.keys()) - compiling.keys())
        summary = f"{len(new)} new, {len(changed)} changed, {gone} that compile nothing left out"
        self.lines.append(f"{self.named} is written: {counted(len(rows), 'test')}; {summary}")

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Reports what got better, what is not in the file, and how to add it."""
        if hasattr(self.config, "workerinput"):
            return
        if self.recorded:
            kept = f"nothing was counted and {self.named} is as it was"
            self.lines = [f"{kept}: this run is recorded, which sees each graph once"]
        elif not self.update:
            both = {test: (self.known[test], new) for test, new in self.by_test.items() if test in self.known}
            better = {test: _changed(old, new) for test, (old, new) in both.items() if old != new}
            self._list("better than {} says", better)
            fresh = {test: new for test, new in self.by_test.items() if test not in self.known and any(new.values())}
            self._list("not in {}", {test: _counts_text(new) for test, new in fresh.items()})
        if self.lines:
            terminalreporter.section("graphdbg baseline")
            for line in self.lines:
                terminalreporter.write_line(line)

    def _list(self, what: str, tests: dict[str, str]) -> None:
        if tests:
            title = f"{counted(len(tests), 'test')} {what.format(self.named)}"
            self.lines.append(f"{title}; to write it down: {self._command()}")
            self.lines += [f"  {test}: {numbers}" for test, numbers in list(tests.items())[:_MOST]]
            self.lines += [f"  and {len(tests) - _MOST} more"] if len(tests) > _MOST else []


def _is_worse(old: Numbers, new: Numbers) -> bool:
    return any(new[name] > old[name] for name in _WORDS) or bool(old["graphs"] and not new["graphs"])


def _changed(old: Numbers, new: Numbers) -> str:
    return ", ".join(f"{words} {old[name]} -> {new[name]}" for name, words in _WORDS.items() if old[name] != new[name])


def _counts_text(numbers: Numbers) -> str:
    return ", ".join(f"{words} {numbers[name]}" for name, words in _WORDS.items())


def _compiler_is_there() -> bool:
    if "torch" not in sys.modules:
        return False
    from ...toolkit.torch_private import loaded

    return loaded("dynamo_config") is not None
