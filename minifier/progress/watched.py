"""A minification's folder as it stands and as it goes on: its log read bit by bit. No torch.

Reading changes nothing in OUT and never waits; a missing folder or process is reported as `state`. Must not steer or
start anything.

For example:

    watched = Watched(Path("small"))
    watched.read()  # -> True
    watched.story.best, watched.state  # -> ((3, 4), 'ended')
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ...dumps import opening
from ...dumps.lines import BITE_BYTES, Tail, objects
from ...dumps.process import Liveness, ProcessRecord
from ..events import EVENTS_FILE
from ..log import at_work, live_file
from ..results import WORK
from ..steering import CONTROL_FILE, no_minification
from ..story import Story

State = Literal["starting", "running", "ended", "dead", "elsewhere", "unknown", "gone"]
"""dead: its process is gone and did not say how it ended; elsewhere: on another host, to be watched only; unknown: an
old OUT that names no process; gone: the folder is not there any more."""


@dataclass(frozen=True)
class Bite:
    """What one look at OUT found. `there`: the folder exists; `fresh`: the log is another file than before, or was read
    from its start; `more`: there is more to read."""

    there: bool
    fresh: bool = False
    more: bool = False
    lines: tuple[dict[str, Any], ...] = ()
    damage: int = 0
    wishes: tuple[dict[str, Any], ...] = ()
    process: ProcessRecord | None = None
    alive: Liveness = "dead"
    finished: bool = False
    """Whether OUT/case is there."""


class Watched:
    """One OUT that is followed. Everything that is known is in `story`.

    `look` may be called in a thread, one at a time; `take` where the story is shown.
    """

    def __init__(self, out: Path) -> None:
        self.out = out
        self.story = Story(out=str(out))
        self.state: State = "starting"
        self.damage = 0
        """Whole lines that are no JSON objects."""
        self.wishes: dict[str, str] = {}
        """Orders that `graphdbg steer` gave, whoever ran it, and that are not carried out yet: id -> words."""
        self._open()

    def read(self) -> bool:
        """Looks at OUT and takes in what came; returns whether anything did. Call it again at once where `more`."""
        return self.take(self.look())

    def look(self) -> Bite:
        """Reads a bite of what came since the last look. Waits for nothing but the disk."""
        if not self.out.is_dir():
            self._open()
            return Bite(there=False)
        (lines, damage), (wishes, _) = _read(self._events), _read(self._control)
        alive, process = at_work(self.out)
        came = (self._events.fresh, self._events.more, tuple(lines), damage, tuple(wishes))
        return Bite(True, *came, process, alive, (self.out / "case").is_dir())

    def take(self, bite: Bite) -> bool:
        """Takes in what `look` found; returns whether anything is new."""
        before = self.state
        if not bite.there:
            self.state = "gone" if self.state != "starting" else "starting"
            return self.state != before
        if bite.fresh:
            self.story = Story(out=str(self.out))
        self.damage += bite.damage
        for line in bite.lines:
            self.story.take(line)
        self.wishes.update({str(wish.get("id", "")): _wish_words(wish) for wish in bite.wishes})
        for name in [name for name in self.wishes if name in self.story.steers]:
            del self.wishes[name]
        self.state = self._state(bite)
        return bool(bite.lines or bite.wishes) or self.state != before

    def output(self) -> tuple[str, list[str]]:
        """The stage of the query that runs, and the last lines that it printed. Waits for nothing but the disk."""
        flight = self.story.flight()
        if flight is None or self.state != "running":
            return "", []
        try:
            stage, *lines = opening.read_text(live_file(self.out / WORK, flight.case)).splitlines() or [""]
        except OSError:
            return "", []
        return stage, lines

    def _open(self) -> None:
        """Opens log and orders, to read them from the start."""
        self._events = Tail(self.out / EVENTS_FILE, bite=BITE_BYTES)
        self._control = Tail(self.out / CONTROL_FILE, bite=BITE_BYTES)

    def _state(self, bite: Bite) -> State:
        ended = self.story.done is not None or bool(self.story.ended)
        if bite.process is None:
            return "ended" if ended or bite.finished else "unknown" if self.story.queries else "starting"
        if not self.story.queries and not self.story.began and bite.alive == "alive":
            return "starting"
        states: dict[str, State] = {"ended": "ended", "alive": "running", "dead": "dead", "unknown": "elsewhere"}
        return "ended" if ended else states[bite.alive]


def _read(tail: Tail) -> tuple[list[dict[str, Any]], int]:
    """The objects that came, and how many lines were no objects."""
    try:
        whole = [line for line in tail.read() if line]
    except OSError:
        return [], 0
    fields = list(objects(whole))
    return fields, len(whole) - len(fields)


def _wish_words(wish: dict[str, Any]) -> str:
    words = (wish.get("what"), wish.get("step"), wish.get("number"))
    return " ".join(str(word) for word in words if word not in (None, ""))


def watched(out: str | Path) -> Watched:
    """Begins to follow a folder, and reads one bite of its log. Raises UsageError where it holds no minification."""
    path = Path(out)
    if not (path / EVENTS_FILE).is_file():
        raise no_minification(path)
    seen = Watched(path)
    seen.read()
    return seen
