"""Replay: the ladder of rungs as they end, the value of each node as it comes, bisect; everything as jobs.

What can be done on the screen, and the commands that do it; how it looks is `replay_view`, what runs `replay_jobs`.

>>> ReplayRoom(Here(run="myrun", graph="myrun/0_0/forward"))
"""

from __future__ import annotations

from collections.abc import Callable

from ...dumps.errors import UsageError
from ...dumps.wording import counted
from ...toolkit.rungs import NAMES
from ..here import Here
from ..sheet import Ask
from ..widgets.replay_lines import value_head, value_parts
from ..widgets.virtual_list import VirtualList
from .replay_jobs import KINDS
from .replay_view import ReplayView

Check = Callable[[str], str]


class ReplayRoom(ReplayView):
    """One graph under the rungs."""

    ROOM = "replay"

    # -- the words of commands

    def _options(self) -> list[str]:
        words = ["--seed", str(self.seed)] if self.seed else []
        words += ["--device", self.device] if self.device else []
        return words + [word for name in self.imports.split() for word in ("--import", name)]

    def ladder_words(self) -> list[str]:
        """The ticked rungs; all of them: until the first that fails."""
        chosen = [name for name in NAMES if name in self.ticked]
        if not chosen:
            raise UsageError("no rung is ticked", "there is nothing to run", "space ticks the one under the cursor, a all")
        some = [] if chosen == list(NAMES) else ["--rungs", ",".join(chosen), "--all"]
        return ["triage", self.graph, *some, *self._options()]

    def failing(self) -> str:
        """The rung to look into: the one under the cursor if it failed, else the first that did, else inductor."""
        return self.rung if self.ladder.cells(self.rung).failed else self.ladder.first_failing or "inductor"

    def equivalent(self) -> list[str]:
        """The words of `@`: of what the lower view shows where the keys are there, else of the ladder."""
        if self.here.graph is None:
            return ["triage", "RUN/ID"]
        if not self.upper or self.kind == "bisect":
            if self.kind == "values":
                return ["replay", self.graph, "--values", "--rung", self.values.rung or self.rung, *self._options()]
            if self.kind != "triage":
                return self.bisect_words()
        return self.ladder_words() if self.ticked else ["triage", self.graph]

    def bisect_words(self) -> list[str]:
        """Bisects under the failing rung."""
        return ["bisect", self.graph, "--rung", self.failing(), *self._options()]

    def can(self, action: str) -> bool:
        """Stopping needs something that runs, jumping something bad."""
        if action == "replay.stop":
            return any(slot.runs for slot in self.slots.values())
        if action == "replay.next_bad":
            return bool(self.values.bad)
        return True

    # -- actions: running

    def do_replay_open(self) -> None:
        """Of a rung what was said about it; of a value its node in the graph."""
        if not self.upper and self.kind == "values" and self.values.rows:
            self.to_graph()
        elif "triage" in self.slots:
            self.to_view(KINDS.index("triage"))
        else:
            self.notify(f"r  run {counted(len(self.ticked), 'ticked rung')}", timeout=3)

    def do_replay_run(self) -> None:
        """Runs the ticked rungs."""
        self.start("triage", [*self.ladder_words(), "--json-lines"])
        self.about = "triage"
        if "values" not in self.slots:
            self.to_view(KINDS.index("triage"))
        self._tell()
        self._look_at_gpus()

    def do_replay_values(self) -> None:
        """Reads the values under the rung of the cursor."""
        self._moved = False
        words = ["replay", self.graph, "--values", "--rung", self.rung, *self._options(), "--json-lines"]
        self.start("values", words)
        self.about = "values"
        self.to_view(KINDS.index("values"))
        self._look_at_gpus()

    def do_replay_bisect(self) -> None:
        """Names the node or the pass, under the failing rung."""
        self.start("bisect", [*self.bisect_words(), "--json"])
        self.to_view(KINDS.index("bisect"))

    def do_replay_stop(self) -> None:
        """Stops what the view shows, else whatever runs here."""
        if not any(self.stop(kind) for kind in (self.kind, "triage", *KINDS)):
            raise UsageError("nothing runs here", "", "r runs the ticked rungs")
        self._tell()

    def do_replay_minify(self) -> None:
        """The form of Minify for this graph; it proposes the failing rung."""
        self.workbench.go("minify", Here(run=self.here.run, graph=self.graph))

    # -- actions: choosing

    def do_replay_tick(self) -> None:
        """Ticks or unticks."""
        self.ticked ^= {self.rung}
        self.rungs.refresh()
        self._tell()

    def do_replay_tick_all(self) -> None:
        """All or none."""
        self.ticked = set() if self.ticked >= set(NAMES) else set(NAMES)
        self.rungs.refresh()
        self._tell()

    def _ask(self, name: str, title: str, hint: str, read: Callable[[str], object], check: Check = lambda text: "") -> None:
        def chosen(text: str | None) -> None:
            if text is not None:
                setattr(self, name, read(text))
            self._tell()

        self.app.push_screen(Ask(title, hint=hint, value=str(getattr(self, name)), check=check), chosen)

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

    # -- actions: looking

    def looked_at(self) -> Here:
        """The node is that of the value under the cursor."""
        return self.here.at(node=self.values.rows[self.nodes.cursor].name) if self.values.rows else self.here

    def to_graph(self) -> bool:
        """The node under the cursor in the graph, with the values as columns."""
        name = self.values.rows[self.nodes.cursor].name if self.values.rows else self.here.node
        if self.values.rows:
            self.workbench.values[self.graph] = self.values
        self.workbench.go("graph", Here(run=self.here.run, graph=self.graph, node=name))
        return True

    def do_replay_bad(self, step: int) -> None:
        """To the next bad node, the first one after the last; or to the one before."""
        bad = self.values.bad
        if not bad:
            why = self.values.sentence() if self.values.rows else "no values were read"
            raise UsageError("no node is marked bad", why, "v reads the values under a rung")
        at = self.nodes.cursor
        on = [place for place in bad if (place > at if step > 0 else place < at)]
        self.to_view(KINDS.index("values"))
        self._use_lower()
        self.nodes.move_to((on[0] if step > 0 else on[-1]) if on else (bad[0] if step > 0 else bad[-1]))

    def do_replay_switch(self) -> None:
        """The other list."""
        if self.upper:
            self._use_lower()
        else:
            self.remove_class("alone")
            self.upper, self.about = True, "triage"
            self.rungs.focus()
            self._tell()

    def do_replay_zoom(self) -> None:
        """The lower view alone, or with the rungs."""
        self.toggle_class("alone")
        if self.has_class("alone"):
            self._use_lower()

    def do_replay_copy(self) -> None:
        """The lower view as text."""
        if self.kind == "values":
            parts = [value_parts(self.values, place, 120) for place in range(len(self.values.rows))]
            lines = [value_head(120), *("".join(text for text, _ in line) for line in parts), "", self.values.sentence()]
        else:
            lines = self._said_lines()
        self.workbench.copy("\n".join(lines) + "\n", self.kind)

    async def on_virtual_list_opened(self, message: VirtualList.Opened) -> None:
        """A double click: ticks a rung, opens a node."""
        self.upper = message.rows is self.rungs
        await self.perform("replay.tick" if self.upper else "replay.open")
