"""Keys of the tabs of the graph screen: other tab, next kernel, partner, editor, picture. The tabs are a widget.

The tabs' `about()` reads and computes, in a thread.

For example:

    room.tab_keys.do_tabs_partner()      # to the node's partner; again: the next one, then back to where it began
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from ....dumps import atomic
from ....dumps.browse.near import HOPS
from ....dumps.browse.partner import Partner
from ....dumps.browse.sheet import Sheet, text
from ....dumps.errors import NoSuchNodeError, NotReadyError, ScreenError
from ....dumps.names import known_names
from ....dumps.walk import Frame
from ...jobs import Job
from ...outside import export, keep
from ...sheet import Choose

if TYPE_CHECKING:
    from .room import GraphRoom
    from .tabs.node_tabs import NodeTabs

LEAST_SPLIT = 20
"""The least per cent of the screen for the table and for its tabs."""
EXPORTS = {"s": ".svg, a picture that shows details under the mouse", "p": ".png", "t": ".txt, as it is drawn here"}


@dataclass
class _Round:
    """A node and its partners, which `p` goes round: (graph id, node) each, the node itself first."""

    run: Path
    places: list[tuple[str, str]]
    how_related: list[str]
    at: int


_rounds: WeakKeyDictionary[Any, _Round] = WeakKeyDictionary()
"""By app: the partners of a node lie in another graph, whose screen is another one."""


@dataclass
class GraphTabs:
    """The part of the graph screen that handles the tabs."""

    room: GraphRoom

    @property
    def side(self) -> NodeTabs:
        """The tabs; raises UsageError while the graph is being read."""
        if self.room.tabs is None:
            raise NotReadyError("the tabs are not there yet", "the graph is still being read", "press the key again")
        return self.room.tabs

    def _in_sight(self) -> NodeTabs:
        """The tabs, made visible where there is room for only one of both."""
        tabs = self.side
        if not self.room.query_one("#side").display:
            self.do_graph_zoom()
        return tabs

    def mount(self) -> None:
        """Puts the tabs beside the table, once it has been read."""
        from .tabs.node_tabs import NodeTabs  # late: the first paint does not need it

        room = self.room
        if room.tabs is None and room.saved is not None:
            tabs = room.tabs = NodeTabs(room.saved, room.view)
            room.query_one("#side").mount(tabs)
            room.remove_class("alone")
            room.rest()
            names = lambda: tabs.about.locked(lambda: known_names(tabs.about.recorded))  # noqa: E731
            room.work(names, self._take_known, group="known", doing="reading the names of inputs")

    def _take_known(self, names: dict[str, str]) -> None:
        self.room.needed().take_known(names)
        if self.room.needed().known:
            self.room.table.measure()
            self.room.marks.place()

    def do_graph_zoom(self) -> None:
        """Shows the tabs alone, the table alone, or both."""
        room = self.room
        steps = ("tabs", "") if room.has_class("low") else ("tabs", "table", "")
        now = next((step for step in steps if step and room.has_class(step)), "")
        following = steps[(steps.index(now) + 1) % len(steps)]
        for step in ("tabs", "table"):
            room.set_class(step == following, step)
        if following == "tabs" and room.tabs is not None:
            room.tabs.page.focus()
        else:
            room.table.focus()
        room.rest()

    def do_graph_split(self, by: int) -> None:
        """Gives the table more of the screen, or less; remembered."""
        room, settings = self.room, self.room.workbench.settings
        settings.split = max(LEAST_SPLIT, min(100 - LEAST_SPLIT, settings.split + by))
        room.remove_class("table")
        room.place()
        settings.save()

    def do_tabs_next(self) -> None:
        """Shows the next tab; where the tabs are hidden, shows them."""
        hidden = not self.room.query_one("#side").display
        tabs = self._in_sight()
        if not hidden:
            tabs.step(1)

    def do_tabs_previous(self) -> None:
        """Shows the tab before."""
        self._in_sight().step(-1)

    def do_tabs_more(self, step: int) -> None:
        """Shows the next frame or kernel, or the one before; one hop more or less."""
        self._in_sight().more(step)

    def do_tabs_scroll(self, by: int) -> None:
        """Scrolls the tab."""
        self.side.page.scroll_relative(y=by, animate=False)

    def do_tabs_across(self, by: int) -> None:
        """Scrolls the tab sideways."""
        self.side.page.scroll_relative(x=by, animate=False)

    @property
    def _run(self) -> Path | None:
        """The run, or the folder of a case."""
        if self.room.saved is None:
            return None
        return self.room.saved.run.path if self.room.saved.run is not None else self.room.saved.path

    # -- jumps

    def visit(self, graph: str, node: str) -> None:
        """Goes to a node of this graph, or of another one of the same run."""
        if graph and self.room.saved is not None and self.room.saved.run is not None and graph != self.room.saved.id:
            run = self.room.here.run or str(self.room.saved.run.path)
            self.room.workbench.go("graph", self.room.here.at(graph=f"{run}/{graph}", node=node))
            return
        place = self.room.needed().position(node)
        if place is None:
            raise NoSuchNodeError(f"there is no node {node!r} here", "it is not in the table of this graph")
        self.room.find.jump(place)

    def do_tabs_partner(self) -> None:
        """Goes to the partner; again: to the next one, and at last back to the beginning."""
        if self.room.saved is None or self.room.table.node < 0:
            return
        node, view = self.room.table.node, self.room.needed()
        here = self.room.saved.id, view.table.name[node]
        going = _rounds.get(self.room.workbench)
        if going is not None and going.run == self._run and going.places[going.at] == here:
            self._next_partner(going)
            return
        about = self.side.about
        find = lambda: about.locked(lambda: about.partners(node))  # noqa: E731
        self.room.work(find, lambda how: self._partners(here, *how), group="partner", doing="finding the partner")

    def _partners(self, here: tuple[str, str], partners: list[Partner], why: str) -> None:
        if not partners or self._run is None:
            self.room.notify(f"{here[1]} has no partner: {why}", markup=False, timeout=6)
            return
        places = [here, *((partner.graph, partner.name) for partner in partners)]
        how_related = ["where it began", *(partner.how for partner in partners)]
        going = _rounds[self.room.workbench] = _Round(self._run, places, how_related, 0)
        self._next_partner(going)

    def _next_partner(self, going: _Round) -> None:
        going.at = (going.at + 1) % len(going.places)
        graph, node = going.places[going.at]
        number = f"partner {going.at}/{len(going.places) - 1} of {going.places[0][1]}: " if going.at else ""
        self.room.notify(f"{number}{node} in {graph}, {going.how_related[going.at]}", markup=False, timeout=4)
        self.visit(graph, node)

    # -- out of the workbench

    def do_tabs_editor(self) -> None:
        """Opens the file of the tab at its line; on other tabs the user's file."""
        tabs = self.side
        if tabs.sheet.language:
            stack = tabs.about.stack(tabs.node or 0) if tabs.tab == "source" else []
            self._open(tabs.sheet, stack, tabs.numbers["source"])
            return
        about, node = tabs.about, self.room.table.node
        find = lambda: about.locked(lambda: (about.source(node), about.stack(node)))  # noqa: E731
        self.room.work(find, lambda place: self._open(*place, 0), group="editor", doing="finding the line")

    def _open(self, sheet: Sheet, stack: list[Frame], number: int) -> None:
        line = sheet.first + sheet.top
        if not sheet.language:
            if not stack:
                fix = "move to a node that has a file:line; the tab Code opens the generated code"
                why = "no line of the user's code was recorded for this node"
                raise ScreenError("there is no file to open", why, fix)
            place = f"{stack[0].file}:{stack[0].line}"
            why = "the run keeps no copy of the file"
            raise ScreenError(f"{place} cannot be opened", why, "see the lines on the tab Source")
        whole = "\n".join(str(sheet_line) for sheet_line in sheet.lines) + "\n"
        original = Path(stack[number % len(stack)].file) if stack else None
        if original is not None and _same(original, whole):
            self.room.workbench.edit(original, line)
            return
        graph = self.room.saved.id if self.room.saved else "graph"
        path = keep(whole, original.name if original is not None else f"{graph}-output_code.py")
        self.room.notify(f"a copy, as it was recorded: {path}", markup=False, timeout=6)
        self.room.workbench.edit(path, line)

    def do_tabs_export(self) -> None:
        """Asks for the form of a picture, then draws it."""
        if self.room.table.node < 0 or self.room.saved is None:
            return
        name = self.room.needed().table.name[self.room.table.node]
        self.room.app.push_screen(Choose(f"The neighbourhood of {name} as a file:", EXPORTS), self._export)

    def _export(self, answer: str | None) -> None:
        if answer is None or self.room.saved is None or self.room.table.node < 0:
            return
        node, tabs = self.room.table.node, self.side
        name, hops = self.room.needed().table.name[node], tabs.numbers.get("near", HOPS)
        stem = f"graphdbg-{self.room.saved.id}-{name}".replace("/", "-").replace(":", "-")
        if answer == "t":
            write = lambda: export(text(tabs.about.sheet("near", node, hops)) + "\n", f"{stem}.txt", Path.cwd())  # noqa: E731
            self.room.work(write, self._written, doing="export")
            return
        path = free_path(stem, EXPORTS[answer].partition(",")[0])
        words = ["draw", self.room.here.graph or "", "--around", name, "--hops", str(hops), "-o", str(path)]
        self.room.notify(f"drawing {path.name} …", markup=False, timeout=3)
        self.room.run_job(words, lambda job, code: self._drawn(job, path, code), doing="export", passing=True)

    def _drawn(self, job: Job, path: Path, code: int) -> None:
        if code == 0 and path.exists():
            self._written(path)
            return
        why = job.last_said(f"it ended with exit code {code}")
        error = ScreenError(f"{path.name} was not drawn", why, f"run it by hand: {job.line}")
        self.room.trouble(error, doing="export", said=job.said)

    def _written(self, path: Path) -> None:
        self.room.notify(f"written: {path}", markup=False, timeout=8)


def free_path(stem: str, suffix: str) -> Path:
    """A new name in the current folder; where that cannot be written, in the folder of copies."""
    from ...job_files import state_folder, writable

    folder = Path.cwd() if os.access(Path.cwd(), os.W_OK) else writable(state_folder() / "copies")
    return atomic.free_path(str(folder / stem), suffix)


def _same(path: Path, whole: str) -> bool:
    """Whether the file on this machine is the recorded one."""
    try:
        small = path.is_file() and path.stat().st_size < 1 << 22
        return small and path.read_text(encoding="utf-8", errors="replace") == whole
    except (OSError, ValueError):
        return False
