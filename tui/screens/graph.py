"""The graph screen: node table, tabs of the node under the cursor, lines for filter and search. Reads the graph in slices.

What it shows is computed in `dumps/browse`; what each key does lies in `graph_rows.py`, `graph_folds.py`, `graph_find.py`.

>>> GraphRoom(Here(graph="myrun/0_0/forward"))
"""

from __future__ import annotations

import locale
from importlib import import_module, util
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from textual.containers import Container
from textual.widget import Widget

from ...dumps.browse.kernel_column import kernel_column
from ...dumps.browse.loading import has_sidecar, loading, sidecar_bytes
from ...dumps.browse.selection import Selection
from ...dumps.browse.table import GraphView
from ...dumps.query import resolve_graph
from ...dumps.store import SavedGraph
from ..here import Here
from ..widgets.graph_lines import Prompt, StatusLine
from ..widgets.node_table import NodeTable
from .graph_tabs import GraphTabs

if TYPE_CHECKING:
    from textual import events
    from textual.app import ComposeResult

REST_S = 0.04
"""The cursor rests so long before the tabs and the path follow it."""
TABS = "graphdbg.tui.widgets.tabs"
WIDE = 150
"""From so many columns on the tabs stand beside the table, else below it."""
LOW = 30
"""Below so many lines (or where it is narrow) there is place for one of them only."""
NARROW = 70


class _Early:
    """A graph that is read in a thread from when the screen is made, while textual still starts."""

    def __init__(self, name: str, saved: SavedGraph | None) -> None:
        self.name = name
        self.saved = saved
        self.data: bytes | None = None
        self.error: BaseException | None = None
        self.done = Event()
        Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        try:
            self.saved = self.saved or resolve_graph(self.name)
            if has_sidecar(self.saved):
                self.data = sidecar_bytes(self.saved)
            else:
                _ = self.saved.table
        except BaseException as error:  # noqa: BLE001 - raised again where it is shown
            self.error = error
        self.done.set()

    def wait(self) -> tuple[SavedGraph, bytes | None]:
        """What was read; raises what went wrong."""
        self.done.wait()
        if self.error is not None:
            raise self.error
        assert self.saved is not None
        return self.saved, self.data


class GraphRoom(GraphTabs):
    """The nodes of one graph."""

    ROOM = "graph"
    TITLE_WORDS = "graph"

    DEFAULT_CSS = """
    GraphRoom { layers: base front; }
    GraphRoom Prompt { layer: front; dock: bottom; }
    GraphRoom #both { height: 1fr; layout: vertical; }
    GraphRoom #rows { height: 1fr; width: 1fr; }
    GraphRoom #side { height: 40%; width: 1fr; }
    GraphRoom.wide #both { layout: horizontal; }
    GraphRoom.wide #side { width: 40%; height: 1fr; }
    GraphRoom.low #side { display: none; }
    GraphRoom.table #side { display: none; }
    GraphRoom.alone #side { display: none; }
    GraphRoom.tabs #rows { display: none; }
    GraphRoom.tabs #side { display: block; width: 1fr; height: 1fr; }
    """

    def __init__(self, here: Here, saved: SavedGraph | None = None) -> None:
        super().__init__(here)
        self.saved = saved
        self.tabs: Widget | None = None
        self._early = _Early(here.graph or "", saved)
        self._resting: Any = None
        self._seen: object = None
        """The values that were taken last."""

    # -- what a room says

    def content(self) -> ComposeResult:
        """Table and tabs, the line that says what is shown; what is typed lies over it and the keys, so that nothing moves."""
        with Container(id="both"):
            yield NodeTable(id="rows", ascii_only="utf" not in locale.getpreferredencoding(False).lower())
            yield Container(id="side")
        yield StatusLine(id="status")
        yield Prompt(id="prompt")

    def equivalent(self) -> list[str]:
        """`show` with the same rows and columns."""
        words = ["show", self.here.graph or ""]
        if self.filter_text:
            words += ["--filter", self.filter_text]
        if self.question.sort is not None:
            sort = self.question.sort
            words += ["--sort", f"{sort.key}:{'down' if sort.descending else 'up'}"]
        if self.chosen is not None:
            words += ["--columns", ",".join(column.key for column in self.chosen)]
        if self.depth is not None:
            words += ["--fold", str(self.depth)]
        if self.sought:
            words += ["--find", self.sought]
        return words

    def crumbs(self) -> list[str]:
        """The graph, the modules around the node, the node."""
        node = self._node
        if self.view is None or node < 0:
            return [self.here.graph or ""]
        return [self.here.graph or "", *self.view.levels(self.view.table.module[node])[-1:], self.view.table.name[node]]

    @property
    def _node(self) -> int:
        found = self.query(NodeTable)
        return found.first().node if found else -1

    def arrive(self, here: Here) -> None:
        """Shown again, perhaps for another node."""
        super().arrive(here)
        self._take_seen()
        if here.node and self.view is not None:
            place = self.view.position(here.node)
            if place is not None and place != self._node:
                self.jump(place)

    # -- reading

    def on_mount(self) -> None:
        """Reads the graph."""
        super().on_mount()
        self.add_class("alone")
        self._place(self.app.size.width, self.app.size.height)
        self.table.focus()
        self.status.show("reading ...")
        self.read()

    def read(self) -> None:
        """Reads the graph; its first rows are shown before all of it is read."""
        early = self._early
        if early.done.is_set() and early.error is None:
            self._take(early.wait())
        else:
            self.work(early.wait, self._take, group="reading", doing="reading the graph")

    def _take(self, found: tuple[SavedGraph, bytes | None]) -> None:
        self.saved, data = found
        self._early.data = None
        self.slices.run("reading", loading(self.saved, data), self._whole, self._unreadable, self._first_rows)

    def _first_rows(self, view: GraphView) -> None:
        self.view = view
        rows = Selection(view, self.question, range(len(view)), None)
        self.show_rows(rows, view.position(self.here.node) or 0 if self.here.node else 0)

    def _whole(self, view: GraphView) -> None:
        self.view = view
        self._again()
        self.prepare()
        self._mount_tabs()
        self._take_values()
        self.call_after_refresh(self.workbench.collector.loaded)
        saved = self.saved
        if saved is not None:
            self.work(lambda: kernel_column(saved, view), self.kernel_column, group="kernels", doing="reading the kernels")

    def _take_values(self) -> None:
        """What a replay read of this graph, where it is new."""
        seen = self.workbench.values.get(self.here.graph or "")
        if seen is not None and seen is not self._seen and self.view is not None and self.view.whole:
            self._seen = seen
            self.value_columns(seen)

    def on_screen_resume(self) -> None:
        """Back from another screen: the table has the keys, and there may be values."""
        super().on_screen_resume()
        if not self.prompt.is_open and not self.has_class("tabs"):
            self.table.focus()
        self._take_values()
        self._take_seen()

    def _take_seen(self) -> None:
        """The values that Replay read last of this graph, as columns."""
        seen = self.workbench.values.get(self.here.graph or "")
        if seen and self.view is not None:
            self.value_columns(seen)

    def _unreadable(self, error: BaseException) -> None:
        self.status.show("the graph cannot be read")
        self.trouble(error, doing="reading the graph", retry=self.read_again)

    def read_again(self) -> None:
        """Reads the graph anew: its files may have changed."""
        self._early = _Early(self.here.graph or "", None)
        self.read()

    def on_unmount(self) -> None:
        """Ends what is under way."""
        self.slices.stop()

    # -- the tabs

    def _mount_tabs(self) -> None:
        if self.tabs is not None or util.find_spec(TABS) is None:
            return
        made = getattr(import_module(TABS), "NodeTabs", None)
        if made is not None:
            tabs: Widget = made(self.saved, self.view)
            self.tabs = tabs
            self.query_one("#side").mount(tabs)
            self.remove_class("alone")
            self._rest()

    def on_node_table_moved(self, event: NodeTable.Moved) -> None:
        """The tabs and the path follow once the cursor rests."""
        if self._resting is not None:
            self._resting.stop()
        self._resting = self.set_timer(REST_S, self._rest)

    def _rest(self) -> None:
        node = self._node
        if self.view is None or node < 0:
            return
        self.here = self.here.at(node=self.view.table.name[node])
        self.tell_where()
        if self.tabs is not None and self.query_one("#side").display:
            self.tabs.show_node(node)  # type: ignore[attr-defined]

    def on_node_table_opened(self, event: NodeTable.Opened) -> None:
        """Clicked twice."""
        self.guarded(self.do_graph_open, doing="open")

    def do_graph_open(self) -> None:
        """Opens a folded module; of a node its detail."""
        if self.table.row < 0:
            self.do_graph_unfold()
        elif not self.query_one("#side").display:
            self.do_graph_zoom()

    def do_graph_zoom(self) -> None:
        """Tabs alone, table alone, both."""
        steps = ("tabs", "") if self.has_class("low") else ("tabs", "table", "")
        now = next((step for step in steps if step and self.has_class(step)), "")
        following = steps[(steps.index(now) + 1) % len(steps)]
        for step in ("tabs", "table"):
            self.set_class(step == following, step)
        if following == "tabs" and self.tabs is not None:
            self.tabs.query_one("#page").focus()
        else:
            self.table.focus()
        self._rest()

    # -- the rest

    def do_app_back(self) -> None:
        """Escape: what is typed, the tabs alone, then the filter; then as everywhere."""
        if self.prompt.is_open:
            self.leave_prompt()
        elif self.panel is not None and self.panel.shown:
            self.panel.hide()
        elif self.has_class("tabs"):
            self.remove_class("tabs")
            self.table.focus()
        elif self.filter_text:
            self.do_graph_clear()
        else:
            self.workbench.do_app_back()

    def on_resize(self, event: events.Resize) -> None:
        """Tabs beside or below the table, or away."""
        self._place(event.size.width, event.size.height)

    def _place(self, width: int, height: int) -> None:
        self.set_class(width >= WIDE, "wide")
        self.set_class(width < WIDE and (height < LOW or width < NARROW), "low")
