"""The commands of Replay: the words of each as the options and ticked rungs make them, and the keys that start or stop
one.

For example:

    room.commands.do_replay_run()       # `graphdbg triage RUN/ID --json-lines`, as a job
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ....dumps.errors import NotReadyError
from ....toolkit.rungs import NAMES
from ...here import Here
from ...sheet import Ask
from .jobs import KINDS

if TYPE_CHECKING:
    from .room import ReplayRoom

Check = Callable[[str], str]


class ReplayCommands:
    """The part of Replay that chooses commands and their options."""

    def __init__(self, room: ReplayRoom) -> None:
        self.room = room
        self.ticked = set(NAMES)
        self.seed, self.device, self.imports = 0, "", ""

    @property
    def graph(self) -> str:
        """The graph that the screen is about. Raises UsageError where there is none."""
        if (graph := self.room.here.graph) is None:
            raise NotReadyError(
                "no graph is chosen", "a replay needs one", "press 1 for Home; enter on a graph picks it"
            )
        return graph

    def facts(self) -> list[str]:
        """How many rungs are ticked, and the options."""
        chosen = [
            f"seed {self.seed}",
            self.device or "device as recorded",
            *([f"import {self.imports}"] if self.imports else []),
        ]
        return [f"{len(self.ticked)} of {len(NAMES)} rungs ticked", *chosen]

    # -- the words of commands

    def _options(self) -> list[str]:
        words = ["--seed", str(self.seed)] if self.seed else []
        words += ["--device", self.device] if self.device else []
        return words + [word for name in self.imports.split() for word in ("--import", name)]

    def ladder_words(self) -> list[str]:
        """The words for the ticked rungs; with all ticked: until the first that fails."""
        chosen = [name for name in NAMES if name in self.ticked]
        if not chosen:
            raise NotReadyError(
                "no rung is ticked", "there is nothing to run", "space ticks the one under the cursor, a all"
            )
        some = [] if chosen == list(NAMES) else ["--rungs", ",".join(chosen), "--all"]
        return ["triage", self.graph, *some, *self._options()]

    def failing(self) -> str:
        """The rung to look into: the one under the cursor if it failed, else the first that failed, else inductor."""
        ladder, rung = self.room.jobs.ladder, self.room.rung
        return rung if ladder.cells(rung).failed else ladder.first_failing or "inductor"

    def of_what_is_seen(self) -> list[str]:
        """The words that `@` shows: of the lower view where it has the keys, else of the ladder."""
        if self.room.here.graph is None:
            return ["triage", "RUN/ID"]
        if not self.room.upper or self.room.kind == "bisect":
            if self.room.kind == "values":
                rung = self.room.jobs.values.rung or self.room.rung
                return ["replay", self.graph, "--values", "--rung", rung, *self._options()]
            if self.room.kind != "triage":
                return self.bisect_words()
        return self.ladder_words() if self.ticked else ["triage", self.graph]

    def bisect_words(self) -> list[str]:
        """The words that bisect under the failing rung."""
        return ["bisect", self.graph, "--rung", self.failing(), *self._options()]

    def do_replay_run(self) -> None:
        """Runs the ticked rungs."""
        self.room.jobs.start("triage", [*self.ladder_words(), "--json-lines"])
        self.room.about = "triage"
        if "values" not in self.room.jobs.slots:
            self.room.to_view(KINDS.index("triage"))
        self.room.show_state()
        self.room.look_at_gpus()

    def do_replay_values(self) -> None:
        """Reads the values under the rung of the cursor."""
        self.room.moved = False
        words = ["replay", self.graph, "--values", "--rung", self.room.rung, *self._options(), "--json-lines"]
        self.room.jobs.start("values", words)
        self.room.about = "values"
        self.room.to_view(KINDS.index("values"))
        self.room.look_at_gpus()

    def do_replay_bisect(self) -> None:
        """Bisects to the node or the pass, under the failing rung."""
        self.room.jobs.start("bisect", [*self.bisect_words(), "--json"])
        self.room.to_view(KINDS.index("bisect"))

    def do_replay_stop(self) -> None:
        """Stops the job of the view, else whatever runs here."""
        if not any(self.room.jobs.stop(kind) for kind in (self.room.kind, "triage", *KINDS)):
            raise NotReadyError("nothing runs here", "", "r runs the ticked rungs")
        self.room.show_state()

    def do_replay_minify(self) -> None:
        """Opens Minify's form for this graph with the failing rung."""
        self.room.workbench.go("minify", Here(run=self.room.here.run, graph=self.graph))

    # -- actions: choosing

    def do_replay_tick(self) -> None:
        """Ticks or unticks the rung under the cursor."""
        self.ticked ^= {self.room.rung}
        self.room.rungs.refresh()
        self.room.show_state()

    def do_replay_tick_all(self) -> None:
        """Ticks all rungs or none."""
        self.ticked = set() if self.ticked >= set(NAMES) else set(NAMES)
        self.room.rungs.refresh()
        self.room.show_state()

    def _ask(
        self, name: str, title: str, hint: str, read: Callable[[str], object], check: Check = lambda text: ""
    ) -> None:
        def chosen(text: str | None) -> None:
            if text is not None:
                setattr(self, name, read(text))
            self.room.show_state()

        self.room.app.push_screen(Ask(title, hint=hint, value=str(getattr(self, name)), check=check), chosen)

    def do_replay_seed(self) -> None:
        """Asks for the seed."""
        whole = lambda text: "" if text.lstrip("-").isdigit() else "a whole number"  # noqa: E731
        self._ask("seed", "seed", "0", lambda text: int(text or 0), whole)

    def do_replay_device(self) -> None:
        """Asks for the device."""
        self._ask("device", "device", "cpu, cuda, cuda:1; empty: as recorded", str.strip)

    def do_replay_imports(self) -> None:
        """Asks for modules."""
        hint = "modules that register custom ops"
        self._ask("imports", "import first", hint, lambda text: " ".join(text.replace(",", " ").split()))
