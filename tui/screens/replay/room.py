"""Replay: the ladder of rungs as they end, the value of each node as it comes, bisect; all of them as jobs.

Also: the commands of Replay: the words of each as the options and ticked rungs make them, and the keys that start or
stop one.

Also: how a rung of the ladder and a node's value are painted as lines. Knows no widget and decides nothing.

The screen has the rungs above, the finding, and one of three views below; it knows which list has the keys. `jobs` has
what runs, `ReplayCommands` the words of each command.

"""

from __future__ import annotations

from collections.abc import Callable

from rich.cells import set_cell_size
from rich.text import Text
from textual import events, getters
from textual.app import ComposeResult
from textual.widgets import Static

from ....dumps.errors import NotReadyError
from ....dumps.tables import cut, plain
from ....dumps.wording import counted
from ....toolkit.node_values.seen import ValuesSeen
from ....toolkit.rungs import NAMES
from ....toolkit.triage.seen import RungCells
from ....toolkit.verdicts import verdict_words
from ...here import Here
from ...room import ViewsRoom
from ...settings import mark
from ...sheet import Ask
from ...widgets.rows import Parts, Rows
from ...widgets.texts import Lines, wrapped
from ...widgets.virtual_list import VirtualList
from .jobs import KINDS, Data, ReplayJobs, ReplaySlot, occupied

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
        return self.room.here.needed("a replay needs one")

    def facts(self) -> list[str]:
        """How many rungs are ticked, and the options."""
        facts = [f"{len(self.ticked)} of {len(NAMES)} rungs ticked", f"seed {self.seed}"]
        return [*facts, self.device or "device as recorded", *[f"import {self.imports}"] * bool(self.imports)]

    # -- the words of commands

    def _options(self) -> list[str]:
        words = ["--seed", str(self.seed)] if self.seed else []
        words += ["--device", self.device] if self.device else []
        return words + [word for name in self.imports.split() for word in ("--import", name)]

    def ladder_words(self) -> list[str]:
        """The words for the ticked rungs; with all ticked: until the first that fails."""
        chosen = [name for name in NAMES if name in self.ticked]
        if not chosen:
            fix = "press space to tick the rung under the cursor, or a to tick all"
            raise NotReadyError("no rung is ticked", "there is nothing to run", fix)
        some = [] if chosen == list(NAMES) else ["--rungs", ",".join(chosen), "--all"]
        return ["triage", self.graph, *some, *self._options()]

    def failing(self) -> str:
        """The rung to look into: the one under the cursor if it failed, else the first that failed, else inductor."""
        ladder, rung = self.room.jobs.ladder, self.room.rung
        return rung if ladder.cells(rung).failed else ladder.first_failing or "inductor"

    def values_words(self, rung: str) -> list[str]:
        """The words that read the values under a rung."""
        return ["replay", self.graph, "--values", "--rung", rung, *self._options()]

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
        self.room.jobs.start("values", [*self.values_words(self.room.rung), "--json-lines"])
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
            raise NotReadyError("nothing runs here", "", "press r to run the ticked rungs")
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


STYLES = {"": "", "ok": "green", "bad": "bold red", "doubt": "yellow", "running": "bold cyan", "dim": "dim"}
MARKS = {"": " ", "ok": "✓", "bad": "✗", "doubt": "?", "running": "▶", "dim": "-"}


_RUNG_NUMBERS = (("error", 8, 0), ("eager's", 8, 100), ("seconds", 8, 76), ("peak", 10, 110))
"""Title, width, and the width of the screen from which on a column is shown."""


def rung_head(width: int) -> str:
    """The titles over the rungs."""
    titles = [f"{title:>{wide}}" for title, wide, least in _RUNG_NUMBERS if width >= least]
    return "  ".join([f"     {'rung':<19}  {'verdict':<22}", *titles, "why"])


def rung_parts(cells: RungCells, *, ticked: bool, width: int) -> Parts:
    """The parts of a rung's line."""
    style = STYLES[cells.tone]
    numbers = zip((cells.error, cells.eager, cells.seconds, cells.peak), _RUNG_NUMBERS, strict=True)
    shown = [f"  {cell:>{wide}}" for cell, (_, wide, least) in numbers if width >= least]
    return [
        ("[x] " if ticked else "[ ] ", "bold" if ticked else "dim"),
        (f" {cells.rung:<19}  ", "bold" if ticked else ""),
        (f"{MARKS[cells.tone]} {cells.verdict:<20}", style),
        ("".join(shown) + "  ", ""),
        (plain(cells.said), "dim" if cells.tone in ("dim", "ok") else style),
    ]


_NUMBERS = (("min", 9, 0), ("max", 9, 0), ("NaN", 5, 0), ("Inf", 5, 90), ("error", 7, 0), ("eager's", 7, 76))
_LINE = 110
"""The width from which on the user's line is shown."""
SIGNS = {"FIRST BAD": "✗1", "bad": "✗ ", "NaN": "! "}


def _name_width(width: int) -> int:
    taken = 4 + (7 if width >= 76 else 0) + sum(wide + 2 for _, wide, least in _NUMBERS if width >= least)
    return max(10, min(40, width - taken - (36 if width >= _LINE else 0)))


def value_head(width: int) -> str:
    """The titles over the values."""
    titles = [f"{title:>{wide}}" for title, wide, least in _NUMBERS if width >= least]
    number = f"{'#':>6} " if width >= 76 else ""
    line = f"  {'line':<22}" if width >= _LINE else ""
    return f"   {number}" + "  ".join([set_cell_size("node", _name_width(width)), *titles]) + line


def value_parts(seen: ValuesSeen, place: int, width: int) -> Parts:
    """The parts of a node's line."""
    row, mark = seen.rows[place], seen.mark(place)
    *numbers, reason = seen.cells(place)
    style = "bold red" if mark in ("FIRST BAD", "bad") else "bold yellow" if mark else "" if seen.marked else "dim"
    name = set_cell_size(cut(plain(row.name), _name_width(width), "middle"), _name_width(width))
    number = f"{row.index:>6} " if width >= 76 else ""
    parts: Parts = [(f"{SIGNS.get(mark, ''):<3}{number}{name}", style)]
    if reason:
        return [*parts, (f"  ({plain(reason)})", "dim")]
    for cell, (title, wide, least) in zip(numbers, _NUMBERS, strict=True):
        if width >= least:
            parts.append((f"  {cell:>{wide}}", "bold yellow" if title in ("NaN", "Inf") and cell else style))
    if width >= _LINE:
        parts.append((f"  {plain(row.line)[-22:]:<22}", "dim"))
    parts.append((f"  ◀ {mark}" if mark else "", style))
    return parts


TITLES = {"values": "Values", "bisect": "Bisect", "triage": "Ladder"}


class ReplayRoom(ViewsRoom):
    """One graph under the rungs."""

    ROOM = "replay"
    AUTO_FOCUS = ""
    views = KINDS
    rungs = getters.query_one("#rungs", Rows)
    """The upper list."""
    nodes = getters.query_one("#values", Rows)
    """The list of values."""
    said = getters.query_one(Lines)

    DEFAULT_CSS = """
    ReplayRoom .replay-head { height: 1; color: $text-muted; text-style: bold; text-wrap: nowrap; }
    ReplayRoom #rungs { height: 11; }
    ReplayRoom #facts { height: 1; padding: 0 1; color: $text-muted; }
    ReplayRoom #finding { height: auto; min-height: 2; max-height: 5; padding: 0 1; background: $boost; }
    ReplayRoom #views { height: 1; background: $panel; text-wrap: nowrap; }
    ReplayRoom #said { height: 1fr; }
    ReplayRoom Rows > .rows--cursor { background: $primary 15%; text-style: none; }
    ReplayRoom Rows:focus > .rows--cursor { background: $primary 40%; text-style: bold; }
    ReplayRoom.alone #rungs, ReplayRoom.alone #rung-head { display: none; }
    """

    def __init__(self, here: Here) -> None:
        super().__init__(here)
        self.jobs = ReplayJobs(self)
        self.commands = ReplayCommands(self)
        self.parts = (self.commands,)
        self.busy = ""
        self.upper = True
        """Whether keys move in the rungs, not in the view below."""
        self.about = "triage"
        """The kind of job whose finding is shown: the one started last, or that of the list with the keys."""
        self.moved = self._chose = False
        """Whether a key moved the cursor of the values, and of the rungs."""
        self._width = 80

    def content(self) -> ComposeResult:
        """The rungs; findings and choices; the views."""
        yield Static(id="rung-head", classes="replay-head", markup=False)
        yield Rows(self._paint_rung, id="rungs")
        yield Static(id="facts", markup=False)
        yield Static(id="finding", markup=False)
        yield Static(id="views", markup=False)
        yield Static(id="value-head", classes="replay-head", markup=False)
        yield Rows(lambda index, width: value_parts(self.jobs.values, index, width), id="values")
        yield Lines(id="said")

    def on_mount(self) -> None:
        """Shows the rungs, and the last findings."""
        super().on_mount()
        self.rungs.show(len(NAMES), cursor=NAMES.index("inductor"))
        self.rungs.focus()
        self._fit()
        self.show()
        self.jobs.find_last()
        self.look_at_gpus()
        self.set_interval(1.0, lambda: self.home(self.show_state, doing="showing the state"))

    @property
    def rung(self) -> str:
        """The rung under the cursor."""
        return NAMES[self.rungs.cursor]

    @property
    def kind(self) -> str:
        """The subject of the lower view."""
        return KINDS[self.view]

    def look_at_gpus(self) -> None:
        """Shows which GPUs others use."""

        def seen(busy: str) -> None:
            self.busy = busy
            self.show_state()

        self.work(occupied, seen, group="gpu", doing="nvidia-smi")

    # -- painting

    def _paint_rung(self, index: int, width: int) -> Parts:
        name = NAMES[index]
        return rung_parts(self.jobs.ladder.cells(name), ticked=name in self.commands.ticked, width=width)

    def on_resize(self, event: events.Resize) -> None:
        """Shows fewer rungs on a low screen, fewer columns on a narrow one."""
        self._fit()

    def _fit(self) -> None:
        width, height = self.app.size
        self._width = width
        self.rungs.styles.height = max(3, min(len(NAMES), (height - 8) // 2))
        self.query_one("#rung-head", Static).update(rung_head(width))
        self.query_one("#value-head", Static).update(value_head(width))
        self._show_said()

    def equivalent(self) -> list[str]:
        """The command of the lower view where it has the keys, else of the ladder."""
        commands = self.commands
        if self.here.graph is None:
            return ["triage", "RUN/ID"]
        if self.kind == "bisect":
            return commands.bisect_words()
        if self.kind == "values" and not self.upper:
            return commands.values_words(self.jobs.values.rung or self.rung)
        return commands.ladder_words() if commands.ticked else ["triage", commands.graph]

    def state(self) -> str:
        """Whether something runs, or what the ladder found."""
        if self.jobs.running:
            return mark("runs")
        ladder = self.jobs.ladder
        return mark("bad") if ladder.first_failing else mark("ok") if ladder.end else ""

    def changed(self, kind: str, *, ended: bool = False) -> None:
        """Paints new output; at its end the cursor goes to the first bad node, unless a key has moved it."""
        if not self.is_mounted:
            return
        if kind == "triage":
            self.rungs.refresh()
            if ended and not self._chose and (failing := self.jobs.ladder.first_failing) in NAMES:
                self.rungs.move_to(NAMES.index(failing))  # v, B and m are about this one
        elif kind == "values":
            bad = self.jobs.values.first_bad if ended and not self.moved else None
            self.nodes.show(len(self.jobs.values.rows), cursor=bad)
        if kind == self.kind and kind != "values":
            self._show_said()
        self.show_state()
        if ended:
            self.refresh_bindings()

    def show(self, *, keep: bool = True) -> None:
        """Shows the view below."""
        values = self.kind == "values"
        self.query_one("#value-head").display = values
        self.nodes.display = values
        self.said.display = not values
        self._show_said(keep=keep)
        self.show_state()

    def show_state(self) -> None:
        """Shows the finding, what is chosen, and the state of each view."""
        facts = " · ".join([*self.commands.facts(), *([self.busy] if self.busy else [])])
        self.query_one("#finding", Static).update(Text(plain(self._finding())))
        self.query_one("#facts", Static).update(Text(plain(facts), no_wrap=True, overflow="ellipsis"))
        line = Text(no_wrap=True, end="")
        for kind in KINDS:
            title = " ".join(["", TITLES[kind], *self._state(kind), ""])
            line.append(title, "bold reverse" if kind == self.kind else "dim")
        self.query_one("#views", Static).update(line)

    def _state(self, kind: str) -> list[str]:
        rung = [f"of {self.jobs.values.rung}"] if kind == "values" and self.jobs.values.rung else []
        return [*rung, self.jobs.slots[kind].state()] if kind in self.jobs.slots else []

    def _finding(self) -> str:
        if "values" in self.jobs.slots and (self.about == "values" or "triage" not in self.jobs.slots):
            return self.jobs.values.sentence()
        if "triage" in self.jobs.slots:
            return self.jobs.ladder.sentence()
        return "r  run the ticked rungs    v  read values of the selected rung"

    def _show_said(self, *, keep: bool = True) -> None:
        lines = wrapped([Text(text) for text in self._said_lines()], self._width - 2)
        self.said.show(lines, keep=keep)

    def _said_lines(self) -> list[str]:
        slot = self.jobs.slots.get(self.kind)
        if slot is None:
            return [f"Nothing yet. {'B' if self.kind == 'bisect' else 'r'} starts it."]
        said = slot.said[-500:]
        if slot.kind == "triage":
            rungs = [cells for cells in map(self.jobs.ladder.cells, NAMES) if cells.verdict]
            said = [plain(f"{cells.rung}: {cells.verdict} {cells.said}") for cells in rungs] + slot.said[-20:]
        return [f"$ {slot.line}", *said, "", *self._conclusion(slot)]

    def _conclusion(self, slot: ReplaySlot) -> list[str]:
        said = [str(slot.document.get(key) or "") for key in ("sentence", "meaning")]
        record = slot.document
        if slot.kind == "triage":
            said, record = [self.jobs.ladder.sentence()], self.jobs.ladder.end
        lines = str(record.get("workaround") or "")
        around = [verdict_words.around(lines), *(f"    {plain(line)}" for line in lines.splitlines())] if lines else []
        go_on = [f"Next: {command}" for command in record.get("next") or ()]
        return [*(plain(text) for text in said if text), *around, *go_on] or [slot.state()]

    # -- which list has the keys

    def _use_lower(self) -> None:
        self.upper, self.about = False, self.kind
        if self.kind == "values":
            self.nodes.focus()
        self.show_state()

    @property
    def moving(self) -> VirtualList:
        """The list that has the keys."""
        return self.rungs if self.upper else self.nodes if self.kind == "values" else self.said

    def do_move(self, where: str) -> None:
        """Moves in the list; a key in the values keeps the cursor there."""
        self.moved = self.moved or self.moving is self.nodes
        self._chose = self._chose or self.moving is self.rungs
        super().do_move(where)

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """Handles the choice of a list by a click or tab."""
        if event.widget in (self.rungs, self.nodes):
            self.upper = event.widget is self.rungs

    def on_virtual_list_moved(self, message: VirtualList.Moved) -> None:
        """Handles a move of a cursor by a click or a key."""
        self.upper = message.rows is self.rungs
        if not self.upper:
            self.moved = True

    def on_screen_resume(self) -> None:
        """Gives the keys to a list when the screen comes back."""
        super().on_screen_resume()
        (self.rungs if self.upper or self.kind != "values" else self.nodes).focus()

    def can(self, action: str) -> bool:
        """Whether an action makes sense: stopping needs a running job, jumping a bad node."""
        if action == "replay.stop":
            return self.jobs.running
        if action == "replay.next_bad":
            return bool(self.jobs.values.bad or self._judged_bad())
        return True

    # -- actions

    def do_replay_open(self) -> None:
        """Opens what was said about a rung, or the node of a value in the graph."""
        if not self.upper and self.kind == "values" and self.jobs.values.rows:
            self.to_graph()
        elif "triage" in self.jobs.slots:
            self.to_view(KINDS.index("triage"))
        else:
            self.notify(f"r  run {counted(len(self.commands.ticked), 'ticked rung')}", timeout=3)

    def looked_at(self) -> Here:
        """The graph, and the node of the value under the cursor."""
        rows = self.jobs.values.rows
        return self.here.at(node=rows[self.nodes.cursor].name) if rows else self.here

    def to_graph(self) -> bool:
        """Shows the node under the cursor in the graph, with the values as columns; without values the node that was
        found."""
        rows = self.jobs.values.rows
        return self._to_node(rows[self.nodes.cursor].name if rows else self._found_node() or self.here.node)

    def _to_node(self, name: str | None) -> bool:
        if self.jobs.values.rows:
            self.workbench.values[self.commands.graph] = self.jobs.values
        self.workbench.go("graph", Here(run=self.here.run, graph=self.here.graph, node=name))
        return True

    def _judged_bad(self) -> list[Data]:
        """The failures that bisect and the ladder concluded."""
        documents = [self.jobs.slots["bisect"].document] if "bisect" in self.jobs.slots else []
        return [document for document in [*documents, self.jobs.ladder.end] if document.get("verdict") == "fails"]

    def _found_node(self) -> str:
        """The node that one of these failures names."""
        named = ((document.get("where") or {}).get("node") for document in self._judged_bad())
        return next((str(node) for node in named if node), "")

    async def do_replay_bad(self, step: int) -> None:
        """Goes to the next bad node, after the last to the first, or to the one before; without values to the bad node
        in the graph."""
        bad = self.jobs.values.bad
        if not bad and (node := self._found_node()):
            self._to_node(node)
            return
        if not bad and self._judged_bad():
            await self.workbench.perform_in("graph", "graph.bad")
            return
        if not bad:
            why = self.jobs.values.sentence() if self.jobs.values.rows else "no values were read"
            raise NotReadyError("no node is marked bad", why, "press v to read the values under a rung")
        at = self.nodes.cursor
        on = [place for place in bad if (place > at if step > 0 else place < at)]
        self.to_view(KINDS.index("values"))
        self._use_lower()
        self.nodes.move_to((on[0] if step > 0 else on[-1]) if on else (bad[0] if step > 0 else bad[-1]))

    def do_replay_switch(self) -> None:
        """Gives the keys to the other list."""
        if self.upper:
            self._use_lower()
        else:
            self.remove_class("alone")
            self.upper, self.about = True, "triage"
            self.rungs.focus()
            self.show_state()

    def do_replay_zoom(self) -> None:
        """Shows the lower view alone, or with the rungs."""
        self.toggle_class("alone")
        if self.has_class("alone"):
            self._use_lower()

    def do_replay_copy(self) -> None:
        """Copies the lower view as text."""
        if self.kind == "values":
            parts = [value_parts(self.jobs.values, place, 120) for place in range(len(self.jobs.values.rows))]
            rows = ["".join(text for text, _ in line) for line in parts]
            lines = [value_head(120), *rows, "", self.jobs.values.sentence()]
        else:
            lines = self._said_lines()
        self.workbench.copy("\n".join(lines) + "\n", self.kind)

    async def on_virtual_list_opened(self, message: VirtualList.Opened) -> None:
        """Ticks a rung or opens a node on a double click."""
        self.upper = message.rows is self.rungs
        await self.perform("replay.tick" if self.upper else "replay.open")
