"""Replay: the ladder of rungs as they end, the value of each node as it comes, localize and bisect; everything as jobs.

What can be done on the screen, and the commands that do it; how it looks is `replay_view`, what runs `replay_jobs`.

>>> ReplayRoom(Here(run="myrun", graph="myrun/0_0/forward"))
"""

from __future__ import annotations

from ...dumps.errors import UsageError
from ...toolkit.rungs.names import NAMES
from ..here import Here
from ..sheet import Ask
from ..widgets.lines import Lines
from ..widgets.replay_lines import value_head, value_parts
from ..widgets.rows import Rows
from .replay_jobs import KINDS
from .replay_view import ReplayView


class ReplayRoom(ReplayView):
    """One graph under the rungs."""

    ROOM = "replay"
    TITLE_WORDS = "replay"

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
        if not self.upper or self.kind in ("localize", "bisect"):
            if self.kind == "values":
                return ["replay", self.graph, "--values", "--rung", self.values.rung or self.rung, *self._options()]
            if self.kind == "localize":
                return ["localize", self.graph, "--rung", self.failing(), *self._options()]
            if self.kind == "bisect":
                return ["bisect", self.graph, *self._options()]
        return self.ladder_words() if self.ticked else ["triage", self.graph]

    def can(self, action: str) -> bool:
        """Stopping needs something that runs, jumping something bad."""
        if action == "replay.stop":
            return any(slot.runs for slot in self.slots.values())
        if action in ("replay.next_bad", "replay.previous_bad"):
            return bool(self.values.bad)
        return True

    # -- actions: running

    def do_replay_run(self) -> None:
        """Runs the ladder; on a value opens its node."""
        if not self.upper and self.kind == "values" and self.values.rows:
            self.do_replay_graph()
            return
        self.start("triage", [*self.ladder_words(), "--json-lines"])
        self.about = "triage"
        self._tell()
        self._look_at_gpus()

    def do_replay_values(self) -> None:
        """Reads the values under the rung of the cursor."""
        self._moved = False
        words = ["replay", self.graph, "--values", "--rung", self.rung, *self._options(), "--json-lines"]
        self.start("values", words)
        self.about = "values"
        self._to_view("values")
        self._look_at_gpus()

    def do_replay_localize(self) -> None:
        """Localizes under the failing rung."""
        self.start("localize", ["localize", self.graph, "--rung", self.failing(), *self._options(), "--json"])
        self._to_view("localize")

    def do_replay_bisect(self) -> None:
        """Bisects Inductor."""
        self.start("bisect", ["bisect", self.graph, *self._options(), "--json"])
        self._to_view("bisect")

    def do_replay_stop(self) -> None:
        """Stops what the view shows, else whatever runs here."""
        if not any(self.stop(kind) for kind in (self.kind, "triage", *KINDS)):
            raise UsageError("nothing runs here", "", "enter starts the ladder")
        self._tell()

    def do_replay_minify(self) -> None:
        """The form of Minify for this graph; it proposes the failing rung."""
        from .minify import MinifyRoom

        self.workbench.go(MinifyRoom, Here(run=self.here.run, graph=self.graph))

    # -- actions: choosing

    def do_replay_tick(self) -> None:
        """Ticks or unticks."""
        self.ticked ^= {self.rung}
        self.rungs.refresh_visible()
        self._tell()

    def do_replay_tick_all(self) -> None:
        """All or none."""
        self.ticked = set() if self.ticked >= set(NAMES) else set(NAMES)
        self.rungs.refresh_visible()
        self._tell()

    def do_replay_seed(self) -> None:
        """Asks for the seed."""

        def check(text: str) -> str:
            return "" if text.lstrip("-").isdigit() else "a whole number"

        def chosen(text: str | None) -> None:
            self.seed = self.seed if text is None else int(text or 0)
            self._tell()

        self.app.push_screen(Ask("seed", hint="0", value=str(self.seed), check=check), chosen)

    def do_replay_device(self) -> None:
        """Asks for the device."""

        def chosen(text: str | None) -> None:
            self.device = self.device if text is None else text.strip()
            self._tell()

        self.app.push_screen(Ask("device", hint="cpu, cuda, cuda:1; empty: as recorded", value=self.device), chosen)

    def do_replay_imports(self) -> None:
        """Asks for modules."""

        def chosen(text: str | None) -> None:
            self.imports = self.imports if text is None else " ".join(text.replace(",", " ").split())
            self._tell()

        self.app.push_screen(Ask("import first", hint="modules that register custom ops", value=self.imports), chosen)

    # -- actions: looking

    def do_replay_graph(self) -> None:
        """The node in the graph, with the values as columns."""
        from .graph import GraphRoom

        name = self.values.rows[self.nodes.cursor].name if self.values.rows else self.here.node
        if self.values.rows:
            self.workbench.values[self.graph] = self.values.columns()
        self.workbench.go(GraphRoom, Here(run=self.here.run, graph=self.graph, node=name))

    def do_replay_next_bad(self) -> None:
        """To the next bad node, the first one after the last."""
        self._to_bad(1)

    def do_replay_previous_bad(self) -> None:
        """To the bad node before."""
        self._to_bad(-1)

    def _to_bad(self, step: int) -> None:
        bad = self.values.bad
        if not bad:
            why = self.values.sentence() if self.values.rows else "no values were read"
            raise UsageError("no node is marked bad", why, "v reads the values under the rung of the cursor")
        at = self.nodes.cursor
        on = [place for place in bad if (place > at if step > 0 else place < at)]
        self._to_view("values")
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

    def do_replay_next_view(self) -> None:
        """The next view."""
        self._to_view(KINDS[(self.view + 1) % len(KINDS)])

    def do_replay_previous_view(self) -> None:
        """The view before."""
        self._to_view(KINDS[(self.view - 1) % len(KINDS)])

    def do_replay_maximise(self) -> None:
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

    # -- actions: moving

    def _move(self, by: int, *, pages: bool = False) -> None:
        if self.upper:
            self.rungs.move(by * (self.rungs.page if pages else 1))
        elif self.kind == "values":
            self._moved = True
            self.nodes.move(by * (self.nodes.page if pages else 1))
        else:
            said = self.query_one("#said", Lines)
            said.move(by * (max(1, said.size.height - 1) if pages else 1))

    def do_replay_down(self) -> None:
        """One down."""
        self._move(1)

    def do_replay_up(self) -> None:
        """One up."""
        self._move(-1)

    def do_replay_page_down(self) -> None:
        """A page down."""
        self._move(1, pages=True)

    def do_replay_page_up(self) -> None:
        """A page up."""
        self._move(-1, pages=True)

    def do_replay_top(self) -> None:
        """To the top."""
        self._move(-1_000_000_000)

    def do_replay_end(self) -> None:
        """To the end."""
        self._move(1_000_000_000)

    async def on_rows_opened(self, message: Rows.Opened) -> None:
        """A double click: ticks a rung, opens a node."""
        self.upper = message.rows is self.rungs
        await self.perform("replay.tick" if self.upper else "replay.graph")
