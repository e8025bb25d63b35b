"""How Replay looks: the rungs above, the finding, one of three views below; which list has the keys. Starts nothing.

What a line means is known below; the jobs are those of `replay_jobs`.

>>> ReplayRoom(Here(run="myrun", graph="myrun/0_0/forward"))
"""

from __future__ import annotations

from rich.text import Text
from textual import events, getters
from textual.app import ComposeResult
from textual.widgets import Static

from ...dumps.tables import plain
from ...toolkit.occupied import occupied
from ...toolkit.rungs import NAMES
from ..here import Here
from ..widgets.lines import Lines, wrapped
from ..widgets.replay_lines import rung_head, rung_parts, value_head, value_parts
from ..widgets.rows import Parts, Rows
from ..widgets.virtual_list import VirtualList
from .replay_jobs import KINDS, ReplayJobs, Slot

TITLES = {"values": "Values", "bisect": "Bisect", "triage": "Ladder"}


class ReplayView(ReplayJobs):
    """One graph under the rungs, as it is seen."""

    AUTO_FOCUS = ""
    views = KINDS
    rungs = getters.query_one("#rungs", Rows)
    """The upper list."""
    nodes = getters.query_one("#values", Rows)
    """The list of values."""
    said = getters.query_one(Lines)

    DEFAULT_CSS = """
    ReplayView .replay-head { height: 1; color: $text-muted; text-style: bold; text-wrap: nowrap; }
    ReplayView #rungs { height: 11; }
    ReplayView #facts { height: 1; padding: 0 1; color: $text-muted; }
    ReplayView #finding { height: 2; padding: 0 1; background: $boost; }
    ReplayView.tall #finding { height: 3; }
    ReplayView #views { height: 1; background: $panel; text-wrap: nowrap; }
    ReplayView #said { height: 1fr; }
    ReplayView Rows > .rows--cursor { background: $primary 15%; text-style: none; }
    ReplayView Rows:focus > .rows--cursor { background: $primary 40%; text-style: bold; }
    ReplayView.alone #rungs, ReplayView.alone #rung-head { display: none; }
    """

    def __init__(self, here: Here) -> None:
        super().__init__(here)
        self.ticked = set(NAMES)
        self.seed, self.device, self.imports = 0, "", ""
        self.busy = ""
        self.upper = True
        """Whether keys move in the rungs, and not in the view below."""
        self.about = "triage"
        """Whose finding is told: what was started last, or has the keys."""
        self._moved = self._chose = False
        """Whether a key moved the cursor of the values, of the rungs."""
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
        yield Lines(id="said")

    def on_mount(self) -> None:
        """Shows the rungs, and what was found the last time."""
        super().on_mount()
        self.rungs.show(len(NAMES), cursor=NAMES.index("inductor"))
        self.rungs.focus()
        self._fit()
        self.show()
        self.find_last()
        self._look_at_gpus()
        self.set_interval(1.0, self._tell)

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
            self.rungs.refresh()
            if ended and not self._chose and (failing := self.ladder.first_failing) in NAMES:
                self.rungs.move_to(NAMES.index(failing))  # v, B and m are about this one
        elif kind == "values":
            bad = self.values.first_bad if ended and not self._moved else None
            self.nodes.show(len(self.values.rows), cursor=bad)
        if kind == self.kind and kind != "values":
            self._show_said()
        self._tell()
        if ended:
            self.refresh_bindings()

    def show(self, *, keep: bool = True) -> None:
        """Shows the view below."""
        values = self.kind == "values"
        self.query_one("#value-head").display = values
        self.nodes.display = values
        self.said.display = not values
        self._show_said(keep=keep)
        self._tell()

    def _tell(self) -> None:
        """The finding of what is looked at, what is chosen, and the state of each view."""
        chosen = [f"seed {self.seed}", self.device or "device as recorded", *([f"import {self.imports}"] if self.imports else [])]
        facts = " · ".join([f"{len(self.ticked)} of {len(NAMES)} rungs", *chosen, *([self.busy] if self.busy else [])])
        self.query_one("#finding", Static).update(Text(plain(self._finding())))
        self.query_one("#facts", Static).update(Text(plain(facts), no_wrap=True, overflow="ellipsis"))
        line = Text(no_wrap=True, end="")
        for kind in KINDS:
            line.append(" ".join(["", TITLES[kind], *self._state(kind), ""]), "bold reverse" if kind == self.kind else "dim")
        self.query_one("#views", Static).update(line)

    def _state(self, kind: str) -> list[str]:
        rung = [f"of {self.values.rung}"] if kind == "values" and self.values.rung else []
        return [*rung, self.slots[kind].state()] if kind in self.slots else []

    def _finding(self) -> str:
        if "values" in self.slots and (self.about == "values" or "triage" not in self.slots):
            return self.values.sentence()
        if "triage" in self.slots:
            return self.ladder.sentence()
        return "r  run the ticked rungs    v  read values of the selected rung"

    def _show_said(self, *, keep: bool = True) -> None:
        lines = wrapped([Text(text) for text in self._said_lines()], self._width - 2)
        self.said.show(lines, keep=keep)

    def _said_lines(self) -> list[str]:
        slot = self.slots.get(self.kind)
        if slot is None:
            return [f"Nothing yet. {'B' if self.kind == 'bisect' else 'r'} starts it."]
        told = [] if slot.kind == "triage" else slot.said[-500:]
        if slot.kind == "triage":
            rungs = [self.ladder.cells(name) for name in NAMES]
            told = [plain(f"{cells.rung}: {cells.verdict} {cells.said}") for cells in rungs if cells.verdict] + slot.said[-20:]
        return [f"$ {slot.line}", *told, "", *self._conclusion(slot)]

    def _conclusion(self, slot: Slot) -> list[str]:
        ladder = slot.kind == "triage"
        said = [self.ladder.sentence()] if ladder else [str(slot.document.get(key) or "") for key in ("sentence", "meaning")]
        record = self.ladder.end if ladder else slot.document
        around = [f"    {plain(line)}" for line in str(record.get("workaround") or "").splitlines()]
        around[:0] = ["Work-around, seen to work:"] if around else []
        go_on = [f"Next: {one}" for one in record.get("next") or ()]
        return [*(plain(text) for text in said if text), *around, *go_on] or [slot.state()]

    # -- which list has the keys

    def _use_lower(self) -> None:
        self.upper, self.about = False, self.kind
        if self.kind == "values":
            self.nodes.focus()
        self._tell()

    @property
    def moving(self) -> VirtualList:
        """The list that has the keys."""
        return self.rungs if self.upper else self.nodes if self.kind == "values" else self.said

    def do_move(self, where: str) -> None:
        """A key in the values holds the cursor there."""
        self._moved = self._moved or self.moving is self.nodes
        self._chose = self._chose or self.moving is self.rungs
        super().do_move(where)

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """A click or tab chose a list."""
        if event.widget in (self.rungs, self.nodes):
            self.upper = event.widget is self.rungs

    def on_virtual_list_moved(self, message: VirtualList.Moved) -> None:
        """A click or a key moved a cursor."""
        self.upper = message.rows is self.rungs
        if not self.upper:
            self._moved = True

    def on_screen_resume(self) -> None:
        """Back from another screen: a list has the keys."""
        super().on_screen_resume()
        (self.rungs if self.upper or self.kind != "values" else self.nodes).focus()
