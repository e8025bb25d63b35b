"""Replay: the ladder of rungs as they end, the value of each node as it comes, localize and bisect; everything as jobs.

The screen starts commands and paints what they print; what a line means is known below. It holds ticks, seed and device.

>>> ReplayRoom(Here(run="myrun", graph="myrun/0_0/forward"))
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text
from textual import events
from textual.widgets import Static

from ...dumps.errors import UsageError
from ...dumps.tables import plain
from ...toolkit.occupied import occupied
from ...toolkit.rungs.names import BUILT, NAMES
from ..here import Here
from ..sheet import Ask
from ..widgets.lines import Lines, wrapped
from ..widgets.replay_lines import rung_head, rung_parts, tabs, value_head, value_parts
from ..widgets.rows import Parts, Rows
from .replay_jobs import KINDS, ReplayJobs, Slot

if TYPE_CHECKING:
    from textual.app import ComposeResult

TITLES = {"values": "Values", "localize": "Localize", "bisect": "Bisect", "triage": "Ladder"}


class ReplayRoom(ReplayJobs):
    """One graph under the rungs."""

    ROOM = "replay"
    TITLE_WORDS = "replay"
    AUTO_FOCUS = ""

    DEFAULT_CSS = """
    ReplayRoom .replay-head { height: 1; color: $text-muted; text-style: bold; text-wrap: nowrap; }
    ReplayRoom #rungs { height: 11; }
    ReplayRoom #facts { height: 1; padding: 0 1; color: $text-muted; }
    ReplayRoom #finding { height: 2; padding: 0 1; background: $boost; }
    ReplayRoom.tall #finding { height: 3; }
    ReplayRoom #views { height: 1; background: $panel; text-wrap: nowrap; }
    ReplayRoom #said { height: 1fr; }
    ReplayRoom Rows > .rows--cursor { background: $primary 15%; text-style: none; }
    ReplayRoom Rows:focus > .rows--cursor { background: $primary 40%; text-style: bold; }
    ReplayRoom.alone #rungs, ReplayRoom.alone #rung-head { display: none; }
    """

    def __init__(self, here: Here) -> None:
        super().__init__(here)
        self.ticked = set(BUILT)
        self.seed, self.device, self.imports = 0, "", ""
        self.view = 0
        self.busy = ""
        self.upper = True
        """Whether keys move in the rungs, and not in the view below."""
        self.about = "triage"
        """Whose finding is told: what was started last, or has the keys."""
        self._moved = False
        self._width = 80

    def content(self) -> ComposeResult:
        """The rungs; what is found and chosen; the views."""
        yield Static(id="rung-head", classes="replay-head", markup=False)
        yield Rows(self._paint_rung, id="rungs")
        yield Static(id="facts", markup=False)
        yield Static(id="finding", markup=False)
        yield Static(id="views", markup=False)
        yield Static(id="value-head", classes="replay-head", markup=False)
        yield Rows(self._paint_value, id="values")
        lines = Lines(id="said")
        lines.can_focus = False
        yield lines

    def on_mount(self) -> None:
        """Shows the rungs, and what was found the last time."""
        super().on_mount()
        self.rungs.show(len(NAMES), cursor=NAMES.index("inductor"))
        self.rungs.focus()
        self._fit()
        self._show()
        self.find_last()
        self._look_at_gpus()
        self.set_interval(10.0, self._tell)

    @property
    def rungs(self) -> Rows:
        """The upper list."""
        return self.query_one("#rungs", Rows)

    @property
    def nodes(self) -> Rows:
        """The list of values."""
        return self.query_one("#values", Rows)

    @property
    def rung(self) -> str:
        """The rung under the cursor."""
        return NAMES[self.rungs.cursor]

    @property
    def kind(self) -> str:
        """What the lower view is about."""
        return KINDS[self.view]

    def _look_at_gpus(self) -> None:
        def seen(busy: str) -> None:
            self.busy = busy
            self._tell()

        self.work(occupied, seen, group="gpu", doing="nvidia-smi")

    # -- painting

    def _paint_rung(self, index: int, width: int) -> Parts:
        name = NAMES[index]
        return rung_parts(self.ladder.cells(name), ticked=name in self.ticked, width=width)

    def _paint_value(self, index: int, width: int) -> Parts:
        return value_parts(self.values, index, width)

    def on_resize(self, event: events.Resize) -> None:
        """Fewer rungs are seen on a low screen, fewer columns on a narrow one."""
        self._fit()

    def _fit(self) -> None:
        width, height = self.app.size
        self._width = width
        self.rungs.styles.height = max(3, min(len(NAMES), (height - 8) // 2))
        self.set_class(height >= 30, "tall")
        self.query_one("#rung-head", Static).update(rung_head(width))
        self.query_one("#value-head", Static).update(value_head(width))
        self._show_said()

    def changed(self, kind: str, *, ended: bool = False) -> None:
        """Paints what came; at its end the cursor goes to the first bad node, if no key has moved it."""
        if not self.is_mounted:
            return
        if kind == "triage":
            self.rungs.refresh_visible()
        elif kind == "values":
            bad = self.values.first_bad if ended and not self._moved else None
            self.nodes.show(len(self.values.rows), cursor=bad)
        if kind == self.kind and kind != "values":
            self._show_said()
        self._tell()
        if ended:
            self.refresh_bindings()

    def _show(self) -> None:
        values = self.kind == "values"
        self.query_one("#value-head").display = values
        self.nodes.display = values
        self.query_one("#said").display = not values
        self._show_said(keep=False)
        self._tell()

    def _tell(self) -> None:
        """The finding of what is looked at, what is chosen, and the state of each view."""
        chosen = [f"seed {self.seed}", self.device or "device as recorded", *([f"import {self.imports}"] if self.imports else [])]
        facts = " · ".join([f"{len(self.ticked)} of {len(NAMES)} rungs", *chosen, *([self.busy] if self.busy else [])])
        self.query_one("#finding", Static).update(Text(plain(self._finding())))
        self.query_one("#facts", Static).update(Text(plain(facts), no_wrap=True, overflow="ellipsis"))
        line = Text(no_wrap=True, end="")
        for text, style in tabs([(TITLES[kind], self._state(kind)) for kind in KINDS], self.view):
            line.append(text, style)
        self.query_one("#views", Static).update(line)

    def _state(self, kind: str) -> str:
        slot = self.slots.get(kind)
        if slot is None:
            return ""
        rung = f"of {self.values.rung} " if kind == "values" and self.values.rung else ""
        return rung + slot.state()

    def _finding(self) -> str:
        if self.about == "values" and "values" in self.slots:
            return self.values.sentence()
        if "triage" in self.slots:
            return self.ladder.sentence()
        if "values" in self.slots:
            return self.values.sentence()
        return "enter runs the ticked rungs; v reads the values under the one below the cursor"

    def _show_said(self, *, keep: bool = True) -> None:
        lines = wrapped([Text(text) for text in self._said_lines()], self._width - 2)
        self.query_one("#said", Lines).show(lines, keep=keep)

    def _said_lines(self) -> list[str]:
        slot = self.slots.get(self.kind)
        if slot is None:
            return [f"Nothing yet. {'L' if self.kind == 'localize' else 'B' if self.kind == 'bisect' else 'enter'} starts it."]
        told = [] if slot.kind == "triage" else slot.said[-500:]
        if slot.kind == "triage":
            rungs = [self.ladder.cells(name) for name in NAMES]
            told = [plain(f"{cells.rung}: {cells.verdict} {cells.said}") for cells in rungs if cells.verdict] + slot.said[-20:]
        return [f"$ {slot.line}", *told, "", *self._conclusion(slot)]

    def _conclusion(self, slot: Slot) -> list[str]:
        if slot.kind == "triage":
            found = [self.ladder.sentence(), str(self.ladder.end.get("next") or "")]
        else:
            found = [str(slot.document.get(key) or "") for key in ("sentence", "meaning", "next")]
        lines = [plain(found[0]), *(plain(text) for text in found[1:-1] if text)]
        lines += [f"Next: {found[-1]}"] * bool(found[-1])
        return [line for line in lines if line] or [slot.state()]

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
        some = [] if chosen == list(BUILT) else ["--rungs", ",".join(chosen), "--all"]
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
        if self.rung not in BUILT:
            raise UsageError(f"{self.rung} cannot run", "it is not built yet", "move to another rung")
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
        if self.rung not in BUILT:
            raise UsageError(f"{self.rung} cannot run", "it is not built yet")
        self.ticked ^= {self.rung}
        self.rungs.refresh_visible()
        self._tell()

    def do_replay_tick_all(self) -> None:
        """All or none."""
        self.ticked = set() if self.ticked >= set(BUILT) else set(BUILT)
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

    def _use_lower(self) -> None:
        self.upper, self.about = False, self.kind
        if self.kind == "values":
            self.nodes.focus()
        self._tell()

    def do_replay_next_view(self) -> None:
        """The next view."""
        self._to_view(KINDS[(self.view + 1) % len(KINDS)])

    def do_replay_previous_view(self) -> None:
        """The view before."""
        self._to_view(KINDS[(self.view - 1) % len(KINDS)])

    def _to_view(self, kind: str) -> None:
        self.view = KINDS.index(kind)
        self._show()

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

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """A click or tab chose a list."""
        if event.widget in (self.rungs, self.nodes):
            self.upper = event.widget is self.rungs

    def on_rows_moved(self, message: Rows.Moved) -> None:
        """A click or a key moved a cursor."""
        self.upper = message.rows is self.rungs
        if not self.upper:
            self._moved = True

    async def on_rows_opened(self, message: Rows.Opened) -> None:
        """A double click: ticks a rung, opens a node."""
        self.upper = message.rows is self.rungs
        await self.perform("replay.tick" if self.upper else "replay.graph")

    def on_screen_resume(self) -> None:
        """Back from another screen: a list has the keys."""
        super().on_screen_resume()
        (self.rungs if self.upper or self.kind != "values" else self.nodes).focus()
