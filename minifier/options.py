"""The options of one minification: one frozen record, used by Python, the command line, case.json and --resume.

Must not read a graph or start anything. A new option is a field here, its flag in `commands/minify.py`, and, where no
answer of the oracle depends on it, its name in NOT_ASKED. Units are in comments; sizes are bytes, times are seconds.

>>> MinifyOptions(check="accuracy", jobs=2).checked().words()
['--check', 'accuracy', '-j', '2']
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import Any

import msgspec

from ..dumps.errors import BadValueError, CannotResumeError, OptionsExcludeError, UnknownWordError
from ..toolkit.isolation.imports import option_words
from .executors.ray_pool import required

CHECKS = ("auto", "crash", "accuracy", "nan", "metadata", "missing-error", "rounding", "hang", "memory")
EXECUTORS = ("local", "ray")
HANG_LIMIT_S = 60.0
"""Default seconds after which a case counts as hanging."""
COMMAND = "cmd:"
"""A check that begins so is a command of the user's."""


@dataclass(frozen=True)
class MinifyOptions:
    """One minification's options. `verify`: fresh processes that judge the result. Others as their flags say."""

    check: str = "auto"
    rung: str = "inductor"
    seed: int = 0
    match: str | None = None
    imports: tuple[str, ...] = ()
    hangs: float | None = None  # seconds after which a query counts as hanging
    slower_than: float | None = None  # seconds of compile and first run
    memory_over: int | None = None  # bytes of peak memory
    time_limit: float | None = None  # seconds that a query may take; None: from the first run
    memory_limit: int | None = None  # bytes that a query may use; None: what the machine has
    jobs: int = 1
    max_time: float | None = None  # seconds
    max_queries: int | None = None
    executor: str = "local"
    verify: int = 3
    without: tuple[str, ...] = ()  # steps of the search that are left out
    anyway: bool = False  # also a failure that the run did not have, of a program that is not the run's

    @property
    def command(self) -> str | None:
        """The user's command where the check is one, without its "cmd:"."""
        return self.check.removeprefix(COMMAND).strip() if self.check.startswith(COMMAND) else None

    def checked(self) -> MinifyOptions:
        """These options, checked; raises UsageError for those that make no sense, alone or together, and
        EnvironmentLackError for what is not installed."""
        if self.executor not in EXECUTORS:
            raise UnknownWordError(f"there is no executor {self.executor!r}", "", f"use one of {', '.join(EXECUTORS)}")
        if self.executor != "local" and self.command is not None:
            what = f"--executor {self.executor} and --check 'cmd: ...' cannot be used together"
            raise OptionsExcludeError(what, "your command runs on this machine only", "leave --executor out")
        if self.executor == "ray":
            required()
        if self.command is not None and "{case}" not in self.command:
            what = f"the command {self.command!r} does not say where the case goes"
            raise BadValueError(what, "{case} stands for its folder", "for example --check 'cmd: ./test.sh {case}'")
        if self.command is None and self.check not in CHECKS:
            raise UnknownWordError(
                f"there is no check {self.check!r}", "", f"use one of {', '.join(CHECKS)}, or 'cmd: COMMAND {{case}}'"
            )
        self._check_measures()
        try:
            re.compile(self.match or "")
        except re.error as error:
            raise BadValueError(f"--match {self.match!r} is not a regular expression", str(error)) from error
        return self

    def _check_measures(self) -> None:
        """Refuses limits that make no sense, and questions that contradict each other."""
        amounts = ("hangs", "slower_than", "memory_over", "time_limit", "memory_limit")
        for name in (*amounts, "jobs", "max_time", "max_queries"):
            if (value := getattr(self, name)) is not None and not value > 0:
                raise BadValueError(f"{FLAGS[name]} {value:g} is too small", "it must be more than 0")
        questions = [FLAGS[name] for name in MEASURES if getattr(self, name) is not None]
        if self.check != "auto" and not (self.check == "hang" and questions == ["--hangs"]):
            questions += [f"--check {self.check}"]
        elif self.match is not None and self.check == "auto":
            questions += [f"--match {self.match}"]
        if len(questions) > 1 and questions[0].split()[0] in {FLAGS[name] for name in MEASURES}:
            what = f"{' and '.join(questions)} cannot be used together"
            raise OptionsExcludeError(what, "each of them says what counts as failing", "give one of them")
        if self.hangs is not None and self.time_limit is not None:
            what, why = "--hangs and --time-limit cannot be used together", "--hangs sets the time limit itself"
            raise OptionsExcludeError(what, why, "give one of them")
        for question, limit in (("slower_than", "time_limit"), ("memory_over", "memory_limit")):
            asked, most = getattr(self, question), getattr(self, limit)
            if asked is not None and most is not None and most <= asked:
                what = f"{FLAGS[question]} {asked:g} cannot be seen with {FLAGS[limit]} {most:g}"
                raise BadValueError(what, "the limit ends each query before that", f"give a larger {FLAGS[limit]}")

    @property
    def judged(self) -> str:
        """The check that the judge makes: "hang" for --hangs; "crash" for a measure of time or memory, which only needs
        the graph to run."""
        if self.hangs is not None:
            return "hang"
        return "crash" if self.slower_than is not None or self.memory_over is not None else self.check

    def pattern(self) -> re.Pattern[str] | None:
        """The pattern that the failure's text must match, or None."""
        return None if self.match is None else re.compile(self.match)

    def asked(self) -> dict[str, Any]:
        """The options that an answer of the oracle depends on: a journal written under others is of no use."""
        return {name: value for name, value in self.to_json().items() if name not in NOT_ASKED}

    def to_json(self) -> dict[str, Any]:
        """Plain data, all fields."""
        return msgspec.to_builtins(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> MinifyOptions:
        """The inverse of to_json; fields that this version does not know are left out. Raises UsageError for wrong
        types."""
        known = {field.name for field in fields(cls)}
        try:
            return msgspec.convert({name: value for name, value in data.items() if name in known}, cls)
        except msgspec.ValidationError as error:
            raise CannotResumeError(
                "cannot read the options of a minification", str(error), "start again with another -o"
            ) from error

    def words(self) -> list[str]:
        """The command-line words for what differs from the defaults, to be quoted by the caller."""
        words: list[str] = []
        for field in fields(self):
            value: Any = getattr(self, field.name)
            if value == field.default or field.name not in FLAGS:
                continue
            if field.name == "imports":
                words += option_words(value)
            elif value is True:
                words.append(FLAGS[field.name])
            else:
                for item in value if field.name == "without" else (value,):
                    words += [FLAGS[field.name], f"{item:g}" if isinstance(item, float) else str(item)]
        return words


MEASURES = ("hangs", "slower_than", "memory_over")
"""Fields that say what counts as failing, in place of `check`."""


NOT_ASKED = frozenset({"jobs", "max_time", "max_queries", "executor", "verify", "without"})
"""Fields on which no answer of the oracle depends."""

_NAMED = {field.name: f"--{field.name.replace('_', '-')}" for field in fields(MinifyOptions) if field.name != "verify"}
FLAGS = {**_NAMED, "imports": "--import", "jobs": "-j"}
"""Field -> flag of `graphdbg minify`."""
