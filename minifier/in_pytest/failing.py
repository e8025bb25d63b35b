"""Runs one failing test again under the recorder, and minifies the graph that fails; where none does, the whole test is
judged beside eager.

For example:

    Failing(config, "tests/test_a.py::test_b", 300.0, print).found()
    # ['tests/test_a.py::test_b: FAILS: wrong numbers at relu, model.py:5 (compiler: inductor)', ...]
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...dumps.atomic import free_path
from ...dumps.wording import counted, shown_path
from ...toolkit.verdicts.verdict import Verdict, cannot_tell, read
from ...toolkit.verdicts.verdict_words import first_line
from . import FOLDER, INSIDE

SAID = "said.txt"
"""The file in a test's folder that holds all lines reported on the test."""
_ARMED = 0.4
"""The part of the time for minifying what the test had called when it failed."""
_SEARCH = 0.6
"""The part of the time after which a search ends by itself; the rest is for what comes before, and for verifying."""
_GRACE_S = 20.0
_PASSED, _FAILED, _SIGNALS = 0, 1, 128
_EAGER = {"TORCHDYNAMO_DISABLE": "1"}
"""TORCH_COMPILE_DISABLE makes torch raise where fullgraph=True is asked for."""


class Failing:
    """A failing test. `limit_s`: seconds for all of the work; `announce` takes lines while it goes on; `armed`: path of
    the run with what the test had called when it failed, or empty."""

    def __init__(
        self, config: Any, test: str, limit_s: float, announce: Callable[[str], None], armed: str = ""
    ) -> None:
        self.test, self.limit_s, self.announce = test, limit_s, announce
        self.until = time.monotonic() + limit_s
        self.place = Path(config.invocation_params.dir)
        self.armed = Path(armed) if armed else None
        self.folder = self.armed.parent if self.armed is not None else folder_of(config, test)
        self.command = [sys.executable, "-m", "pytest", *_words(config, test)]

    def found(self) -> list[str]:
        """Lines that say what the failure is, and where the repro is; they are also left in its folder."""
        lines = self._found()
        with contextlib.suppress(OSError):
            (self.folder / SAID).write_text("\n".join([*lines, ""]), encoding="utf-8")
        return lines

    def _found(self) -> list[str]:
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.armed is not None:
            self.announce(f"{self.test}: {shown_path(self.armed)} is judged and minified, {self.limit_s:.0f} s at most")
            code, done, issue = self._minified(self.armed, _ARMED)
            if done.get("verdict") == "fails" and done.get("repro") == "shows":
                return self._outcome_lines(code, done, issue, "")
        self.announce(f"{self.test}: run again under the recorder, {self._left_s():.0f} s at most")
        run = free_path(str(self.folder / "run"), first=2)
        code, _ = self._graphdbg("dump", "-o", str(run), "--inputs", "last", "--", *self.command, log="test.log")
        if code is None:
            return [f"{self.test}: it did not end in time when it was run again; graphdbg ls {shown_path(run)}"]
        if code == _PASSED:
            seen = f"; what it compiled: graphdbg ls {shown_path(run)}" if run.exists() else ""
            return [f"{self.test}: it passed when it was run again by itself{seen}"]
        died = code < 0 or code > _SIGNALS
        if not (code == _FAILED or died) or not run.exists():
            why = "nothing was compiled" if code == _FAILED else f"pytest ended with {code}"
            return [f"{self.test}: run again by itself, {why}: {shlex.join(self.command)}"]
        self.announce(f"{self.test}: {shown_path(run)} is judged and minified")
        code, done, issue = self._minified(run, _SEARCH)
        if code is None or (done and done.get("verdict") in ("fails", None)):
            return self._outcome_lines(code, done, issue, f"graphdbg triage {shown_path(run)}")
        disabled, _ = self._ran(self.command, log="eager.log", **_EAGER)
        if disabled == _FAILED:
            setting = " ".join("=".join(item) for item in _EAGER.items())
            agrees = "no graph of it departs from eager beyond rounding"
            judged = agrees if _verdict(done).exit_code == 0 else _agrees(_verdict(done))
            judged = judged if done else f"nothing could be minified (code {code})"
            return [f"{self.test}: it fails without torch.compile, too ({setting}), and {judged}"]
        self.announce(f"{self.test}: no graph of it was seen to fail; its calls are run beside eager")
        out = self.folder / "program"
        most = str(max(round(_SEARCH * self._left_s()), 1))
        words = ("-o", str(out), "--max-time", most, "--json", "--", *self.command)
        code, whole = self._graphdbg("minify", *words, log="program.log")
        if done.get("verdict") == "rounding" and whole.get("verdict") in ("ok", "rounding", "cannot_tell"):
            self.announce(f"{self.test}: {shown_path(run)} is minified with --check rounding")
            again, rounded, issue = self._minified(run, _SEARCH, "--check", "rounding")
            if rounded.get("repro") == "shows":
                return self._outcome_lines(again, rounded, issue, "")
        return self._outcome_lines(code, whole, None, f"graphdbg triage -- {shlex.join(self.command)}")

    def _minified(self, run: Path, part: float, *flags: str) -> tuple[int | None, dict[str, Any], Path]:
        """Minifies within that part of the remaining time. Returns exit code, the final JSON object, and the path of
        issue.md."""
        out = free_path(str(self.folder / "minified"), first=2)
        words = ("-o", str(out), "--trust", "--max-time", str(max(round(part * self._left_s()), 1)), "--json", *flags)
        return *self._graphdbg("minify", str(run), *words, log="minify.log"), out / "issue.md"

    def _outcome_lines(self, code: int | None, done: dict[str, Any], issue: Path | None, by_hand: str) -> list[str]:
        if not done:
            ended = f"nothing could be minified (code {code})"
            why = "it did not end in time (--graphdbg-time)" if code is None else ended
            return [f"{self.test}: {why}; what was said is in {shown_path(self.folder)}; {by_hand}"]
        verdict = _verdict(done)
        if not verdict.failed and not (verdict.differs and done.get("repro") == "shows"):
            return [f"{self.test}: {_agrees(verdict)}", f"  {by_hand}"]
        rounding = "ROUNDING: nothing shows that the compiler is wrong"
        lines = [f"{self.test}: {first_line(verdict) if verdict.failed else rounding}", f"  {verdict.reason}"]
        if done.get("repro") == "shows":
            nodes = f"{counted(done['nodes'], 'node')} of {done['original_nodes']}; " if "nodes" in done else ""
            rates = f"shows the failure {done.get('repro_rate')} in processes of their own"
            rates += ", with --without-fault it ends with 0"
            if issue is not None:  # a program's is what it printed, in lines
                rates = done.get("repro_told") or rates
            lines.append(f"  python {shown_path(Path(done['repro_path']))}  ({nodes}{rates})")
        else:
            lines.append(f"  no repro shows it: {by_hand}")
        if done.get("workaround"):
            lines.append("  work-around: " + "; ".join(str(done["workaround"]).splitlines()))
        return [*lines, f"  for a report: {shown_path(issue)}"] if issue is not None and issue.exists() else lines

    def _left_s(self) -> float:
        return max(self.until - time.monotonic(), 1.0)

    def _graphdbg(self, *words: str, log: str) -> tuple[int | None, dict[str, Any]]:
        """Runs a graphdbg command: its exit code, None where the time was over, and the last JSON object of standard
        output."""
        return self._ran([sys.executable, "-m", "graphdbg", *words], log)

    def _ran(self, command: list[str], log: str, **settings: str) -> tuple[int | None, dict[str, Any]]:
        own = ("GRAPHDBG", "PYTEST_CURRENT", "PYTEST_XDIST")
        environment = {name: value for name, value in os.environ.items() if not name.startswith(own)}
        with (self.folder / log).open("wb") as file:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                cwd=self.place,
                stdout=subprocess.PIPE,
                stderr=file,
                env=environment | {INSIDE: "1"} | settings,
                start_new_session=True,
            )
            over = False
            try:
                said, _ = process.communicate(timeout=self._left_s())
            except subprocess.TimeoutExpired:
                over, said = True, self._stopped(process)
            except BaseException:
                self._stopped(process)
                raise
            file.write(said[-200_000:])
        lines = [line for line in said.decode(errors="replace").splitlines() if line.startswith("{")]
        with contextlib.suppress(ValueError, IndexError):
            return None if over else process.returncode, json.loads(lines[-1])
        return None if over else process.returncode, {}

    def _stopped(self, process: subprocess.Popen[bytes]) -> bytes:
        """Asks the command to end, which keeps its best case, then kills it; returns its output."""
        for number in (signal.SIGINT, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.communicate(timeout=_GRACE_S)[0]
        return b""


def _verdict(done: dict[str, Any]) -> Verdict:
    return read(done if "verdict" in done else None) or cannot_tell("nothing was judged")


def _agrees(verdict: Verdict) -> str:
    """Whether what a test compiles agrees with eager, and the reason."""
    word = "agrees with eager" if verdict.exit_code == 0 else "could not be judged"
    return f"what it compiles {word}: {verdict.reason or 'no difference found'}"


def folder_of(config: Any, test: str) -> Path:
    """The name of a fresh folder for a test."""
    name = re.sub(r"[^\w.-]+", "-", test.removesuffix(".py").replace(".py::", "-")).strip("-.")
    return free_path(str(Path(config.invocation_params.dir) / FOLDER / name[:120]), first=2)


def _words(config: Any, test: str) -> list[str]:
    """The arguments that run one test in one process: those of this pytest run without its test paths."""
    given = [str(word) for word in config.invocation_params.args]
    kept = given[::-1]
    for place in map(str, config.option.file_or_dir):  # the last one: before it, an option's value may be the same word
        kept.remove(place) if place in kept else None
    kept.reverse()
    alone = ["-n", "0"] if config.pluginmanager.hasplugin("xdist") else []
    path, *names = test.split("::")
    return [*kept, *alone, "--rootdir", str(config.rootpath), "::".join([str(config.rootpath / path), *names])]
