"""The oracle that asks a command of the user's (`--check 'cmd: ./test.sh {case}'`). Imports no torch.

Exit code 0 passes, 1 fails, 2 is ignored; another one, or a signal, is a failure of its own kind; 126 and 127, with
which the shell says that nothing could be run, stop everything. Each query has a case folder and a process group of its
own.

"""

from __future__ import annotations

import os
import shutil
import signal
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Any

import msgspec

from ..dumps.answers import KEPT_ELSEWHERE
from ..dumps.atomic import write_file
from ..dumps.errors import CannotStartError
from ..toolkit.isolation import Answer as Reply
from ..toolkit.isolation import raise_refusal
from ..toolkit.verdicts.signature import Signature
from ..toolkit.verdicts.verdict import WHOLE, cannot_tell, judged
from .oracle import Oracle
from .search.problem import Answer, Candidate, CannotJudgeError, DoesNotFailError, NothingToReduceError, Ruling

TASK = f"{__package__}.command_tasks:run"
PASSES, FAILS, IGNORED = 0, 1, 2
CANNOT_RUN = {126: "it cannot be executed", 127: "it was not found"}
_SIGNALLED = 128


@dataclass
class CommandOracle(Oracle):
    """Judges by a command. `output`: where what it prints is kept, a file per query. `directory`: where it runs."""

    output: Path = Path("output")
    directory: str = field(default_factory=os.getcwd)
    _lock: Lock = field(default_factory=Lock)
    _sizes: dict[str, int] = field(default_factory=dict[str, int])

    def judge(
        self, candidate: Candidate | None, case: Path | None = None, **more: bool
    ) -> tuple[Answer, Signature | None]:
        """One run of the command on a candidate; None is the whole case, or that of another folder."""
        number, folder = self._place()
        payload = self._payload(candidate) | {
            "command": self.options.command,
            "folder": str(folder),
            "directory": self.directory,
            "environment": _environment(),
            "ready": None if case is None else str(case.absolute()),
            "input_bytes": self._sizes.get(str(case), 0),
        }
        try:
            reply = self.asking.ask(TASK, payload)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        if candidate is None and case is None:
            raise_refusal(reply)
        named = candidate.text() if candidate else "original" if case is None else str(case)
        write_file(self.output / f"{number:04}.txt", f"# {_told(reply)}: {named}\n{reply.output}".encode())
        size = (reply.told["nodes"], reply.told["input_bytes"]) if reply.told else self._size(candidate)
        answer = self._answer(reply)
        if reply.told is None and answer.verdict is not Ruling.INFRA:
            answer = Answer(Ruling.INVALID, detail=answer.detail)
        answer = replace(answer, nodes=size[0], input_bytes=size[1], seconds=reply.seconds)
        return answer, None

    def whole(self) -> Answer:
        """The command on the whole case. Raises UsageError where it cannot be run."""
        answer = super().whole()
        if answer.verdict is Ruling.INFRA and answer.detail.startswith("the command"):
            raise CannotStartError(
                f"cannot ask {self.options.command!r}", answer.detail, f"it is run by sh in {self.directory}"
            )
        return answer

    def refusal(self, answers: Any) -> NothingToReduceError:
        """The command did not say that the original fails."""
        if answers[0].verdict is Ruling.OTHER and self.options.match is not None:
            return super().refusal(answers)
        why = answers[0].detail or answers[0].signature
        fix = "it must exit with 1 where a case fails, with 0 where it passes"
        if answers[0].verdict is not Ruling.PASS:
            return CannotJudgeError(f"{self.options.command!r} does not judge the case", why, fix, cannot_tell(why))
        return DoesNotFailError(f"the case does not fail under {self.options.command!r}", why, fix)

    def place(self) -> str:
        """Unknown."""
        return ""

    def find_hints(self) -> None:
        """A command names none."""
        self.must_be_prepared()

    def emit(self, candidate: Candidate | None, path: Path) -> Any:
        """Writes a candidate as a case folder; remembers its size, which the folder alone does not tell."""
        emitted = self.ask("emit", candidate, out=str(path))
        self._sizes[str(path)] = emitted["input_bytes"]
        return emitted["spec"]

    def _answer(self, reply: Reply) -> Answer:
        """The verdict of one run; its size is filled in later."""
        if reply.status == "lost":
            return Answer(Ruling.INFRA, detail="the fork server ended")
        if reply.status == "done":
            value: dict[str, Any] = reply.value or {}
            return Answer(Ruling.INVALID, detail=str(value.get("invalid", "")))
        if reply.status == "exception" and not _ended_itself(reply):
            return Answer(Ruling.INVALID, detail=reply.error.message if reply.error else "")
        code = reply.exit_code if reply.status == "exception" else None
        if code in CANNOT_RUN:
            tail = _last_line(reply.output)
            return Answer(Ruling.INFRA, detail=f"the command ended with {code}, {CANNOT_RUN[code]}: {tail}")
        if code == PASSES:
            return Answer(Ruling.PASS, detail=f"exit code {PASSES}, it printed: {_last_line(reply.output)}")
        if code == IGNORED:
            return Answer(Ruling.INVALID, detail=f"exit code {IGNORED}, it printed: {_last_line(reply.output)}")
        if reply.status in ("timeout", "memory"):
            kind = "hang" if reply.status == "timeout" else "memory"
            signature = Signature(
                kind, "command", raw=f"the limit was {self.asking.limit_s:g} s" if kind == "hang" else ""
            )
        else:
            signature = Signature("command", detail=ending(code, reply.signal), raw=reply.output.strip()[-1000:])
        same = self.signature is not None and self._same(signature, self.signature)
        verdict = Ruling.SAME if same else Ruling.TIMEOUT if signature.kind == "hang" else Ruling.OTHER
        text = f"the command: {signature.detail or signature.kind}"
        record = judged(signature, reason=text, detail=WHOLE).plain()
        return Answer(
            verdict, text, detail=_last_line(reply.output), failure=msgspec.to_builtins(signature), record=record
        )

    def _place(self) -> tuple[int, Path]:
        """The number of a query, and a fresh folder for its case."""
        with self._lock:
            self.output.mkdir(parents=True, exist_ok=True)
            number = next(number for number in count(1) if not (self.output / f"{number:04}.txt").exists())
            (self.output / f"{number:04}.txt").touch()
        folder = self.work.parent / "commands" / f"{number:04}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return number, folder.absolute()


def ending(code: int | None, name: str = "") -> str:
    """How a command ended, alike whether its shell or it itself was killed by a signal."""
    if code is not None and code > _SIGNALLED and code - _SIGNALLED in set(signal.Signals):
        name = signal.Signals(code - _SIGNALLED).name
    return f"signal {name}" if name else f"exit code {code}"


def _told(reply: Reply) -> str:
    ended = ending(reply.exit_code, reply.signal) if reply.status in ("exception", "signal") else reply.status
    return f"{ended} after {reply.seconds:.1f} s"


def _ended_itself(reply: Reply) -> bool:
    return reply.error is not None and reply.error.type == "ProcessExit" and reply.stage == "command"


def _last_line(output: str) -> str:
    lines = output.strip().splitlines()
    return lines[-1][:300] if lines else "nothing"


def _environment() -> dict[str, str]:
    """The user's variables, those left out that have no JSON form; what graphdbg finds of a candidate is of no interest
    later."""
    printable = {name: value for name, value in os.environ.items() if (name + value).isprintable() or value.isascii()}
    return printable | {KEPT_ELSEWHERE: "1"}
