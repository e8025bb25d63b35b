"""The minifier's journal: one fsynced JSON line per query, so that nothing asked once is asked again after a kill.

The first line names what the answers depend on (graph, check, rung, torch, seed, signature version). A journal of
something else is refused. Resuming is a replay: the search starts over, and every answer that the journal has is taken
from it.

>>> from graphdbg.minifier.engine import Answer, Ruling
>>> journal = Journal(Path("journal.jsonl"), header={"graph": "c0ffee", "torch": "2.13.0"})
>>> journal.write("0-2", 0, Answer(Ruling.SAME, nodes=5))
>>> Journal(Path("journal.jsonl"), header={"graph": "c0ffee", "torch": "2.13.0"}, resume=True).recall("0-2", 0).nodes
5
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Lock
from typing import IO, Any

import msgspec

from ..dumps import opening
from ..dumps.errors import UnreadableError, UsageError
from .search.problem import Answer, Ruling

JOURNAL_FILE = "journal.jsonl"
FORMAT = 1

_LONGEST = 1 << 20


class Journal:
    """Append-only record of answers, keyed by the candidate's text and the number of the repetition.

    `header`: what the answers depend on; a journal with another one is refused. `about`: what else is worth knowing in
    order to go on, such as the graph's path; it is not compared. Writing is safe from several threads.
    """

    def __init__(
        self, path: Path, header: Mapping[str, Any], *, about: Mapping[str, Any] | None = None, resume: bool = False
    ) -> None:
        """Opens `path`. With `resume` its answers are kept; otherwise an existing file is a UsageError."""
        self.path = path
        self._known: dict[tuple[str, int], Answer] = {}
        self.facts: dict[str, Any] = {}
        """What `note` has kept, now or in an earlier process: name -> value."""
        self._lock = Lock()
        whole = {"format": FORMAT, **header}
        if path.exists() and path.stat().st_size:
            if not resume:
                raise UsageError(
                    f"{path} exists", "another minification wrote it", "choose another -o, or pass --resume"
                )
            self._file = self._reopen(whole)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("ab")
            self._append({"header": whole, "about": dict(about or {})})

    def _reopen(self, header: dict[str, Any]) -> IO[bytes]:
        data = opening.read(self.path)
        lines = data.split(b"\n")
        tail = lines.pop()
        for number, line in enumerate(lines, 1):
            try:
                event = json.loads(line)
                if number == 1:
                    self._compare(event["header"], header)
                    continue
                if "note" in event:
                    self.facts[event["note"]] = event["value"]
                    continue
                self._known[event["case"], event["run"]] = msgspec.convert(event, Answer)
            except (ValueError, KeyError, TypeError) as error:
                what = f"cannot read {self.path}, line {number}"
                raise UnreadableError(what, str(error), "start anew with another -o") from error
        file = self.path.open("r+b")
        file.truncate(len(data) - len(tail))
        file.seek(0, os.SEEK_END)
        return file

    def _compare(self, found: dict[str, Any], wanted: dict[str, Any]) -> None:
        wanted = json.loads(json.dumps(wanted))
        for key in sorted({*found, *wanted}):
            if found.get(key) != wanted.get(key):
                raise UsageError(
                    f"cannot resume from {self.path}",
                    f"its {key} is {found.get(key)!r}, now it is {wanted.get(key)!r}",
                    "run it under the same conditions, or start anew with another -o",
                )

    def note(self, name: str, value: Any) -> None:
        """Keeps one more fact that the answers depend on and that is known only later."""
        self.facts[name] = value
        self._append({"note": name, "value": value})

    @property
    def known(self) -> int:
        """How many answers of earlier processes there are."""
        return len(self._known)

    def recall(self, case: str, run: int) -> Answer | None:
        """The answer of an earlier process to this very query, or None."""
        return self._known.get((case, run))

    def answer(self, case: str, run: int, ask: Callable[[], Answer]) -> tuple[Answer, bool]:
        """The answer to a query, on the disk where it is a new one and our own machinery did not fail; whether it was
        known."""
        known = self.recall(case, run)
        answer = known or ask()
        if known is None and answer.verdict is not Ruling.INFRA:
            self.write(case, run, answer)
        return answer, known is not None

    def has(self, case: str, run: int) -> bool:
        """Whether an earlier process wrote this answer."""
        return (case, run) in self._known

    def write(self, case: str, run: int, answer: Answer) -> None:
        """Appends one answer and waits until it is on the disk."""
        told = {name: value for name, value in answer.to_json().items() if value is not None}
        self._append({"case": case, "run": run, **told})

    def _append(self, event: dict[str, Any]) -> None:
        line = json.dumps(event, ensure_ascii=False).encode() + b"\n"
        with self._lock:
            self._file.write(line)
            self._file.flush()
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Closes the file; every line is on the disk already."""
        self._file.close()


def about(path: Path) -> dict[str, Any] | None:
    """What the first line of a journal says besides its header; None where there is no such journal or line."""
    try:
        with opening.opened(path) as file:
            return json.loads(file.readline(_LONGEST)).get("about")
    except (OSError, ValueError, AttributeError):
        return None
